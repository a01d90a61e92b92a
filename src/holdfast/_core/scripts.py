"""The durable operations, written once as generators ("scripts").

A script decides; it never performs. It yields what it needs (`Append`, `Call`, `Sleep`, `Now`,
`Chance`, `FindKey`) and is sent the answer. Two drivers in `_runtime` perform it, one blocking
and one awaiting, and the simulation has a third. One step, from the call to the disk:

    step_script ── match ──► replayed                              (nothing is executed)
        │
        ├─ a plain step ── Call ── Append(outcome) ── [Sleep, again]
        │
        └─ an effect ── Append(intent) ── Call ── Append(outcome)
                            │               └─ error, time-out: Append(step_in_doubt) ─┐
                            └─ found after a crash: Append(step_in_doubt) ─────────────┤
                                       "ask": hold · "retry": again, same key          │
                                       "fail": StepFailed · function: ask the world ◄──┘
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

import msgspec

from holdfast._core import effects
from holdfast._core.effects import NOT_DONE, Done, OnDoubt
from holdfast._core.entries import Kind
from holdfast._core.history import Divergence, History, Record, State
from holdfast._core.retry import ONCE, Retry, pause_s
from holdfast._core.rows import KeyChange, KeyClaim, KeyState
from holdfast._core.stops import Unwind
from holdfast.errors import KeyConflict, RunHeld, StepFailed, ValueRefused

NOTHING: Any = object()


class Spec(msgspec.Struct, frozen=True):
    """What a step was declared to be."""

    name: str
    effect: bool = False
    retry: Retry | None = None
    timeout_s: float | None = None
    raises: tuple[type[BaseException], ...] = ()
    failed_on: tuple[type[BaseException], ...] = ()
    on_doubt: OnDoubt = "ask"
    key_ttl_s: float = effects.KEY_TTL_S
    has_fallback: bool = False
    grouped: bool = False


class StepCall(msgspec.Struct):
    """One call of a step: its identity and its arguments as they were when it was called."""

    spec: Spec
    key: str
    position: int | None
    args_digest: bytes | None
    """None for what is matched by place and name alone."""
    idempotency_key: str
    business_key: str | None
    adopted: bool = False
    """The run existed when a store with a lost tail was adopted: the first try is a doubt."""
    args_node: bytes = b""
    attempt: int = 0
    started_us: int = 0
    first_started_us: int = 0
    noted: bool = False
    """Whether this attempt's `step_started` stands in the journal (or is on its way)."""
    begun: bool = False
    """Whether user code of this attempt was called; until then nothing can have happened."""
    usage: dict[str, Any] | None = None


# -- what a script may ask for -----------------------------------------------------------------


class Note(msgspec.Struct):
    """An entry to be written: plain facts, and values that are still to be encoded."""

    kind: Kind
    facts: dict[str, Any] = {}
    values: dict[str, Any] = {}
    ends_attempt: bool = False


class Append(msgspec.Struct):
    """Write entries of this call in one transaction; sends back `Wrote`."""

    call: StepCall
    notes: list[Note]
    claim: KeyClaim | None = None
    keys: list[KeyChange] = []
    degraded: int = 0
    waits: bool = True


class Wrote(msgspec.Struct):
    """What an Append did. `value` is the decoded copy of the last note's value, if it had one."""

    value: Any = None
    taken: KeyState | None = None


class Call(msgspec.Struct):
    """Call user code: "body", "on_doubt" or "fallback"; sends back `Called`."""

    call: StepCall
    what: str


class Called(msgspec.Struct):
    """What became of a call. `ended` is False for an abandoned thread."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    ended: bool = True


class Sleep(msgspec.Struct):
    """Wait until a time of the store's clock."""

    call: StepCall
    until_us: int


class Now(msgspec.Struct):
    """Ask for the store's time, in microseconds."""


class Chance(msgspec.Struct):
    """Ask for a random number in [0, 1)."""


class FindKey(msgspec.Struct):
    """Look up a business key; with `wait`, first wait until it may have changed."""

    call: StepCall
    wait: bool = False


