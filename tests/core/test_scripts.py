"""The scripts driven by hand: every request is answered here, and every crash is a place to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast._engine.journal.changes import ClaimKey, KeyTaken, SetKey
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History, State
from holdfast._engine.journal.rows import KeyState
from holdfast._engine.journal.superseded import escaped
from holdfast._engine.scripts import doubt
from holdfast._engine.scripts.doubt_policies import NOT_DONE, UNKNOWN, Done
from holdfast._engine.scripts.requests import (
    Append,
    Call,
    Called,
    Chance,
    CopyResult,
    FindKey,
    Now,
    Sleep,
    Spec,
    StepCall,
    Wrote,
)
from holdfast._engine.scripts.retry import Retry
from holdfast._engine.scripts.step_script import step_script
from holdfast._engine.scripts.stops import Unwind
from holdfast._engine.values import codec
from holdfast.errors import KeyConflict, NotSerializable, RunHeld, StepFailed

SECOND = 1_000_000
DAY = 24 * 3600


class Crash(BaseException):
    """The process is gone."""


class Declined(Exception):
    """An error that a step declares."""


class Picky(Exception):
    """An error whose constructor does not take what its args say."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class Refused(Exception):
    """A declared "it did not happen"."""


class Bench:
    """One run's journal, a clock, and answers to everything that scripts ask for."""

    def __init__(self) -> None:
        self.now_us = 1_000 * SECOND
        self.entries: list[Entry] = []
        self.calls: list[str] = []
        self.slept: list[int] = []
        self.keys: list[tuple[str, str]] = []
        self.claims: list[KeyState | None] = []
        self.copied: list[KeyState] = []
        self.waited = 0
        self.stranded = False
        self.note(Kind.RUN_STARTED)
        self.note(Kind.RUN_CLAIMED, why="new")

    def note(self, kind: Kind, step: str | None = None, **facts: Any) -> None:
        self.add(Entry(0, kind, self.now_us, step, 0, None, None, None, _json(facts), b""))

    def add(self, entry: Entry) -> None:
        span = 1 if entry.started_us is None else 2
        last = self.entries[-1].seq if self.entries else 0
        self.entries.append(msgspec.structs.replace(entry, seq=last + span))

    def history(self) -> History:
        return History.fold("r", self.entries)

    def kinds(self) -> list[str]:
        return [entry.kind.value for entry in self.entries if entry.step is not None]

    def die(self, why: str = "owner_dead") -> None:
        """Somebody else takes the run over."""
        self.now_us += SECOND
        self.note(Kind.RUN_CLAIMED, why=why)

    def run(
        self,
        call: StepCall,
        answers: dict[str, list[Called]] | None = None,
        *,
        crash: str | None = None,
        refuse: int = 0,
    ) -> Any:
        """Drive one call. `crash` is "before 2" or "after 2": which append, and on which side.
        The first `refuse` values that are to be written are refused."""
        answers = {} if answers is None else answers
        script = step_script(call, self.history(), codec.decode)
        appends = 0
        answer: Any = None
        error: NotSerializable | None = None
        while True:
            try:
                request = script.send(answer) if error is None else script.throw(error)
            except StopIteration as stop:
                return stop.value
            answer = error = None
            if isinstance(request, Append):
                appends += 1
                if crash == f"before {appends}":
                    raise Crash
                if refuse and request.notes[-1].values:
                    refuse -= 1
                    error = NotSerializable("result", "it does not survive")
                    continue
                answer = self._append(request)
                if crash == f"after {appends}":
                    raise Crash
            else:
                answer = self._answer(request, answers)

    def _answer(self, request: Any, answers: dict[str, list[Called]]) -> Any:
        if isinstance(request, Now):
            return self.now_us
        if isinstance(request, Chance):
            return 0.0
        if isinstance(request, Call):
            self.calls.append(request.what)
            assert answers is not NO_CALL, f"{request.what} was called"
            return answers.get(request.what, [Called("ok")]).pop(0)
        if isinstance(request, Sleep):
            self.slept.append(request.until_us)
            self.now_us = max(self.now_us, request.until_us)
            return None
        if isinstance(request, CopyResult):
            self.copied.append(request.key)
            return "copied"
        assert isinstance(request, FindKey)
        assert request.key.state in ("in_progress", "in_doubt")
        self.waited += 1
        return self.stranded

    def _append(self, request: Append) -> Wrote:
        if self.claims and any(isinstance(it, ClaimKey) for it in request.changes):
            taken = self.claims.pop(0)
            if taken is not None:
                return Wrote(refused=KeyTaken(taken))
        value: Any = None
        for note in request.notes:
            facts = dict(note.facts)
            for name, item in note.values.items():
                node = codec.encode(item)
                value = codec.decode(node)
                facts[name] = msgspec.Raw(node)
            call = request.call
            self.add(
                Entry(
                    0,
                    note.kind,
                    self.now_us,
                    call.key,
                    call.attempt.number,
                    call.position,
                    call.args_digest,
                    None,
                    _json(facts),
                    b"",
                )
            )
        keys = [change for change in request.changes if isinstance(change, SetKey)]
        self.keys += [(change.key, change.state) for change in keys]
        return Wrote(value)


