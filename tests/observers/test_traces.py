"""What a trace says of runs of every shape: what happened, once, and below what it belongs to."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased, TraceIdRatioBased

import holdfast
from holdfast import (
    Done,
    Retry,
    aio,
    ask,
    effect,
    errors,
    flow,
    step,
    testing,
    turns,
    wait_for_signal,
)
from holdfast._engine.telemetry.trace_ids import span_id_of, trace_id_of
from holdfast.observers import opentelemetry
from holdfast.observers.opentelemetry import _exporters
from tests.observers.memory import Telling, failed, id_of, said

tries: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _from_the_start():
    tries.clear()


def tried(what: str) -> int:
    tries[what] = tries.get(what, 0) + 1
    return tries[what]


# -- ids ---------------------------------------------------------------------------------------


def test_ids_follow_from_what_they_stand_for():
    made = trace_id_of("store", "default", "run-1")
    assert made == "c446a1eae897c7f180456db627c4cfae"  # Other processes, and people, rely on it.
    others = {
        trace_id_of("store", "default", "run-2"),
        trace_id_of("store", "defaultr", "un-1"),
        trace_id_of("other", "default", "run-1"),
    }
    assert len(others | {made}) == 4
    assert len({span_id_of(made, "step", 1, "a"), span_id_of(made, "step", 1, "b")}) == 2
    assert len(span_id_of(made, "run", 0)) == 16


def test_a_run_has_the_trace_that_can_be_worked_out(telling, holdfast_store):
    note_run.run("ott-id", "x")
    kept = holdfast_store._engine.backend
    wanted = trace_id_of(kept.store_id, kept.namespace, "ott-id")
    assert {f"{it.context.trace_id:032x}" for it in telling.spans()} == {wanted}
    assert f"{id_of(telling.one('run ott-note-run')):016x}" == span_id_of(wanted, "run", 0)


@step(name="ott-note")
def note(text: str) -> str:
    tried("note")
    return text


@flow(name="ott-note-run")
def note_run(text: str) -> str:
    return note(text)


def test_a_completed_run_is_not_told_again(telling, holdfast_store):
    note_run.run("ott-again", "x")
    before = telling.names()
    assert sorted(before) == ["attempt 1", "execution", "run ott-note-run", "step ott-note"]
    note_run.run("ott-again", "x")
    assert telling.names() == before


# -- colours -----------------------------------------------------------------------------------


@step(name="ott-think")
async def think(text: str) -> str:
    with trace.get_tracer("l", tracer_provider=tries["provider"]).start_as_current_span("call"):
        await asyncio.sleep(0)
    return text


@step(name="ott-in-thread")
def in_thread(text: str) -> str:
    with trace.get_tracer("l", tracer_provider=tries["provider"]).start_as_current_span("call"):
        assert threading.current_thread() is not threading.main_thread()
    return str(baggage.get_baggage("tenant"))


@flow(name="ott-agent")
async def agent(text: str) -> Any:
    return await aio.gather(think(text + "1"), think(text + "2"), in_thread.aio(text))


def test_async_steps_and_steps_in_threads_are_parents_of_what_they_do(telling, holdfast_store):
    tries["provider"] = telling.provider

    async def called() -> Any:
        token = context.attach(baggage.set_baggage("tenant", "t-1"))
        try:
            with telling.provider.get_tracer("me").start_as_current_span("request"):
                return await agent.run("ott-async", "x")
        finally:
            context.detach(token)

    assert asyncio.run(called())[2] == "t-1"
    execution = telling.one("execution")
    steps = [it for it in telling.below(execution) if it.name.startswith("step ")]
    assert sorted(it.name for it in steps) == [
        "step ott-in-thread",
        "step ott-think",
        "step ott-think",
    ]
    for one in steps:
        (attempt,) = telling.below(one)
        assert [it.name for it in telling.below(attempt)] == ["call"]
    assert telling.links(execution) == {"caller": id_of(telling.one("request"))}
    assert telling.one("request").parent is None


@step(name="ott-limited", timeout=0.02)
async def limited() -> None:
    await asyncio.sleep(30)


@flow(name="ott-limits")
async def limits() -> str:
    try:
        await limited()
    except errors.StepFailed:
        return "late"
    return "in time"


def test_an_attempt_that_ran_out_of_time_says_so(telling, holdfast_store):
    assert asyncio.run(limits.run("ott-limit")) == "late"
    attempt = telling.one("attempt 1")
    assert failed(attempt)
    assert attempt.attributes["error.type"] == "TimeoutError"
    assert said(telling.one("step ott-limited"), "outcome") == "failed"


going = threading.Event()


@step(name="ott-at-large", timeout=0.02)
def at_large() -> None:
    going.wait(30)


@flow(name="ott-abandons")
def abandons() -> str:
    try:
        at_large()
    except errors.StepFailed:
        return "late"
    return "in time"


def test_a_call_that_nobody_could_stop_is_told_when_it_is_given_up(telling, holdfast_store, caplog):
    """Once, as what it came to for the run, and not again when it ends after all."""
    going.clear()
    assert abandons.run("ott-large") == "late"
    attempt = telling.one("attempt 1")
    assert failed(attempt)
    assert attempt.attributes["error.type"] == "TimeoutError"
    assert attempt.parent.span_id == id_of(telling.one("step ott-at-large"))
    going.set()
    threads = [it for it in threading.enumerate() if it.name == "holdfast-ott-at-large"]
    for thread in threads:
        thread.join(10)
    assert telling.names().count("attempt 1") == 1
    assert not trace.get_current_span().get_span_context().is_valid
    assert "detach" not in caplog.text


# -- failures ----------------------------------------------------------------------------------


@step(name="ott-breaks", retry=Retry(attempts=2, initial_wait_s=0.001))
def breaks(text: str) -> str:
    if tried("breaks") <= 2:
        raise ValueError(f"the text was {text}")
    return text


@flow(name="ott-breaking")
def breaking(text: str) -> str:
    return breaks(text)


def test_failures_are_told_by_their_type(telling, holdfast_store):
    with pytest.raises(errors.RunFailed):
        breaking.run("ott-broken", "canary-1")
    step = telling.one("step ott-breaks")
    assert [it.name for it in telling.below(step)] == ["attempt 1", "attempt 2"]
    assert all(failed(it) for it in telling.below(step))
    assert (step.attributes["error.type"], step.status.description) == ("ValueError", "ValueError")
    assert [it.name for it in step.events] == ["step_failed", "step_failed"]
    root = telling.one("run ott-breaking")
    assert (said(root, "status"), root.attributes["error.type"]) == ("failed", "StepFailed")
    assert said(telling.one("execution"), "status") == "failed"
    assert "canary" not in "".join(it.to_json() for it in telling.spans())


def test_texts_of_errors_can_be_asked_for_and_are_redacted():
    holdfast.redaction.register_secret("ott-key", "sesame-open-1")
    with Telling(messages=True) as telling, testing.store():
        with pytest.raises(errors.RunFailed):
            breaking.run("ott-said", "canary-2 sesame-open-1")
        everything = "".join(it.to_json() for it in telling.spans())
    assert "the text was canary-2" in everything
    assert "[secret ott-key]" in everything
    assert "sesame" not in everything


def test_a_run_that_failed_and_is_taken_up_again_is_told_as_two_in_one_trace(
    telling, holdfast_store
):
    with pytest.raises(errors.RunFailed):
        breaking.run("ott-twice", "x")
    assert breaking.run("ott-twice", "x") == "x"
    first, second = telling.spans("run ott-breaking")
    assert (said(first, "status"), said(second, "status")) == ("failed", "completed")
    assert first.context.trace_id == second.context.trace_id
    before, after = telling.spans("execution")
    assert before.parent.span_id == id_of(first)
    assert after.parent.span_id == id_of(second)
    assert telling.links(after)["previous_execution"] == id_of(before)
    assert first.end_time <= second.start_time


# -- doubt -------------------------------------------------------------------------------------


@effect(name="ott-charge", on_doubt="retry", retry=Retry(attempts=3, initial_wait_s=0.001))
def charge(amount: int) -> str:
    holdfast.context.record_usage(model="m", input_tokens=10, cost_usd=1.0)
    if tried("charge") == 1:
        raise OSError("cut")
    return f"charged {amount}"


@effect(name="ott-send")
def send(text: str) -> str:
    raise OSError("cut")


@flow(name="ott-charging")
def charging(amount: int) -> str:
    return charge(amount)


@flow(name="ott-sending")
def sending(text: str) -> str:
    return send(text)


def test_a_doubt_that_was_settled_by_trying_again(telling, holdfast_store):
    assert charging.run("ott-charged", 5) == "charged 5"
    step = telling.one("step ott-charge")
    assert said(step, "effect") is True
    assert [(it.name, it.attributes["holdfast.why"]) for it in step.events] == [
        ("step_in_doubt", "error")
    ]
    assert said(step, "outcome") == "completed"
    used = [it.attributes["gen_ai.usage.input_tokens"] for it in telling.below(step)]
    assert used == [10, 10]  # Each of its own, though the first was not written down.
    tokens = telling.points("gen_ai.client.token.usage")
    assert [value for _, value in tokens] == [20]
    assert telling.points("holdfast.cost")[0][1] == 2.0


def test_a_doubt_that_nobody_settles_is_seen_as_one(telling, holdfast_store):
    with pytest.raises(errors.RunHeld):
        sending.run("ott-sent", "x")
    step = telling.one("step ott-send")
    assert (said(step, "outcome"), step.status.description) == ("in_doubt", "in doubt")
    execution = telling.one("execution")
    assert (said(execution, "status"), said(execution, "held_reason")) == ("held", "in_doubt")
    assert telling.spans("run ott-sending") == []  # It has not ended.
    holdfast_store.settle("ott-sent", "ott-send", Done("by hand"), actor="kim")
    assert sending.run("ott-sent", "x") == "by hand"
    assert len(telling.spans("step ott-send")) == 1
    after = telling.spans("execution")[1]
    assert telling.links(after) == {"previous_execution": id_of(execution)}
    assert said(telling.one("run ott-sending"), "status") == "completed"
    outcomes = {
        (it["holdfast.step"], it["holdfast.outcome"]): n
        for it, n in telling.points("holdfast.attempts")
    }
    assert outcomes == {("ott-send", "in_doubt"): 1}
    ends = {it["holdfast.status"]: n for it, n in telling.points("holdfast.runs")}
    assert ends == {"held": 1, "completed": 1}


# -- waits, children ---------------------------------------------------------------------------


@flow(name="ott-asks")
def asks(text: str) -> str:
    answer = ask(f"shall I say {text}?", name="ott-question")
    got = wait_for_signal("ott-signal", timeout=30)
    return f"{answer} {got} {inner(text)}"


@flow(name="ott-inner")
def inner(text: str) -> str:
    return note(text)


def test_waits_are_spans_and_children_are_linked(telling, holdfast_store):
    handle = asks.start("ott-waits", "canary-3")
    kept = holdfast_store
    kept.wait_until("ott-waits", waiting="answer")
    kept.answer("ott-waits", "ott-question", "yes", actor="kim")
    kept.signal("ott-waits", "ott-signal", "now")
    assert handle.result(timeout=30) == "yes now canary-3"
    telling.until(lambda: len(telling.spans("execution")) == 2)
    execution = next(it for it in telling.spans("execution") if said(it, "flow") == "ott-asks")
    below = {it.name: it for it in telling.below(execution)}
    assert {"ask ott-question", "wait ott-signal", "child ott-inner"} <= below.keys()
    assert said(below["ask ott-question"], "outcome") == "answered"
    assert said(below["wait ott-signal"], "wait") == "wait"
    child, parent = telling.one("run ott-inner"), telling.one("run ott-asks")
    assert telling.links(below["child ott-inner"]) == {"child": id_of(child)}
    assert telling.links(child) == {"parent": id_of(parent)}
    assert child.context.trace_id != parent.context.trace_id
    assert "canary" not in "".join(it.to_json() for it in telling.spans())


@effect(name="ott-pay", needs_approval=True)
def pay(amount: int) -> int:
    return amount


@effect(name="ott-book", transaction=True)
def book(amount: int) -> int:
    holdfast.context.sql_connection().execute("CREATE TABLE ott_books (amount)")
    return amount


@flow(name="ott-paying")
def paying(amount: int) -> int:
    return book(pay(amount))


def test_consent_is_waited_for_and_an_effect_in_the_store_is_told():
    with Telling() as telling, testing.store(url="sqlite:") as store:
        handle = paying.start("ott-paid", 5)
        store.wait_until("ott-paid", waiting="answer")
        (question,) = store.questions()
        store.approve("ott-paid", question.name, digest=question.digest, actor="kim")
        assert handle.result(timeout=30) == 5
        telling.until(lambda: telling.spans("execution"))
        waited = telling.one("ask approve:ott-pay")
        assert said(waited, "outcome") == "approved"
        for name in ("step ott-pay", "step ott-book"):
            assert [it.name for it in telling.below(telling.one(name))] == ["attempt 1"]
        assert waited.end_time <= telling.one("step ott-pay").end_time


# -- interruptions -----------------------------------------------------------------------------


@step(name="ott-interrupted")
def interrupted() -> int:
    if tried("interrupted") == 1:
        raise KeyboardInterrupt
    return 1


@flow(name="ott-interrupting")
def interrupting() -> int:
    return interrupted()


def test_an_attempt_that_was_interrupted_is_not_the_one_that_is_made_later(telling, holdfast_store):
    with pytest.raises(KeyboardInterrupt):
        interrupting.run("ott-stopped")
    assert interrupting.run("ott-stopped") == 1
    first, second = telling.spans("step ott-interrupted")
    assert (said(first, "outcome"), said(second, "outcome")) == ("cancelled", "completed")
    assert [it.name for it in telling.below(first)] == ["attempt 1"]
    assert [it.name for it in telling.below(second)] == ["attempt 1"]


@step(name="ott-turn")
def turn(number: int) -> int:
    if tried(f"turn {number}") == 1 and number in (3, 6):
        raise KeyboardInterrupt
    return number


@flow(name="ott-turning")
def turning() -> int:
    for count in turns([0], max_turns=20):
        count[0] = turn(count[0] + 1)
        if count[0] == 8:
            return 8
    raise AssertionError


def test_executions_are_linked_in_a_row_though_a_resume_skips_what_a_loop_did(
    telling, holdfast_store
):
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            turning.run("ott-turns")
    assert turning.run("ott-turns") == 8
    first, second, third = telling.spans("execution")
    assert telling.links(first) == {}
    assert telling.links(second) == {"previous_execution": id_of(first)}
    assert telling.links(third) == {"previous_execution": id_of(second)}
    done = [it for it in telling.spans("step ott-turn") if said(it, "outcome") == "completed"]
    assert len(done) == 8  # Nothing is told again.


# -- who decides what is recorded --------------------------------------------------------------


class Tells(holdfast.observers.Observer):
    def __init__(self) -> None:
        self.traced: list[bool] = []

    def attempt_ended(self, attempt: holdfast.observers.ObservedAttempt, begun: Any) -> None:
        self.traced.append(attempt.traced)


def test_a_sampler_that_wants_nothing_gets_nothing(holdfast_store):
    tells = Tells()
    end = holdfast.observers.observe(tells)
    try:
        with Telling(ALWAYS_OFF) as telling:
            note_run.run("ott-off", "x")
            assert telling.spans() == []
            assert telling.points("holdfast.runs") != []
        with Telling() as telling:
            note_run.run("ott-on", "x")
    finally:
        end()
    assert tells.traced == [False, True]


def test_a_sampler_decides_for_a_whole_run(holdfast_store):
    with Telling(ParentBased(TraceIdRatioBased(0.5))) as telling:
        for number in range(24):
            note_run.run(f"ott-half-{number}", "x")
        told: dict[str, int] = {}
        for span in telling.spans():
            told[said(span, "run_id")] = told.get(said(span, "run_id"), 0) + 1
    assert 0 < len(told) < 24
    assert set(told.values()) == {4}


def test_what_is_left_is_sent_within_a_time(monkeypatch):
    monkeypatch.setattr(_exporters, "SEND_S", 0.01)
    sent: list[str] = []
    stuck = threading.Event()

    def never() -> None:
        stuck.wait(30)

    _exporters._send([never, lambda: sent.append("rest")])
    assert sent == ["rest"]
    stuck.set()


# -- providers ---------------------------------------------------------------------------------


class Foreign(trace.TracerProvider):
    """A provider that is not the SDK's, though its spans are."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider

    def get_tracer(self, *args: Any, **kwargs: Any) -> trace.Tracer:
        real = self._provider.get_tracer(*args, **kwargs)

        class Tracer(trace.Tracer):
            def start_span(self, *args: Any, **kwargs: Any) -> trace.Span:
                return real.start_span(*args, **kwargs)

            def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
                return real.start_as_current_span(*args, **kwargs)

        return Tracer()


