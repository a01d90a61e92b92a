"""What a person sees at a terminal of 80 x 24: top, tail, run, long output; and that the terminal is
as it was when they leave."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import ask, effect, flow, step
from holdfast._operator.cli import session
from holdfast._operator.cli.main import main
from holdfast._operator.cli.tables import cell, fitted
from holdfast._operator.cli.top_command import keys_in
from holdfast._stores.contract import Store
from holdfast.errors import RunCancelled, RunFailed, RunHeld
from tests.ops.journals import Journal
from tests.ops.terminal import CTRL_C, CTRL_Z, DOWN, ENTER, UP, Terminal

NASTY = "\x1b[2J\x1b]0;owned\x07\u202eexe"
ALTERNATE, NORMAL, SHOWN_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
go_on = threading.Event()


@step(name="tm.slow")
def slow(n: int) -> int:
    assert go_on.wait(60)
    return n


@effect(name="tm.charge")
def charge(amount: int) -> str:
    raise TimeoutError("the bank did not answer")


@flow(name="tm.research")
def research(n: int) -> int:
    return slow(n)


@flow(name="tm.pay")
def pay(amount: int) -> str:
    return charge(amount)


@flow(name="tm.asks")
def asks() -> str:
    return ask("Ship it?", name="ship", type=str)


@flow(name="tm.broken")
def broken() -> None:
    raise ValueError(NASTY)


@pytest.fixture
def fleet(url: str) -> Iterator[str]:
    """A worker with all its places in use, runs that wait for one, and runs that need a person."""
    go_on.clear()
    with holdfast.open(url) as opened:
        with pytest.raises(RunHeld):
            pay.run("pay-77", 12)
        with pytest.raises(RunFailed):
            broken.run(f"broken-{'x' * 60}")
        for n in range(15):
            research.submit(f"research-{n:02}", n)
        asking = asks.start("ship-9")
        with opened.worker(flows=[research], concurrency=3, name="night-shift"):
            yield url
            go_on.set()
        opened.cancel("ship-9", actor="test")
        with pytest.raises(RunCancelled):
            asking.result(timeout=30)


def fits(terminal: Terminal, columns: int = 80) -> None:
    """Nothing was wrapped, and nothing of others came through as it was."""
    assert all(len(line) <= columns for line in terminal.lines)
    assert not any(re.search(r"[\x00-\x1f\u202e]", line) for line in terminal.lines)


# -- top ---------------------------------------------------------------------------------------


def test_top_has_everything_important_on_one_screen(fleet: str) -> None:
    with Terminal.holdfast("--url", fleet, "top") as terminal:
        seen = terminal.until("research-02 ")
        fits(terminal)
        head, where, *_ = terminal.lines
        assert head.startswith("holdfast top  1 worker")
        assert "1 held  1 asking  1 failed" in head
        assert where.endswith("UTC")
        assert re.search(r"^night-shift +\S+ \d+ +\S+ \d/3 +all$", seen, re.M)
        assert re.search(r"^default +1[0-9] +0 +4 +1 +1 ", seen, re.M)
        runs = [line for line in terminal.lines if line.startswith(("! ", "  research"))]
        assert re.match(r"! pay-77 +held: in_doubt +tm.pay +tm.charge +\d", runs[0])
        assert re.match(r"! ship-9 +asks a person +tm.asks ", runs[1])
        assert re.match(r"! broken-x+… failed +tm.broken ", runs[2])
        assert re.search(r"^  RUN \(1 of 18\) +STATUS +FLOW +AT +CHANGED$", seen, re.M)
        assert terminal.lines[-1].startswith("↑↓ choose  Enter explain")
        terminal.press("q")
        assert terminal.ended() == 0
        assert terminal.is_as_before()


def test_keys_of_top(fleet: str) -> None:
    with Terminal.holdfast("--url", fleet, "top") as terminal:
        terminal.until("pay-77")
        terminal.press(ENTER)
        seen = terminal.until("Whether tm.charge happened")
        assert "Run pay-77 of flow tm.pay is held" in seen
        assert "not_done_on=(TimeoutError,)" in seen
        terminal.press(DOWN)
        terminal.until("holdfast --url")
        fits(terminal)
        terminal.press("q" + DOWN + "j" + UP)
        terminal.until(lambda: "(2 of 18)" in terminal.text)
        terminal.press("h")
        terminal.until(
            lambda: "NEEDS A PERSON" in terminal.text and "research" not in terminal.text
        )
        terminal.press("?")
        assert "only runs that need a person; press again for all" in terminal.until("leave")
        fits(terminal)
        terminal.press("xh")
        terminal.until("(2 of 18)")
        terminal.press("G")
        terminal.until("(18 of 18)")
        terminal.press("\x1b[5~g")
        terminal.until("(1 of 18)")
        terminal.press("q")
        assert terminal.ended() == 0


def test_top_goes_along_with_the_terminal(fleet: str) -> None:
    with Terminal.holdfast("--url", fleet, "top") as terminal:
        terminal.until("research-00")
        terminal.resize(120, 40)
        terminal.until(lambda: terminal.lines[39].startswith("↑↓ choose"))
        terminal.until("broken-xxxxxxxxxxxxxxxxxxxxxxxxx")
        fits(terminal, 120)
        terminal.resize(60, 12)
        terminal.until(lambda: terminal.lines[0].startswith("holdfast top"))
        terminal.until(lambda: terminal.lines[11].startswith("↑↓ choose"))
        terminal.until("pay-77")
        fits(terminal, 60)
        terminal.press("q")
        assert terminal.ended() == 0


@pytest.mark.parametrize(
    ("how", "code"), [("ctrl-c", 130), ("SIGTERM", 143), ("SIGHUP", 129)], ids=str
)
def test_however_top_is_left_the_terminal_is_as_it_was(
    url: str, sqlite: Store, how: str, code: int
) -> None:
    with Terminal.holdfast("--url", url, "top") as terminal:
        terminal.until("No run is open")
        assert not terminal.is_as_before()
        if how == "ctrl-c":
            terminal.press(CTRL_C)
        else:
            terminal.process.send_signal(getattr(signal, how))
        assert terminal.ended() == code
        assert terminal.is_as_before()
        assert terminal.raw.count(ALTERNATE) == terminal.raw.count(NORMAL) == 1
        assert terminal.raw.rindex(SHOWN_CURSOR) > terminal.raw.rindex(b"\x1b[?25l")
        assert b"Traceback" not in terminal.raw


def test_top_can_be_stopped_for_a_while(url: str, sqlite: Store) -> None:
    shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
    with Terminal(shell, env={"PS1": "ready> ", "HOLDFAST_URL": url}) as terminal:
        terminal.until("ready>")
        terminal.press(f"{sys.executable} -m holdfast._operator.cli top\r")
        terminal.until("No run is open")
        terminal.press(CTRL_Z)
        terminal.until("Stopped")
        assert terminal.raw.count(ALTERNATE) == terminal.raw.count(NORMAL) == 1
        assert terminal.raw.rindex(SHOWN_CURSOR) > terminal.raw.rindex(b"\x1b[?25l")
        terminal.press("fg\r")
        terminal.until(lambda: terminal.raw.count(ALTERNATE) == 2)
        terminal.until("No run is open")
        terminal.press("q")
        terminal.until(lambda: terminal.raw.count(NORMAL) == 2)
        terminal.press("echo left with $?; exit\r")
        terminal.until("left with 0")


def test_top_where_there_is_no_terminal(fleet: str) -> None:
    def printed(*words: str) -> str:
        command = ["--url", fleet, "top", *words]
        done = CliRunner(env={"COLUMNS": None}).invoke(main, command, catch_exceptions=False)
        assert done.exit_code == 0
        return done.stdout

    for text in (printed(), printed("--once")):
        assert "\x1b" not in text
        assert re.search(r"^!  pay-77 +held: in_doubt", text, re.M)
        assert "1 worker alive" in text
    overview = json.loads(printed("--json"))["overview"]
    assert (overview["held"], overview["asking"], overview["failed"]) == (1, 1, 1)
    assert [shown["why"] for shown in overview["runs"][:3]] == ["held", "asks", "failed"]
    assert overview["workers"][0]["name"] == "night-shift"


def test_a_dumb_terminal_gets_it_once(url: str, sqlite: Store) -> None:
    with Terminal.holdfast("--url", url, "top", env={"TERM": "dumb"}) as terminal:
        assert terminal.ended() == 0
        assert b"\x1b" not in terminal.raw
        assert "No worker is alive" in terminal.text


def test_keys_are_told_apart() -> None:
    assert list(keys_in(b"\x1b[A\x1bOBjk\x1b[5~\x1b[H\r q\x1b[1;5Cx\x1b")) == [
        *("up", "down", "down", "up", "page up", "home", "enter", "page down", "q", "x", "back")
    ]


# -- tail --------------------------------------------------------------------------------------

FOLLOWED = """
import os, sys, time
from pathlib import Path
from holdfast import effect, flow, step, turns
import holdfast
@step(name="tm.turn")
def turn(n): return "thought %d" % n
@effect(name="tm.mail", on_doubt="retry")
def mail(n):
    if not Path("died").exists():
        Path("died").touch(); os.kill(os.getpid(), 9)
    return "sent"