def _json(facts: dict[str, Any]) -> bytes:
    return msgspec.json.encode(facts)


def plain(**options: Any) -> StepCall:
    return StepCall(Spec("load", **options), "load", 0, b"args", "hf_1", None)


def effect(on_doubt: Any = "hold", key: str | None = None, **options: Any) -> StepCall:
    spec = Spec("pay", effect=True, on_doubt=on_doubt, **options)
    return StepCall(spec, "pay", 0, b"args", key or "hf_1", key)


def raised(error: BaseException) -> dict[str, list[Called]]:
    return {"body": [Called(error=error)]}


NO_CALL: dict[str, list[Called]] = {}


def held(call: Callable[[], Any]) -> RunHeld:
    with pytest.raises(Unwind) as stopped:
        call()
    assert isinstance(stopped.value.error, RunHeld)
    return stopped.value.error


# -- plain steps -------------------------------------------------------------------------------


def test_a_plain_step_is_called_recorded_and_then_replayed():
    bench = Bench()
    assert bench.run(plain(), {"body": [Called(("a", 1))]}) == ("a", 1)
    assert bench.kinds() == ["step_completed"]
    bench.die()
    assert bench.run(plain(), {"body": []}) == ("a", 1)
    assert bench.calls == ["body"]


def test_a_grouped_step_does_not_wait_for_its_write():
    script = step_script(plain(grouped=True), Bench().history(), codec.decode)
    assert isinstance(script.send(None), Now)
    assert isinstance(script.send(5), Call)
    append = script.send(Called(1))
    assert isinstance(append, Append)
    assert append.waits is False


def test_without_retry_a_step_is_tried_once():
    bench = Bench()
    with pytest.raises(StepFailed, match="load gave up after 1 attempt: ValueError: no") as failed:
        bench.run(plain(), raised(ValueError("no")))
    assert failed.value.__holdfast_step__ == "load"  # type: ignore[attr-defined]
    assert isinstance(failed.value.__cause__, ValueError)
    with pytest.raises(StepFailed, match="load gave up after 1 attempt: ValueError: no"):
        bench.run(plain(), {"body": []})
    assert bench.calls == ["body"]


def test_a_step_is_retried_with_pauses_that_are_recorded():
    bench = Bench()
    call = plain(retry=Retry(attempts=3, initial_wait_s=10, jitter=0))
    answers = {"body": [Called(error=OSError("1")), Called(error=OSError("2")), Called("ok")]}
    before = bench.now_us
    assert bench.run(call, answers) == "ok"
    assert bench.kinds() == ["step_failed", "step_failed", "step_completed"]
    assert [until - before for until in bench.slept] == [10 * SECOND, 30 * SECOND]
    assert call.attempt.number == 3


def test_a_crash_in_a_pause_keeps_the_pause_and_the_count():
    bench = Bench()
    retry = Retry(attempts=2, initial_wait_s=10, jitter=0)
    with pytest.raises(Crash):
        bench.run(plain(retry=retry), raised(OSError()), crash="after 1")
    bench.die()
    due = bench.history().records["load"].retry_at_us
    call = plain(retry=retry)
    with pytest.raises(StepFailed, match="after 2 attempts"):
        bench.run(call, raised(OSError()))
    assert bench.slept == [due]


