"""The page and the example, played."""

from pathlib import Path

from holdfast.testing import CallTools, Say
from tests.integrations.scripts import play_example, play_page

SCRIPT = [
    CallTools(
        ("stock", {"item": "lamp"}, "call_1"), ("order", {"item": "lamp", "count": 2}, "call_2")
    ),
    Say("Two lamps are ordered."),
]


def test_the_page(tmp_path: Path) -> None:
    assert play_page("mcp", tmp_path, []).count == 0


def test_the_example_killed_and_resumed(tmp_path: Path) -> None:
    # Killed behind the answer of the model, and when the order was done and nothing says so yet.
    said, server = play_example("mcp_client.py", tmp_path, SCRIPT, kills=["entry:1", "ended:2"])
    assert said.strip().endswith("Two lamps are ordered.")
    assert server.count == 2
    assert len((tmp_path / "orders.txt").read_text().splitlines()) == 1