class CopyResult(msgspec.Struct):
    """Read the result that another run's step recorded (a duplicate of a business key)."""

    key: KeyState


Request = Append | Call | Sleep | Now | Chance | FindKey | CopyResult
Script = Generator[Request, Any, Any]
Decode = Callable[[bytes], Any]


# -- the scripts -------------------------------------------------------------------------------


def step_script(call: StepCall, history: History, decode: Decode) -> Script:
    """Execute one call of a step, or replay it."""
    record = find(call, history)
    if record is not None:
        if record.has_outcome:
            return replayed(call, record, decode, history.run_id)
        call.attempt = record.attempts
        call.first_started_us = record.first_started_us
    if call.spec.effect:
        return (yield from _effect(call, record, history.run_id))
    return (yield from _plain(call, record, history.run_id))


def find(call: StepCall, history: History) -> Record | None:
    """Return the record of this call; a call that does not fit holds the run as diverged."""
    try:
        return history.match(call.key, call.position, call.args_digest)
    except Divergence as found:
        raise Unwind(
            RunHeld(
                history.run_id,
                "diverged",
                f"at {call.key}: {found}. The flow's code or its inputs changed inside the "
                "part that is already recorded.",
                (
                    "put the old code back and run it again, or",
                    f"holdfast resume {history.run_id} --accept-change",
                ),
                step=call.key,
            )
        ) from None


def replayed(call: StepCall, record: Record, decode: Decode, run_id: str) -> Any:
    """Return or raise what the recorded outcome says; nothing is executed."""
    assert record.outcome is not None
    data = record.outcome.data()
    if record.state is not State.FAILED:
        return decode(bytes(data.get("result", data.get("value", b"null"))))
    error = msgspec.json.decode(data["error"])
    if "conflict" in data:
        conflict = msgspec.json.decode(data["conflict"])
        raise _marked(KeyConflict(call.spec.name, **conflict), call.key)
    rebuilt = _rebuilt(call.spec, error, data.get("error_args"), decode)
    raise rebuilt or _step_failed(call, error, max(record.attempts, 1), run_id)


def _plain(call: StepCall, record: Record | None, run_id: str) -> Script:
    policy = call.spec.retry or ONCE
    if record is not None and record.state is State.RETRYING and record.retry_at_us:
        yield Sleep(call, record.retry_at_us)
    if record is not None and record.state is not State.RETRYING and call.attempt > 0:
        call.attempt -= 1  # The attempt that a crash cut short does not count against the policy.
    while True:
        yield from _begin(call)
        called: Called = yield Call(call, "body")
        if called.error is None:
            try:
                wrote: Wrote = yield Append(
                    call,
                    [Note(Kind.STEP_COMPLETED, {}, {"result": called.value}, ends_attempt=True)],
                    waits=not call.spec.grouped,
                )
            except ValueRefused as refused:
                called = Called(error=refused)
            else:
                return wrote.value
        assert called.error is not None
        pause = yield from _pause(call, policy, called.error)
        if pause is None:
            return (yield from _give_up(call, called.error, run_id))
        yield from _failed_attempt(call, called.error, pause)


def _effect(call: StepCall, record: Record | None, run_id: str) -> Script:
    if record is None and call.adopted:
        yield Append(call, [Note(Kind.STEP_IN_DOUBT, {"why": "adopted", "ended": True})])
        ready = yield from _settle(call, _Doubt("adopted", True), run_id)
    elif record is None:
        ready = yield from _claim(call, run_id)
    else:
        ready = yield from _resume_effect(call, record, run_id)
    while True:
        if ready is not NOTHING:
            return ready
        called: Called = yield Call(call, "body")
        if called.error is None:
            return (yield from _effect_returned(call, called.value, run_id))
        if isinstance(called.error, call.spec.failed_on):
            ready = yield from _did_not_happen(call, called.error, run_id)
        else:
            why = "timeout" if called.timed_out else "error"
            doubt = _Doubt(why, called.ended, called.error)
            yield Append(call, [doubt.note()], keys=key_change(call, "in_doubt"))
            ready = yield from _settle(call, doubt, run_id)