def test_a_retry_without_a_time_is_due_at_once():
    bench = Bench()
    bench.note(Kind.STEP_FAILED, "load", final=False, error={"type": "E", "message": ""})
    bench.entries[-1] = msgspec.structs.replace(bench.entries[-1], position=0, attempt=1)
    assert bench.run(plain(retry=Retry(attempts=2))) == "ok"
    assert bench.slept == []


def test_an_attempt_cut_short_by_a_crash_does_not_count():
    bench = Bench()
    bench.add(Entry(0, Kind.STEP_STARTED, bench.now_us, "load", 1, 0, b"args", None, b"{}", b""))
    bench.die()
    call = plain()
    assert bench.run(call) == "ok"
    assert call.attempt.number == 1
    assert call.attempt.first_started_us == bench.entries[2].at_us


def test_declared_errors_are_themselves_live_and_replayed():
    bench = Bench()
    for answers in (raised(Declined("too much", 7)), NO_CALL):
        with pytest.raises(Declined) as found:
            bench.run(plain(raises=(KeyError, Declined)), answers)
        assert found.value.args == ("too much", 7)


def test_a_replayed_error_names_its_step_so_that_a_resume_can_supersede_it():
    bench = Bench()
    for answers in (raised(Declined("too much", 7)), NO_CALL):
        with pytest.raises(Declined) as found:
            bench.run(plain(raises=(Declined,)), answers)
        assert escaped(found.value) == ["load"]


def test_a_subclass_of_a_declared_error_is_not_declared():
    class More(Declined):
        pass

    bench = Bench()
    with pytest.raises(StepFailed, match="More"):
        bench.run(plain(raises=(Declined,)), raised(More()))


def test_a_declared_error_keeps_args_that_its_init_does_not_take():
    bench = Bench()
    for answers in (raised(Picky(4, "x")), NO_CALL):
        with pytest.raises(Picky) as found:
            bench.run(plain(raises=(Picky,)), answers)
        assert found.value.args == ("4: x",)


def test_a_declared_error_that_does_not_survive_is_refused_and_says_so():
    bench = Bench()
    told = []
    for answers, refuse in ((raised(Declined("no")), 1), (NO_CALL, 0)):
        with pytest.raises(StepFailed, match="no .*'load' declares Declined in raises=") as found:
            bench.run(plain(raises=(Declined,)), answers, refuse=refuse)
        assert found.value.type_name == "Declined"
        told.append(str(found.value))
    assert told[0] == told[1]
    assert bench.kinds() == ["step_failed"]


def test_a_result_that_does_not_survive_is_a_failure():
    bench = Bench()
    with pytest.raises(StepFailed, match="NotSerializable"):
        bench.run(plain(), refuse=1)
    assert bench.kinds() == ["step_failed"]


def test_a_fallback_stands_in_and_is_marked():
    bench = Bench()
    call = plain(has_fallback=True)
    answers = raised(OSError("down")) | {"fallback": [Called("old news")]}
    assert bench.run(call, answers) == "old news"
    assert bench.history().records["load"].degraded
    assert bench.run(plain(), {"body": []}) == "old news"


def test_a_fallback_that_fails_leaves_the_failure():
    bench = Bench()
    answers = raised(OSError("down")) | {"fallback": [Called(error=ValueError())]}
    with pytest.raises(StepFailed, match="OSError: down"):
        bench.run(plain(has_fallback=True), answers)


@pytest.mark.parametrize(
    "other",
    [
        StepCall(Spec("save"), "save", 0, b"args", "hf_1", None),
        StepCall(Spec("load"), "load", 0, b"other", "hf_1", None),
    ],
)
def test_a_call_that_does_not_fit_holds_the_run(other):
    bench = Bench()
    bench.run(plain())
    error = held(lambda: bench.run(other))
    assert error.reason == "diverged"
    assert error.step == other.key
    assert "--accept-change" in error.actions[1]
    assert bench.calls == ["body"]


# -- effects: crashes --------------------------------------------------------------------------


