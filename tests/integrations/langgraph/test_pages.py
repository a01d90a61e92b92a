"""The page and the example."""

from pathlib import Path

import pytest

from holdfast.testing import CallTools, Say
from tests.integrations.scripts import play_example, play_page

ANSWER = Say("Order 42 is refunded.")
REFUND = ("refund", {"order": "42", "amount": 30}, "call_b")


def test_the_page(tmp_path: Path) -> None:
    script = [CallTools(("lookup_order", {"order": "42"}, "call_a"), REFUND), ANSWER]
    assert play_page("langgraph", tmp_path, script).count == 6


@pytest.mark.parametrize("kills", [["entry:3", "ended:1"], ["ended:3"]])
def test_the_example(tmp_path: Path, kills: list[str]) -> None:
    script = [CallTools(("find_order", {"order": "42"}, "call_a"), REFUND), ANSWER]
    said, server = play_example("langgraph_thread.py", tmp_path, script, kills=kills)
    assert said.endswith("Order 42 is refunded.\n")
    assert server.count <= 2 + len(kills)
