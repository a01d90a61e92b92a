"""Parts of every script: begin an attempt, fail, retry, and give up."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from holdfast._engine.journal.changes import ClaimKey, SetKey
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Change
from holdfast._engine.journal.step_keys import name_of
from holdfast._engine.scripts import doubt_policies
from holdfast._engine.scripts.business_keys import CLAIMED_AS, claimed_name
from holdfast._engine.scripts.requests import (
    NOW,
    Append,
    Call,
    Called,
    Chance,
    Decode,
    Note,
    Script,
    Sleep,
    Spec,
    StepCall,
    Wrote,
)
from holdfast._engine.scripts.retry import Retry, pause_s
from holdfast.errors import NotSerializable, StepFailed

_STEP = "__holdfast_step__"
"""The attribute of an exception that names its step."""
_OWN = frozenset(kind for kind in vars(builtins).values() if isinstance(kind, type))
"""Python's own exception classes."""


def begin(call: StepCall) -> Script:
    """Begin the next attempt."""
    now_us: int = yield NOW
    call.begin(now_us)
    return None


def admitted(call: StepCall, run_id: str, *, in_doubt: bool = False) -> Script:
    """Pass the gates of a call before its next attempt."""
    for gate in call.gates:
        yield from gate.before(call, run_id, in_doubt=in_doubt)
    return None


def started(
    call: StepCall, notes: list[Note], run_id: str, claim: ClaimKey | None = None
) -> Script:
    """Write the start of an attempt, with the changes that its gates require in that transaction. A
    refusal of a gate's change runs the gate's script; a refusal of the claim is returned."""
    claims: list[Change] = [] if claim is None else [claim]
    while True:
        demanded = [change for gate in call.gates for change in gate.start(call)]
        if not (notes or demanded):
            return Wrote()
        wrote: Wrote = yield Append(call, notes, changes=[*claims, *demanded])
        if wrote.refused is None or wrote.taken_key is not None:
            return wrote
        for gate in call.gates:
            yield from gate.refused(call, wrote.refused, run_id)


def intent(call: StepCall) -> Note:
    """Return the entry that records an effect's intent."""
    spec = call.spec
    facts: dict[str, Any] = {"effect": True}
    if spec.transaction:
        facts["transaction"] = True
    facts["key"] = call.idempotency_key
    if not spec.transaction:
        facts["on_doubt"] = doubt_policies.policy_name(spec.on_doubt)
    if call.business_key is not None:
        facts["business_key"] = call.business_key
        if claimed_name(call) != name_of(call.key):
            facts[CLAIMED_AS] = claimed_name(call)
    if spec.key_ttl_s != doubt_policies.KEY_TTL_S:
        facts["key_ttl_s"] = spec.key_ttl_s
    if spec.timeout_s is not None:
        facts["timeout_s"] = spec.timeout_s
    for gate in call.gates:
        facts |= gate.facts()
    if spec.has_undo:
        facts["undo"] = True
    if call.undoes is not None:
        facts["undoes"] = call.undoes
    return Note(Kind.STEP_STARTED, facts)


def ending(call: StepCall, note: Note) -> list[Note]:
    """Return the entries that end an attempt. A rolled-back transaction took its start with it, so
    the start is written now."""
    return [intent(call), note] if call.spec.transaction else [note]


def pause(call: StepCall, policy: Retry, error: BaseException) -> Script:
    """Return how long to wait before the next attempt, or None to give up."""
    chance: float = yield Chance()
    now_us: int = yield NOW
    return pause_s(
        policy,
        attempt=call.attempt.number,
        error=error,
        elapsed_s=(now_us - call.attempt.first_started_us) / 1e6,
        now_s=now_us / 1e6,
        chance=chance,
    )


def failed_attempt(call: StepCall, error: BaseException, wait_s: float) -> Script:
    """Record a failed attempt that is retried, and wait."""
    now_us: int = yield NOW
    retry_at_us = now_us + int(wait_s * 1e6)
    facts = {"error": error_facts(error), "final": False, "retry_at_us": retry_at_us}
    note = Note(Kind.STEP_FAILED, facts, ends_attempt=True)
    yield Append(call, ending(call, note))
    yield Sleep(call, retry_at_us)
    return None


def give_up(call: StepCall, error: BaseException, run_id: str, *, unknown: bool = False) -> Script:
    """Record the final failure (or the fallback's value) and return it to the flow."""
    if call.spec.has_fallback and not unknown:
        called: Called = yield Call(call, "fallback")
        if called.error is None:
            note = Note(
                Kind.STEP_COMPLETED,
                {"degraded": error_facts(error)},
                {"result": called.value},
                ends_attempt=True,
            )
            try:
                wrote: Wrote = yield Append(
                    call,
                    ending(call, note),
                    degraded=1,
                    changes=key_change(call, "not_done"),
                )
                return wrote.value
            except NotSerializable as refused:
                error = refused  # A fallback that cannot be stored is none.
    facts: dict[str, Any] = {"error": error_facts(error), "final": True}
    if unknown:
        facts["unknown"] = True
    changes = key_change(call, "in_doubt" if unknown else "not_done")
    note = Note(Kind.STEP_FAILED, facts, ends_attempt=True)
    declared = _declared(call.spec, error)
    if declared is not None:
        try:
            facts["declared"] = declared.__module__
            note.values = {"raised": _contents(error)}
            _made(declared, note.values["raised"], call.key)
            wrote = yield Append(call, ending(call, note), changes=changes)
        except NotSerializable as refused:
            del facts["declared"]
            note.values = {}
            facts["error"]["message"] += storable(_undeclarable(call, declared, refused))
        else:
            # The flow gets the same value as on replay.
            raise _made_or_none(declared, wrote.value, call.key) or step_failed(
                call, facts["error"], call.attempt.number, run_id, unknown=unknown
            ) from error
    yield Append(call, ending(call, note), changes=changes)
    raise step_failed(call, facts["error"], call.attempt.number, run_id, unknown=unknown) from error