def settled_after_crash(on_doubt: Any, crash: str, **options: Any) -> tuple[Bench, Any]:
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect(on_doubt, **options), crash=crash)
    bench.die()
    try:
        outcome: Any = bench.run(effect(on_doubt, **options))
    except Unwind as unwind:
        outcome = unwind.error
    except StepFailed as failed:
        outcome = failed
    return bench, outcome


def finds(answer: Any) -> dict[str, list[Called]]:
    return {"on_doubt": [Called(answer)], "body": [Called("ok"), Called("again")]}


def ask(*args: Any) -> Any:
    """Stands for an on_doubt function; the bench answers for it."""


@pytest.mark.parametrize("policy", ["hold", "retry", "fail", ask])
def test_killed_before_the_intent_nothing_has_happened(policy):
    bench, outcome = settled_after_crash(policy, "before 1")
    assert outcome == "ok"
    assert bench.calls == ["body"]


@pytest.mark.parametrize("policy", ["hold", "retry", "fail", ask])
def test_killed_after_the_outcome_it_is_never_called_again(policy):
    bench, outcome = settled_after_crash(policy, "after 2")
    assert outcome == "ok"
    assert bench.calls == ["body"]


@pytest.mark.parametrize(("crash", "calls"), [("after 1", 0), ("before 2", 1)])
def test_killed_in_between_ask_holds(crash, calls):
    bench, outcome = settled_after_crash("hold", crash)
    assert isinstance(outcome, RunHeld)
    assert outcome.reason == "in_doubt"
    assert "its process died" in outcome.detail
    assert len(outcome.actions) == 3
    assert bench.calls.count("body") == calls
    assert bench.kinds() == ["step_started", "step_in_doubt"]
    # And again: it stays held, with no second entry.
    held(lambda: bench.run(effect("hold")))
    assert bench.kinds() == ["step_started", "step_in_doubt"]


@pytest.mark.parametrize(("crash", "calls"), [("after 1", 1), ("before 2", 2)])
def test_killed_in_between_retry_calls_again_under_the_same_key(crash, calls):
    bench, outcome = settled_after_crash("retry", crash)
    assert outcome == "ok"
    assert bench.calls.count("body") == calls
    intents = [entry for entry in bench.entries if entry.kind is Kind.STEP_STARTED]
    assert len({bytes(entry.data()["key"]) for entry in intents}) == 1
    assert [entry.attempt for entry in intents] == [1, 2]


@pytest.mark.parametrize(("crash", "calls"), [("after 1", 0), ("before 2", 1)])
def test_killed_in_between_fail_gives_up(crash, calls):
    bench, outcome = settled_after_crash("fail", crash)
    assert isinstance(outcome, StepFailed)
    assert outcome.outcome_unknown
    assert bench.calls.count("body") == calls
    with pytest.raises(StepFailed):
        bench.run(effect("fail"), {"body": []})


@pytest.mark.parametrize(("crash", "calls"), [("after 1", 0), ("before 2", 1)])
def test_killed_in_between_a_function_that_knows_it_was_done_settles_it(crash, calls):
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect(ask), crash=crash)
    bench.die()
    assert bench.run(effect(ask), finds(Done("found"))) == "found"
    assert bench.calls.count("body") == calls
    assert bench.kinds()[-1] == "step_settled"
    assert bench.run(effect(ask), {}) == "found"


def test_a_function_that_knows_it_was_not_done_has_it_run():
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect(ask), crash="after 1")
    bench.die()
    assert bench.run(effect(ask), finds(NOT_DONE)) == "ok"
    assert bench.kinds() == [
        *("step_started", "step_in_doubt", "step_settled"),
        *("step_started", "step_completed"),
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Called(UNKNOWN), "answered UNKNOWN"),
        (Called(None), "returned None, which is not Done(result)"),
        (Called(error=OSError("down")), "on_doubt raised OSError: down"),
    ],
)
def test_a_function_that_does_not_know_holds(answer, said):
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect(ask), crash="after 1")
    bench.die()
    assert said in held(lambda: bench.run(effect(ask), {"on_doubt": [answer]})).detail
    # It may know next time.
    assert bench.run(effect(ask), finds(Done(1))) == 1