@flow(name="tm.agent")
def agent(length):
    for state in turns({"n": 0}):
        turn(state["n"])
        while not Path("go").exists(): time.sleep(0.01)
        state["n"] += 1
        if state["n"] == length: break
    return mail(length)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "followed.py").write_text(FOLLOWED)
    return tmp_path


def test_a_run_is_followed_live_from_another_terminal(folder: Path, url: str) -> None:
    words = ("run", "followed.py:agent", "r", "--input", '{"length": 3}')
    with Terminal.holdfast("--url", url, *words, cwd=str(folder)) as runs:
        runs.until("Executing run r.")
        with Terminal.holdfast("--url", url, "history", "r", "--follow") as follows:
            follows.until("r  running  tm.agent")
            (folder / "go").touch()
            assert runs.ended() == 0
            assert follows.ended() == 0
            fits(follows)
            fits(runs)
            seen = follows.text
            for kind in ("state_saved", "step_started", "run_claimed", "run_completed"):
                assert kind in seen
            assert re.search(r"^ +\d+  \d\d:\d\d:\d\d\.\d{3}  step_in_doubt +tm.mail ", seen, re.M)
            assert re.search(r"^ +\d\d:\d\d:\d\d\.\d{3}  r  completed  tm.agent$", seen, re.M)
        # The process of the run was killed, and another went on.
        assert re.search(r"^! process \d+ .*another starts in", runs.text, re.M)
        assert "Completed: 4 steps, 1 restart." in runs.text
        assert 'Result: "sent"' in runs.text


