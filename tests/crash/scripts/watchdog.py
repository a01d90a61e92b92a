"""A watchdog that dies half way through what it does: `python watchdog.py die | patrol | live`.

`die` makes one run for each kind of finding and each point, in a process of its own, whose watchdog
kills itself at that point.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Any
from unittest import mock

import holdfast
from holdfast import Watchdog, effect, flow, step
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import apply
from holdfast.context import record_usage
from tests.crash import probe

POINTS = ("found", "told", "writing", "within", "written")


def page(finding: holdfast.types.Finding) -> None:
    probe.executed("page", run=finding.run_id)


def stop_once(run_id: str) -> None:
    if probe.first_time(f"stop of {run_id}"):
        raise KeyboardInterrupt


@step(name="wdog-spend")
def spend() -> None:
    record_usage(cost_usd=1.0)


@step(name="wdog-look")
def look() -> None:
    pass


@step(name="wdog-slow")
def slow() -> None:
    probe.mark("slow")
    if probe.first_time("slow"):
        probe.wait("nobody says so")


@effect(name="wdog-mail")
def mail(to: str) -> str:
    return to


@flow(name="wdog-stuck", watchdog=Watchdog(stuck="hold", stuck_after=0))
def stuck(run_id: str) -> None:
    look()


@flow(name="wdog-looping", watchdog=Watchdog(looping=page, loop_after=3))
def looping(run_id: str) -> None:
    for _ in range(3):
        look()
    stop_once(run_id)


@flow(name="wdog-duplicate", watchdog=Watchdog(duplicate_action="cancel"))
def duplicate_action(run_id: str) -> None:
    mail("ana")
    mail("ana")
    stop_once(run_id)


@flow(name="wdog-partial", watchdog=Watchdog(partial_failure="note"))
def partial_failure(run_id: str) -> None:
    mail("ana")
    raise ValueError("and no further")


@flow(name="wdog-cost", watchdog=Watchdog(runaway_cost="hold", usd=1.5))
def runaway_cost(run_id: str) -> None:
    spend()
    spend()
    stop_once(run_id)


@flow(name="wdog-live", watchdog=Watchdog(looping="hold", loop_after=3))
def live() -> str:
    for _ in range(3):
        look()
    slow()
    look()
    return "done"


KINDS: dict[str, Any] = {
    "stuck": stuck,
    "looping": looping,
    "duplicate_action": duplicate_action,
    "partial_failure": partial_failure,
    "runaway_cost": runaway_cost,
}


def make(kind: str, run_id: str) -> None:
    """Leave a run behind in which something is found, and that nobody has."""
    if kind == "stuck":
        stuck.submit(run_id, run_id)
        return
    with contextlib.suppress(KeyboardInterrupt, holdfast.errors.RunFailed):
        KINDS[kind].run(run_id, run_id)


def dies_at(store: holdfast.types.Store, wanted: str) -> None:
    def point(name: str) -> None:
        if name == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    def notes(writes: Any) -> bool:
        return any(it.kind is Kind.FINDING_NOTED for write in writes for it in write.drafts)

    post, append = store._backend.post, store._backend.append

    def posted(*given: Any) -> Any:
        point("found")
        said = post(*given)
        point("told")
        return said

    def appended(writes: Any) -> Any:
        if notes(writes):
            point("writing")
        said = append(writes)
        if notes(writes):
            point("written")
        return said

    def applied(row: Any, write: Any, *more: Any) -> Any:
        if notes([write]):
            point("within")
        return apply(row, write, *more)

    mock.patch.object(store._backend, "post", posted).start()
    mock.patch.object(store._backend, "append", appended).start()
    mock.patch("holdfast._stores.sqlite.sqlite_append.apply", applied).start()
    if not store.url.startswith("sqlite"):
        mock.patch("holdfast._stores.postgres.postgres_append.apply", applied).start()


def die(kind: str, at: str) -> None:
    run_id = f"{kind}-{at}"
    with probe.open_store() as store:
        make(kind, run_id)
        dies_at(store, at)
        store.run_watchdog(run_id)
    os._exit(0)


def all_die() -> dict[str, int]:
    ended = {}
    for kind in KINDS:
        for at in POINTS:
            child = os.fork()
            if child == 0:
                die(kind, at)
            ended[f"{kind}-{at}"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ended


def patrol() -> list[list[str]]:
    with probe.open_store() as store:
        return [[it.run_id for it in store.run_watchdog()] for _ in range(2)]


if __name__ == "__main__":
    if sys.argv[1] == "live":
        with probe.open_store():
            probe.end(lambda: live.run("r"))
    else:
        probe.end({"die": all_die, "patrol": patrol}[sys.argv[1]])