def test_an_answer_that_does_not_survive_holds():
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect(ask), crash="after 1")
    bench.die()
    error = held(lambda: bench.run(effect(ask), finds(Done(1)), refuse=1))
    assert "happened, but its result could not be stored" in error.detail


def test_not_done_is_not_believed_while_the_old_owner_may_act():
    """Fault 51: a lease that ran out is no proof of death."""
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect(ask, timeout_s=10.0), crash="after 1")
    bench.die("lease_expired")
    error = held(lambda: bench.run(effect(ask, timeout_s=10.0), finds(NOT_DONE)))
    assert "may still be acting" in error.detail
    assert bench.calls.count("body") == 0


def test_not_done_is_believed_when_the_declared_time_is_over():
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect(ask, timeout_s=10.0), crash="after 1")
    bench.die("lease_expired")
    held(lambda: bench.run(effect(ask, timeout_s=10.0), finds(NOT_DONE)))
    bench.now_us += 16 * SECOND
    bench.die("free")
    assert bench.run(effect(ask, timeout_s=10.0), finds(NOT_DONE)) == "ok"


def test_a_settled_not_done_is_simply_run():
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect("hold"), crash="after 1")
    bench.die()
    held(lambda: bench.run(effect("hold")))
    bench.entries.append(
        msgspec.structs.replace(
            bench.entries[-1],
            seq=bench.entries[-1].seq + 1,
            kind=Kind.STEP_SETTLED,
            body=_json({"outcome": "not_done"}),
        )
    )
    assert bench.history().records["pay"].state is State.NOT_DONE
    assert bench.run(effect("hold")) == "ok"


# -- effects: errors without a crash -----------------------------------------------------------


@pytest.mark.parametrize(
    ("called", "why"),
    [
        (Called(error=OSError("cut")), "error"),
        (Called(error=TimeoutError("late"), timed_out=True, ended=False), "timeout"),
    ],
)
def test_an_error_leaves_a_doubt(called, why):
    bench = Bench()
    error = held(lambda: bench.run(effect("hold"), {"body": [called]}))
    assert doubt.DOUBTS[why] in error.detail
    left = bench.history().records["pay"].doubt
    assert left is not None
    assert msgspec.json.decode(left.body)["ended"] is (why == "error")
    # The doubt is told as it was, after a restart too.
    bench.die("lease_expired")
    assert doubt.DOUBTS[why] in held(lambda: bench.run(effect("hold"))).detail


def test_retry_is_counted_against_its_attempts():
    bench = Bench()
    answers = {"body": [Called(error=OSError()) for _ in range(5)]}
    error = held(lambda: bench.run(effect("retry"), answers))
    assert "all attempts are used" in error.detail
    assert bench.calls == ["body"] * 3
    bench = Bench()
    call = effect("retry", retry=Retry(attempts=2))
    held(lambda: bench.run(call, {"body": [Called(error=OSError()) for _ in range(5)]}))
    assert bench.calls == ["body"] * 2


def test_fail_gives_the_error_to_the_flow():
    bench = Bench()
    with pytest.raises(StepFailed, match="outcome is unknown") as failed:
        bench.run(effect("fail", has_fallback=True), raised(OSError("cut")))
    assert failed.value.outcome_unknown
    assert bench.calls == ["body"]


def test_a_doubt_that_was_given_up_looks_the_same_live_and_replayed():
    bench = Bench()
    told: list[tuple[str, bool]] = []
    for answers in (raised(OSError("cut")), NO_CALL):
        with pytest.raises(StepFailed) as failed:
            bench.run(effect("fail"), answers)
        told.append((str(failed.value), failed.value.outcome_unknown))
    assert told[0] == told[1]


def test_a_function_is_asked_after_an_error():
    bench = Bench()
    answers = {"body": [Called(error=OSError()), Called("second")], "on_doubt": [Called(NOT_DONE)]}
    assert bench.run(effect(ask), answers) == "second"
    assert bench.calls == ["body", "on_doubt", "body"]


def test_not_done_of_an_abandoned_thread_is_not_believed():
    bench = Bench()
    late = Called(error=TimeoutError(), timed_out=True, ended=False)
    answers = {"body": [late], "on_doubt": [Called(NOT_DONE)]}
    error = held(lambda: bench.run(effect(ask, timeout_s=1.0), answers))
    assert "may still be acting" in error.detail