def _resume_effect(call: StepCall, record: Record, run_id: str) -> Script:
    """Go on with an effect that an earlier process left without outcome."""
    if record.state is State.RETRYING:
        if record.retry_at_us:
            yield Sleep(call, record.retry_at_us)
        return (yield from _claim(call, run_id))
    if record.state in (State.NOT_DONE, State.CANCELLED):
        return (yield from _claim(call, run_id))
    doubt = _Doubt("process_died", record.ended, lost_us=record.lost_us)
    if record.state is not State.IN_DOUBT:
        yield Append(call, [doubt.note()], keys=key_change(call, "in_doubt"))
    elif record.doubt is not None:
        facts = msgspec.json.decode(record.doubt.body)
        doubt = _Doubt(facts["why"], record.ended, lost_us=record.lost_us)
    return (yield from _settle(call, doubt, run_id))


# -- pieces ------------------------------------------------------------------------------------


class _Doubt:
    """Why an effect is in doubt, and whether the attempt that left it so has ended."""

    def __init__(
        self, why: str, ended: bool, error: BaseException | None = None, lost_us: int | None = None
    ) -> None:
        self.why = why
        self.ended = ended
        self.error = error
        self.lost_us = lost_us

    def note(self) -> Note:
        facts: dict[str, Any] = {"why": self.why, "ended": self.ended}
        if self.error is not None:
            facts["error"] = told(self.error)
        return Note(Kind.STEP_IN_DOUBT, facts)


def _begin(call: StepCall) -> Script:
    now_us: int = yield Now()
    call.attempt += 1
    call.started_us = now_us
    call.noted = False
    call.begun = False
    if call.first_started_us == 0:
        call.first_started_us = now_us
    return None


def _intent(call: StepCall) -> Note:
    spec = call.spec
    facts: dict[str, Any] = {
        "effect": True,
        "key": call.idempotency_key,
        "on_doubt": effects.policy_name(spec.on_doubt),
    }
    if call.business_key is not None:
        facts["business_key"] = call.business_key
    if spec.timeout_s is not None:
        facts["timeout_s"] = spec.timeout_s
    return Note(Kind.STEP_STARTED, facts)


def _claim(call: StepCall, run_id: str) -> Script:
    """Commit the intent of the next attempt, together with the claim of the business key if there
    is one; NOTHING means: call it. A key that this call has already is claimed again: another run
    may have got it meanwhile, if it was known not to have happened."""
    yield from _begin(call)
    if call.business_key is None:
        yield Append(call, [_intent(call)])
        return NOTHING
    assert call.args_digest is not None
    claim = KeyClaim(call.spec.name, call.business_key, call.key, call.args_digest)
    while True:
        wrote: Wrote = yield Append(call, [_intent(call)], claim=claim)
        if wrote.taken is None:
            return NOTHING
        found = yield from _key_is_taken(call, wrote.taken, run_id)
        if found is not NOTHING:
            return found


def _key_is_taken(call: StepCall, taken: KeyState, run_id: str) -> Script:
    """Another call has the key: return its result, wait for it, or say why not."""
    if taken.args_digest != call.args_digest:
        why = f"taken by run {taken.run_id!r} with other arguments"
        return (yield from _refused(call, why, taken))
    if taken.state == "undone":
        why = f"it was done by run {taken.run_id!r} and undone since"
        return (yield from _refused(call, why, taken))
    if taken.state == "completed":
        result = yield CopyResult(taken)
        facts = {"other_run": taken.run_id, "other_step": taken.step, "key": call.business_key}
        wrote: Wrote = yield Append(
            call, [Note(Kind.SKIPPED_DUPLICATE, facts, {"result": result}, ends_attempt=True)]
        )
        return wrote.value
    if taken.state == "in_doubt":
        raise _held_on_key(call, taken, run_id)
    yield FindKey(call, wait=True)
    return NOTHING