def test_a_foreign_provider_has_its_own_ids_and_the_traces_hold_together(holdfast_store):
    telling = Telling()
    end = opentelemetry.observe(Foreign(telling.provider))
    try:
        note_run.run("ott-foreign", "x")
    finally:
        end()
    inside = [it for it in telling.spans() if it.name != "run ott-note-run"]
    kept = holdfast_store._engine.backend
    wanted = trace_id_of(kept.store_id, kept.namespace, "ott-foreign")
    assert {f"{it.context.trace_id:032x}" for it in inside} == {wanted}
    (attempt,) = telling.spans("attempt 1")
    assert attempt.parent.span_id == id_of(telling.one("step ott-note"))
    telling.provider.shutdown()


def test_without_a_provider_nothing_happens(holdfast_store):
    end = opentelemetry.observe()
    try:
        assert note_run.run("ott-none", "x") == "x"
    finally:
        end()


def test_what_begins_to_observe_in_the_middle_tells_the_rest(holdfast_store):
    telling = Telling()

    @flow(name="ott-middle")
    def middle() -> str:
        note("before")
        telling.__enter__()
        return note("after")

    try:
        assert middle.run("ott-mid") == "after"
        assert sorted(telling.names()) == [
            "attempt 1",
            "execution",
            "run ott-middle",
            "step ott-note",
        ]
    finally:
        telling.__exit__()


def test_what_ends_to_observe_in_the_middle_leaves_nothing_open(holdfast_store):
    telling = Telling()

    @flow(name="ott-ends-middle")
    def middle() -> str:
        note("before")
        telling.end()
        return note("after")

    with telling:
        assert middle.run("ott-ended") == "after"
        assert telling.names() == ["attempt 1", "step ott-note", "execution"]
        assert telling.points("holdfast.executing")[0][1] == 0
