"""What the watchdog does about what it finds: once, on runs at work and on runs that nobody has."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Watchdog, aio, each, effect, flow, step, testing, wait_for_signal
from holdfast._engine.journal.rows import etag_of
from holdfast._features.watchdog import watchdog_loop as watchdog_loop
from holdfast._features.watchdog.watchdog_loop import WatchdogLoop
from holdfast._operator.act import fork as forks, run_decisions
from holdfast._runtime import registry
from holdfast.errors import RunCancelled, RunFailed, RunHeld, StaleView, UsageError
from holdfast.testing import FakeClock, PrivateStore
from tests.runtime.facts import is_free, until
from tests.runtime.stops import kinds


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
called: list[holdfast.types.Finding] = []
raising: list[Exception] = []


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    global gate
    gate = Gate()
    called.clear()
    raising.clear()
    yield
    gate.open.set()


@pytest.fixture
def store() -> Iterator[PrivateStore]:
    with testing.store(url="sqlite:") as opened:
        yield opened


def page_somebody(finding: holdfast.types.Finding) -> None:
    if raising:
        raise raising.pop()
    called.append(finding)


@step(name="wd-look")
def look(at: int) -> int:
    return at


@step(name="wd-poll", polls=True)
def poll(at: int) -> int:
    return at


@step(name="wd-slow")
def slow() -> str:
    return gate.pass_through()


@effect(name="wd-mail")
def mail(to: str) -> str:
    return to


@step(name="wd-bad")
def bad() -> str:
    raise ValueError("no")


def round_and_round() -> str:
    for _ in range(3):
        look(1)
    slow()
    look(2)
    return "done"


@flow(name="wd-noted", watchdog=Watchdog(loop_after=3))
def noted() -> str:
    return round_and_round()


@flow(name="wd-held", watchdog=Watchdog(loop_after=3, looping="hold"))
def held() -> str:
    return round_and_round()


@flow(name="wd-cancelled", watchdog=Watchdog(loop_after=3, looping="cancel"))
def cancelled() -> str:
    return round_and_round()


@flow(name="wd-paged", watchdog=Watchdog(loop_after=3, looping=page_somebody))
def paged() -> str:
    return round_and_round()


@flow(name="wd-ignored", watchdog=Watchdog(loop_after=3, looping="ignore"))
def ignored() -> str:
    return round_and_round()


@flow(
    name="wd-sleeping", watchdog=Watchdog(loop_after=3, looping="hold", duplicate_action="cancel")
)
def sleeping(twice: bool = False) -> str:
    for _ in range(3):
        (poll if twice else look)(1)
    for _ in range(2):
        if twice:
            mail("ana")
    wait_for_signal("go")
    return "done"


@flow(name="wd-awaited", watchdog=Watchdog(loop_after=3, looping="hold"))
async def awaited() -> str:
    for _ in range(3):
        await look.aio(1)
    await aio.run_step("wd-slow-call", gate.pass_through)
    await look.aio(2)
    return "done"


@flow(name="wd-failing")
def failing() -> None:
    mail("ana")
    bad()


@flow(name="wd-once-a-day", watchdog=Watchdog(duplicates_within="1d"))
def once_a_day(to: str) -> None:
    mail(to)
    wait_for_signal("go")


def findings_in(store: holdfast.types.Store, run_id: str) -> list[str]:
    return [e.body["did"] for e in store.history(run_id) if e.kind == "finding_noted"]


def asleep(store: PrivateStore, started: Any, run_id: str, *args: Any) -> None:
    """Have a worker execute a run until it waits, with nobody who has it."""
    with store.worker(flows=[started], drain_s=0):
        started.submit(run_id, *args)
        store.wait_until(run_id, waiting="signal")
    until(lambda: is_free(store, run_id))


def stopping(store: PrivateStore) -> None:
    """Wait until the run at work here was told to stop."""
    [execution] = store._engine.executing()
    until(lambda: execution.stopped is not None)


# -- a run at work -----------------------------------------------------------------------------


def test_a_run_at_work_is_noted_and_goes_on(store):
    handle = noted.start("r")
    gate.begun.wait(20)
    assert [it.kind for it in store.run_watchdog()] == ["looping"]
    until(lambda: findings_in(store, "r"))
    assert store.run_watchdog() == []
    gate.open.set()
    assert handle.result() == "done"
    assert findings_in(store, "r") == ["note"]
    [told] = store.findings("r")
    assert (told.did, told.open) == ("note", True)


def test_a_run_at_work_is_held_at_its_next_durable_call(store):
    handle = held.start("r")
    gate.begun.wait(20)
    store.run_watchdog()
    store.run_watchdog()
    stopping(store)
    gate.open.set()
    with pytest.raises(RunHeld) as stopped:
        handle.result()
    assert stopped.value.reason == "paused"
    assert "watchdog" in stopped.value.detail
    assert findings_in(store, "r") == ["hold"]
    assert kinds(store, "r").count("run_held") == 1
    assert kinds(store, "r", "wd-slow").count("step_completed") == 1

    store.resume("r", actor="ana")
    assert held.run("r") == "done"
    assert store.run_watchdog() == []
    assert findings_in(store, "r") == ["hold"]


def test_a_run_at_work_is_cancelled(store):
    handle = cancelled.start("r")
    gate.begun.wait(20)
    store.run_watchdog()
    stopping(store)
    gate.open.set()
    with pytest.raises(RunCancelled):
        handle.result()
    assert findings_in(store, "r") == ["cancel"]
    assert kinds(store, "r")[-1] == "run_cancelled"


def test_an_async_run_is_held(store):
    handle = awaited.start("r")
    gate.begun.wait(20)
    store.run_watchdog()
    stopping(store)
    gate.open.set()
    with pytest.raises(RunHeld):
        handle.result()
    assert findings_in(store, "r") == ["hold"]
    store.resume("r", actor="ana")
    assert asyncio.run(awaited.run("r")) == "done"


def test_what_is_to_be_ignored_is_shown_and_not_acted_on(store):
    handle = ignored.start("r")
    gate.begun.wait(20)
    assert [it.kind for it in store.findings()] == ["looping"]
    assert store.run_watchdog() == []
    gate.open.set()
    assert handle.result() == "done"
    assert findings_in(store, "r") == []


# -- a run that nobody has ---------------------------------------------------------------------


def test_a_run_that_nobody_has_is_held_in_one_write(store):
    asleep(store, sleeping, "r")
    [found] = store.run_watchdog("r")
    assert found.kind == "looping"
    assert kinds(store, "r")[-2:] == ["finding_noted", "run_held"]
    assert store.get("r").status == "held"
    assert [run.run_id for run in store.runs(finding="looping")] == ["r"]
    assert store.run_watchdog() == []
    assert "Finding, looping: wd-look was called 3 times" in str(store.explain("r"))

    store.resume("r", actor="ana")
    store.signal("r", "go")
    assert sleeping.run("r") == "done"
    assert not list(store.verify())
    assert [(it.did, it.open) for it in store.findings("r")] == [("hold", False)]


def test_a_run_that_nobody_has_is_cancelled_in_one_write(store):
    asleep(store, sleeping, "r", True)
    assert [it.kind for it in store.run_watchdog()] == ["duplicate_action"]
    assert kinds(store, "r")[-2:] == ["finding_noted", "run_cancelled"]
    assert store.run_watchdog() == []


def test_many_workers_at_once_hold_it_once(store):
    asleep(store, sleeping, "r")
    others = [holdfast.open(store.url, default=False) for _ in range(5)]
    ready = threading.Barrier(len(others))

    def look_too(other: holdfast.types.Store) -> None:
        ready.wait()
        other.run_watchdog()

    threads = [threading.Thread(target=look_too, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        other.close()
    assert findings_in(store, "r") == ["hold"]
    assert kinds(store, "r").count("run_held") == 1
    assert not list(store.verify())


def test_a_note_refuses_nobody_who_saw_the_run_before(store):
    """A worker notes what it finds in a failed run within a minute: just when somebody decides."""
    with pytest.raises(RunFailed):
        failing.run("r")
    backend = store._backend
    seen = etag_of(backend.get("r"))
    assert store.run_watchdog()
    noted = etag_of(backend.get("r"))
    assert noted != seen
    forked = forks.fork(
        backend,
        "r",
        "f",
        before="wd-bad",
        actor="kim",
        confirm=True,
        expected_version=seen,
    )
    assert forked.created
    resumed = run_decisions.resume(backend, "r", actor="kim", confirm=True, expected_version=seen)
    assert resumed.recorded
    for stale in (seen, noted):
        with pytest.raises(StaleView):
            run_decisions.resume(backend, "r", actor="ana", expected_version=stale)


def test_a_failed_run_that_left_effects_behind_is_noted_once(store):
    with pytest.raises(RunFailed):
        failing.run("r")
    assert [it.kind for it in store.run_watchdog()] == ["partial_failure"]
    assert store.run_watchdog() == []
    assert findings_in(store, "r") == ["note"]
    assert not list(store.verify())
    with pytest.raises(RunFailed):
        failing.run("r")  # The next generation fails anew: that is another finding.
    assert len(store.run_watchdog()) == 1


def test_effects_are_compared_with_those_of_other_runs(store):
    for run_id in ("one", "two"):
        asleep(store, once_a_day, run_id, "ana")
    asleep(store, once_a_day, "three", "kim")
    assert [(it.run_id, it.kind) for it in store.run_watchdog()] == [("two", "duplicate_action")]


def test_a_flow_that_is_not_known_here_is_left_to_those_who_know_it(store, monkeypatch):
    asleep(store, sleeping, "r")
    assert watchdog_loop.run_once(store._engine, {}) == []
    assert findings_in(store, "r") == []


def test_a_store_says_it_for_flows_that_declare_nothing(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with holdfast.open(
        url, watchdog=Watchdog(partial_failure=page_somebody, loop_after=4)
    ) as store:
        with pytest.raises(RunFailed):
            failing.run("r")
        assert store.history("r")[0].body["watch"]["loops"] == 4
        store.run_watchdog()
        assert [it.kind for it in called] == ["partial_failure"]
    with pytest.raises(UsageError, match="watchdog="):
        holdfast.open(url, watchdog="hold")  # type: ignore[arg-type]


# -- functions ---------------------------------------------------------------------------------


def test_a_function_is_called_once_by_any_number_of_workers(store):
    handle = paged.start("r")
    gate.begun.wait(20)
    with holdfast.open(store.url, default=False) as other:
        both = [threading.Thread(target=it.run_watchdog) for it in (store, other)]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
    until(lambda: findings_in(store, "r"))
    gate.open.set()
    assert handle.result() == "done"
    assert [(it.run_id, it.kind) for it in called] == [("r", "looping")]
    assert findings_in(store, "r") == ["called page_somebody"]


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
def test_a_function_that_raised_is_called_again_later(url):
    with testing.store(clock=FakeClock(), url=url) as store:
        raising.append(ConnectionError("the pager is off"))
        handle = paged.start("r")
        gate.begun.wait(20)
        assert store.run_watchdog() == []
        assert store.run_watchdog() == []  # Not at once: another worker may be at it.
        store.clock.advance(61)
        assert len(store.run_watchdog()) == 1
        gate.open.set()
        assert handle.result() == "done"
        assert len(called) == 1


# -- the rounds of a worker --------------------------------------------------------------------


def test_a_worker_makes_rounds_by_itself():
    with testing.store(clock=FakeClock()) as store, store.worker(flows=[sleeping]):
        sleeping.submit("r")
        store.wait_until("r", waiting="signal")
        store.clock.advance(61)
        store.wait_until("r", status="held")
        assert findings_in(store, "r") == ["hold"]


def test_runs_that_sleep_and_have_not_changed_are_not_read_again(store, monkeypatch):
    asleep(store, once_a_day, "r", "ana")
    asleep(store, noted_and_asleep, "s")
    reads: list[str] = []
    load = store._backend.load

    def loading(row: Any, *more: Any) -> Any:
        reads.append(row.run_id)
        return load(row, *more)

    monkeypatch.setattr(store._backend, "load", loading)
    rounds = WatchdogLoop(store._engine, lambda: registry.flows)
    assert len(list(rounds.round())) == 1
    list(rounds.round())  # It was noted: its journal has changed.
    reads.clear()
    assert list(rounds.round()) == []
    assert reads == []


@flow(name="wd-noted-and-asleep", watchdog=Watchdog(loop_after=3))
def noted_and_asleep() -> None:
    for _ in range(3):
        look(1)
    wait_for_signal("go")


# -- what is recorded for those who look from outside ------------------------------------------


@step(name="wd-limited", timeout=30)
def limited() -> str:
    return gate.pass_through()


@flow(name="wd-limited-flow", watchdog=Watchdog(stuck_after="2m"))
def has_limited() -> str:
    return limited()


def test_what_a_step_declares_stands_with_its_start(store):
    handle = has_limited.start("r")
    gate.begun.wait(20)
    [execution] = store._engine.executing()
    execution.recorder.beat()
    until(lambda: "step_started" in kinds(store, "r"))
    [begun] = [e for e in store.history("r") if e.kind == "step_started"]
    assert begun.body["timeout_s"] == 30
    assert store.history("r")[0].body["watch"]["stuck_us"] == 120_000_000
    gate.open.set()
    assert handle.result() == "through"


@flow(name="wd-branches")
def branches() -> list[Any]:
    def work(at: int) -> Any:
        return bad() if at == 1 else look(at)

    return [type(it).__name__ for it in each(work, [0, 1, 2], failures="collect")]


def test_branches_of_which_one_failed_are_shown_when_the_run_has_ended(store):
    branches.run("r")
    [found] = store.findings("r")
    assert (found.kind, found.severity) == ("partial_failure", "warning")
    assert "1 of 3 branches of each failed" in found.text
    assert [run.run_id for run in store.runs(finding="partial_failure")] == ["r"]


def test_wrong_words_are_refused(store):
    with pytest.raises(UsageError, match="stuck"):
        store.runs(finding="slow")
    with pytest.raises(UsageError, match="watchdog="):
        flow(watchdog="hold")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="polls="):
        step(polls="yes")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="polls"):
        effect(polls=True)(lambda: None)  # type: ignore[call-overload]
