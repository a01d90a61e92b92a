"""Tries, pauses and time limits of steps and effects."""

from __future__ import annotations

import asyncio
import threading

import pytest

import holdfast
from holdfast import NOT_DONE, Retry, effect, flow, step, testing
from holdfast.errors import RunFailed, RunHeld, StepFailed, UsageError
from tests.attempts import attempt
from tests.runtime.stops import Stop, interrupted, kinds, steps


class Busy(Exception):
    def __init__(self, retry_after: float) -> None:
        super().__init__("busy")
        self.retry_after = retry_after


def test_it_is_tried_until_it_works_and_every_attempt_is_an_entry(store):
    seen: list[int] = []

    @step(retry=Retry(attempts=3, initial_wait_s=0))
    def flaky() -> int:
        seen.append(attempt())
        if len(seen) < 3:
            raise ValueError(len(seen))
        return 7

    @flow
    def work() -> int:
        return flaky()

    assert work.run("r") == 7
    assert seen == [1, 2, 3]
    assert kinds(store, "r", flaky.name) == [
        "step_started",
        "step_failed",
    ] * 2 + ["step_started", "step_completed"]
    view = store.get("r").steps[0]
    assert (view.attempts, view.retry_count, view.status) == (3, 2, "completed")
    assert store.get("r").totals.attempts == 3


def test_without_retry_it_is_tried_once(holdfast_store):
    tries: list[int] = []

    @step
    def fails() -> None:
        tries.append(1)
        raise ValueError("no")

    @flow
    def work() -> None:
        fails()

    with pytest.raises(RunFailed):
        work.run("r")
    assert tries == [1]


def test_attempts_and_the_pause_survive_a_restart():
    clock = testing.FakeClock()
    tries: list[int] = []

    @step(retry=Retry(attempts=3, initial_wait_s=100, max_wait_s=100, backoff=1, jitter=0))
    def flaky() -> int:
        tries.append(attempt())
        raise ValueError("no")

    @flow
    def work() -> str:
        try:
            flaky()
        except StepFailed as failed:
            return f"{failed.attempts}"
        return "worked"

    with testing.store(clock) as store:
        work.start("r")
        clock.wait_until_sleeping()
        store.wait_until("r", status="waiting")  # Written in the background; it renews the lease.
        clock.advance(40)
        # Another owner takes the run: the lease ran out while this one slept.
        row = store._backend.get("r")
        clock.jump(31)
        other = store._backend.claim("r", store._backend.register_owner(), store._backend.now_us())
        assert other.row.epoch == row.epoch + 1  # type: ignore[union-attr]
        assert tries == [1]
        # Given back by the other, the run goes on here with what is left of the pause.
        from holdfast._engine.journal.entries import Draft, Kind
        from holdfast._engine.journal.rows import Write

        store._backend.append([Write(other, [Draft(Kind.RUN_RELEASED, clock(), body=b"{}")])])  # type: ignore[arg-type]
        store._engine.executing()[0].recorder.beat()
        store._engine.committer.flush()
        while store._engine.executing():
            threading.Event().wait(0.01)
        handle = work.start("r")
        clock.wait_until_sleeping()
        assert clock.advance_to_next() == pytest.approx(100 - 71, abs=0.01)
        assert clock.advance_to_next() == pytest.approx(100, abs=0.01)
        assert handle.result(timeout=10) == "3"
    assert tries == [1, 2, 3]


def test_an_interrupted_attempt_does_not_count(store):
    tries: list[int] = []

    @step(retry=Retry(attempts=2, initial_wait_s=0))
    def flaky() -> int:
        tries.append(attempt())
        if len(tries) == 1:
            raise KeyboardInterrupt
        raise ValueError(len(tries))

    @flow
    def work() -> int:
        return flaky()

    interrupted(lambda: work.run("r"))
    with pytest.raises(RunFailed):
        work.run("r")
    assert tries == [1, 1, 2]


def test_an_interrupted_second_attempt_does_not_give_one_back(holdfast_store):
    tries: list[int] = []

    @step(retry=Retry(attempts=2, initial_wait_s=0))
    def flaky() -> int:
        tries.append(attempt())
        if len(tries) == 2:
            raise KeyboardInterrupt
        raise ValueError(len(tries))

    @flow
    def work() -> int:
        return flaky()

    interrupted(lambda: work.run("r"))
    with pytest.raises(RunFailed):
        work.run("r")
    assert tries == [1, 2, 2]


