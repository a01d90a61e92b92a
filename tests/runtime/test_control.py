"""Cancel, pause and deadlines: in every status a run can be in, and always with a true answer."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import (
    NOT_DONE,
    Done,
    aio,
    effect,
    flow,
    gather,
    sleep,
    step,
    testing,
    wait_for_signal,
)
from holdfast._operator.act import cancellation as stopping
from holdfast._runtime import inbox_poller
from holdfast.errors import (
    RunCancelled,
    RunEnded,
    RunFailed,
    RunHeld,
    StaleView,
    UsageError,
)
from holdfast.testing import FakeClock, PrivateStore
from tests.runtime.facts import until
from tests.runtime.stops import kinds, steps


class Gate:
    """A body that says it has begun, and goes on when it may."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> str:
        self.begun.set()
        assert self.open.wait(20), "nobody opened the gate"
        return "through"


gate = Gate()
turned: list[str] = []
"""What the code of a flow was changed to, if it was."""


@pytest.fixture(autouse=True)
def new_gate() -> Iterator[None]:
    global gate
    gate = Gate()
    turned.clear()
    yield
    gate.open.set()


@step(name="ctl-slow")
def slow() -> str:
    return gate.pass_through()


@effect(name="ctl-pay")
def pay() -> str:
    return gate.pass_through()


@effect(name="ctl-lost")
def lost() -> str:
    raise ConnectionError("no answer")


@step(name="ctl-note")
def note(text: str) -> str:
    return text


@flow(name="ctl-plain")
def plain() -> str:
    slow()
    return note("after")


@flow(name="ctl-paying")
def paying() -> str:
    pay()
    return note("after")


@step(name="ctl-aslow")
async def aslow() -> str:
    return await asyncio.to_thread(gate.pass_through)


@effect(name="ctl-apay")
async def apay() -> str:
    return await asyncio.to_thread(gate.pass_through)


@flow(name="ctl-aplain")
async def aplain() -> str:
    await aslow()
    await apay()
    return "end"


@flow(name="ctl-apaying")
async def apaying() -> str:
    await apay()
    await aslow()
    return "end"


@flow(name="ctl-last")
def at_last() -> str:
    return slow()


@flow(name="ctl-waits")
def waits() -> Any:
    note(turned[0] if turned else "before")
    return wait_for_signal("go")


@flow(name="ctl-awaits")
async def awaits() -> Any:
    return await aio.wait_for_signal("go")


@flow(name="ctl-sleeps")
def sleeps() -> str:
    sleep("1h")
    return note("awake")


@flow(name="ctl-doubt")
def doubtful() -> str:
    lost()
    return note("after")


@flow(name="ctl-two")
def two_lines() -> Any:
    return gather(pay, lambda: wait_for_signal("never"))


@flow(name="ctl-fails")
def fails() -> None:
    raise ValueError("no")


@flow(name="ctl-done")
def done() -> str:
    return note("done")


def why(store: PrivateStore, run_id: str = "r") -> tuple[str, str]:
    """Return who cancelled a run, and why, as its journal has it."""
    last = store.history(run_id)[-1]
    assert last.kind == "run_cancelled"
    return last.body["actor"], last.body["reason"]


def heard(store: PrivateStore, run_id: str = "r") -> None:
    """Wait until the process that has the run knows what is asked of it."""
    [execution] = [it for it in store._engine.executing() if it.run_id == run_id]
    until(lambda: execution.stopped is not None)


# -- cancel ------------------------------------------------------------------------------------


def test_a_queued_run_is_cancelled_at_once(store: PrivateStore) -> None:
    handle = done.submit("r")

    answer = store.cancel("r", actor="ana", reason="not needed")

    assert (answer.outcome, answer.status) == ("cancelled", "cancelled")
    assert why(store) == ("ana", "not needed")
    with pytest.raises(RunCancelled, match="ana"):
        handle.result(timeout=20)
    with pytest.raises(RunCancelled):
        done.run("r")
    assert steps(store, "r") == {}


@pytest.mark.parametrize("it", [plain, paying], ids=["step", "effect"])
def test_what_is_executing_comes_to_its_end_and_is_recorded(store: PrivateStore, it: Any) -> None:
    handle = it.start("r")
    assert gate.begun.wait(20)

    pending = store.cancel("r", actor="ana", wait_s=0)
    assert (pending.outcome, pending.status) == ("pending", "running")
    assert "stops it when what is executing now has ended" in pending.detail
    heard(store)
    gate.open.set()
    answer = store.cancel("r", actor="ana")

    assert answer.outcome == "cancelled"
    [(_, state)] = steps(store, "r").items()
    assert state == "completed"
    with pytest.raises(RunCancelled):
        handle.result(timeout=20)