def _effect_returned(call: StepCall, value: Any, run_id: str) -> Script:
    try:
        wrote: Wrote = yield Append(
            call,
            [Note(Kind.STEP_COMPLETED, {}, {"result": value}, ends_attempt=True)],
            keys=key_change(call, "completed", result=True),
        )
    except ValueRefused as refused:
        doubt = _Doubt("value_lost", True, refused)
        yield Append(call, [doubt.note()], keys=key_change(call, "in_doubt"))
        raise _held(call, doubt, run_id) from None
    return wrote.value


def _did_not_happen(call: StepCall, error: BaseException, run_id: str) -> Script:
    """A declared "it did not happen": retry it, or give up."""
    pause = yield from _pause(call, call.spec.retry or ONCE, error)
    if pause is None:
        return (yield from _give_up(call, error, run_id))
    yield from _failed_attempt(call, error, pause)
    return (yield from _claim(call, run_id))


def _settle(call: StepCall, doubt: _Doubt, run_id: str) -> Script:
    """Settle a doubt by the declared policy: a value, NOTHING (call it again), or a stop."""
    policy = call.spec.on_doubt
    if doubt.why == "value_lost" or policy == "ask":
        raise _held(call, doubt, run_id)
    if policy == "fail":
        error = doubt.error or RuntimeError("the process died before the outcome was recorded")
        return (yield from _give_up(call, error, run_id, unknown=True))
    now_us: int = yield Now()
    if policy == "retry":
        allowed = (call.spec.retry or Retry()).attempts
        young = effects.may_send(call.first_started_us or now_us, now_us, call.spec.key_ttl_s)
        if call.attempt >= allowed or not young:
            why = "its key is too old to be sent again" if not young else "all attempts are used"
            raise _held(call, doubt, run_id, f"on_doubt='retry', but {why}")
        return (yield from _claim(call, run_id))
    return (yield from _ask_the_world(call, doubt, run_id, now_us))


def _ask_the_world(call: StepCall, doubt: _Doubt, run_id: str, now_us: int) -> Script:
    called: Called = yield Call(call, "on_doubt")
    answer: Any = called.value if called.error is None else None
    if isinstance(answer, Done):
        happened = cast("Done[Any]", answer)
        facts = {"as": "done", "source": "on_doubt"}
        try:
            wrote: Wrote = yield Append(
                call,
                [Note(Kind.STEP_SETTLED, facts, {"result": happened.result}, ends_attempt=True)],
                keys=key_change(call, "completed", result=True),
            )
        except ValueRefused as refused:
            raise _held(call, _Doubt("value_lost", True, refused), run_id) from None
        return wrote.value
    if answer is not NOT_DONE:
        if called.error is not None:
            why = f"on_doubt raised {type(called.error).__name__}: {called.error}"
        else:
            why = "on_doubt answered UNKNOWN"
        raise _held(call, doubt, run_id, why)
    if not effects.not_done_is_believed(
        ended=doubt.ended, lost_us=doubt.lost_us, timeout_s=call.spec.timeout_s, now_us=now_us
    ):
        raise _held(
            call,
            doubt,
            run_id,
            "on_doubt answered NOT_DONE, but the attempt that left the doubt may still be acting",
        )
    young = effects.may_send(call.first_started_us or now_us, now_us, call.spec.key_ttl_s)
    if not young:
        raise _held(call, doubt, run_id, "its key is too old to be sent again")
    yield Append(
        call,
        [Note(Kind.STEP_SETTLED, {"as": "not_done", "source": "on_doubt"})],
        keys=key_change(call, "not_done"),
    )
    return (yield from _claim(call, run_id))


def _pause(call: StepCall, policy: Retry, error: BaseException) -> Script:
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


def _failed_attempt(call: StepCall, error: BaseException, pause: float) -> Script:
    now_us: int = yield Now()
    retry_at_us = now_us + int(pause * 1e6)
    facts = {"error": told(error), "final": False, "retry_at_us": retry_at_us}
    yield Append(call, [Note(Kind.STEP_FAILED, facts, ends_attempt=True)])
    yield Sleep(call, retry_at_us)
    return None


def _give_up(call: StepCall, error: BaseException, run_id: str, *, unknown: bool = False) -> Script:
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
        raise _marked(error, call.key)
    raise _step_failed(call, facts["error"], call.attempt, run_id, unknown=unknown) from error


