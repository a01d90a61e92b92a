"""How many steps a run has done is one number: in the list, in `show`, in `explain`, in the timeline and
in the API, for every kind of run."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdfast
from holdfast import Done, Retry, effect, flow, gather, sleep, step, turns
from holdfast._operator.cli.main import main
from holdfast._operator.read import run_views
from holdfast._operator.read.step_views import counts_of
from holdfast._operator.read.timeline import timeline
from holdfast._stores.lookups import existing_row
from holdfast.errors import HoldfastError

world: dict[str, Any] = {}


@step(name="count-look")
def look(number: int) -> int:
    return number


@step(name="count-flaky", retry=Retry(attempts=3, initial_wait_s=0.0))
def flaky() -> int:
    world["tries"] = world.get("tries", 0) + 1
    if world["tries"] < 3:
        raise ConnectionError("not yet")
    return world["tries"]


@step(name="count-breaks")
def breaks() -> int:
    if world.get("broken"):
        raise ValueError("broken")
    return 1


@effect(name="count-charge", key="{order}")
def charge(order: str) -> str:
    if world.get("doubt"):
        raise TimeoutError("no answer")
    return order


@charge.undo
def refund(result: str, order: str) -> None:
    """Give it back."""


@flow(name="count-child")
def child(number: int) -> int:
    return look(number)


@flow(name="count-plain")
def plain() -> int:
    return look(1) + look(2)


@flow(name="count-retries")
def retries() -> int:
    return flaky() + look(1)


@flow(name="count-parent")
def parent() -> int:
    sleep(0.001)
    holdfast.context.now()
    holdfast.context.uuid4()
    return child(1) + child(2) + look(3)


@flow(name="count-loop")
def loop() -> int:
    for state in turns({"sum": 0}, max_turns=3):
        state["sum"] += look(state["sum"] + 1)
        gather(lambda: look(7), lambda: look(8))
        if state["sum"] == 7:
            break
    return 1


@flow(name="count-charges")
def charges(order: str) -> str:
    look(1)
    return charge(order)


@flow(name="count-caught")
def caught() -> int:
    with contextlib.suppress(HoldfastError, ValueError):
        breaks()
    return look(1)


@flow(name="count-fails")
def fails() -> int:
    look(1)
    with contextlib.suppress(HoldfastError, ValueError):
        breaks()
    look(2)
    if world.get("broken"):
        raise RuntimeError("the flow")
    return look(3)


def failed_and_resumed(store: holdfast.types.Store) -> None:
    world["broken"] = True
    with contextlib.suppress(HoldfastError):
        fails.with_options(store=store).run("r")
    world["broken"] = False
    store.resume("r", actor="kim")
    fails.with_options(store=store).run("r")


def replayed(store: holdfast.types.Store) -> None:
    for _ in range(3):
        plain.with_options(store=store).run("r")


def settled(store: holdfast.types.Store) -> None:
    world["doubt"] = True
    with contextlib.suppress(HoldfastError):
        charges.with_options(store=store).run("r", "o-1")
    world["doubt"] = False
    store.settle("r", "count-charge", Done("o-1"), actor="kim")


def duplicate(store: holdfast.types.Store) -> None:
    charges.with_options(store=store).run("first", "o-1")
    charges.with_options(store=store).run("r", "o-1")


def rolled_back(store: holdfast.types.Store) -> None:
    charges.with_options(store=store).run("r", "o-1")
    store.rollback("r", actor="kim", confirm=True)
    with contextlib.suppress(HoldfastError):
        charges.with_options(store=store).run("r", "o-1")


def forked(store: holdfast.types.Store) -> None:
    loop.with_options(store=store).run("first")
    parent.with_options(store=store).run("second")
    store.fork("second", "r", before="count-look", actor="kim")
    parent.with_options(store=store).run("r")


def gave_up(store: holdfast.types.Store) -> None:
    world["broken"] = True
    caught.with_options(store=store).run("r")
    world["broken"] = False


def ran(flow: Any, *arguments: Any) -> Callable[[holdfast.types.Store], None]:
    def run(store: holdfast.types.Store) -> None:
        flow.with_options(store=store).run("r", *arguments)

    return run


KINDS: dict[str, tuple[Callable[[holdfast.types.Store], None], int, int]] = {
    "plain": (ran(plain), 2, 2),
    "replayed": (replayed, 2, 2),
    "retries": (ran(retries), 2, 2),
    "children, a sleep and values": (ran(parent), 1, 1),
    "a loop with branches": (ran(loop), 9, 9),
    "an effect": (ran(charges, "o-1"), 2, 2),
    "a step that gave up": (gave_up, 1, 2),
    "a failed generation": (failed_and_resumed, 3, 4),
    "settled as done": (settled, 2, 2),
    "a duplicate": (duplicate, 2, 2),
    "rolled back": (rolled_back, 3, 3),
    "a fork": (forked, 1, 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_number_of_steps_everywhere(tmp_path: Path, kind: str):
    make, done, called = KINDS[kind]
    world.clear()
    url = f"sqlite:///{tmp_path}/runs.db"
    with contextlib.closing(holdfast.open(url, default=False)) as store:
        make(store)
        kept = store._backend
        row = existing_row(kept, "r")
        counts = counts_of(run_views.fold(kept, row))
        assert (counts.done, counts.called) == (done, called)
        assert row.steps == done, "the row, which the list shows"
        assert timeline(kept, "r").steps == called
        view = store.get("r")
        assert (view.totals.steps, view.step_counts) == (done, counts)
        listed = len([it for it in view.steps if not it.borrowed])
        assert listed == counts.called + counts.others, "the list of steps has these and no others"
        listing = said(url, "runs", "--json")
        (told,) = [run for run in json.loads(listing)["runs"] if run["run_id"] == "r"]
        assert told["totals"]["steps"] == done
        shown = re.search(r"totals +(\d+) steps? done(?: of (\d+) called)?", said(url, "show", "r"))
        assert shown is not None
        assert int(shown[1]) == done
        assert int(shown[2] or done) == called
        explained = re.search(r"- (\d+) steps?\b", said(url, "explain", "r"))
        if kind == "rolled back":
            assert explained is None, "what stays undone is told, and no number"
        else:
            assert explained is not None
            assert int(explained[1]) == done


def said(url: str, *words: str) -> str:
    result = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["--url", url, *words])
    assert result.exit_code == 0, result.output
    return result.output
