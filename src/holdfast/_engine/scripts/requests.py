"""Requests of scripts and their answers: the interface between the core and the drivers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast._engine.journal.changes import ClaimKey, KeyTaken, SetKey
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Change, KeyState, Refused, Write
from holdfast._engine.scripts import doubt_policies
from holdfast._engine.scripts.doubt_policies import OnDoubt
from holdfast._engine.scripts.retry import Retry


class Returns(Protocol):
    """The declared return type of an effect; used when another source gives the result."""

    def schema(self) -> dict[str, Any] | None:
        """Describe it without its class; None if nothing is known."""
        ...

    def fitted(self, value: Any) -> Any:
        """Return a value converted to the declared type; ValueError says why it does not fit."""
        ...


class Spec(msgspec.Struct, frozen=True):
    """The declaration of a step."""

    name: str
    effect: bool = False
    retry: Retry | None = None
    timeout_s: float | None = None
    raises: tuple[type[BaseException], ...] = ()
    not_done_on: tuple[type[BaseException], ...] = ()
    on_doubt: OnDoubt = "hold"
    key_ttl_s: float = doubt_policies.KEY_TTL_S
    has_fallback: bool = False
    grouped: bool = False
    transaction: bool = False
    """An effect in the store's own database: it commits together with its outcome."""
    polls: bool = False
    """Whether repeated calls with the same arguments are intended."""
    has_undo: bool = False
    """Whether it can be undone: the intent says so, for plans of a rollback."""
    aliases: tuple[str, ...] = ()
    """Its former names: its business keys may be stored under them."""
    returns: Returns | None = None


class Undoes(msgspec.Struct, frozen=True):
    """The effect that an undo takes back, and its business key."""

    step: str
    effect: str
    key: str | None


class Gate:
    """The conditions of a feature for every attempt of one call.

        before      a script that runs before an attempt; it may wait, or stop the run
        facts       what the intent of an effect says about it
        start       changes of the transaction that records the start; they may refuse it
        refused     a script that runs after such a refusal: return to try again, or stop the run
        changes     changes of any write of this call, such as the settlement of a cost
        withdrawn   a write was refused and nothing of it is stored

    A plain step has no gate. `changes` and `withdrawn` are called under the lock of the run.
    """

    def before(self, call: StepCall, run_id: str, *, in_doubt: bool = False) -> Script:
        return None
        yield

    def facts(self) -> Mapping[str, Any]:
        return {}

    def start(self, call: StepCall) -> Sequence[Change]:
        return ()

    def refused(self, call: StepCall, refusal: Refused, run_id: str) -> Script:
        return None
        yield

    def changes(self, request: Append) -> Sequence[Change]:
        return ()

    def withdrawn(self, write: Write) -> None:
        return None


class Attempt(msgspec.Struct):
    """The current attempt of a call, and what its user code reported and asked for."""

    number: int = 0
    """The attempts before it plus one; 0 before the first."""
    first_started_us: int = 0
    """When the first attempt began."""
    started_us: int = 0
    noted: bool = False
    """Whether its `step_started` stands in the journal (or is on its way)."""
    begun: bool = False
    """Whether its user code was called; before that nothing can have happened."""
    at_large: bool = False
    """Whether a helper thread that cannot be stopped is working on it."""
    emitting: int = 0
    """The attempt, executed here, that has emitted a value; 0 is none."""
    usage: dict[str, Any] | None = None
    """Usage that is not written yet, of earlier attempts too."""
    outcome_changes: list[Change] | None = None
    """The changes that commit with its outcome, if it succeeds."""


class StepCall(msgspec.Struct):
    """One call of a step: its identity and its arguments at the time of the call."""

    spec: Spec
    key: str
    position: int | None
    args_digest: bytes | None
    """None for a call that is matched by place and name alone."""
    idempotency_key: str
    business_key: str | None
    claimed_as: str = ""
    """The name under which the business key is claimed, if that is known to be another one."""
    after_data_loss: bool = False
    """The run existed when data loss was accepted: its first try is a doubt."""
    args_node: bytes = b""
    args_now: dict[str, Any] | None = None
    """The arguments as they may be shown, where different ones are recorded."""
    made_by: bytes = b""
    """Facts that are recorded with its outcome: the fingerprint of its code, declared versions."""
    undoes: Undoes | None = None
    """Set in the call of an undo: its effect."""
    gates: Sequence[Gate] = ()
    """The conditions of features for each attempt."""
    attempt: Attempt = msgspec.field(default_factory=Attempt)

    def begin(self, now_us: int) -> None:
        """Begin the next attempt."""
        attempt = self.attempt
        attempt.number += 1
        attempt.started_us = now_us
        attempt.noted = False
        attempt.begun = False
        if attempt.first_started_us == 0:
            attempt.first_started_us = now_us


# -- what a script may ask for -----------------------------------------------------------------