def test_give_up_on_ends_it_at_once(holdfast_store):
    tries: list[int] = []

    @step(retry=Retry(attempts=5, initial_wait_s=0, give_up_on=(PermissionError,)))
    def fails() -> None:
        tries.append(1)
        raise PermissionError("never")

    @flow
    def work() -> int:
        try:
            fails()
        except StepFailed as failed:
            return failed.attempts
        return 0

    assert work.run("r") == 1
    assert tries == [1]


def test_what_is_not_in_retry_on_ends_it_at_once(holdfast_store):
    tries: list[int] = []

    @step(retry=Retry(attempts=5, initial_wait_s=0, retry_on=(ConnectionError,)))
    def fails() -> None:
        tries.append(1)
        raise ConnectionError if len(tries) == 1 else TypeError("a mistake in the code")

    @flow
    def work() -> int:
        with pytest.raises(StepFailed) as failed:
            fails()
        assert failed.value.type_name == "TypeError"
        return failed.value.attempts

    assert work.run("r") == 2
    assert tries == [1, 1]


def test_retry_after_is_kept_and_the_deadline_too():
    clock = testing.FakeClock(auto=True)
    at: list[float] = []

    @step(retry=Retry(attempts=9, initial_wait_s=1, backoff=1, jitter=0, max_elapsed_s=100))
    def busy() -> None:
        at.append(clock() / 1e6)
        raise Busy(40)

    @flow
    def work() -> int:
        try:
            busy()
        except StepFailed as failed:
            return failed.attempts
        return 0

    with testing.store(clock):
        assert work.run("r") == 3
    assert [round(moment - at[0]) for moment in at] == [0, 40, 80]


def test_a_retry_after_in_the_headers_is_kept():
    clock = testing.FakeClock(auto=True)
    at: list[float] = []

    class Answer:
        headers = {"retry-after": "17"}

    class TooMany(Exception):
        response = Answer()

    @step(retry=Retry(attempts=2, initial_wait_s=1, jitter=0))
    def busy() -> int:
        at.append(clock() / 1e6)
        if len(at) == 1:
            raise TooMany
        return 1

    @flow
    def work() -> int:
        return busy()

    with testing.store(clock):
        assert work.run("r") == 1
    assert round(at[1] - at[0]) == 17


def test_async_steps_are_retried_alike(holdfast_store):
    tries: list[int] = []

    @step(retry=Retry(attempts=3, initial_wait_s=0))
    async def flaky() -> int:
        tries.append(attempt())
        if len(tries) < 3:
            raise ValueError
        return 1

    @flow
    async def work() -> int:
        return await flaky()

    assert asyncio.run(work.run("r")) == 1
    assert tries == [1, 2, 3]


def test_thousands_of_tries(holdfast_store):
    tries = 0

    @step(commit="grouped", retry=Retry(attempts=3000, initial_wait_s=0, max_wait_s=0))
    def patient() -> int:
        nonlocal tries
        tries += 1
        if tries < 1100:
            raise ValueError
        return tries

    @flow
    def work() -> int:
        return patient()

    assert work.run("r") == 1100


# -- time limits -------------------------------------------------------------------------------


def test_a_plain_step_that_runs_out_of_time_is_tried_again(store):
    free = threading.Event()
    tries: list[int] = []

    @step(timeout=0.05, retry=Retry(attempts=2, initial_wait_s=0))
    def slow() -> int:
        tries.append(attempt())
        if len(tries) == 1:
            free.wait(10)
        return len(tries)

    @flow
    def work() -> int:
        return slow()

    assert work.run("r") == 2
    free.set()
    failed = next(e for e in store.history("r") if e.kind == "step_failed")
    assert failed.body["error"]["type"] == "TimeoutError"
    assert tries == [1, 2]


def test_a_plain_step_without_retry_fails_when_its_time_is_up(holdfast_store):
    free = threading.Event()

    @step(timeout=0.02)
    def slow() -> None:
        free.wait(10)

    @flow
    def work() -> str:
        try:
            slow()
        except StepFailed as failed:
            return failed.type_name
        return "ended"

    assert work.run("r") == "TimeoutError"
    free.set()


def test_an_effect_that_runs_out_of_time_is_in_doubt_and_has_not_ended(store):
    free = threading.Event()

    @effect(timeout=0.02)
    def slow() -> None:
        free.wait(10)

    @flow
    def work() -> None:
        slow()

    with pytest.raises(RunHeld) as held:
        work.run("r")
    free.set()
    assert held.value.reason == "in_doubt"
    doubt = next(e for e in store.history("r") if e.kind == "step_in_doubt")
    assert (doubt.body["why"], doubt.body["ended"]) == ("timeout", False)


