"""The page and the example of this integration, played."""

from pathlib import Path

from holdfast.testing import Say
from tests.integrations.scripts import play_example, play_page


def test_the_page(tmp_path: Path) -> None:
    assert play_page("http", tmp_path, [Say("Hello.")]).count == 1


def test_the_example_killed_and_resumed(tmp_path: Path) -> None:
    script = [Say("Lisbon"), Say("Bergen")]
    said, server = play_example("http_requests.py", tmp_path, script, kills=["ended:1", "entry:3"])
    assert said == "Lisbon\nBergen\n"
    # Killed behind the first answer and before it was recorded: that one was asked for again.
    assert server.count == 3