class Note(msgspec.Struct):
    """An entry to write: plain facts, and values that are not encoded yet."""

    kind: Kind
    facts: dict[str, Any] = {}
    values: dict[str, Any] = {}
    ends_attempt: bool = False


class Append(msgspec.Struct):
    """Write entries of this call in one transaction; sends back `Wrote`."""

    call: StepCall
    notes: list[Note]
    changes: Sequence[Change] = ()
    """The changes of the transaction beside the run."""
    degraded: int = 0
    waits: bool = True
    lazily: bool = False
    """Does not wait: it may be part of any later write."""


class Wrote(msgspec.Struct):
    """The answer to an Append. `value` is the decoded copy of the last note's value, if it had one."""

    value: Any = None
    refused: Refused | None = None
    """The change that refused the write, if one did."""

    @property
    def taken_key(self) -> KeyState | None:
        """The business key that another call has, if that is why."""
        return self.refused.key if isinstance(self.refused, KeyTaken) else None


class Call(msgspec.Struct):
    """Call user code: "body", "on_doubt" or "fallback"; sends back `Called`."""

    call: StepCall
    what: str


class Called(msgspec.Struct):
    """The outcome of a call. `ended` is False for an abandoned thread."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    ended: bool = True


class Transact(msgspec.Struct):
    """Call the body and write these entries in one transaction of the store's database; the last
    entry gets the body's result. Sends back `Transacted`."""

    call: StepCall
    notes: list[Note]
    claim: ClaimKey | None = None
    keys: Sequence[SetKey] = ()


class Transacted(msgspec.Struct):
    """The outcome of a transaction: all of it happened and `value` is the copy of the result, or
    nothing did, because of an error or because another call has the key."""

    value: Any = None
    error: BaseException | None = None
    refused: bool = False
    """Whether the error is that the result cannot be stored."""
    in_doubt: bool = False
    """Whether the error is that the body ended the transaction itself."""
    taken: KeyState | None = None


class Sleep(msgspec.Struct):
    """Wait until a time of the store's clock."""

    call: StepCall
    until_us: int


class Await(msgspec.Struct):
    """Wait for a message of this kind, or until a time of the store's clock, whichever comes first;
    the run may be unloaded meanwhile. Sends back the `Message`, or None after the time."""

    call: StepCall
    until_us: int | None = None
    kind: str | None = None
    looks_us: int | None = None
    """When to look again, as if the time were over. It is not reported, and nothing is written."""
    about: str | None = None
    """The name of the wait for people, if it is no wait for a message."""


class Poll(msgspec.Struct):
    """Call `look` with the store's time until it returns something other than None, and send that
    back. The branch keeps its place, and the run is not unloaded."""

    call: StepCall
    look: Callable[[int], Any]


class StoreRead(msgspec.Struct):
    """A request that only reads the store: a task has a thread read."""


class FindChild(StoreRead):
    """Ask whether a child run of this id has failed before; sends back in which generation."""

    run_id: str


class StartChild(msgspec.Struct):
    """Start a child run, or continue it if it has no owner. A failed one is taken up again if it
    failed in generation `again`."""

    call: StepCall
    run_id: str
    again: int | None = None


class ReadChild(StoreRead):
    """Ask how a child run has ended; sends back `ChildEnd`."""

    run_id: str
    again: int | None = None


class ChildEnd(msgspec.Struct):
    """How a child run ended; `status` is None before that."""

    status: str | None
    unloads: bool
    """Whether the parent is unloaded while it waits."""
    value: Any = None
    error: dict[str, str] | None = None
    messages: list[str] = []
    """The ids of the child's messages to the parent about it."""


class Now(msgspec.Struct):
    """Ask for the store's time, in microseconds."""


NOW = Now()


class Chance(msgspec.Struct):
    """Ask for a random number in [0, 1)."""


class FindKey(msgspec.Struct):
    """Wait until a key of another call may have changed; sends back whether that call's run cannot
    continue by itself."""

    call: StepCall
    key: KeyState


class FindUnreplayed(msgspec.Struct):
    """Look whether a new effect may repeat one that the run has not come back to; where calls are
    made at the same time, that one gets a moment to be called. Sends back its key, or None."""

    call: StepCall
    before_change: bool = False
    """Check instead for effects from before an accepted change, whatever their names."""


class LookUpKey(StoreRead):
    """Ask what became of a business key; sends back its `KeyState`, or None if nobody claimed it."""

    effect: str
    key: str


class CopyResult(msgspec.Struct):
    """Read the result that another run's step recorded (a duplicate of a business key)."""

    key: KeyState


Request = (
    Append
    | Call
    | Transact
    | Sleep
    | Await
    | StartChild
    | Poll
    | Now
    | Chance
    | FindKey
    | FindUnreplayed
    | CopyResult
    | StoreRead
)
Script = Generator[Request, Any, Any]
Decode = Callable[[bytes], Any]
