"""The page and the example run as they stand."""

from pathlib import Path

import pytest

from holdfast.testing import CallTools, Say
from tests.integrations.scripts import play_example, play_page

SCRIPT = [
    CallTools(
        ("lookup_order", {"order": "42"}, "call_a"),
        ("refund", {"order": "42", "amount": 30}, "call_b"),
    ),
    Say("Order 42 is refunded."),
]


@pytest.mark.timeout(300)
def test_page(tmp_path: Path) -> None:
    assert play_page("pydantic_ai", tmp_path, SCRIPT).count == 2


@pytest.mark.timeout(600)
def test_example_is_killed_and_goes_on(tmp_path: Path) -> None:
    # The first answer is recorded, and a tool that has returned is not yet.
    printed, server = play_example("pydantic_agent.py", tmp_path, SCRIPT, kills=["ended:2"])
    assert printed.strip() == "Order 42 is refunded."
    assert server.count == 2
