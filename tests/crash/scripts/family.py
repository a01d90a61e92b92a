"""Three generations of runs, and whoever stops them: `python family.py MODE`.

MODE: "run" executes the eldest, "recover" takes up whatever can be taken up, "worker" works until it is
told to stop, "cancel" and "pause" ask for it as a person would.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import holdfast
from holdfast import each, flow, step, wait_for_signal
from holdfast._operator.act import cancellation
from holdfast._runtime.execution.inbox import absorb
from tests.crash import probe


@step
def family_work(item: str) -> str:
    probe.executed(item, run=holdfast.context.current_run().run_id)  # type: ignore[union-attr]
    probe.point(f"inside {item}")
    if item == "hold":
        probe.mark("inside hold")
        probe.wait("let go")
    return item.upper()


@flow
def family_youngest() -> Any:
    said = wait_for_signal("go")
    return family_work(said)


@flow
def family_middle() -> Any:
    return family_youngest()


@flow
def family_eldest() -> Any:
    family_work("first")
    return [family_middle(), family_work("last")]


@flow
def family_item(item: str) -> str:
    return family_work(item)


@flow
def family_fan(items: list[str]) -> list[str]:
    return each(family_item, items, max_concurrency=2)


FLOWS = [family_youngest, family_middle, family_eldest, family_item, family_fan]


def with_points() -> None:
    """Let the process die between what is asked, given back, and written."""
    done, post = cancellation._Request._done, cancellation._Request._post

    def absorbing(*args: Any) -> None:
        probe.point("given back")
        absorb(*args)

    def finished(self: Any, *args: Any) -> Any:
        probe.point("written")
        return done(self, *args)

    def posting(self: Any, etag: str | None) -> None:
        post(self, etag)
        probe.point("asked")

    mock.patch("holdfast._runtime.execution.execute.absorb", absorbing).start()
    mock.patch.object(cancellation._Request, "_done", finished).start()
    mock.patch.object(cancellation._Request, "_post", posting).start()


def recover(store: holdfast.types.Store) -> dict[str, str]:
    while store.recover():
        pass
    return {run.run_id: run.status for run in store.runs()}


def work(store: holdfast.types.Store) -> str:
    with store.worker(flows=FLOWS, concurrency=2):
        probe.mark("working")
        probe.wait("enough")
    return "stopped"


def main(mode: str) -> None:
    with_points()
    with probe.open_store() as store:
        if mode == "run":
            probe.end(lambda: family_eldest.run("r"))
        elif mode == "deadline":
            probe.end(lambda: family_eldest.with_options(timeout=1.0).run("r"))
        elif mode == "recover":
            probe.end(lambda: recover(store))
        elif mode == "worker":
            probe.end(lambda: work(store))
        elif mode == "cancel":
            probe.end(lambda: store.cancel("r", actor="ana", reason="enough").outcome)
        elif mode == "pause":
            probe.end(lambda: store.pause("r", actor="ana").outcome)


if __name__ == "__main__":
    main(sys.argv[1])