def error_facts(error: BaseException) -> dict[str, str]:
    """Return an exception as the journal tells it."""
    try:
        message = str(error)
    except Exception:
        message = "(its text cannot be made)"
    return {"type": type(error).__name__, "message": storable(message[:10_000])}


def storable(text: str) -> str:
    """Replace invalid Unicode, so that it can be stored."""
    return text.encode("utf-8", "backslashreplace").decode()


def _declared(spec: Spec, error: BaseException) -> type[BaseException] | None:
    """Return the declared class that this exception is, exactly."""
    return next((kind for kind in spec.raises if type(error) is kind), None)


def rebuilt(
    spec: Spec, step: str, data: Mapping[str, msgspec.Raw], decode: Decode
) -> BaseException | None:
    """Return a declared exception as the journal records it, or None if it is not one."""
    if "declared" not in data:
        return None
    name = msgspec.json.decode(data["error"])["type"]
    named = [kind for kind in spec.raises if kind.__name__ == name]
    if not named:
        return None
    module = msgspec.json.decode(data["declared"])
    kind = next((kind for kind in named if kind.__module__ == module), named[0])
    return _made_or_none(kind, decode(bytes(data["raised"])), step)


def _contents(error: BaseException) -> dict[str, Any]:
    """Return the contents of an exception: the args, and its other attributes.

    Python's own base class knows both. Copy methods of derived classes are not used, because they
    may call an `__init__` with a different signature.
    """
    try:
        made_of: tuple[Any, ...] = _own_class(type(error)).__reduce__(error)  # type: ignore[assignment]
        attributes: dict[str, Any] = dict(*made_of[2:3])
        state: Any = object.__getstate__(error)
        if isinstance(state, tuple):  # Of a class with slots.
            attributes.update(cast("dict[str, Any]", state[1]))
    except Exception as unknown:
        raise NotSerializable("raised", f"its contents cannot be read: {unknown!r}") from None
    attributes.pop(_STEP, None)
    return {"args": list(made_of[1]), "attributes": attributes}


def _made(kind: type[BaseException], contents: dict[str, Any], step: str) -> BaseException:
    """Make an exception of a declared class with exactly these contents.

    No `__init__` of the user is called: it may have a different signature, and other consequences.
    """
    own, args = _own_class(kind), contents["args"]
    try:
        made = own.__new__(kind, *args)
        own.__init__(made, *args)
        for name, value in contents["attributes"].items():
            # Past any __setattr__ of its class.
            BaseException.__setattr__(made, name, value)
        same = type(made) is kind and _contents(made) == contents
    except Exception as error:
        raise NotSerializable("raised", f"it cannot be made again: {error!r}") from None
    if not same:
        raise NotSerializable("raised", "made again, it holds something else")
    return marked(made, step)


def _made_or_none(
    kind: type[BaseException], contents: dict[str, Any], step: str
) -> BaseException | None:
    """Recreate a recorded exception, or return None if today's class, or a redaction of the
    contents, does not allow it."""
    try:
        return _made(kind, contents, step)
    except NotSerializable:
        return None


def _own_class(kind: type[BaseException]) -> type[BaseException]:
    """Return Python's own class that determines an exception's layout."""
    while kind not in _OWN:
        kind = cast("type[BaseException]", kind.__base__)
    return kind


def _undeclarable(call: StepCall, kind: type[BaseException], refused: NotSerializable) -> str:
    return (
        f" (step {call.key!r} declares {kind.__name__} in raises=, but this one cannot be stored and "
        f"made again, so that the flow does not get it as itself: {refused}; raise an exception that "
        f"holds plain values instead, or take {kind.__name__} out of raises=)"
    )


def marked(error: BaseException, step: str) -> BaseException:
    """Mark an exception with its step, so that `run_failed` can name it."""
    # Past any __setattr__ of its class.
    BaseException.__setattr__(error, _STEP, step)
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


def key_change(call: StepCall, state: str, *, result: bool = False) -> list[SetKey]:
    """Return the change of the call's business key, if it has one; for an undo, of the key of its
    effect: it becomes undone and is never assigned again."""
    undoes = call.undoes
    if undoes is not None:
        undone = undoes.key is not None and state == "completed"
        return [SetKey(undoes.effect, str(undoes.key), "undone")] if undone else []
    if call.business_key is None or (call.spec.transaction and state != "completed"):
        return []  # A transaction that was rolled back never had the key.
    return [SetKey(claimed_name(call), call.business_key, state, result)]
