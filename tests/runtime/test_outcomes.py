"""What a flow gets from a step: values, failures and fallbacks, the same live and replayed."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest

import holdfast
from holdfast import Done, Retry, effect, flow, step, testing
from holdfast.errors import NotSerializable, RunFailed, RunHeld, StepFailed, StoreFailed
from holdfast.types import Failed
from tests.runtime.stops import Stop, interrupted, kinds, steps


class Declined(Exception):
    pass


class Harder(Declined):
    pass


def live_and_replayed(run, *args) -> None:
    """Run a flow that stops once on its way, and then to its end."""
    interrupted(lambda: run(*args))
    run(*args)


def test_the_result_is_a_decoded_copy_live_and_replayed(store):
    original: list[Any] = []
    seen: list[Any] = []
    stop = Stop()

    @step
    def makes() -> dict[str, Any]:
        original.append({"list": [1, (2, 3)], "set": {4}})
        return original[0]

    @flow
    def work() -> int:
        seen.append(makes())
        stop.here()
        return 1

    live_and_replayed(work.run, "r")
    assert len(original) == 1
    assert seen[0] == seen[1] == original[0]
    assert seen[0] is not original[0]
    assert seen[0]["list"] is not original[0]["list"]
    assert type(seen[1]["list"][1]) is tuple


def test_changing_a_result_does_not_change_the_record(holdfast_store):
    stop = Stop()
    seen: list[list[int]] = []

    @step
    def makes() -> list[int]:
        return [1]

    @flow
    def work() -> list[int]:
        found = makes()
        seen.append(list(found))
        found.append(2)
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert work.run("r") == [1, 2]
    assert seen == [[1], [1]]


def test_arguments_are_recorded_as_they_were_at_the_call(holdfast_store):
    @step
    def changes(items: list[int]) -> int:
        items.append(99)
        return len(items)

    @flow
    def work() -> list[int]:
        items = [1]
        changes(items)
        return items

    work.run("r")
    started = next(e for e in holdfast_store.history("r") if e.kind == "step_started")
    assert started.body["args"] == {"items": [1]}


# -- failures ----------------------------------------------------------------------------------


def facts(failed: StepFailed) -> tuple[Any, ...]:
    return (
        failed.step,
        failed.type_name,
        failed.message,
        failed.attempts,
        failed.run_id,
        failed.outcome_unknown,
        failed.args,
    )


def test_step_failed_is_the_same_live_and_replayed(store):
    seen: list[tuple[Any, ...]] = []
    stop = Stop()

    @step(retry=Retry(attempts=2, initial_wait_s=0))
    def fails(x: int) -> int:
        raise ValueError("odd", x)

    @flow
    def work() -> None:
        try:
            fails(3)
        except StepFailed as failed:
            seen.append(facts(failed))
        stop.here()

    live_and_replayed(work.run, "r")
    assert seen[0] == seen[1]
    assert seen[0][:5] == (fails.name, "ValueError", "('odd', 3)", 2, "r")


def test_an_unknown_outcome_is_the_same_live_and_replayed(holdfast_store):
    seen: list[tuple[Any, ...]] = []
    stop = Stop()

    @effect(on_doubt="fail")
    def fails() -> int:
        raise ConnectionError("reset")

    @flow
    def work() -> None:
        try:
            fails()
        except StepFailed as failed:
            seen.append(facts(failed))
        stop.here()

    live_and_replayed(work.run, "r")
    assert seen[0] == seen[1]
    assert seen[0][5]


def test_a_step_that_a_person_gave_up_fails_with_the_reason(store):
    @effect
    def charge() -> None:
        raise ConnectionError

    @flow
    def work() -> str:
        try:
            charge()
        except StepFailed as failed:
            return failed.message
        return ""

    with pytest.raises(RunHeld):
        work.run("r")
    store.settle("r", charge.name, Failed("too late anyway"), actor="kim")
    assert work.run("r") == "too late anyway"


def test_a_declared_exception_is_itself_live_and_replayed(store):
    seen: list[BaseException] = []
    stop = Stop()

    @step(raises=(Declined,))
    def declines() -> None:
        raise Declined("card", 4000, {"why": ("limit",)})

    @flow
    def work() -> None:
        try:
            declines()
        except Declined as error:
            seen.append(error)
        stop.here()

    live_and_replayed(work.run, "r")
    assert [type(error) for error in seen] == [Declined, Declined]
    assert seen[0].args == seen[1].args == ("card", 4000, {"why": ("limit",)})


def test_a_subclass_of_a_declared_exception_is_a_step_failed(holdfast_store):
    @step(raises=(Declined,))
    def declines() -> None:
        raise Harder("no")

    @flow
    def work() -> str:
        try:
            declines()
        except Declined:
            return "declined"
        except StepFailed as failed:
            return failed.type_name
        return ""

    assert work.run("r") == "Harder"


def test_a_declared_failure_that_escapes_from_a_replay_can_be_taken_up(holdfast_store):
    down = [True]
    stop = Stop()

    @step(raises=(Declined,))
    def declines() -> int:
        if down:
            raise Declined("down")
        return 1

    @flow
    def work() -> int:
        try:
            return declines()
        except Declined:
            stop.here()
            raise

    interrupted(lambda: work.run("r"))
    with pytest.raises(RunFailed):
        work.run("r")
    down.clear()
    assert work.run("r") == 1


def test_a_declared_failure_that_escapes_is_taken_up(holdfast_store):
    down = [True]

    @step(raises=(Declined,))
    def declines() -> int:
        if down:
            raise Declined("down")
        return 1

    @flow
    def work() -> int:
        return declines()

    with pytest.raises(RunFailed) as failed:
        work.run("r")
    assert isinstance(failed.value.__cause__, Declined)
    down.clear()
    assert work.run("r") == 1


def test_another_class_of_the_same_name_is_not_taken_for_the_declared_one(holdfast_store):
    other = type("ConnectionError", (Exception,), {})
    seen: list[type] = []
    stop = Stop()

    @step(raises=(ConnectionError,))
    def fails() -> None:
        raise other("of a library")

    @flow
    def work() -> None:
        try:
            fails()
        except Exception as error:
            seen.append(type(error))
        stop.here()

    live_and_replayed(work.run, "r")
    assert seen == [StepFailed, StepFailed]


class Coded(Exception):
    """Its text is made by its own `__init__`."""

    def __init__(self, code: int, reason: str = "no") -> None:
        super().__init__(f"{code} {reason}")
        self.code = code


class Telling(Exception):
    """Its text is made when it is asked for, and it has keyword arguments only."""

    def __init__(self, *, code: int) -> None:
        self.code = code

    def __str__(self) -> str:
        return f"code {self.code}"


class Slotted(Exception):
    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        super().__init__("slotted")
        self.code = code


class Missing(FileNotFoundError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "not there", path)
        self.code = 404


class Both(KeyError, AttributeError):
    def __init__(self, code: int) -> None:
        super().__init__("both")
        self.code = code


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


def noted() -> Declined:
    error = Declined("declined")
    error.add_note("of the bank")
    return error


@pytest.mark.parametrize(
    "error",
    [
        Coded(402),
        Telling(code=402),
        Slotted(402),
        Missing("/data/x"),
        Both(402),
        Frozen(402),
        Frozen(code=402),
        OSError(28, "disk full", "/data/x"),
        ImportError("no such", name="parts", path="/lib"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        noted(),
    ],
    ids=repr,
)
def test_a_declared_exception_holds_what_was_raised_live_and_replayed(holdfast_store, error):
    seen: list[Any] = []
    stop = Stop()
    kind = type(error)
    looked_at = ("args", "code", "filename", "errno", "name", "path", "reason", "__notes__")

    def contents(it: BaseException) -> Any:
        return type(it), str(it), [getattr(it, name, None) for name in looked_at]

    @step(raises=(ConnectionError, kind))
    def fails() -> None:
        raise error

    @flow
    def work() -> None:
        try:
            fails()
        except kind as caught:
            seen.append(contents(caught))
        stop.here()

    live_and_replayed(work.run, "r")
    assert seen == [contents(error)] * 2


def test_classes_of_one_name_that_are_both_declared_are_told_apart(holdfast_store):
    other = type("Declined", (Exception,), {"__module__": "bank"})
    seen: list[type] = []
    stop = Stop()

    @step(raises=(Declined, other))
    def fails() -> None:
        raise other("of the bank")

    @flow
    def work() -> None:
        try:
            fails()
        except Exception as error:
            seen.append(type(error))
        stop.here()

    live_and_replayed(work.run, "r")
    assert seen == [other, other]


class Answered(Exception):
    """Like those of HTTP clients, it holds what cannot be stored."""

    def __init__(self, response: object) -> None:
        super().__init__("503")
        self.response = response


class Guarded(Exception):
    """Its attribute cannot be set from outside."""

    @property
    def code(self) -> int:
        return int(vars(self)["code"])


def guarded() -> Guarded:
    error = Guarded("503")
    vars(error)["code"] = 503
    return error


@pytest.mark.parametrize("error", [Answered(object()), guarded()], ids=repr)
def test_a_declared_exception_that_cannot_be_made_again_is_refused(holdfast_store, error):
    seen: list[str] = []
    stop = Stop()
    name = type(error).__name__

    @step(raises=(type(error),))
    def fails() -> None:
        raise error

    @flow
    def work() -> None:
        try:
            fails()
        except StepFailed as failed:
            seen.append(f"{failed.type_name}: {failed.message}")
        stop.here()

    live_and_replayed(work.run, "r")
    assert seen[0] == seen[1]
    assert seen[0].startswith(f"{name}: 503 (step ")
    assert f"{fails.name!r} declares {name} in raises=" in seen[0]
    assert "raise an exception that holds plain values instead" in seen[0]


def test_a_declared_exception_group_is_rebuilt(holdfast_store):
    seen: list[type] = []
    stop = Stop()

    @step(raises=(ExceptionGroup,))
    def fails() -> None:
        raise ExceptionGroup("many", [ValueError(1)])

    @flow
    def work() -> None:
        try:
            fails()
        except Exception as error:
            seen.append(type(error))
        stop.here()

    live_and_replayed(work.run, "r")
    assert seen[0] is seen[1]


# -- fallbacks ---------------------------------------------------------------------------------


def test_a_fallback_is_shown_as_degraded(store):
    @step(fallback=[])
    def value() -> list[str]:
        raise ConnectionError("down")

    @step(fallback=lambda name: f"no {name}", retry=Retry(attempts=2, initial_wait_s=0))
    def function(name: str) -> str:
        raise ConnectionError("down")

    @flow
    def work() -> list[Any]:
        return [value(), function("news")]

    assert work.run("r") == [[], "no news"]
    run = store.get("r")
    assert run.totals.degraded == 2
    assert [(s.status, s.attempts) for s in run.steps] == [("completed", 1), ("completed", 2)]
    assert [s.degraded.type for s in run.steps if s.degraded] == ["ConnectionError"] * 2


def test_a_fallback_is_replayed_and_not_asked_again(holdfast_store):
    asked: list[int] = []
    stop = Stop()

    def instead() -> int:
        asked.append(1)
        return 7

    @step(fallback=instead)
    def fails() -> int:
        raise ValueError

    @flow
    def work() -> int:
        found = fails()
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 7
    assert asked == [1]
    assert holdfast_store.get("r").totals.degraded == 1


def test_a_fallback_that_fails_leaves_the_first_failure(holdfast_store):
    def instead() -> int:
        raise OSError("neither")

    @step(fallback=instead)
    def fails() -> int:
        raise ValueError("first")

    @flow
    def work() -> str:
        try:
            fails()
        except StepFailed as failed:
            return failed.type_name
        return ""

    assert work.run("r") == "ValueError"


def test_a_fallback_is_never_used_for_a_doubt(holdfast_store):
    @effect(fallback="instead", not_done_on=(ValueError,))
    def charge(error: str) -> str:
        raise ValueError if error == "value" else ConnectionError

    @flow
    def work(error: str) -> str:
        return charge(error)

    assert work.run("known", "value") == "instead"
    with pytest.raises(RunHeld):
        work.run("unknown", "connection")


def test_async_fallbacks(holdfast_store):
    async def instead(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    @step(fallback=instead)
    async def fails(x: int) -> int:
        raise ValueError

    @flow
    async def work() -> int:
        return await fails(1)

    assert asyncio.run(work.run("r")) == 2


# -- values that do not survive ----------------------------------------------------------------


def test_a_result_that_does_not_survive_is_refused_with_its_path(store):
    bad = [True]
    calls: list[int] = []

    @step
    def makes() -> Any:
        calls.append(1)
        return {"messages": [1, {"client": object()}]} if bad else "fine"

    @flow
    def work() -> Any:
        return makes()

    with pytest.raises(RunFailed, match=r"result\['messages'\]\[1\]\['client'\]"):
        work.run("r")
    assert steps(store, "r") == {makes.name: "failed"}
    bad.clear()
    assert work.run("r") == "fine"
    assert len(calls) == 2


def test_an_argument_that_does_not_survive_is_refused_before_the_call(holdfast_store):
    calls: list[int] = []

    @step
    def takes(x: Any) -> None:
        calls.append(1)

    @flow
    def work() -> str:
        try:
            takes({"a": object()})
        except NotSerializable as refused:
            return refused.path
        return ""

    assert work.run("r").endswith("['x']['a']")
    assert calls == []


def test_a_refused_argument_names_its_step(holdfast_store):
    @step
    def takes(x: Any) -> None: ...

    @flow
    def work() -> None:
        takes({"a": object()})

    with pytest.raises(RunFailed, match=takes.name):
        work.run("r")


@pytest.mark.parametrize("policy", ["hold", "retry", "fail", lambda: Done(5)])
def test_an_effect_whose_value_is_lost_is_held_whatever_its_policy(store, policy):
    calls: list[int] = []

    @effect(on_doubt=policy)
    def charge() -> Any:
        calls.append(1)
        return object()

    @flow
    def work() -> Any:
        return charge()

    for _ in range(2):
        with pytest.raises(RunHeld) as held:
            work.run("r")
        assert held.value.reason == "in_doubt"
    assert calls == [1]
    doubt = next(e for e in store.history("r") if e.kind == "step_in_doubt")
    assert doubt.body["why"] == "value_lost"
    store.settle("r", charge.name, Done({"id": 7}), actor="kim")
    assert work.run("r") == {"id": 7}
    assert calls == [1]


def test_a_flow_whose_result_does_not_survive_fails_and_keeps_its_steps(store):
    calls: list[int] = []
    bad = [True]

    @step
    def one() -> int:
        calls.append(1)
        return 1

    @flow
    def work() -> Any:
        return one() if not bad else {"x": object()} | {"y": one()}

    with pytest.raises(RunFailed, match="result"):
        work.run("r")
    assert store.get("r").status == "failed"
    bad.clear()
    assert work.run("r") == 1
    assert calls == [1]


def test_a_fallback_that_does_not_survive_is_a_fallback_that_failed(holdfast_store):
    @effect(fallback=lambda: object(), not_done_on=(ValueError,))
    def charge() -> Any:
        raise ValueError("it did not happen")

    @flow
    def work() -> Any:
        return charge()

    with pytest.raises(RunFailed):
        work.run("r")
    assert steps(holdfast_store, "r") == {charge.name: "failed"}


# -- grouped commits ---------------------------------------------------------------------------


def test_what_is_grouped_is_durable_before_an_effect_is_called(store):
    """The intent of an effect waits for the disk, and entries of a run keep their order."""
    seen: list[list[str]] = []

    @step(commit="grouped")
    def cheap(i: int) -> int:
        return i

    @effect
    def charge() -> int:
        seen.append(kinds(store, "r"))
        return 1

    @flow
    def work() -> int:
        for i in range(5):
            cheap(i)
        holdfast.context.now()
        return charge()

    work.run("r")
    assert seen[0] == [
        "run_started",
        "run_claimed",
        *["step_started", "step_completed"] * 5,
        "value_recorded",
        "step_started",
    ]
    assert store.verify() == []


def test_grouped_steps_replay_like_others(store):
    calls: list[int] = []
    stop = Stop()

    @step(commit="grouped")
    def cheap(i: int) -> int:
        calls.append(i)
        return i

    @flow
    def work() -> int:
        total = sum(cheap(i) for i in range(4))
        stop.here()
        return total

    interrupted(lambda: work.run("r"))
    assert work.run("r") == 6
    assert calls == [0, 1, 2, 3]


def test_a_grouped_failure_in_the_background_is_raised_at_the_next_call():
    faults = testing.StoreFaults()
    calls: list[str] = []

    @step(commit="grouped")
    def cheap() -> None:
        calls.append("cheap")

    @effect
    def charge() -> None:
        calls.append("charge")

    @flow
    def work() -> None:
        cheap()
        charge()

    with testing.store(faults=faults):
        faults.fail("append", error=StoreFailed("disk gone"), forever=True)
        with pytest.raises(StoreFailed):
            work.run("r")
    assert calls == ["cheap"]


def test_a_result_that_does_not_survive_is_not_retried(holdfast_store):
    """The next attempt would return the same type; a model call would be paid three times."""
    tries: list[int] = []

    @step(retry=Retry(attempts=3, initial_wait_s=0))
    def makes() -> Any:
        tries.append(1)
        return object()

    @flow
    def work() -> Any:
        return makes()

    with pytest.raises(RunFailed):
        work.run("r")
    assert tries == [1]


def test_a_held_effect_prints_the_line_that_declares_its_exception(holdfast_store):
    @effect
    def charge() -> None:
        raise Declined("no funds")

    @flow
    def buy() -> None:
        charge()

    for _ in range(2):  # The second time, only the journal has the exception.
        with pytest.raises(RunHeld) as held:
            buy.run("declined")
        assert "(Declined: no funds)" in held.value.detail
        assert held.value.detail.endswith("not_done_on=(Declined,)")


def test_a_timeout_is_no_exception_to_declare(holdfast_store):
    free = threading.Event()

    @effect(timeout=0.02)
    def charge() -> None:
        free.wait(10)

    @flow
    def buy() -> None:
        charge()

    with pytest.raises(RunHeld) as held:
        buy.run("cut-short")
    free.set()
    assert "(TimeoutError" in held.value.detail
    assert "not_done_on" not in held.value.detail


def test_retry_on_doubt_means_three_attempts_without_a_policy():
    calls: list[int] = []

    @effect(on_doubt="retry")
    def charge() -> None:
        calls.append(1)
        raise Declined("no answer")

    @flow
    def buy() -> None:
        charge()

    with (
        testing.store(clock=testing.FakeClock(auto=True)),
        pytest.raises(RunHeld, match="all attempts are used"),
    ):
        buy.run("three")
    assert len(calls) == 3
    assert "three attempts" in str(effect.__doc__)
