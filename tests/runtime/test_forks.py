"""A forked child has runs of its own on the same file, and nothing of its parent's."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable

import pytest

import holdfast
from holdfast import each, flow, step

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@step
def own_pid(i: int) -> int:
    return os.getpid()


@flow
def forked_work(n: int) -> list[int]:
    holdfast.context.now()
    return each(own_pid, range(n), max_concurrency=4)


def in_child(work: Callable[[], object]) -> int:
    """Do the work in a forked child; returns 0 if nothing was raised there."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_child_and_parent_both_go_on(sqlite):
    forked_work.run("before", 3)

    def child() -> None:
        assert set(forked_work.run("child", 5)) == {os.getpid()}
        assert len(forked_work.run("before", 3)) == 3  # Completed: read, not executed.

    assert in_child(child) == 0
    assert set(forked_work.run("after", 5)) == {os.getpid()}
    assert set(sqlite.get("child").result) != {os.getpid()}
    assert sqlite.verify() == []


def test_children_at_the_same_time(sqlite):
    forked_work.run("before", 1)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=forked_work.run, args=(f"child-{n}", 5)) for n in range(4)]
    for child in children:
        child.start()
    forked_work.run("parent", 10)
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0] * 4
    assert {run.status for run in sqlite.runs()} == {"completed"}
    assert sqlite.verify() == []


def test_a_child_of_a_flow_cannot_write_into_the_run_of_its_parent(sqlite):
    codes: list[int] = []

    @step
    def one(i: int) -> int:
        return i

    @flow
    def forks() -> int:
        one(0)
        codes.append(in_child(lambda: [one(i) for i in range(100, 105)]))
        return one(1)

    forks.run("r")
    args = [e.body["args"]["i"] for e in sqlite.history("r") if e.kind == "step_started"]
    assert args == [0, 1]
    assert sqlite.verify() == []