def test_a_declared_did_not_happen_may_be_retried_and_gives_up():
    bench = Bench()
    call = effect(
        "hold", not_done_on=(Refused,), retry=Retry(attempts=2, initial_wait_s=1, jitter=0)
    )
    answers = {"body": [Called(error=Refused()), Called("ok")]}
    assert bench.run(call, answers) == "ok"
    assert bench.kinds() == ["step_started", "step_failed", "step_started", "step_completed"]
    bench = Bench()
    with pytest.raises(StepFailed) as failed:
        bench.run(effect("hold", not_done_on=(Refused,), key="k"), raised(Refused()))
    assert not failed.value.outcome_unknown
    assert bench.keys == [("k", "not_done")]


def test_a_crash_before_the_next_try_of_an_effect_waits_and_tries():
    bench = Bench()
    options: dict[str, Any] = {
        "not_done_on": (Refused,),
        "retry": Retry(attempts=2, initial_wait_s=9),
    }
    with pytest.raises(Crash):
        bench.run(effect("hold", **options), raised(Refused()), crash="after 2")
    bench.die()
    assert bench.run(effect("hold", **options)) == "ok"
    assert bench.slept == [bench.history().records["pay"].retry_at_us]


def test_an_effect_that_is_due_at_once_is_tried_at_once():
    bench = Bench()
    bench.note(Kind.STEP_FAILED, "pay", final=False, error={"type": "E", "message": ""})
    bench.entries[-1] = msgspec.structs.replace(bench.entries[-1], position=0, attempt=1)
    assert bench.run(effect("hold", retry=Retry(attempts=2))) == "ok"
    assert bench.slept == []


def test_an_effect_that_was_cancelled_is_simply_run():
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect("hold"), crash="after 1")
    bench.note(Kind.STEP_CANCELLED, "pay")
    assert bench.run(effect("hold")) == "ok"


def test_a_result_of_an_effect_that_does_not_survive_holds_whatever_the_policy():
    for policy in ("hold", "retry", "fail", ask):
        bench = Bench()
        call, again = effect(policy, key="k"), effect(policy, key="k")
        error = held(lambda: bench.run(call, refuse=1))
        assert "happened, but its result could not be stored" in error.detail
        assert bench.keys == [("k", "in_doubt")]
        bench.die()
        held(lambda: bench.run(again))
        assert bench.calls == ["body"]


def test_a_fallback_of_an_effect_that_did_not_happen_frees_its_key():
    bench = Bench()
    answers = raised(Refused()) | {"fallback": [Called("instead")]}
    call = effect("hold", key="k", not_done_on=(Refused,), has_fallback=True)
    assert bench.run(call, answers) == "instead"
    assert bench.keys == [("k", "not_done")]


# -- keys have a lifetime ----------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["retry", ask])
def test_an_old_key_is_never_sent_again(policy):
    bench = Bench()
    with pytest.raises(Crash):
        bench.run(effect(policy), crash="after 1")
    bench.now_us += DAY * SECOND
    bench.die()
    error = held(lambda: bench.run(effect(policy), finds(NOT_DONE)))
    assert "too old" in error.detail
    assert bench.calls.count("body") == 0


@pytest.mark.parametrize("state", ["settled", "retrying"])
def test_an_old_key_is_not_sent_after_a_decision_or_a_pause_either(state):
    """I6: no key is sent after its declared lifetime, whatever led to the next attempt."""
    bench = Bench()
    options: dict[str, Any] = {
        "not_done_on": (Refused,),
        "retry": Retry(attempts=3, initial_wait_s=9),
    }
    if state == "retrying":
        with pytest.raises(Crash):
            bench.run(effect("hold", **options), raised(Refused()), crash="after 2")
    else:
        with pytest.raises(Crash):
            bench.run(effect("hold", **options), crash="after 1")
        bench.die()
        held(lambda: bench.run(effect("hold", **options)))
        bench.entries.append(
            msgspec.structs.replace(
                bench.entries[-1],
                seq=bench.entries[-1].seq + 1,
                kind=Kind.STEP_SETTLED,
                body=_json({"outcome": "not_done"}),
            )
        )
    bench.now_us += 2 * DAY * SECOND
    bench.die()
    before = bench.calls.count("body")
    held(lambda: bench.run(effect("hold", **options)))
    assert bench.calls.count("body") == before