def test_tail_in_lines_of_json_goes_on_at_a_cursor(url: str, sqlite: Store) -> None:
    Journal(sqlite, "r", flow="tm.j").step("a", NASTY).step("b").failing("c").failed("c")

    def tail(*words: str) -> tuple[int, list[dict]]:
        done = CliRunner().invoke(
            main, ["--url", url, "history", *words, "--follow"], catch_exceptions=False
        )
        return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()]

    code, lines = tail("r", "--json", "--after", "0")
    assert code == 4
    assert {line["version"] for line in lines} == {1}
    assert [line["event"] for line in lines[-2:]] == ["run", "end"]
    assert lines[-1] == {
        "version": 1,
        "command": "history",
        "event": "end",
        "run_id": "r",
        "status": "failed",
        "exit_code": 4,
    }
    entries = [line["entry"] for line in lines if line["event"] == "entry"]
    assert [entry["seq"] for entry in entries] == list(range(1, entries[-1]["seq"] + 1))
    assert entries[3]["body"]["result"] == NASTY
    code, rest = tail("r", "--json", "--after", "3")
    assert [line["entry"]["seq"] for line in rest if "entry" in line] == [
        entry["seq"] for entry in entries if entry["seq"] > 3
    ]
    assert tail("nothing", "--json")[0] == 6
    assert tail("--after", "3", "--json")[0] == 2


def test_tail_of_a_held_run_goes_on_and_ctrl_c_ends_it(url: str, sqlite: Store) -> None:
    Journal(sqlite, "r", flow="tm.k").held_in_doubt("charge")
    with Terminal.holdfast("--url", url, "history", "r", "--follow", "--until-held") as terminal:
        assert terminal.ended() == 3
    with Terminal.holdfast("--url", url, "history", "r", "--follow") as terminal:
        assert "What can be done: holdfast --url" in terminal.until("explain r")
        terminal.press(CTRL_C)
        assert terminal.ended() == 130
        assert "Traceback" not in terminal.text


