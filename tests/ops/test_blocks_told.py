"""A block of a script has no flow that a command could name: people are told to run the script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdfast
from holdfast._operator.cli.main import main
from holdfast.errors import RunHeld, StepFailed
from tests.runtime.facts import until


@holdfast.effect(name="bt-charge")
def charge() -> str:
    raise ConnectionError("no answer")


@holdfast.step(name="bt-look")
def look(what: str) -> str:
    return what


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/runs.db"
    with holdfast.open(url, default=False) as store:
        with pytest.raises(RunHeld), holdfast.run("doubt", name="orders", store=store):
            charge()
        with pytest.raises(KeyboardInterrupt), holdfast.run("other", store=store):
            look("one")
            raise KeyboardInterrupt
        with pytest.raises(RunHeld), holdfast.run("other", store=store):
            look("two")
    return url


def told(url: str, *words: str) -> str:
    result = CliRunner().invoke(main, [*words, "--url", url])
    assert result.exit_code == 0, result.output
    return result.output


def test_explain_says_to_run_the_program_again(url: str) -> None:
    text = told(url, "explain", "other")
    assert "run your program again." in " ".join(text.split())
    assert "MODULE" not in text


def test_settle_says_to_run_the_script_again(url: str) -> None:
    text = told(url, "settle", "doubt", "bt-charge", "--not-done")
    assert "run that script again" in text
    assert "MODULE" not in text


def test_resume_says_to_run_the_script_again(url: str) -> None:
    text = told(url, "resume", "other", "--accept-change")
    assert "run that script again" in text
    assert "MODULE" not in text


def test_a_program_is_told_of_no_command(url: str) -> None:
    said = json.loads(told(url, "settle", "doubt", "bt-charge", "--not-done", "--json"))
    assert said["answer"]["goes_on"] is True
    assert said["next"] == []


# -- a worker cannot take a block --------------------------------------------------------------


@holdfast.effect(name="bt-pay", needs_approval=True)
def pay(amount: int) -> int:
    return amount


@holdfast.step(name="bt-break")
def breaks() -> None:
    raise ValueError("broken")


@holdfast.flow(name="bt-left")
def left() -> None:
    look("left")


class Stop(BaseException):
    """The process is gone."""


@pytest.fixture
def asking(url: str) -> str:
    """A block that waits for an approval; its process has gone."""
    asker = (
        "import sys, os, threading, holdfast\n"
        "from tests.ops.test_blocks_told import pay\n"
        "store = holdfast.open(sys.argv[1], default=False)\n"
        "def leave():\n"
        "    while not store.questions(): store._backend.wait_for_change(1.0)\n"
        "    while store.get('asks').status != 'waiting': store._backend.wait_for_change(1.0)\n"
        "    os._exit(0)\n"
        "threading.Thread(target=leave).start()\n"
        "with holdfast.run('asks', store=store):\n"
        "    pay(7)\n"
    )
    subprocess.run([sys.executable, "-c", asker, url], check=True, timeout=60)
    return url


def words(text: str) -> str:
    return " ".join(text.split())


def test_explain_does_not_leave_a_block_to_a_worker(asking: str) -> None:
    text = words(told(asking, "explain", "asks"))
    assert "Run your program again." in text
    assert "only that script goes on with it" in text
    assert "MODULE" not in text
    assert "No worker is alive" not in text
    assert "has this flow" not in text


def test_a_worker_that_is_alive_changes_nothing_for_a_block(asking: str) -> None:
    with holdfast.open(asking, default=False) as store, store.worker(flows=[left], concurrency=1):
        until(lambda: store._backend.pulses())
        text = words(told(asking, "explain", "asks"))
    assert "only that script goes on with it" in text
    assert "Start a worker" not in text


@pytest.mark.parametrize(
    "given",
    [("approve", "asks", "bt-pay", "--yes"), ("reject", "asks", "bt-pay", "--reason", "no")],
)
def test_who_decides_is_told_to_run_the_script(asking: str, given: tuple[str, ...]) -> None:
    text = words(told(asking, *given))
    assert "It is a block of a script: run that script again." in text
    assert "worker" not in text


def test_a_block_at_work_goes_on_by_itself(url: str) -> None:
    with holdfast.open(url, default=False) as store:
        with pytest.raises(Stop), holdfast.run("busy", store=store):
            text = words(told(url, "answer", "busy", "later", "1"))
            raise Stop
    assert "worker" not in text
    assert "run that script again" not in text


def test_after_the_approval_explain_says_to_run_the_script(asking: str) -> None:
    told(asking, "approve", "asks", "bt-pay", "--yes", "--actor", "kim")
    text = words(told(asking, "explain", "asks"))
    assert "has the approval of bt-pay from kim, and goes on when its script is run again." in text


def test_a_failed_block_is_left_to_no_worker(url: str) -> None:
    with holdfast.open(url, default=False) as store:
        with pytest.raises(StepFailed), holdfast.run("fails", store=store):
            breaks()
    text = told(url, "explain", "fails")
    assert "Remove the cause, then run your program again." in text
    assert "worker" not in text


def test_a_fork_of_a_block_is_left_to_its_script(url: str) -> None:
    text = words(told(url, "fork", "other", "again", "--before", "bt-look"))
    assert "It is a block of a script: run that script with this run id." in text
    assert "MODULE" not in text
    assert (
        json.loads(told(url, "fork", "other", "third", "--before", "bt-look", "--json"))["next"]
        == []
    )
    text = words(told(url, "explain", "again"))
    assert "MODULE" not in text
    assert "of its queue" not in text


def test_a_block_that_nobody_goes_on_with_is_stuck_without_a_worker(url: str) -> None:
    watch = holdfast.Watchdog(stuck_after=0.001)
    with holdfast.open(url, default=False, watchdog=watch) as store:
        with pytest.raises(KeyboardInterrupt), holdfast.run("late", store=store):
            look("one")
            raise KeyboardInterrupt
        [stuck] = until(lambda: [it for it in store.findings() if it.run_id == "late"])
    assert "its script has not been run again" in stuck.text
    assert "worker" not in stuck.text
