"""Rollback: what a run did is undone, the last effect first, each undo an effect of its own."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import Any

import pytest

import holdfast
from holdfast import NOT_DONE, Done, Retry, aio, effect, flow, gather, step, testing, turns
from holdfast._engine.scripts.stops import Unwind
from holdfast._features.rollback import runtime as undoing_of_a_run
from holdfast._operator.act import run_rollback
from holdfast._runtime import registry
from holdfast._runtime.execution.frames import current
from holdfast.errors import (
    ConfirmationRequired,
    KeyConflict,
    Rollback,
    RunCancelled,
    RunError,
    RunFailed,
    RunHeld,
    RunRolledBack,
    StepFailed,
    UsageError,
)
from holdfast.types import Failed
from tests.runtime.stops import Stop, interrupted, kinds

seen: list[Any] = []
broken: set[str] = set()


@pytest.fixture(autouse=True)
def _empty_world():
    seen.clear()
    broken.clear()


def did(what: str) -> str:
    seen.append(what)
    if what in broken:
        raise ConnectionError(what)
    return f"{what} done"


@effect(name="rb-flight", key="flight:{trip}")
def flight(trip: str) -> str:
    return did("flight")


@flight.undo
def no_flight(booked: str, trip: str) -> None:
    did(f"undo {booked} {trip}")


@effect(name="rb-hotel")
def hotel(trip: str, nights: int = 2) -> str:
    return did("hotel")


@hotel.undo(on_doubt="retry", retry=Retry(attempts=3, initial_wait_s=0))
def no_hotel(booked: str, trip: str, nights: int) -> object:
    seen.append(holdfast.idempotency_key())
    did(f"undo {booked} {nights}")
    return object()  # What an undo returns is nobody's, and need not be storable.


@effect(name="rb-mail")
def mail(trip: str) -> str:
    return did("mail")


@step(name="rb-think")
def think(trip: str) -> str:
    return did("think")


@flow(name="rb-trip")
def trip(name: str, *, fails: bool = False) -> str:
    flight(name)
    think(name)
    hotel(name, nights=3)
    if fails:
        raise Rollback("nobody wants to go")
    return "booked"


@flow(name="rb-trip-and-mail")
def trip_and_mail(name: str) -> str:
    flight(name)
    mail(name)
    return hotel(name)


def undone(store: holdfast.types.Store, run_id: str = "r") -> list[str]:
    """Return the undos that completed, in the order of the journal."""
    return [
        str(entry.step)
        for entry in store.history(run_id)
        if entry.kind == "step_completed" and str(entry.step).startswith("undo")
    ]


def world() -> list[str]:
    return [what for what in seen if not what.startswith("hf_")]


# -- from code ---------------------------------------------------------------------------------


def test_a_flow_asks_for_it(store):
    with pytest.raises(RunRolledBack, match="nobody wants to go") as told:
        trip.run("r", "rome", fails=True)
    assert told.value.reason == "nobody wants to go"
    assert world() == [
        *("flight", "think", "hotel"),
        *("undo hotel done 3", "undo flight done rome"),
    ]
    assert undone(store) == ["undo/rb-hotel", "undo/rb-flight"]
    assert store.get("r").status == "rolled_back"
    assert not store.verify()
    with pytest.raises(RunRolledBack, match="nobody wants to go"):
        trip.run("r", "rome", fails=True)
    with pytest.raises(RunRolledBack, match="nobody wants to go"):
        store.handle("r").result(1)
    assert len(world()) == 5, "nothing is called again"


def test_each_undo_has_an_intent_and_a_key_of_its_own(sqlite):
    with pytest.raises(RunRolledBack):
        trip.run("r", "rome", fails=True)
    starts = [e for e in sqlite.history("r") if e.kind == "step_started" and "key" in e.body]
    keys = {str(e.step): e.body["key"] for e in starts}
    assert len(set(keys.values())) == 4
    assert keys["undo/rb-hotel"] in seen, "it is the one that the function shows to the other side"
    asked = next(e for e in sqlite.history("r") if e.kind == "rollback_requested")
    assert asked.body["order"] == ["undo/rb-hotel", "undo/rb-flight"]
    assert asked.body["actor"] == "flow"


def test_a_business_key_that_was_undone_is_not_given_again(store):
    with pytest.raises(RunRolledBack):
        trip.run("r", "rome", fails=True)
    with pytest.raises(RunFailed) as failed:
        trip.run("again", "rome")
    assert isinstance(failed.value.__cause__, KeyConflict)
    assert "undone since" in str(failed.value)


def test_a_duplicate_that_was_skipped_is_the_other_runs_doing(sqlite):
    trip.run("first", "rome")
    seen.clear()
    with pytest.raises(RunRolledBack):
        trip.run("second", "rome", fails=True)
    assert undone(sqlite, "second") == ["undo/rb-hotel"]
    assert "undo flight done rome" not in seen


async def _async_trip(store: holdfast.types.Store) -> None:
    @effect
    async def book(n: int) -> int:
        did(f"book {n}")
        return n

    @book.undo
    async def unbook(result: int, n: int) -> None:
        await asyncio.sleep(0)
        did(f"unbook {result}")

    @flow
    async def journey() -> None:
        await aio.gather(book(1))
        await hotel.aio("oslo")
        await book(2)
        raise Rollback

    with pytest.raises(RunRolledBack):
        await journey.run("r")


def test_in_an_async_flow_with_undos_of_both_colours(sqlite):
    asyncio.run(_async_trip(sqlite))
    assert world() == ["book 1", "hotel", "book 2", "unbook 2", "undo hotel done 2", "unbook 1"]
    assert sqlite.get("r").status == "rolled_back"


def test_an_async_undo_of_a_sync_effect(sqlite):
    @effect
    def paint(color: str) -> str:
        return did(color)

    @paint.undo
    async def strip(result: str, color: str) -> None:
        await asyncio.sleep(0)
        did(f"strip {color}")

    @flow
    def wall() -> None:
        paint("red")
        raise Rollback

    with pytest.raises(RunRolledBack):
        wall.run("r")
    assert seen == ["red", "strip red"]


def test_branches_are_undone_in_the_reverse_order_of_their_ends(sqlite):
    @flow
    def both() -> None:
        gather(lambda: flight("a"), lambda: hotel("b"))
        raise Rollback

    with pytest.raises(RunRolledBack):
        both.run("r")
    ends = [str(e.step) for e in sqlite.history("r") if e.kind == "step_completed"]
    assert ends[2:] == [f"undo/{step}" for step in reversed(ends[:2])]


def test_raised_in_a_branch(sqlite):
    def fail() -> None:
        raise Rollback("in a branch")

    @flow
    def branches() -> None:
        gather(lambda: hotel("b"), fail)

    with pytest.raises(RunRolledBack, match="in a branch"):
        branches.run("r")
    assert undone(sqlite) == ["undo/gather[0]/rb-hotel"]


def test_a_block_is_rolled_back(sqlite):
    with pytest.raises(RunRolledBack), holdfast.run("r"):
        hotel("b")
        raise Rollback
    assert undone(sqlite) == ["undo/rb-hotel"]


def test_a_block_that_ended_is_rolled_back_when_it_is_entered(sqlite):
    with holdfast.run("r"):
        hotel("b")
    assert sqlite.rollback("r").goes_on, "nobody here has a flow of that name"
    with pytest.raises(RunRolledBack), holdfast.run("r"):
        raise AssertionError
    assert undone(sqlite) == ["undo/rb-hotel"]


def test_methods_are_undone_on_the_object_of_the_flow(sqlite):
    class Shop:
        @effect
        def sell(self, what: str) -> str:
            return did(what)

        @sell.undo
        def take_back(self, sold: str, what: str) -> None:
            did(f"take {what} back")

        @flow
        def day(self) -> None:
            self.sell("tea")
            raise Rollback

    with pytest.raises(RunRolledBack):
        Shop().day.run("r")
    assert seen == ["tea", "take tea back"]


def test_clients_are_handed_to_an_undo_that_asks_for_them(sqlite):
    @effect
    def call(n: int, client: str = holdfast.resource(lambda: "client")) -> str:
        return did(f"{client} {n}")

    @call.undo
    def hang_up(result: str, n: int, client: str, other: str = holdfast.resource(lambda: "other")):
        did(f"{client} {other} {n}")

    @flow
    def talk() -> None:
        call(1)
        raise Rollback

    with pytest.raises(RunRolledBack):
        talk.run("r")
    assert seen == ["client 1", "client other 1"]


# -- what did not happen is not undone ---------------------------------------------------------


def test_what_did_not_happen_is_not_undone(sqlite):
    @effect(not_done_on=(ConnectionError,), fallback="none", undo=lambda result, what: did("never"))
    def degrade(what: str) -> str:
        return did(what)

    @effect(not_done_on=(ConnectionError,), undo=lambda result, what: did("never"))
    def refuse(what: str) -> str:
        return did(what)

    @flow
    def nothing() -> None:
        degrade("fallback")
        with pytest.raises(StepFailed):
            refuse("refused")
        raise Rollback

    broken.update({"fallback", "refused"})
    with pytest.raises(RunRolledBack):
        nothing.run("r")
    assert seen == ["fallback", "refused"]


def test_what_a_generation_before_did_is_undone_too(sqlite):
    @flow
    def superseding() -> None:
        try:
            unsteady()
        finally:
            hotel("b")

    @step
    def unsteady() -> None:
        did("unsteady")

    broken.add("unsteady")
    with pytest.raises(RunFailed):
        superseding.run("r")
    broken.clear()
    superseding.run("r")  # In generation 2: the first hotel is superseded, and did happen.
    assert world() == ["unsteady", "hotel", "unsteady", "hotel"]
    seen.clear()
    answer = sqlite.rollback("r")
    assert answer.status == "rolled_back"
    assert undone(sqlite) == ["undo[2]/rb-hotel", "undo/rb-hotel"]
    assert world() == ["undo hotel done 2", "undo hotel done 2"]


# -- by somebody, in every status --------------------------------------------------------------


def test_a_completed_run(store):
    trip.run("r", "rome")
    plan = store.preview_rollback("r")
    assert [(it.step, it.fate) for it in plan.effects] == [
        ("rb-hotel", "undo"),
        ("rb-flight", "undo"),
    ]
    assert not plan.confirm
    answer = store.rollback("r", actor="kim", reason="a mistake")
    assert (answer.status, answer.recorded) == ("rolled_back", True)
    assert undone(store) == ["undo/rb-hotel", "undo/rb-flight"]
    again = store.rollback("r", actor="kim")
    assert (again.recorded, "before" in again.did) == (False, True)


def test_a_failed_and_a_cancelled_and_a_queued_run(sqlite):
    @flow
    def dies() -> None:
        hotel("b")
        raise ValueError

    with pytest.raises(RunFailed):
        dies.run("failed")
    assert sqlite.rollback("failed").status == "rolled_back"
    trip.submit("queued", "rome")
    assert sqlite.rollback("queued").status == "rolled_back"
    assert undone(sqlite, "failed") == ["undo/rb-hotel"]
    assert undone(sqlite, "queued") == []


def test_what_has_no_undo_must_be_confirmed(sqlite):
    trip_and_mail.run("r", "rome")
    before = len(sqlite.history("r"))
    with pytest.raises(ConfirmationRequired, match="rb-mail has no undo") as refused:
        sqlite.rollback("r")
    assert "holdfast rollback r --confirm" in str(refused.value)
    assert len(sqlite.history("r")) == before, "nothing is written"
    assert sqlite.rollback("r", confirm=True).status == "rolled_back"
    assert undone(sqlite) == ["undo/rb-hotel", "undo/rb-flight"]
    assert sqlite.history("r")[-1].body["stays"] == ["rb-mail"]
    assert "Not undone, and as it was left: rb-mail." in str(sqlite.explain("r"))


def test_a_run_of_this_process_that_waits_hears_of_it(store):
    @flow
    def waits() -> str:
        hotel("b")
        return str(holdfast.wait_for_signal("never"))

    handle = waits.start("r")
    store.wait_until("r", done="rb-hotel")
    answer = store.rollback("r", reason="enough")
    assert answer.recorded
    with pytest.raises(RunRolledBack, match="enough"):
        handle.result(20)
    assert undone(store) == ["undo/rb-hotel"]
    taken = [e for e in store.history("r") if e.kind == "rollback_requested"]
    assert len(taken) == 1


def test_a_worker_performs_it(store):
    trip.run("r", "rome")
    assert run_rollback.rollback(store._backend, "r", actor="kim").goes_on
    with store.worker(flows=[trip]):
        store.wait_until("r", status="rolled_back")
    assert undone(store) == ["undo/rb-hotel", "undo/rb-flight"]


def test_recover_performs_it(sqlite):
    trip.run("r", "rome")
    run_rollback.rollback(sqlite._backend, "r", actor="kim")
    assert sqlite.recover() == ["r"]
    assert sqlite.get("r").status == "rolled_back"


def test_flow_run_performs_it(sqlite):
    trip.run("r", "rome")
    run_rollback.rollback(sqlite._backend, "r", actor="kim", reason="as asked")
    with pytest.raises(RunRolledBack, match="as asked"):
        trip.run("r", "rome")


# -- doubts ------------------------------------------------------------------------------------


def in_doubt(name: str) -> str:
    broken.add("hotel")
    with pytest.raises(RunHeld):
        trip.run(name, name)
    broken.clear()
    return name


def test_an_effect_in_doubt_is_settled_first(sqlite):
    in_doubt("r")
    assert [it.fate for it in sqlite.preview_rollback("r").effects] == ["in_doubt", "undo"]
    assert sqlite.rollback("r", actor="kim").status == "held"
    assert "undo flight done r" not in seen, "nothing is undone before"
    explained = str(sqlite.explain("r"))
    assert "rb-hotel did not happen (there is nothing to undo):" in explained
    assert "It is being rolled back." in explained
    sqlite.settle("r", "rb-hotel", Done("the hotel"), actor="kim")
    with pytest.raises(RunRolledBack):
        trip.run("r", "r")
    assert world()[-2:] == ["undo the hotel 3", "undo flight done r"]


def test_an_effect_that_did_not_happen_leaves_nothing_to_undo(sqlite):
    in_doubt("r")
    sqlite.rollback("r")
    sqlite.settle("r", "rb-hotel", NOT_DONE, actor="ana")
    with pytest.raises(RunRolledBack):
        trip.run("r", "r")
    assert undone(sqlite) == ["undo/rb-flight"]


def test_an_effect_that_was_given_up_stands_against_it(sqlite):
    in_doubt("r")
    sqlite.settle("r", "rb-hotel", Failed("who knows"), actor="ana")
    with pytest.raises(RunFailed):
        trip.run("r", "r")
    with pytest.raises(ConfirmationRequired, match="may have happened"):
        sqlite.rollback("r")
    assert sqlite.rollback("r", confirm=True).status == "rolled_back"
    assert undone(sqlite) == ["undo/rb-flight"]


def test_given_up_in_a_flow_that_rolls_back_is_held_until_confirmed(sqlite):
    @flow
    def gives_up() -> None:
        flight("g")
        with pytest.raises(StepFailed):
            unsure()
        raise Rollback

    @effect(on_doubt="fail", undo=lambda result: None)
    def unsure() -> None:
        raise ConnectionError

    with pytest.raises(RunHeld, match="whether it happened is not known") as held:
        gives_up.run("r")
    assert held.value.actions[0].startswith("holdfast rollback r --confirm")
    assert undone(sqlite) == [], "nothing is undone before"
    assert sqlite.rollback("r", confirm=True).status == "rolled_back"
    assert undone(sqlite) == ["undo/rb-flight"]


def test_an_undo_in_doubt_holds_the_rollback(sqlite):
    trip.run("r", "rome")
    broken.add("undo flight done rome")
    assert sqlite.rollback("r").status == "held"
    assert sqlite.get("r").held_reason == "in_doubt"
    explained = str(sqlite.explain("r"))
    assert "holdfast settle r undo/rb-flight --not-done" in explained
    assert "Undone so far: rb-hotel." in explained
    broken.clear()
    sqlite.settle("r", "undo/rb-flight", NOT_DONE, actor="ana")
    with pytest.raises(RunRolledBack):
        trip.run("r", "rome")
    assert undone(sqlite) == ["undo/rb-hotel", "undo/rb-flight"]
    assert world().count("undo hotel done 3") == 1


def test_an_undo_that_was_settled_as_done_is_not_called_again(store):
    trip.run("r", "rome")
    broken.add("undo flight done rome")
    store.rollback("r")
    store.settle("r", "undo/rb-flight", Done(None), actor="ana")
    with pytest.raises(RunRolledBack):
        trip.run("r", "rome")
    assert world().count("undo flight done rome") == 1
    with pytest.raises(RunFailed, match="undone since"):
        trip.run("again", "rome")


def test_an_undo_that_was_given_up_is_left(sqlite):
    trip.run("r", "rome")
    broken.add("undo flight done rome")
    sqlite.rollback("r")
    sqlite.settle("r", "undo/rb-flight", Failed("leave it"), actor="ana")
    with pytest.raises(RunRolledBack):
        trip.run("r", "rome")
    assert sqlite.history("r")[-1].body["stays"] == ["rb-flight"]


def test_an_undo_is_tried_again_as_declared(sqlite):
    trip.run("r", "rome")
    broken.add("undo hotel done 3")
    assert sqlite.rollback("r").status == "held"
    shown = {key for key in seen if key.startswith("hf_")}
    assert world().count("undo hotel done 3") == 3
    assert len(shown) == 1, "each attempt shows the same key"


def test_an_undo_that_fails_fails_the_run_and_is_tried_again_under_a_new_key(sqlite):
    @effect
    def lend() -> str:
        return did("lend")

    @lend.undo(not_done_on=(ConnectionError,))
    def get_back(result: str) -> None:
        seen.append(holdfast.idempotency_key())
        did("get back")

    @flow
    def lending() -> None:
        hotel("b")
        lend()

    lending.run("r")
    broken.add("get back")
    assert sqlite.rollback("r").status == "failed"
    broken.clear()
    with pytest.raises(RunRolledBack):
        lending.run("r")
    keys = [key for key in seen if key.startswith("hf_")]
    assert len(keys) == len(set(keys)) == 3
    assert [step.rpartition(".")[2] for step in undone(sqlite)] == ["lend", "undo/rb-hotel"]


def test_an_interrupted_undo_is_in_doubt_and_the_run_can_go_on(sqlite):
    @effect
    def rent() -> str:
        return did("rent")

    stop = Stop()

    @rent.undo(on_doubt=lambda result: NOT_DONE)
    def give_back(result: str) -> None:
        did("give back")
        stop.here()

    @flow
    def renting() -> None:
        rent()
        raise Rollback

    interrupted(lambda: renting.run("r"))
    with pytest.raises(RunRolledBack):
        renting.run("r")
    assert seen.count("give back") == 2


def test_a_signal_reaches_an_undo_as_it_reaches_a_step(sqlite):
    @effect
    def open_valve() -> str:
        return did("open")

    @open_valve.undo(on_doubt="retry")
    def close_valve(result: str) -> None:
        did("close")
        if seen.count("close") == 1:
            signal.raise_signal(signal.SIGINT)
            did("never")

    @flow
    def valves() -> None:
        open_valve()
        raise Rollback

    handler = signal.getsignal(signal.SIGINT)
    interrupted(lambda: valves.run("r"))
    assert sqlite.get("r").status == "queued"
    assert "step_in_doubt" in kinds(sqlite, "r")
    with pytest.raises(RunRolledBack):
        valves.run("r")
    assert seen == ["open", "close", "close"]
    trip.run("done", "rome")
    sqlite.rollback("done")
    with pytest.raises(RunRolledBack), holdfast.run("block"):
        raise Rollback
    assert signal.getsignal(signal.SIGINT) is handler, "it is back in its place"


# -- to a step ---------------------------------------------------------------------------------


def test_to_a_step_and_on_in_the_next_generation(store):
    trip.run("r", "rome")
    plan = store.preview_rollback("r", to="rb-flight")
    assert [it.step for it in plan.effects] == ["rb-hotel"]
    answer = store.rollback("r", to="rb-flight")
    assert (answer.status, store.get("r").held_reason) == ("held", "paused")
    assert store.get("r").generation == 2
    assert "it was rolled back to rb-flight" in str(store.explain("r"))
    seen.clear()
    store.resume("r")
    assert trip.run("r", "rome") == "booked"
    assert world() == ["think", "hotel"], "what came before it is kept"
    keys = [e.body["key"] for e in store.history("r") if "key" in e.body]
    assert len(keys) == len(set(keys)) == 4, "new keys in the new generation"
    seen.clear()
    assert store.rollback("r").status == "rolled_back"
    assert undone(store) == ["undo/rb-hotel", "undo[2]/rb-hotel", "undo/rb-flight"]
    assert not store.verify()


def test_to_a_step_inside_a_loop(store):
    @flow
    def rounds() -> list[str]:
        nothing: dict[str, list[str]] = {"done": []}
        for state in turns(nothing, max_turns=6):
            state["done"].append(hotel(str(len(state["done"]))))
            if len(state["done"]) == 5:
                return state["done"]
        raise AssertionError

    assert len(rounds.run("r")) == 5
    seen.clear()
    store.rollback("r", to="turns[1]/rb-hotel")
    assert undone(store) == [f"undo/turns[{turn}]/rb-hotel" for turn in (4, 3, 2)]
    seen.clear()
    store.resume("r")
    assert len(rounds.run("r")) == 5
    assert world() == ["hotel"] * 3
    assert rounds.run("r") == ["hotel done"] * 5
    assert not store.verify()


def test_to_a_step_that_is_not_there(sqlite):
    trip.run("r", "rome")
    with pytest.raises(UsageError, match="has no step 'nowhere'; its last ones: rb-flight"):
        sqlite.rollback("r", to="nowhere")


def test_one_rollback_at_a_time(sqlite):
    in_doubt("r")
    sqlite.rollback("r", actor="kim")
    with pytest.raises(UsageError, match="is being rolled back already, as kim asked for"):
        sqlite.rollback("r", to="rb-flight")
    assert "already" in sqlite.rollback("r").did


# -- declaring it ------------------------------------------------------------------------------


def test_an_undo_takes_the_result_then_the_arguments():
    @effect
    def plain(a: int, b: int) -> int:
        return a

    with pytest.raises(UsageError, match=r"no_arguments\(result, a, b\)"):

        @plain.undo
        def no_arguments(result: int) -> None: ...

    with pytest.raises(UsageError, match="the undo of"):
        plain.undo(on_doubt="perhaps")(lambda result, a, b: None)  # type: ignore[call-overload]


def test_a_process_that_does_not_know_the_undo_holds_the_run(sqlite):
    trip.run("r", "rome")
    known = registry.effects.pop("rb-flight")
    try:
        assert sqlite.rollback("r").status == "held"
    finally:
        registry.effects["rb-flight"] = known
    assert "does not know it" in str(sqlite.explain("r"))
    assert undone(sqlite) == [], "nothing is undone before all of it can be"
    sqlite.resume("r")
    with pytest.raises(RunRolledBack):
        trip.run("r", "rome")


def test_an_undo_that_is_gone_for_good_can_be_left(store):
    trip.run("r", "rome")
    known = registry.effects.pop("rb-flight")
    try:
        assert store.rollback("r").status == "held"
        assert "--confirm" in str(store.explain("r"))
        assert [it.fate for it in store.preview_rollback("r").effects] == ["undo", "lost"]
        assert "already" in store.rollback("r").did, "without a confirmation nothing changes"
        assert store.rollback("r", confirm=True).status == "rolled_back"
    finally:
        registry.effects["rb-flight"] = known
    assert undone(store) == ["undo/rb-hotel"]
    assert "Not undone, and as it was left: rb-flight." in str(store.explain("r"))


def test_an_undo_that_is_back_in_time_is_called_all_the_same(store):
    trip.run("r", "rome")
    known = registry.effects.pop("rb-flight")
    try:
        assert store.rollback("r").status == "held"
        run_rollback.rollback(store._backend, "r", actor="kim", confirm=True)
    finally:
        registry.effects["rb-flight"] = known
    with pytest.raises(RunRolledBack):
        trip.run("r", "rome")
    assert undone(store) == ["undo/rb-hotel", "undo/rb-flight"]


def test_a_pause_is_not_taken_for_an_undo_that_is_gone(store):
    trip.run("r", "rome")
    run_rollback.rollback(store._backend, "r", actor="kim")
    store.pause("r", actor="ann")
    assert [it.fate for it in store.preview_rollback("r").effects] == ["undo", "undo"]


def test_an_undo_that_was_declared_later_is_called_as_the_plan_says(store):
    @effect(name="rb-late")
    def late() -> str:
        return did("late")

    @flow(name="rb-late-flow")
    def later() -> str:
        return late()

    later.run("r")

    @late.undo
    def no_late(result: str) -> None:
        did("undo late")

    (planned,) = store.preview_rollback("r").effects
    assert "unless the code has one by now" in planned.means
    assert store.rollback("r", confirm=True).status == "rolled_back"
    assert seen == ["late", "undo late"]


def test_a_rollback_that_is_held_is_not_replaced_by_one_that_keeps_what_is_undone(store):
    broken.add("undo rb-act 0")

    @effect(name="rb-act")
    def act(n: int) -> int:
        did(f"act {n}")
        return n

    @act.undo
    def no_act(result: int, n: int) -> None:
        did(f"undo rb-act {n}")

    @flow(name="rb-acts")
    def acts() -> int:
        return sum(act(n) for n in range(3))

    acts.run("r")
    assert store.rollback("r").status == "held"
    assert undone(store) == ["undo/rb-act#3", "undo/rb-act#2"]
    for confirm in (False, True):
        with pytest.raises(UsageError, match="is being rolled back already"):
            store.rollback("r", to="rb-act#2", confirm=confirm)
    with pytest.raises(UsageError, match="rb-act, rb-act#2 would be kept, and its undo was begun"):
        store.preview_rollback("r", to="rb-act#2")
    store.settle("r", "undo/rb-act", Done(None), actor="ana")
    with pytest.raises(RunRolledBack):
        acts.run("r")


def test_child_runs_are_named_and_left(sqlite):
    @flow
    def inner() -> str:
        return hotel("b")

    @flow
    def outer() -> str:
        return inner() + flight("f")

    outer.run("r")
    plan = sqlite.preview_rollback("r")
    assert [it.step for it in plan.effects] == ["rb-flight"]
    [child] = plan.children
    assert f"run {child} is not rolled back; roll it back by itself" in str(plan)
    assert sqlite.rollback("r").status == "rolled_back"
    assert "undo hotel done 2" not in seen
    assert sqlite.rollback(child).status == "rolled_back"
    assert "undo hotel done 2" in seen


def test_what_an_undo_writes_to_the_stores_own_database_commits_with_it(sqlite):
    @effect(transaction=True)
    def put(name: str) -> str:
        holdfast.context.sql_connection().execute("CREATE TABLE IF NOT EXISTS rb_names (name)")
        holdfast.context.sql_connection().execute("INSERT INTO rb_names VALUES (?)", (name,))
        return name

    @put.undo
    def take(result: str, name: str) -> None:
        holdfast.context.sql_connection().execute("DELETE FROM rb_names WHERE name = ?", (name,))

    @effect(transaction=True)
    def count() -> int:
        [[found]] = (
            holdfast.context.sql_connection().execute("SELECT count(*) FROM rb_names").fetchall()
        )
        return int(found)

    @flow
    def putting() -> None:
        put("a")
        put("b")
        raise Rollback

    @flow
    def counting() -> int:
        return count()

    with pytest.raises(RunRolledBack):
        putting.run("r")
    assert counting.run("count") == 0
    assert [step.rpartition(".")[2] for step in undone(sqlite)] == ["put#2", "put"]


def test_cancelled_runs_are_rolled_back(sqlite):
    @flow
    def waiting() -> str:
        hotel("b")
        return str(holdfast.wait_for_signal("never"))

    handle = waiting.start("r")
    sqlite.wait_until("r", done="rb-hotel")
    sqlite.cancel("r")
    with pytest.raises(RunCancelled):
        handle.result(20)
    assert sqlite.rollback("r").status == "rolled_back"
    assert undone(sqlite) == ["undo/rb-hotel"]


def test_a_rollback_is_not_cancelled_half_way(sqlite):
    in_doubt("r")
    sqlite.rollback("r")
    stopped = sqlite.cancel("r")
    assert (stopped.outcome, "cannot be cancelled" in stopped.detail) == ("pending", True)
    sqlite.settle("r", "rb-hotel", NOT_DONE, actor="ana")
    with pytest.raises(RunRolledBack):
        trip.run("r", "r")


def test_a_run_whose_time_is_over_is_rolled_back_all_the_same():
    clock = testing.FakeClock()
    with testing.store(clock) as store:
        trip.with_options(timeout="1h").run("r", "rome")
        clock.advance("2h")
        assert store.rollback("r").status == "rolled_back"


def test_kinds_of_a_rollback(sqlite):
    with pytest.raises(RunRolledBack):
        trip.run("r", "rome", fails=True)
    assert kinds(sqlite, "r")[-7:] == [
        *("rollback_requested", "run_claimed"),
        *("step_started", "step_completed") * 2,
        "run_rolled_back",
    ]


@flow(name="rb-kid-that-waits")
def kid_that_waits() -> str:
    holdfast.wait_for_signal("go")
    return hotel("too late")


@flow(name="rb-with-kid")
def with_kid(fails: bool) -> str:
    child = kid_that_waits.start("k")
    if fails:
        raise Rollback("not wanted")
    return child.result()


@pytest.mark.parametrize("fails", [False, True])
def test_children_that_have_not_ended_are_cancelled_with_it(sqlite, fails):
    handle = with_kid.start("r", fails)
    child = "r::rb-kid-that-waits:k"
    if not fails:
        sqlite.wait_until(child, status="waiting")
        assert f"run {child} has not ended: it is cancelled" in str(sqlite.preview_rollback("r"))
        sqlite.rollback("r", actor="ana")
    with pytest.raises(RunRolledBack):
        handle.result(timeout=30)
    sqlite.wait_until(child, status="cancelled")
    assert "its parent, run 'r', was rolled back" in str(sqlite.history(child)[-1].body)
    assert sqlite.verify() == []


# -- a pause or a drain between two undos ------------------------------------------------------


undoing = threading.Event()
heard: list[bool] = []


def undone_slowly(booked: str, n: int) -> None:
    """Come to an end only when the run has heard that it is to stop; only the first one waits."""
    seen.append(n)
    frame = current.get()
    assert frame is not None
    if not undoing.is_set():
        undoing.set()
        heard.append(frame.execution.interrupted.wait(20))


@effect(name="rb-slow", undo=undone_slowly)
def slow(n: int) -> str:
    return "done"


@flow(name="rb-slow-trip")
def slow_trip() -> None:
    for n in range(3):
        slow(n)
    holdfast.wait_for_signal("go")


@flow(name="rb-slow-trip-awaited")
async def slow_trip_awaited() -> None:
    for n in range(3):
        await slow.aio(n)
    await aio.wait_for_signal("go")


@pytest.fixture(params=[slow_trip, slow_trip_awaited], ids=["sync", "async"])
def waits_to_be_undone(request, store):
    undoing.clear()
    heard.clear()
    request.param.submit("r")
    store.recover()
    assert store.get("r").status == "waiting"
    return request.param


def test_a_rollback_is_paused_between_two_undos(store, waits_to_be_undone):
    with store.worker(flows=[waits_to_be_undone]):
        run_rollback.rollback(store._backend, "r", actor="kim")
        assert undoing.wait(20)
        assert store.pause("r", actor="ana", wait_s=20).outcome == "paused"
    assert heard == [True]
    assert seen == [2], "the undo at work came to its end, and no other began"
    assert (store.get("r").status, store.get("r").held_reason) == ("held", "paused")
    store.resume("r", actor="ana")
    store.recover()
    assert store.get("r").status == "rolled_back"
    assert seen == [2, 1, 0]


def test_a_drain_gives_a_rollback_back_between_two_undos(store, waits_to_be_undone):
    with store.worker(flows=[waits_to_be_undone], drain_s=0.1):
        run_rollback.rollback(store._backend, "r", actor="kim")
        assert undoing.wait(20)
    assert heard == [True]
    assert seen == [2]
    assert store.get("r").status == "queued"
    assert kinds(store, "r")[-1] == "run_released"
    store.recover()
    assert store.get("r").status == "rolled_back"
    assert seen == [2, 1, 0]


def test_a_stop_that_comes_while_a_rollback_begins_is_kept(sqlite, monkeypatch):
    """The flow was stopped to be rolled back; the drain came before the first undo."""
    real = undoing_of_a_run._start_anew

    def start_anew(execution, *args):
        execution.stop(Unwind(RunError("r", "drained"), released="drained"), later=True)
        real(execution, *args)

    undoing.set()
    slow_trip.submit("r")
    sqlite.recover()
    run_rollback.rollback(sqlite._backend, "r", actor="kim")
    monkeypatch.setattr(undoing_of_a_run, "_start_anew", start_anew)
    sqlite.recover()
    assert seen == []
    monkeypatch.undo()
    sqlite.recover()
    assert seen == [2, 1, 0]
