"""`holdfast run` and `holdfast demo` in real processes, with real signals.

What is only asked for its answer is forked from a process that has imported the command line; each
process that executes a flow is started anew, as are commands that are killed or interrupted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast._operator.cli.json_output import answer_type
from tests.ops.prompt import shared_prompt
from tests.tidy.source import ROOT

PATIENCE_S = 60


class Command:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = os.environ | {"PYTHONPATH": str(ROOT), "AGENT_FOLDER": str(folder)}
        self.env.pop("HOLDFAST_URL", None)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast._operator.cli", *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return shared_prompt().apart([*words], self.folder, self.env)

    def from_a_shell(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Start Python for it, as a shell would."""
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def json(self, *words: str) -> dict[str, Any]:
        return json.loads(self(*words, "--json").stdout)

    def executed(self) -> list[str]:
        log = self.folder / "executed.log"
        return log.read_text().split() if log.exists() else []


@pytest.fixture
def holdfast(tmp_path: Path) -> Command:
    return Command(tmp_path)


def until(fact: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_that_dies_is_followed_by_another(holdfast: Command):
    done = holdfast.from_a_shell("run", "tests.ops.agent:killed", "r", "--input", '{"n": 4}')
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("killed by SIGKILL") == 2
    assert "Result: 50" in done.stdout
    assert "2 restarts" in done.stdout
    assert holdfast.executed() == ["first", "deadly", "deadly", "deadly"]
    again = holdfast("run", "tests.ops.agent:killed", "r")
    assert again.returncode == 0
    assert "Result: 50" in again.stdout
    assert len(holdfast.executed()) == 4
    other = holdfast("run", "tests.ops.agent:fails", "r")
    assert other.returncode == 1
    assert "run 'r' exists already as a run of 'killed', not 'fails'" in other.stderr


def test_json_is_one_object_whatever_the_flow_prints(holdfast: Command):
    done = holdfast("run", "tests.ops.agent:killed", "r", "--input", "[4]", "--json")
    told = json.loads(done.stdout)
    assert (told["version"], told["restarts"], told["exit_code"]) == (1, 2, 0)
    assert told["run"]["result"] == 50
    assert "the flow prints" in done.stderr


def test_who_dies_again_and_again_is_quarantined(holdfast: Command):
    done = holdfast("run", "tests.ops.agent:poisoned", "r")
    assert done.returncode == 3, done.stderr
    assert "quarantined" in done.stdout
    assert "ended with exit code 17" in done.stderr
    assert holdfast.executed().count("first") == 1
    assert holdfast("run", "tests.ops.agent:poisoned", "r").returncode == 3


def test_a_failed_run_is_taken_up_by_the_same_command(holdfast: Command):
    done = holdfast("run", "tests.ops.agent:fails", "r")
    assert done.returncode == 4
    assert "gave up after attempt 2" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "Traceback" in done.stderr
    (holdfast.folder / "mended").touch()
    again = holdfast("run", "tests.ops.agent:fails", "r")
    assert again.returncode == 0, again.stderr
    assert holdfast.executed() == ["first", "broken", "broken", "broken"]
    run = holdfast.json("show", "r")["run"]
    assert (run["generation"], run["result"]) == (2, "mended")


def test_a_held_run_is_explained_settled_and_goes_on(holdfast: Command):
    done = holdfast("run", "tests.ops.agent:pays", "r", "--input", '{"order": "42"}')
    assert done.returncode == 3
    assert "holdfast settle r charge --not-done" in done.stdout
    assert holdfast("run", "tests.ops.agent:pays", "r").returncode == 3
    assert holdfast("settle", "r", "charge", "--done", '"paid"', "--actor", "kim").returncode == 0
    again = holdfast("run", "tests.ops.agent:pays", "r")
    assert again.returncode == 0, again.stderr
    assert 'Result: "paid"' in again.stdout
    assert holdfast.executed() == ["first", "charge"]


def test_a_doubt_that_is_settled_while_its_process_is_at_work(holdfast: Command):
    process = holdfast.start("run", "tests.ops.agent:pays_and_waits", "r")
    until((holdfast.folder / "inside").exists)
    step = "gather[0]/charge"

    def states() -> dict[str, str]:
        run = holdfast.json("show", "r")["run"]
        return {found["key"]: found["status"] for found in run["steps"]}

    until(lambda: states().get(step) == "in_doubt")
    settled = holdfast("settle", "r", step, "--done", '"paid"', "--actor", "kim")
    assert settled.returncode == 0
    assert "is handed to process" in settled.stdout
    (holdfast.folder / "let-go").touch()
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, out + err
    assert 'Result: ["paid",1]' in out
    assert holdfast.executed() == ["charge"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_releases_the_run(holdfast: Command, number: signal.Signals):
    process = holdfast.start("run", "tests.ops.agent:waits", "r")
    until((holdfast.folder / "inside").exists)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # As a terminal does.
    else:
        process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "released" in out
    assert holdfast.json("show", "r")["run"]["status"] == "queued"
    (holdfast.folder / "let-go").touch()
    assert holdfast("run", "tests.ops.agent:waits", "r").returncode == 0
    assert holdfast.executed() == ["first"]


def test_two_at_once(holdfast: Command):
    process = holdfast.start("run", "tests.ops.agent:waits", "r")
    until((holdfast.folder / "inside").exists)
    other = holdfast("run", "tests.ops.agent:waits", "r")
    assert other.returncode == 5, other
    assert "being executed by" in other.stderr
    told = holdfast("explain", "r")
    assert "being executed by" in told.stdout, told
    (holdfast.folder / "let-go").touch()
    assert process.wait(PATIENCE_S) == 0
    process.communicate()


def test_a_dead_supervisor_s_run_goes_on_at_once(holdfast: Command):
    process = holdfast.start("run", "tests.ops.agent:waits", "r")
    until((holdfast.folder / "inside").exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    until(lambda: "which has died" in " ".join(holdfast("explain", "r").stdout.split()))
    (holdfast.folder / "let-go").touch()
    assert holdfast("run", "tests.ops.agent:waits", "r").returncode == 0
    assert holdfast.executed() == ["first"]


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


SLOW = """
import asyncio, os
import holdfast
from holdfast import effect, flow, step
from tests.ops.agent import FOLDER, executed, long

def _at_work():
    (FOLDER / "pid").write_text(str(os.getpid()))
    long.__wrapped__(1)

@effect
def pay() -> str:
    executed("pay")
    _at_work()
    return "paid"

@step
def look() -> str:
    executed("look")
    _at_work()
    return "looked"

@step
def after(what: str) -> str:
    executed("after")
    return what

@flow
def slowly_pays() -> str:
    return after(pay())

@flow
def slowly_looks() -> str:
    return after(look())

@effect
async def pay_awaited() -> str:
    executed("pay")
    (FOLDER / "pid").write_text(str(os.getpid()))
    (FOLDER / "inside").touch()
    while not (FOLDER / "let-go").exists():
        await asyncio.sleep(0.01)
    return "paid"

@step
async def after_awaited(what: str) -> str:
    executed("after")
    return what

@flow
async def slowly_pays_awaited() -> str:
    return await after_awaited(await pay_awaited())

@flow
def slowly_waits() -> str:
    executed("waits")
    (FOLDER / "pid").write_text(str(os.getpid()))
    (FOLDER / "inside").touch()
    return after(holdfast.wait_for_signal("go"))
"""


@pytest.mark.parametrize("flow", ["pays", "pays_awaited", "looks", "waits"])
def test_a_process_whose_supervisor_was_killed_gives_its_run_back(holdfast: Command, flow: str):
    (holdfast.folder / "slow.py").write_text(SLOW)
    process = holdfast.start("run", f"slow:slowly_{flow}", "r")
    until((holdfast.folder / "inside").exists)
    child = int((holdfast.folder / "pid").read_text())
    process.kill()
    process.wait()
    if flow != "waits":
        # Nothing is interrupted: what is at work ends by itself.
        assert "being executed by" in holdfast("explain", "r").stdout
        (holdfast.folder / "let-go").touch()
    until(lambda: _gone(child))
    process.communicate()
    run = holdfast.json("show", "r")["run"]
    assert (run["status"], run["held_reason"]) == ("queued", None)
    assert "after" not in holdfast.executed()
    if flow == "waits":
        assert holdfast("signal", "r", "go", "now").returncode == 0
    again = holdfast("run", f"slow:slowly_{flow}", "r")
    assert again.returncode == 0, again.stderr
    if flow != "waits":
        assert len(holdfast.executed()) == 2  # What was at work was recorded, and `after`.


def test_input_becomes_what_the_flow_is_annotated_with(holdfast: Command):
    given = '{"order": {"number": 1, "name": "ab"}}'
    done = holdfast("run", "tests.ops.agent:typed", "r", "--input", given)
    assert done.returncode == 0, done.stderr
    assert 'Result: "abab"' in done.stdout
    assert holdfast("run", "tests.ops.agent:typed", "r").returncode == 0
    shown = holdfast.json("show", "r")["run"]
    assert shown["input"]["order"] == {"Order": {"number": 1, "name": "ab"}}
    wrong = holdfast("run", "tests.ops.agent:typed", "s", "--input", '{"order": 5}')
    assert wrong.returncode == 2
    assert "--input: order" in wrong.stderr


VERSIONS = """
import os
from holdfast import flow, step

@step
def prepare() -> str:
    return "prepared"

@step
def early() -> str:
    return "early"

@step
def publish(text: str) -> str:
    if not os.path.exists("ready"):
        raise ValueError("not ready")
    return text
"""
OLD = """
@flow
def report() -> str:
    return publish(prepare())
"""
NEW = """
@flow(version="2", accepts_versions=("1",))
def report() -> str:
    return publish(early())
"""


def test_a_newer_version_that_does_not_fit_ends_the_command(holdfast: Command):
    (holdfast.folder / "old.py").write_text(VERSIONS + OLD)
    (holdfast.folder / "new.py").write_text(VERSIONS + NEW)
    assert holdfast("run", "old:report", "r").returncode == 4
    assert holdfast("resume", "r").returncode == 0
    done = holdfast("run", "new:report", "r")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "run 'r' does not fit version 2, and was released" in done.stderr
    told = holdfast("run", "new:report", "r", "--json")
    assert told.returncode == 3
    answer = json.loads(told.stdout)
    assert answer["exit_code"] == 3
    assert "does not fit version 2" in answer["error"]["message"]
    assert (answer["run"]["status"], answer["restarts"]) == ("queued", 0)
    (holdfast.folder / "ready").touch()
    assert holdfast("run", "old:report", "r").returncode == 0


def test_a_fork_checks_its_input_against_a_module(holdfast: Command):
    given = '{"order": {"number": 1, "name": "ab"}}'
    assert holdfast("run", "tests.ops.agent:priced", "r", "--input", given).returncode == 0
    fork = ["fork", "r", "s", "--before", "first", "--app", "tests.ops.agent", "--json"]
    refused = holdfast(*fork, "--input", '{"order": {"number": "x", "name": "ab"}}')
    assert refused.returncode == 2, refused.stdout
    assert "--input: order" in json.loads(refused.stdout)["error"]["message"]
    made = holdfast(*fork, "--input", '{"order": {"number": 6, "name": "ab"}}')
    assert json.loads(made.stdout)["fork"]["input_checked"] is True
    assert holdfast("run", "tests.ops.agent:priced", "s").returncode == 0
    assert holdfast.json("show", "s")["run"]["result"] == 7


def test_a_flow_in_a_file(holdfast: Command):
    file = str(ROOT / "tests" / "ops" / "agent.py")
    assert holdfast("run", f"{file}:fails", "r").returncode == 4


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nope:flow", "r"], 2, "no module 'nope'"),
        (["nope.py:flow", "r"], 2, "no file nope.py"),
        (["tests.ops.agent", "r"], 2, "MODULE:FLOW"),
        (["tests.ops.agent:nope", "r"], 2, "has no 'nope'; its flows: "),
        (["tests.ops.test_text:nope", "r"], 2, "it has no flows"),
        (["tests.ops.agent:no_flow", "r"], 2, "no flow"),
        (["tests.ops.agent:killed", "r", "--input", "{"], 2, "--input takes JSON"),
        (["tests.ops.agent:killed", "r", "--input", "{bad"], 2, """--input '{"name": "value"}'"""),
        (["tests.ops.agent:killed", "r", "--input", "5"], 2, "--input must be a JSON object"),
        (["tests.ops.agent:killed", "r"], 2, "missing"),
        (
            ["tests.ops.agent:killed", "r", "--input", '{"m": 1}'],
            2,
            "missing a required argument: 'n'; there is no argument 'm'",
        ),
        (["tests.ops.agent:killed", " ", "--input", "[1]"], 2, "run id"),
    ],
)
def test_wrong_usage_is_one_line(holdfast: Command, words, code, said):
    done = holdfast("run", *words)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_another_input_is_a_conflict(holdfast: Command):
    holdfast("run", "tests.ops.agent:killed", "r", "--input", '{"n": 4}')
    done = holdfast("run", "tests.ops.agent:killed", "r", "--input", '{"n": 5}')
    assert done.returncode == 1
    assert "another input" in done.stderr


def test_a_module_that_cannot_be_imported_shows_its_own_traceback(holdfast: Command):
    (holdfast.folder / "bad.py").write_text("import holdfast\nimport not_there\n")
    done = holdfast.from_a_shell("run", "bad:flow", "r")
    assert done.returncode == 1
    assert "not_there" in done.stderr


# -- demo --------------------------------------------------------------------------------------


def test_the_demo_keeps_its_promises(holdfast: Command):
    began = time.monotonic()
    done = holdfast.from_a_shell("demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.monotonic() - began < 30
    assert done.stdout.count("gets SIGKILL") == 2
    assert done.stdout.count("recorded, not executed again") == 4 + 8
    assert "one e-mail was sent" in done.stdout
    assert "In the outbox: 1 e-mail." in done.stdout
    assert not list(holdfast.folder.iterdir())


def test_the_demo_as_json_and_as_a_picture(holdfast: Command):
    done = holdfast("demo", "--svg", "demo.svg", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    msgspec.json.decode(done.stdout, type=answer_type("demo"))
    assert told["as_promised"] is True
    assert told["e_mails"] == 1
    assert told["executed"]["send_report"] == 1
    picture = (holdfast.folder / "demo.svg").read_text()
    assert picture.startswith("<svg")
    assert "SIGKILL" in picture
    assert "@font-face" not in picture