def test_an_async_run_is_cancelled_between_its_steps(store: PrivateStore) -> None:
    async def main() -> None:
        handle = await aplain.aio.start("r")
        await asyncio.to_thread(gate.begun.wait, 20)
        with pytest.raises(UsageError, match="asyncio.to_thread"):
            store.cancel("r")
        with pytest.raises(UsageError, match=r"await handle.aio.cancel"):
            handle.cancel()
        assert handle.cancel(wait_s=0).outcome == "pending"
        cancelling = asyncio.ensure_future(handle.aio.cancel(actor="ana"))
        await asyncio.to_thread(heard, store)
        gate.open.set()
        assert (await cancelling).outcome == "cancelled"
        with pytest.raises(RunCancelled):
            await handle.aio.result(timeout=20)

    asyncio.run(main())
    assert steps(store, "r") == {"ctl-aslow": "completed"}


def test_an_async_effect_is_not_interrupted(store: PrivateStore) -> None:
    async def main() -> None:
        handle = await apaying.aio.start("r")
        await asyncio.to_thread(gate.begun.wait, 20)
        assert handle.cancel(wait_s=0).outcome == "pending"
        await asyncio.to_thread(heard, store)
        gate.open.set()
        assert (await handle.aio.cancel()).outcome == "cancelled"

    asyncio.run(main())
    assert steps(store, "r") == {"ctl-apay": "completed"}


def test_a_run_that_returns_first_has_completed(store: PrivateStore) -> None:
    """The cancel comes while the last step executes, and nothing durable follows."""
    handle = at_last.start("r")
    assert gate.begun.wait(20)
    assert store.cancel("r", wait_s=0).outcome == "pending"
    heard(store)
    gate.open.set()

    answer = store.cancel("r")

    assert (answer.outcome, answer.status) == ("finished", "completed")
    assert handle.result(timeout=20) == "through"


@pytest.mark.parametrize("it", [waits, awaits], ids=["sync", "async"])
def test_one_that_waits_in_its_process(store: PrivateStore, it: Any) -> None:
    handle = it.start("r")
    store.wait_until("r", waiting="signal:go")

    assert handle.cancel(actor="ana").outcome == "cancelled"

    with pytest.raises(RunCancelled):
        handle.result(timeout=20)
    with pytest.raises(RunEnded):
        store.signal("r", "go")


@pytest.mark.parametrize("it", [waits, awaits, sleeps], ids=["sync", "async", "timer"])
def test_one_that_waits_unloaded(store: PrivateStore, it: Any) -> None:
    it.submit("r")
    store.recover()
    assert store._backend.get("r").owner is None  # type: ignore[union-attr]

    assert store.cancel("r", actor="ana").outcome == "cancelled"

    assert store.recover() == []
    assert store._backend.get("r").wake_us is None  # type: ignore[union-attr]


def test_a_failed_run_is_cancelled_and_then_final(store: PrivateStore) -> None:
    with pytest.raises(holdfast.errors.RunFailed):
        fails.run("r")

    assert store.cancel("r", actor="ana").outcome == "cancelled"

    with pytest.raises(RunCancelled):
        fails.run("r")
    with pytest.raises(RunCancelled):
        store.resume("r")


def test_what_has_ended_is_not_cancelled(store: PrivateStore) -> None:
    done.run("r")
    before = len(store.history("r"))

    answer = store.cancel("r")

    assert (answer.outcome, answer.status) == ("finished", "completed")
    assert done.run("r") == "done"
    assert len(store.history("r")) == before


def test_cancelled_twice_is_cancelled_once(store: PrivateStore) -> None:
    done.submit("r")
    store.cancel("r", actor="ana", reason="first")

    again = store.cancel("r", actor="bob", reason="second")

    assert (again.outcome, again.detail) == ("cancelled", "it was cancelled before")
    assert why(store) == ("ana", "first")
    assert kinds(store, "r").count("run_cancelled") == 1