def test_the_changes_of_all_runs(url: str, sqlite: Store) -> None:
    before = Journal(sqlite, "before", flow="tm.l").step("a")
    with Terminal.holdfast("--url", url, "runs", "--follow") as terminal:
        # It says nothing of what was there; so runs are written until the first is seen.
        number = 0
        while "run-" not in terminal.text:
            Journal(sqlite, f"run-{number}", flow="tm.l").step("a").completed()
            number += 1
            terminal.take()
            assert number < 5000
        before.step("b")
        terminal.until("before  running  tm.l  b")
        Journal(sqlite, "stuck", flow="tm.l").held_in_doubt("charge")
        terminal.until("stuck  held: in_doubt  tm.l")
        fits(terminal)
        terminal.press(CTRL_C)
        assert terminal.ended() == 130


# -- long output -------------------------------------------------------------------------------

PAGER = """
import os, sys
text = sys.stdin.read()
print("PAGED", len(text.splitlines()), "lines", "\\x1b" in text, os.environ.get("LESS"))
"""


@pytest.fixture
def pager(tmp_path: Path) -> str:
    (tmp_path / "pager.py").write_text(PAGER)
    return f"{sys.executable} {tmp_path / 'pager.py'}"


def test_long_output_is_paged_and_short_is_not(url: str, sqlite: Store, pager: str) -> None:
    journal = Journal(sqlite, "long", flow="tm.p")
    for n in range(40):
        journal.step(f"step{n}", NASTY)
    Journal(sqlite, "short", flow="tm.p").step("a")

    def printed(*words: str, **env: str) -> Terminal:
        with Terminal.holdfast("--url", url, *words, env=env) as terminal:
            assert terminal.ended() == 0
            return terminal

    seen = printed("history", "long", PAGER="false", HOLDFAST_PAGER=pager)
    assert "PAGED 83 lines False FRX" in seen.text  # Our colours are not for every pager.
    fits(seen)
    assert "PAGED" not in printed("history", "short", PAGER=pager).text
    for words, wanted in ((("--no-pager",), pager), ((), "no-such-pager-anywhere")):
        seen = printed("history", "long", *words, PAGER=wanted)
        assert "PAGED" not in seen.text
        assert seen.raw.count(b"step_completed") == 40
        assert "\\u001b[2J" in seen.text
        assert b"\x1b[2J" not in seen.raw
        fits(seen)


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, ["less", "-FRX"]),
        ({"PAGER": "more -s"}, ["more", "-s"]),
        ({"PAGER": "more", "HOLDFAST_PAGER": "most"}, ["most"]),
        ({"PAGER": "more", "HOLDFAST_PAGER": ""}, None),
        ({"PAGER": "cat"}, None),
        ({"PAGER": "'never closed"}, None),
    ],
)
def test_which_pager(environ: dict[str, str], wanted: list[str] | None) -> None:
    assert session.pager(environ) == wanted


def test_an_error_is_told_although_output_is_gathered(url: str, sqlite: Store) -> None:
    with Terminal.holdfast("--url", url, "show", "nothing", env={"PAGER": "false"}) as terminal:
        assert terminal.ended() == 6
        assert "nothing" in terminal.text


def test_without_colour(url: str, sqlite: Store) -> None:
    Journal(sqlite, "r", flow="tm.q").held_in_doubt("charge")
    for env in ({"TERM": "dumb"}, {"NO_COLOR": "1"}):
        with Terminal.holdfast("--url", url, "runs", env=env) as terminal:
            assert terminal.ended() == 0
            assert "held: in_doubt" in terminal.text
            assert not re.search(rb"\x1b\[[0-9;]*3[0-9]m", terminal.raw)


def test_narrow_tables_leave_out_what_matters_least(url: str, sqlite: Store) -> None:
    Journal(sqlite, "order-" + "7" * 34, flow="tm.checkout-of-orders").step("collect-the-payment")
    with Terminal.holdfast("--url", url, "runs") as terminal:
        assert terminal.ended() == 0
        assert terminal.lines[0].split() == ["RUN", "FLOW", "STATUS", "CHANGED"]
        assert terminal.lines[1].startswith("order-777")
        fits(terminal)

    rows = [[cell("a" * 10), cell("b" * 10), cell("c" * 10)]]
    for width, titles in ((None, "A B C"), (34, "A B C"), (33, "A C"), (16, "A C"), (5, "C")):
        made = fitted(("A", "B", "C"), rows, width, ("B", "A"))
        assert [column.header for column in made.columns] == titles.split()