def test_not_done_of_an_abandoned_thread_is_not_believed(holdfast_store):
    free = threading.Event()
    calls: list[int] = []

    @effect(timeout=0.02)
    def slow() -> None:
        calls.append(1)
        free.wait(10)

    @slow.on_doubt
    def ask():
        return NOT_DONE

    @flow
    def work() -> None:
        slow()

    with pytest.raises(RunHeld, match="may still be acting"):
        work.run("r")
    free.set()
    assert calls == [1]


def test_an_async_effect_that_runs_out_of_time_has_ended(store):
    calls: list[str] = []

    @effect(timeout=0.02)
    async def slow() -> str:
        calls.append("called")
        try:
            await asyncio.sleep(10 if len(calls) == 1 else 0)
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise
        return "done"

    @slow.on_doubt
    def ask():
        return NOT_DONE

    @flow
    async def work() -> str:
        return await slow()

    assert asyncio.run(work.run("r")) == "done"
    assert calls == ["called", "cancelled", "called"]
    doubt = next(e for e in store.history("r") if e.kind == "step_in_doubt")
    assert (doubt.body["why"], doubt.body["ended"]) == ("timeout", True)


def test_an_async_step_that_runs_out_of_time_is_cancelled_and_tried_again(holdfast_store):
    tries: list[int] = []

    @step(timeout=0.02, retry=Retry(attempts=2, initial_wait_s=0))
    async def slow() -> int:
        tries.append(1)
        if len(tries) == 1:
            await asyncio.sleep(10)
        return len(tries)

    @flow
    async def work() -> int:
        return await slow()

    assert asyncio.run(work.run("r")) == 2


def test_a_timeout_error_of_the_body_is_an_error_like_any_other(holdfast_store):
    @effect(timeout=5, not_done_on=(TimeoutError,), raises=(TimeoutError,))
    async def asks() -> None:
        raise TimeoutError("of the other side")

    @flow
    async def work() -> str:
        try:
            await asks()
        except TimeoutError as error:
            return str(error)
        return ""

    assert asyncio.run(work.run("r")) == "of the other side"


def test_what_an_abandoned_thread_notes_too_late_is_left_out(holdfast_store):
    late, noted = threading.Event(), threading.Event()
    stop = Stop()
    tries: list[int] = []

    @step(timeout=0.05, retry=Retry(attempts=2, initial_wait_s=0))
    def slow() -> int:
        tries.append(1)
        if len(tries) == 1:
            late.wait(10)
            try:
                holdfast.context.save_progress("too late")
            finally:
                noted.set()
        return len(tries)

    @step
    def after() -> int:
        late.set()
        assert noted.wait(10)
        return 1

    @flow
    def work() -> int:
        found = slow() + after()
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 3


def test_a_doubt_that_is_retried_keeps_the_pause_too():
    clock = testing.FakeClock(auto=True)
    at: list[float] = []

    @effect(
        on_doubt="retry",
        retry=Retry(attempts=3, initial_wait_s=100, max_wait_s=100, backoff=1, jitter=0),
    )
    def charge() -> int:
        at.append(clock() / 1e6)
        if len(at) < 3:
            raise ConnectionError
        return 1

    @flow
    def work() -> int:
        return charge()

    with testing.store(clock):
        assert work.run("r") == 1
    assert [round(moment - at[0]) for moment in at] == [0, 100, 200]


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"initial_wait_s": -1},
        {"backoff": 0.5},
        {"jitter": 2},
        {"max_elapsed_s": 0},
    ],
)
def test_a_policy_that_cannot_work_is_refused(options):
    with pytest.raises(UsageError):
        Retry(**options)


@pytest.mark.parametrize("options", [{"timeout": 0}, {"retry": 3}, {"commit": "later"}])
def test_an_option_that_cannot_work_is_refused(options):
    with pytest.raises(UsageError):
        step(**options)(lambda: None)


def test_a_doubt_that_a_function_cannot_settle_says_why(holdfast_store):
    @effect
    def charge() -> None:
        raise ConnectionError("reset")

    @charge.on_doubt
    def ask():
        raise OSError("nobody answers")

    @flow
    def work() -> None:
        charge()

    with pytest.raises(RunHeld, match="on_doubt raised OSError: nobody answers"):
        work.run("r")
    assert steps(holdfast_store, "r") == {charge.name: "in_doubt"}