@pytest.mark.parametrize("decision", [Done("paid"), NOT_DONE], ids=["done", "not done"])
def test_in_doubt_it_is_pending_until_somebody_settles_it(
    store: PrivateStore, decision: Any
) -> None:
    with pytest.raises(RunHeld):
        doubtful.run("r")

    answer = store.cancel("r", actor="ana", reason="enough")

    assert (answer.outcome, answer.status) == ("pending", "held")
    assert "ctl-lost may or may not have happened" in answer.detail
    again = store.cancel("r", actor="bob")
    assert again.outcome == "pending"
    assert kinds(store, "r").count("cancel_requested") == 1
    settled = store.settle("r", "ctl-lost", decision, actor="bob")
    assert "the run is cancelled, as ana had asked" in settled.did
    assert why(store) == ("ana", "enough")
    assert "ctl-note" not in steps(store, "r")


def test_a_cancel_that_waits_for_a_doubt_holds_when_the_one_who_settles_dies(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settled, and not cancelled yet: whoever takes the run up cancels it, and executes nothing."""
    from holdfast._operator.act import run_decisions

    with pytest.raises(RunHeld):
        doubtful.run("r")
    store.cancel("r", actor="ana")
    monkeypatch.setattr(run_decisions, "_cancelled_now", lambda store, past, answer: answer)
    store.settle("r", "ctl-lost", Done("paid"), actor="ana")
    assert store.get("r").status == "queued"

    with pytest.raises(RunCancelled):
        doubtful.run("r")

    assert "ctl-note" not in steps(store, "r")


def test_a_diverged_run_is_cancelled(store: PrivateStore) -> None:
    waits.submit("r")
    store.recover()
    turned.append("another step first")
    with pytest.raises(RunHeld, match="diverged"):
        waits.run("r")

    assert store.cancel("r", actor="ana").outcome == "cancelled"

    assert why(store)[0] == "ana"


def test_while_one_line_waits_the_effect_of_another_ends(store: PrivateStore) -> None:
    two_lines.start("r")
    assert gate.begun.wait(20)
    assert store.cancel("r", wait_s=0).outcome == "pending"
    heard(store)
    gate.open.set()

    assert store.cancel("r").outcome == "cancelled"

    assert "completed" in [steps(store, "r")[key] for key in steps(store, "r") if "ctl-pay" in key]


@pytest.mark.parametrize("actor", ["", "  ", 5, b"kim", True, "\ud800", "k" * 201])
def test_nobody_is_no_actor(store: PrivateStore, actor: Any) -> None:
    done.submit("r")
    for decide in (
        functools.partial(store.cancel, "r"),
        functools.partial(store.answer, "r", "name", "Ada"),
        functools.partial(store.pause_queue, "default"),
        store.accept_data_loss,
    ):
        with pytest.raises(UsageError, match="`actor` names who decides"):
            decide(actor=actor)
    assert store.get("r").status == "queued"
    assert not store.get("r").signals


# -- pause -------------------------------------------------------------------------------------


def test_a_pause_holds_a_queued_run_until_it_is_resumed(store: PrivateStore) -> None:
    done.submit("r")

    answer = store.pause("r", actor="ana", reason="wait for me")

    assert (answer.outcome, answer.status) == ("paused", "held")
    run = store.get("r")
    assert (run.held_reason, run.held_detail) == ("paused", "paused by ana: wait for me")
    assert store.recover() == []
    with pytest.raises(RunHeld, match="paused by ana"):
        done.run("r")
    store.resume("r")
    assert done.run("r") == "done"


def test_a_pause_of_a_paused_run_changes_nothing(store: PrivateStore) -> None:
    done.submit("r")
    store.pause("r", actor="ana", reason="wait for me")
    before = kinds(store, "r")

    again = store.pause("r", actor="bob")

    assert (again.outcome, again.detail) == ("paused", "it is paused already")
    assert kinds(store, "r") == before
    assert store.get("r").held_detail == "paused by ana: wait for me"


def test_a_pause_lets_the_step_that_is_executing_end(store: PrivateStore) -> None:
    handle = plain.start("r")
    assert gate.begun.wait(20)
    assert store.pause("r", wait_s=0).outcome == "pending"
    heard(store)
    gate.open.set()

    assert until(lambda: store.get("r").held_reason == "paused")

    assert steps(store, "r") == {"ctl-slow": "completed"}
    with pytest.raises(RunHeld, match="paused"):
        handle.result(timeout=20)
    store.resume("r")
    assert plain.run("r") == "after"
    assert kinds(store, "r", "ctl-slow") == ["step_started", "step_completed"]


def test_paused_while_it_sleeps_it_goes_on_when_the_time_has_passed() -> None:
    clock = FakeClock()
    with testing.store(clock=clock, url="sqlite:") as store:
        sleeps.submit("r")
        store.recover()
        assert store.pause("r").outcome == "paused"
        clock.advance(7200)
        assert store.recover() == []
        store.resume("r")

        assert sleeps.run("r") == "awake"
        assert kinds(store, "r").count("timer_set") == 1


def test_a_signal_that_comes_while_it_is_paused_is_kept(store: PrivateStore) -> None:
    waits.submit("r")
    store.recover()
    store.pause("r")

    store.signal("r", "go", 7)

    assert store.recover() == []
    store.resume("r")
    assert waits.run("r") == 7
    assert kinds(store, "r").count("signal_received") == 1


def test_a_pause_of_one_that_waits_in_its_process(store: PrivateStore) -> None:
    handle = waits.start("r")
    store.wait_until("r", waiting="signal:go")

    assert store.pause("r").outcome == "paused"

    with pytest.raises(RunHeld):
        handle.result(timeout=20)
    store.signal("r", "go", 1)
    store.resume("r")
    assert waits.run("r") == 1


def test_what_does_not_go_on_cannot_be_paused(store: PrivateStore) -> None:
    done.run("r")
    with pytest.raises(RunEnded):
        store.pause("r")
    with pytest.raises(RunHeld):
        doubtful.run("d")
    with pytest.raises(RunHeld, match="ctl-lost"):
        store.pause("d")


def test_a_resume_is_later_than_a_pause_that_came_before_the_run_failed(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        inbox_poller.InboxPoller, "look", lambda _: None
    )  # It fails before it hears of it.
    fails = [True]

    @flow(name="ctl-fails-once")
    def fails_once() -> str:
        if fails:
            fails.clear()
            assert store.pause("r", actor="ana", wait_s=0).outcome == "pending"
            raise ValueError("no")
        return "done"

    with pytest.raises(RunFailed):
        fails_once.run("r")
    assert store.get("r").status == "failed"

    answer = store.resume("r", actor="kim")

    assert answer.did.endswith("the earlier pause by ana, which had not been carried out, is void")
    row = store._backend.get("r")
    assert row is not None
    assert store._backend.inbox(row.run_no) == []
    assert fails_once.run("r") == "done"
    assert store.verify() == []


def test_a_resume_says_that_a_pause_is_still_to_be_carried_out(store: PrivateStore) -> None:
    handle = plain.start("r")
    assert gate.begun.wait(20)
    assert store.pause("r", actor="ana", wait_s=0).outcome == "pending"
    assert "a pause by ana is still to be carried out" in store.resume("r").did
    heard(store)
    gate.open.set()
    with pytest.raises(RunHeld, match="paused"):
        handle.result(timeout=20)


def test_a_paused_run_is_cancelled(store: PrivateStore) -> None:
    done.submit("r")
    store.pause("r")
    assert store.cancel("r").outcome == "cancelled"
    with pytest.raises(RunCancelled):
        store.resume("r")


# -- deadlines ---------------------------------------------------------------------------------


def test_a_deadline_cancels_a_run_that_waits_in_its_process() -> None:
    clock = FakeClock()
    with testing.store(clock=clock, url="sqlite:") as store:
        handle = waits.with_options(timeout="1h").start("r")
        store.wait_until("r", waiting="signal:go")
        clock.advance(3599)
        assert handle.status() == "waiting"
        clock.advance(2)

        with pytest.raises(RunCancelled, match="its deadline has passed"):
            handle.result(timeout=20)
        assert why(store) == ("deadline", "its deadline has passed")


@pytest.mark.parametrize("it", [waits, awaits, sleeps], ids=["sync", "async", "timer"])
def test_a_deadline_wakes_a_run_that_was_unloaded(it: Any) -> None:
    clock = FakeClock()
    with testing.store(clock=clock, url="sqlite:") as store:
        it.with_options(timeout=600).submit("r")
        store.recover()
        assert store.recover() == []
        clock.advance(601)

        assert store.recover() == ["r"]

        assert why(store)[0] == "deadline"


def test_a_run_that_nobody_took_in_time_executes_nothing() -> None:
    clock = FakeClock()
    with testing.store(clock=clock) as store:
        done.with_options(timeout=60).submit("r")
        clock.advance(61)
        store.recover()
        assert why(store)[0] == "deadline"
        assert steps(store, "r") == {}


def test_a_step_that_is_executing_at_the_deadline_is_recorded() -> None:
    clock = FakeClock()
    with testing.store(clock=clock, url="sqlite:") as store:
        handle = paying.with_options(timeout=60).start("r")
        assert gate.begun.wait(20)
        clock.advance(61)
        gate.open.set()

        with pytest.raises(RunCancelled):
            handle.result(timeout=20)
        assert steps(store, "r") == {"ctl-pay": "completed"}


def test_a_deadline_is_kept_across_a_pause() -> None:
    clock = FakeClock()
    with testing.store(clock=clock) as store:
        done.with_options(timeout=60).submit("r")
        store.pause("r")
        clock.advance(61)
        assert store.get("r").status == "held"
        store.resume("r")
        with pytest.raises(RunCancelled, match="deadline"):
            done.run("r")


def test_in_time_nothing_is_seen_of_a_deadline() -> None:
    with testing.store() as store:
        assert done.with_options(timeout="1h").run("r") == "done"
        assert done.run("r") == "done"
        assert store.get("r").status == "completed"


@effect(name="ctl-unanswered")
def unanswered() -> str:
    gate.pass_through()
    raise ConnectionError("no answer")


@flow(name="ctl-unanswered-flow")
def unanswered_flow() -> str:
    return unanswered()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_pause_that_came_too_late_does_not_say_that_it_paused(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch, resumed: bool
) -> None:
    """The effect ended in doubt first: the run is held as that, and the message is only taken."""

    def is_taken() -> bool:
        row = store._backend.get("r")
        return row is not None and row.status == "held" and not store._backend.inbox(row.run_no)

    def its_owner_comes_first(*_: Any) -> bool:
        gate.open.set()
        until(is_taken)
        if resumed:
            store.settle("r", "ctl-unanswered", Done("paid"), actor="bob")
        return False

    unanswered_flow.submit("r")
    monkeypatch.setattr(stopping, "_has_owner", its_owner_comes_first)
    with store.worker(flows=[unanswered_flow]):
        assert gate.begun.wait(20)
        answer = store.pause("r", actor="ana")
    assert answer.outcome == ("finished" if answer.status == "completed" else "pending")
    if not resumed:
        assert "may or may not have happened" in answer.detail


def test_a_pause_that_was_carried_out_and_resumed_says_so(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_paused() -> bool:
        return store.get("r").held_reason == "paused"

    def paused_and_resumed(*_: Any) -> bool:
        gate.open.set()
        until(is_paused)
        store.resume("r", actor="bob")
        return False

    slow_then_waits.submit("r")
    monkeypatch.setattr(stopping, "_has_owner", paused_and_resumed)
    with store.worker(flows=[slow_then_waits]):
        assert gate.begun.wait(20)
        answer = store.pause("r", actor="ana")
    assert (answer.outcome, answer.detail) == (
        "paused",
        "it was paused, and has been resumed since",
    )


@flow(name="ctl-slow-then-waits")
def slow_then_waits() -> str:
    slow()
    return str(wait_for_signal("go"))


# -- what was seen, and how long somebody waits ------------------------------------------------


def test_a_decision_on_another_version_is_refused(store):
    @flow
    def waits() -> str:
        return str(wait_for_signal("go"))

    waits.submit("r")
    seen = store.get("r").etag
    assert store.pause("r", actor="ana", expected_version=seen).outcome == "paused"
    before = [it.seq for it in store.history("r")]
    for decide in (store.cancel, store.resume, store.rollback):
        with pytest.raises(StaleView):
            decide("r", actor="kim", expected_version=seen)
    with pytest.raises(StaleView):
        store.signal("r", "go", actor="kim", expected_version=seen)
    assert [it.seq for it in store.history("r")] == before
    now = store.get("r").etag
    assert store.cancel("r", actor="kim", expected_version=now).outcome == "cancelled"


@pytest.mark.parametrize("wait_s", ["10s", -1, None, True, float("nan")])
def test_a_wait_that_is_no_time_is_refused(store, wait_s):
    @flow
    def waits() -> None:
        wait_for_signal("go")

    handle = waits.submit("r")
    for stop in (
        lambda: handle.cancel(wait_s=wait_s),
        lambda: store.cancel("r", wait_s=wait_s),
        lambda: store.pause("r", wait_s=wait_s),
        lambda: store.rollback("r", wait_s=wait_s),
    ):
        with pytest.raises(UsageError, match="wait_s is seconds"):
            stop()
    assert store.get("r").status == "queued"