# -- business keys -----------------------------------------------------------------------------


def taken(state: str, digest: bytes = b"args") -> KeyState:
    return KeyState("default", "pay", "k", state, 7, "other", "pay", 1, digest, 3, 0)


def test_a_business_key_is_claimed_with_the_intent_and_follows_the_outcome():
    bench = Bench()
    assert bench.run(effect("hold", key="k")) == "ok"
    assert bench.keys == [("k", "completed")]


def test_a_completed_key_gives_the_other_runs_result():
    bench = Bench()
    bench.claims = [taken("completed")]
    assert bench.run(effect("hold", key="k")) == "copied"
    assert bench.calls == []
    assert bench.kinds() == ["skipped_duplicate"]
    assert bench.run(effect("hold", key="k")) == "copied"
    assert len(bench.copied) == 1


def test_a_key_in_progress_is_waited_for():
    bench = Bench()
    bench.claims = [taken("in_progress"), taken("in_progress"), None]
    assert bench.run(effect("hold", key="k")) == "ok"
    assert bench.waited == 2
    assert bench.kinds() == ["step_started", "step_completed"]


def test_a_key_whose_run_goes_no_further_is_not_waited_for():
    bench = Bench()
    bench.stranded = True
    bench.claims = [taken("in_progress")]
    assert "'other'" in held(lambda: bench.run(effect("hold", key="k"))).detail


def test_a_key_in_doubt_is_waited_for_while_its_run_may_settle_it():
    bench = Bench()
    bench.claims = [taken("in_doubt"), taken("completed")]
    assert bench.run(effect("hold", key="k")) == "copied"
    assert bench.waited == 1


def test_a_key_in_doubt_holds_and_names_the_other_run():
    bench = Bench()
    bench.stranded = True
    bench.claims = [taken("in_doubt")]
    bench.stranded = True
    with pytest.raises(Unwind) as stopped:
        bench.run(effect("hold", key="k"))
    assert bench.waited == 1  # It asks first whether a process is at work on it.
    error = stopped.value.error
    assert isinstance(error, RunHeld)
    assert "'other'" in error.detail
    assert stopped.value.waiting_on == doubt.key_token("pay", "k")
    assert all("settle r pay" in action for action in error.actions)


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (taken("undone"), "undone since"),
        (taken("completed", b"else"), "other arguments"),
        (taken("in_progress", b"else"), "other arguments"),
    ],
)
def test_a_key_that_cannot_be_had_is_a_conflict_live_and_replayed(key, said):
    bench = Bench()
    bench.claims = [key]
    for _ in range(2):
        with pytest.raises(KeyConflict, match=said) as found:
            bench.run(effect("hold", key="k"))
        assert found.value.other_run == "other"
        assert found.value.__holdfast_step__ == "pay"  # type: ignore[attr-defined]
    assert bench.calls == []


# -- a store that lost records -----------------------------------------------------------------


def adopted(on_doubt: Any) -> StepCall:
    call = effect(on_doubt, key="k")
    call.after_data_loss = True
    return call


def test_in_an_adopted_run_the_first_try_is_a_doubt():
    bench = Bench()
    assert "the store lost records" in held(lambda: bench.run(adopted("hold"))).detail
    assert bench.calls == []
    bench = Bench()
    with pytest.raises(StepFailed):
        bench.run(adopted("fail"))
    assert bench.calls == []
    bench = Bench()
    assert bench.run(adopted(ask), finds(Done("was there"))) == "was there"
    assert bench.calls == ["on_doubt"]
    bench = Bench()
    assert bench.run(adopted(ask), finds(NOT_DONE)) == "ok"
    bench = Bench()
    assert bench.run(adopted("retry")) == "ok"
    assert bench.kinds() == ["step_in_doubt", "step_started", "step_completed"]


def test_an_adopted_run_whose_effect_has_a_record_needs_no_doubt():
    bench = Bench()
    bench.run(effect("hold", key="k"))
    assert bench.run(adopted("hold"), {}) == "ok"