def told(error: BaseException) -> dict[str, str]:
    """Return an exception as the journal tells it."""
    return {"type": type(error).__name__, "message": str(error)[:10_000]}


def _declared(spec: Spec, error: BaseException) -> type[BaseException] | None:
    """Return the declared class that this exception is, exactly."""
    return next((kind for kind in spec.raises if type(error) is kind), None)


def _rebuilt(
    spec: Spec, error: dict[str, Any], args: msgspec.Raw | None, decode: Decode
) -> BaseException | None:
    for kind in spec.raises:
        if kind.__name__ == error["type"]:
            values = decode(bytes(args)) if args is not None else [error["message"]]
            rebuilt = kind.__new__(kind, *values)
            rebuilt.args = tuple(values)
            try:
                kind.__init__(rebuilt, *values)
            except TypeError:
                rebuilt.args = tuple(values)
            return rebuilt
    return None


def _marked(error: BaseException, step: str) -> BaseException:
    error.__holdfast_step__ = step  # type: ignore[attr-defined]
    return error


def _step_failed(
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
    return _marked(failed, call.key)


def key_change(call: StepCall, state: str, *, result: bool = False) -> list[KeyChange]:
    """Return what becomes of the call's business key, if it has one."""
    if call.business_key is None:
        return []
    return [KeyChange(call.spec.name, call.business_key, state, result)]


def _refused(call: StepCall, why: str, taken: KeyState) -> Script:
    """Record that the key cannot be had, so that a replay tells the flow the same."""
    error = KeyConflict(call.spec.name, str(call.business_key), why, other_run=taken.run_id)
    conflict = {"key": error.key, "why": why, "other_run": taken.run_id}
    facts = {"error": told(error), "final": True, "conflict": conflict}
    yield Append(call, [Note(Kind.STEP_FAILED, facts, ends_attempt=True)])
    raise _marked(error, call.key)


DOUBTS = {
    "process_died": "its process died after it was started and before its outcome was recorded",
    "error": "it raised an error that does not say whether it happened",
    "timeout": "it ran out of time, and the request may still have been carried out",
    "value_lost": "it returned, so it happened, but its result could not be stored",
    "interrupted": "it was interrupted while it was at work",
    "adopted": "the store lost records, so it may have happened before",
}
"""What each kind of doubt means, for people."""


def _held(call: StepCall, doubt: _Doubt, run_id: str, more: str = "") -> Unwind:
    detail = f"{call.key} may or may not have happened: {DOUBTS[doubt.why]}"
    if doubt.why == "value_lost":
        detail = f"{call.key} happened, but {DOUBTS['value_lost'].partition('but ')[2]}"
    if doubt.error is not None:
        detail += f" ({type(doubt.error).__name__}: {doubt.error})"
    if more:
        detail += f"; {more}"
    return Unwind(
        RunHeld(run_id, "in_doubt", detail, settle_actions(run_id, call.key), step=call.key)
    )


def _held_on_key(call: StepCall, taken: KeyState, run_id: str) -> Unwind:
    detail = (
        f"{call.key} uses the key {call.business_key!r}, which is in doubt in run "
        f"{taken.run_id!r} at {taken.step}; settling one of them frees both"
    )
    actions = settle_actions(taken.run_id, taken.step)
    held = RunHeld(run_id, "in_doubt", detail, actions, step=call.key)
    return Unwind(held, waiting_on=key_token(call.spec.name, str(call.business_key)))


def key_token(effect: str, key: str) -> str:
    """Return what `waiting_on` says of a run that is held on another run's key."""
    return f"key:{effect}:{key}"


def settle_actions(run_id: str, step: str) -> tuple[str, ...]:
    """Return the commands that settle a doubt."""
    return (
        f"holdfast settle {run_id} '{step}' --done JSON    (it happened; this is its result)",
        f"holdfast settle {run_id} '{step}' --not-done     (it did not happen: it will be run)",
        f"holdfast settle {run_id} '{step}' --fail REASON  (give it up)",
    )
