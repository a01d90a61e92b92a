"""The script of the page about the plain loop, as it was and as it is durable."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.scripts import ROOT, play_example, run

EXAMPLES = ROOT / "examples" / "integrations"
BEFORE, AFTER = "support_agent_before.py", "support_agent_after.py"
LETTERS = [
    {"id": "m-2", "at": "2", "from": "bo@example.com", "text": "Where is order 1002?"},
    {"id": "m-1", "at": "1", "from": "al@example.com", "text": "Order 1001 is broken."},
    {"id": "m-3", "at": "3", "text": "Buy now!"},
]


def is_broken(request: Any) -> bool:
    return "broken" in request.body["messages"][1]["content"]


def first(request: Any) -> Any:
    if is_broken(request):
        return CallTools(
            ("find_order", {"order": "1001"}, "call_a"), ("stock", {"item": "lamp"}, "call_b")
        )
    return CallTools(("find_order", {"order": "9"}, "call_e"), ("stock", {"what": 1}, "call_f"))


def second(request: Any) -> Any:
    if is_broken(request):
        return CallTools(
            ("refund", {"order": "1001", "amount": 30}, "call_c"),
            ("note", {"order": "1001", "text": "broken"}, "call_d"),
        )
    return Say("It is on its way.")


SCRIPT = [first, second, Say("Your money is coming back.")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inbox.json").write_text(json.dumps(LETTERS))
    return tmp_path


def check(folder: Path, output: str, server: FakeModelServer) -> None:
    assert "2 letters answered" in output, output
    assert (folder / "bank.txt").read_text() == "1001 30\n"
    sent = [json.loads(line) for line in (folder / "outbox.jsonl").read_text().splitlines()]
    assert [(it["about"], it["text"]) for it in sent] == [
        ("m-1", "Your money is coming back."),
        ("m-2", "It is on its way."),
    ]
    assert server.problems == []


def test_the_script_as_it_was_does_its_work(folder: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        done = run([str(EXAMPLES / BEFORE)], folder, server)
        assert done.returncode == 0, done.stderr
        check(folder, done.stdout, server)
        assert server.count == 5


def test_the_durable_script_undisturbed_and_again(folder: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        outputs = []
        for _ in range(2):  # The second time all is recorded: nobody is asked.
            done = run([str(EXAMPLES / AFTER)], folder, server)
            assert done.returncode == 0, done.stderr
            check(folder, done.stdout, server)
            outputs.append(done.stdout)
        assert outputs[0] == outputs[1]
        assert server.count == 5


@pytest.mark.parametrize(
    "kills",
    [
        ["entry:4", "ended:2", "entry:9"],  # Again and again, at other places.
        ["ended:4"],  # The refund is paid, and nothing says so.
        ["ended:6"],  # The reply is sent, and nothing says so.
        ["entry:15"],  # In the second letter.
    ],
)
def test_the_durable_script_killed(folder: Path, kills: list[str]) -> None:
    output, server = play_example(AFTER, folder, SCRIPT, kills=kills)
    check(folder, output, server)
    assert server.count <= 5 + len(kills)


def test_the_page_shows_the_difference_of_the_two_files() -> None:
    lines = [(EXAMPLES / name).read_text().splitlines() for name in (BEFORE, AFTER)]
    shown = "\n".join(difflib.unified_diff(*lines, BEFORE, AFTER, lineterm="", n=2))
    page = (ROOT / "docs" / "integrations" / "README.md").read_text()
    assert f"```diff\n{shown}\n```" in page, shown
