"""Names of span attributes and events, as plain strings, and their values. Nothing of arguments or
results; of errors the type, and the message only on request."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from holdfast.observers import InterruptedStep, ObservedAttempt, ObservedEntry, ObservedRun

Said = dict[str, AttributeValue]

RUN_ENDS = {
    "run_completed": "completed",
    "run_failed": "failed",
    "run_cancelled": "cancelled",
    "run_rolled_back": "rolled_back",
}
WAIT_BEGINS = {
    "timer_set": "sleep",
    "signal_awaited": "wait",
    "question_asked": "ask",
    "child_started": "child",
}
WAIT_ENDS = {
    "timer_fired": "fired",
    "signal_received": "received",
    "question_answered": "answered",
    "child_ended": "ended",
    "wait_timed_out": "timed_out",
    "step_started": "approved",
}
"""An effect that waited for consent continues with its intent."""
STEP_KINDS = frozenset(
    {
        "step_completed",
        "step_failed",
        "step_in_doubt",
        "step_settled",
        "step_cancelled",
        "skipped_duplicate",
    }
)


def run(it: ObservedRun) -> Said:
    """Return the attributes of every span of a run."""
    said: Said = {
        "holdfast.run_id": it.run_id,
        "holdfast.flow": it.flow,
        "holdfast.flow_version": it.version,
        "holdfast.generation": it.generation,
        "holdfast.queue": it.queue,
        "holdfast.namespace": it.namespace,
    }
    if it.parent is not None:
        said["holdfast.parent"] = it.parent
    return said


def claim(it: ObservedRun, *, resumed: bool) -> Said:
    """Return the further attributes of an execution."""
    return {"holdfast.epoch": it.epoch, "holdfast.resumed": resumed}


def _step(it: ObservedRun, key: str, name: str, *, effect: bool) -> Said:
    return {
        "holdfast.run_id": it.run_id,
        "holdfast.flow": it.flow,
        "holdfast.generation": it.generation,
        "holdfast.step": key,
        "holdfast.step_name": name,
        "holdfast.effect": effect,
    }


def step(it: ObservedAttempt) -> Said:
    """Return the attributes of an executing step."""
    return _step(it.run, it.key, it.name, effect=it.effect)


def step_of_entry(of: ObservedRun, entry: ObservedEntry) -> Said:
    """Return the attributes of a step without a call in this process. Only effects have that."""
    return _step(of, entry.step or "", entry.name, effect=True)


def cut(of: ObservedRun, it: InterruptedStep) -> Said:
    """Return the attributes of a step that was under way in a dead process."""
    said = _step(of, it.key, it.name, effect=it.effect)
    return {**said, "holdfast.generation": it.generation, "holdfast.outcome": "died"}


def attempt(it: ObservedAttempt) -> Said:
    """Return the attributes of an attempt."""
    return {**step(it), "holdfast.attempt": it.number}


def name_of_attempt(it: ObservedAttempt) -> str:
    """Return the name of its span."""
    if it.what == "look":
        return f"look {it.name}"
    return f"attempt {it.number}" if it.what == "body" else it.what


def used(span: Span, it: ObservedAttempt) -> None:
    """Return the usage that the attempt reported by `record_usage(…)`, under the names for
    generative AI."""
    known = it.usage
    if known is None:
        return
    names = {
        "model": "gen_ai.request.model",
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
        "cost": "holdfast.cost_usd",
    }
    for field, name in names.items():
        if field in known:
            span.set_attribute(name, known[field])


def raised(span: Span, it: ObservedAttempt, *, messages: bool) -> None:
    """What it raised: the type, and the text if that is wanted, as the journal tells it."""
    news = it.error_facts()
    if news is None:
        return
    error(span, news, messages=messages)
    said: Said = {"exception.type": news["type"]}
    if messages:
        said["exception.message"] = news["message"]
    span.add_event("exception", said)


def error(span: Span, news: dict[str, str], *, messages: bool) -> None:
    """Mark a span as failed, with its error."""
    text = news["type"]
    if messages and news["message"]:
        text += f": {news['message']}"
    span.set_attribute("error.type", news["type"])
    span.set_status(Status(StatusCode.ERROR, text))


def outcome(kind: str, facts: dict[str, Any]) -> str | None:
    """Return the outcome of a step by this entry; None if it continues."""
    if kind == "step_completed":
        return "degraded" if "degraded" in facts else "completed"
    if kind == "step_failed":
        return "failed" if facts.get("final") else None
    if kind == "step_settled":
        known = {"done": "completed", "failed": "failed"}
        return known.get(str(facts.get("outcome")))
    return {"skipped_duplicate": "skipped_duplicate", "step_cancelled": "cancelled"}.get(kind)


def describe_entry(
    span: Span, entry: ObservedEntry, facts: dict[str, Any], came: str | None, *, messages: bool
) -> None:
    """Set the attributes of an entry of a step."""
    news: dict[str, str] | None = facts.get("error")
    if entry.kind != "step_completed":
        said: Said = {"holdfast.attempt": entry.attempt}
        for name in ("why", "outcome", "source", "by", "final", "ended"):
            if name in facts and isinstance(facts[name], str | bool):
                said[f"holdfast.{name}"] = facts[name]
        if news is not None:
            said["exception.type"] = news["type"]
        span.add_event(entry.kind, said)
    if came is None:
        return
    span.set_attribute("holdfast.outcome", came)
    span.set_attribute("holdfast.attempts", entry.attempt)
    if came == "failed":
        if facts.get("unknown"):
            span.set_attribute("holdfast.outcome", "unknown")
        error(span, news or {"type": "Settled", "message": ""}, messages=messages)
    elif came in {"completed", "degraded", "skipped_duplicate"}:
        span.set_status(Status(StatusCode.OK))


def unfinished(span: Span, *, in_doubt: bool) -> None:
    """The outcome of a step without one, when its execution ends."""
    span.set_attribute("holdfast.outcome", "in_doubt" if in_doubt else "unfinished")
    if in_doubt:
        span.set_status(Status(StatusCode.ERROR, "in doubt"))


def held(span: Span, entry: ObservedEntry) -> None:
    """The execution ends because the run needs a decision."""
    reason = str(entry.facts().get("reason"))
    span.add_event("run_held", {"holdfast.held_reason": reason})
    span.set_attribute("holdfast.held_reason", reason)
    span.set_status(Status(StatusCode.ERROR, f"held: {reason}"))


def wait(of: ObservedRun, begun: ObservedEntry, how: str) -> tuple[str, Said, str | None]:
    """Return the name of a wait, its attributes, and the awaited child, if there was one."""
    facts = begun.facts()
    what = WAIT_BEGINS[begun.kind]
    child = str(facts["run"]) if what == "child" else None
    name = str(facts.get("flow") if child else facts.get("name", "")) or ""
    said: Said = {
        "holdfast.run_id": of.run_id,
        "holdfast.flow": of.flow,
        "holdfast.step": begun.step or "",
        "holdfast.wait": what,
        "holdfast.outcome": how,
    }
    if child is not None:
        said["holdfast.child"] = child
    return f"{what} {name}".strip(), said, child


def run_ended(span: Span, entry: ObservedEntry, *, messages: bool) -> None:
    """Set how a run ended."""
    status = RUN_ENDS[entry.kind]
    span.set_attribute("holdfast.status", status)
    if status == "completed":
        span.set_status(Status(StatusCode.OK))
    elif status == "failed":
        error(span, entry.facts()["error"], messages=messages)
