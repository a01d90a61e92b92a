"""Pieces of every script: how an attempt begins, fails, is tried again, and is given up."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._core.entries import Kind
from holdfast._core.requests import (
    Append,
    Call,
    Called,
    Chance,
    Decode,
    Note,
    Now,
    Script,
    Sleep,
    Spec,
    StepCall,
    Wrote,
)
from holdfast._core.retry import Retry, pause_s
from holdfast._core.rows import KeyChange
from holdfast.errors import StepFailed, ValueRefused


def begin(call: StepCall) -> Script:
    """Begin the next attempt."""
    now_us: int = yield Now()
    call.attempt += 1
    call.started_us = now_us
    call.noted = False
    call.begun = False
    if call.first_started_us == 0:
        call.first_started_us = now_us
    return None


def pause(call: StepCall, policy: Retry, error: BaseException) -> Script:
    """Return how long to wait before the next attempt, or None to give up."""
    chance: float = yield Chance()
    now_us: int = yield Now()
    return pause_s(
        policy,
        attempt=call.attempt,
        error=error,
        elapsed_s=(now_us - call.first_started_us) / 1e6,
        now_s=now_us / 1e6,
        chance=chance,
    )


def failed_attempt(call: StepCall, error: BaseException, wait_s: float) -> Script:
    """Record an attempt that failed and is tried again, and wait."""
    now_us: int = yield Now()
    retry_at_us = now_us + int(wait_s * 1e6)
    facts = {"error": told(error), "final": False, "retry_at_us": retry_at_us}
    yield Append(call, [Note(Kind.STEP_FAILED, facts, ends_attempt=True)])
    yield Sleep(call, retry_at_us)
    return None


def give_up(call: StepCall, error: BaseException, run_id: str, *, unknown: bool = False) -> Script:
    """Record the final failure (or the fallback's value) and hand it to the flow."""
    if call.spec.has_fallback and not unknown:
        called: Called = yield Call(call, "fallback")
        if called.error is None:
            note = Note(
                Kind.STEP_COMPLETED,
                {"degraded": told(error)},
                {"result": called.value},
                ends_attempt=True,
            )
            wrote: Wrote = yield Append(call, [note], keys=key_change(call, "not_done"), degraded=1)
            return wrote.value
    facts: dict[str, Any] = {"error": told(error), "final": True}
    if unknown:
        facts["unknown"] = True
    declared = _declared(call.spec, error)
    values = {"error_args": list(error.args)} if declared is not None else {}
    keys = key_change(call, "in_doubt" if unknown else "not_done")
    note = Note(Kind.STEP_FAILED, facts, values, ends_attempt=True)
    try:
        yield Append(call, [note], keys=keys)
    except ValueRefused:
        note.values = {}
        yield Append(call, [note], keys=keys)
    if declared is not None:
        raise marked(error, call.key)
    raise step_failed(call, facts["error"], call.attempt, run_id, unknown=unknown) from error


def told(error: BaseException) -> dict[str, str]:
    """Return an exception as the journal tells it."""
    return {"type": type(error).__name__, "message": str(error)[:10_000]}


def _declared(spec: Spec, error: BaseException) -> type[BaseException] | None:
    """Return the declared class that this exception is, exactly."""
    return next((kind for kind in spec.raises if type(error) is kind), None)


def rebuilt(
    spec: Spec, error: dict[str, Any], args: msgspec.Raw | None, decode: Decode
) -> BaseException | None:
    for kind in spec.raises:
        if kind.__name__ == error["type"]:
            values = decode(bytes(args)) if args is not None else [error["message"]]
            made = kind.__new__(kind, *values)
            made.args = tuple(values)
            try:
                kind.__init__(made, *values)
            except TypeError:
                made.args = tuple(values)
            return made
    return None


def marked(error: BaseException, step: str) -> BaseException:
    """Mark an exception with the step that it comes from, so that `run_failed` can name it."""
    error.__holdfast_step__ = step  # type: ignore[attr-defined]
    return error


def step_failed(
    call: StepCall, error: dict[str, Any], attempts: int, run_id: str, *, unknown: bool = False
) -> BaseException:
    failed = StepFailed(
        call.key,
        error["type"],
        error["message"],
        attempts,
        run_id=run_id,
        outcome_unknown=unknown,
    )
    return marked(failed, call.key)


def key_change(call: StepCall, state: str, *, result: bool = False) -> list[KeyChange]:
    """Return what becomes of the call's business key, if it has one."""
    if call.business_key is None:
        return []
    return [KeyChange(call.spec.name, call.business_key, state, result)]
