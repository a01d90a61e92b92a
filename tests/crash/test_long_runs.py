"""What stops a run takes effect within two claims, however long its journal takes to read. I10."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import holdfast
from holdfast._engine.decisions.control import asked
from holdfast._engine.journal.rows import Message
from holdfast._features.rollback.model import Wanted
from holdfast._runtime.engine import Engine
from tests.crash.fleet import Sizes, working
from tests.crash.harness import SCRIPTS, SERVER_IN_SWEEPS, World, assert_sound, wait_for
from tests.crash.scripts.long_runs import DEADLINE_S, long_run, ordered_run, timed_run

STEPS = 1_500
FLEET = Sizes(processes=2, concurrency=2)
ENDED = ("cancelled", "completed", "failed", "held")


def row(store: holdfast.types.Store, run_id: str = "r") -> Any:
    return store._backend.get(run_id)


def stopped(store: holdfast.types.Store, how: str) -> int:
    """Have the run stopped while workers give it back and claim it; returns how many claims came
    after the message."""
    store._backend.post("r", asked(how, f"{how}:1", "ana", "", store._backend.now_us()))
    told = row(store).last_seq
    wait_for(lambda: row(store).status in ("held", "cancelled"), f"a run that obeys: {how}")
    journal = store.history("r")
    return sum(entry.kind == "run_claimed" and entry.seq > told for entry in journal)


@SERVER_IN_SWEEPS
def test_a_pause_and_a_cancel_reach_a_long_run_within_two_claims(world: World) -> None:
    with world.store() as store:
        long_run.with_options(store=store).submit("r", STEPS)
        with working(world, FLEET, script=SCRIPTS / "long_runs.py"):
            wait_for(lambda: row(store).status == "waiting", "a long journal")
            store.signal("r", "go")
            wait_for(lambda: row(store).steps > STEPS, "a run that goes on")
            assert stopped(store, "pause") <= 2
            assert (store.get("r").status, store.get("r").held_reason) == ("held", "paused")
            store.resume("r", actor="ana")
            wait_for(lambda: row(store).status != "held", "a run that goes on")
            assert stopped(store, "cancel") <= 2
            assert store.get("r").status == "cancelled"
        assert_sound(store)
        assert store._backend.inbox(row(store).run_no) == []


@SERVER_IN_SWEEPS
def test_a_rollback_reaches_a_long_run_within_two_claims(world: World) -> None:
    with world.store() as store:
        ordered_run.with_options(store=store).submit("r", STEPS)
        with working(world, FLEET, script=SCRIPTS / "long_runs.py"):
            wait_for(lambda: row(store).steps > STEPS + 1, "a run that goes on")
            body, at_us = msgspec.json.encode(Wanted("ana", "not wanted")), store._backend.now_us()
            store._backend.post("r", Message("rollback:1", "rollback", "ana", at_us, body))
            told = row(store).last_seq
            wait_for(lambda: row(store).status == "rolled_back", "a run that is rolled back")
        claims = [e for e in store.history("r") if e.kind == "run_claimed" and e.seq > told]
        assert len(claims) <= 2, claims
        assert world.counts() == {"not ordered": 1}
        assert_sound(store)
        assert store._backend.inbox(row(store).run_no) == []


@SERVER_IN_SWEEPS
def test_a_deadline_reaches_a_long_run_within_two_claims(world: World) -> None:
    """A deadline counts from the start of a run. If this machine is too slow to have a long journal
    by then, the next run has twice as much time."""
    with world.store() as store:
        with working(world, FLEET, script=SCRIPTS / "long_runs.py"):
            long_run.with_options(store=store).submit("first", 1)
            wait_for(lambda: row(store, "first").status == "waiting", "workers")
            deadline_s, steps = DEADLINE_S, 0
            while steps <= STEPS:
                run_id = f"for {deadline_s:g} s"
                timed_run.with_options(store=store, timeout=deadline_s).submit(run_id, STEPS)
                wait_for(lambda: row(store, run_id).status in ENDED, "an end of it")
                assert claims_after_deadline(store, run_id) <= 2
                deadline_s, steps = 2 * deadline_s, row(store, run_id).steps
        for run in store.runs(flow="long-run-timed"):
            assert (run.status, run.held_reason) == ("cancelled", None)
            assert_sound(store, run.run_id)
            assert store._backend.inbox(row(store, run.run_id).run_no) == []


def claims_after_deadline(store: holdfast.types.Store, run_id: str) -> int:
    journal = store.history(run_id)
    deadline = store.get(run_id).deadline
    assert deadline is not None
    return sum(entry.kind == "run_claimed" and entry.at >= deadline for entry in journal)


@SERVER_IN_SWEEPS
@pytest.mark.parametrize("how", ["pause", "cancel"])
def test_what_was_said_before_a_claim_is_done_before_the_journal_is_read(
    world: World, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim looks at the inbox first: the flow is not called, and a pause reads no journal."""
    with world.store() as store:
        long_run.with_options(store=store).submit("r", 3)
        assert store.recover() == ["r"]
        assert store.get("r").status == "waiting"
        store._backend.post("r", asked(how, f"{how}:1", "ana", "", store._backend.now_us()))
        before = len(store.history("r"))
        loaded: list[str] = []
        real = Engine.load

        def load(engine: Engine, row: Any, **how: Any) -> Any:
            loaded.append(row.run_id)
            return real(engine, row, **how)

        monkeypatch.setattr(Engine, "load", load)
        store.recover()
        # The decision to cancel needs the history; the flow does not get it.
        assert loaded == ([] if how == "pause" else ["r"])
        kinds = [entry.kind for entry in store.history("r")][before:]
        assert kinds == ["run_claimed", "run_held" if how == "pause" else "run_cancelled"]
        assert_sound(store)
