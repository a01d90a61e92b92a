"""The page and the example."""

from pathlib import Path

import pytest

from holdfast.testing import CallTools, Say
from tests.integrations.scripts import play_example, play_page

SCRIPT = [
    CallTools(
        ("find_order", {"order": "42"}, "call_a"),
        ("refund", {"order": "42", "amount": 30}, "call_b"),
    ),
    Say("Order 42 is refunded."),
]


def test_the_page(tmp_path: Path) -> None:
    server = play_page("openai_anthropic", tmp_path, SCRIPT)
    assert server.count == 4


@pytest.mark.parametrize("kills", [["entry:3", "ended:2"], ["ended:3"]])
def test_the_example(tmp_path: Path, kills: list[str]) -> None:
    output, server = play_example("openai_chat.py", tmp_path, SCRIPT, kills=kills)
    assert output.endswith("Order 42 is refunded.\n")
    assert server.count <= 2 + len(kills)
