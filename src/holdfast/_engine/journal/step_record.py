"""The record of one step: the fold of its entries. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Entry, Kind


class State(StrEnum):
    """The state of one step."""

    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    NOT_DONE = "not_done"
    CANCELLED = "cancelled"
    WAITING = "waiting"
    SKIPPED = "skipped_duplicate"


OUTCOMES = frozenset({State.COMPLETED, State.FAILED, State.SKIPPED})
UNSAID = frozenset({State.RUNNING, State.RETRYING, State.CANCELLED})


STEP = "a step"
CHILD_RUN = "a child run"
SLEEP = "a sleep"
VALUE = "a recorded value"
SCOPE = "a loop or branches"
EMITTED = "an emitted value"
SORTS = {
    Kind.CHILD_STARTED: CHILD_RUN,
    Kind.CHILD_ENDED: CHILD_RUN,
    Kind.TIMER_SET: SLEEP,
    Kind.TIMER_FIRED: SLEEP,
    Kind.VALUE_RECORDED: VALUE,
    Kind.SCOPE_OPENED: SCOPE,
    Kind.VALUE_EMITTED: EMITTED,
}
"""Sorts of calls beside steps and effects whose key does not say so: all others have a colon in
theirs, which no name of a step or flow can have."""


class Record(msgspec.Struct):
    """One step, as the journal records it."""

    key: str
    position: int | None
    args_digest: bytes | None
    first_seq: int
    first_started_us: int
    state: State = State.RUNNING
    attempts: int = 0
    generation: int = 1
    last_seq: int = 0
    started_us: int = 0
    ended_us: int | None = None
    retry_at_us: int | None = None
    intent: Entry | None = None
    """The last `step_started` of an effect: key, policy, arguments."""
    outcome: Entry | None = None
    settled: Entry | None = None
    """The actor that settled it, unless it was started again since."""
    worked_us: int | None = None
    """How long its attempts worked, as far as that is known."""
    doubt: Entry | None = None
    failure: Entry | None = None
    """The last failed attempt."""
    progress: Entry | None = None
    begun: Entry | None = None
    """Of a wait: the entry with its subject and its end time."""
    ended: bool = False
    """Whether the attempt that left a doubt is known to have ended."""
    lost_us: int | None = None
    """When the owner that left the doubt lost the run."""
    degraded: bool = False
    borrowed: bool = False
    """Whether it belongs to another run, the origin of this fork: never executed or undone here."""

    @property
    def effect(self) -> bool:
        """Whether an intent was recorded."""
        return self.intent is not None and b'"effect":true' in self.intent.body

    @property
    def transaction(self) -> bool:
        """Whether it is an effect in the store's own database: never in doubt."""
        return self.effect and self.intent is not None and b'"transaction":true' in self.intent.body

    def shown_key(self) -> str | None:
        """Return the recorded idempotency key that the other side has seen."""
        for entry in (self.intent, self.doubt):
            if entry is not None and b'"key":' in entry.body:
                key = facts(entry).get("key")
                return key if isinstance(key, str) else None
        return None

    @property
    def keeps_place(self) -> bool:
        """Whether it is no step but the place of a loop or of branches."""
        return self.outcome is not None and self.outcome.kind is Kind.SCOPE_OPENED

    @property
    def sort(self) -> str:
        """The sort of its call: a step or effect, or an operation whose key a step could have as well."""
        entry = self.begun or self.outcome
        return STEP if entry is None else SORTS.get(entry.kind, STEP)

    @property
    def was_given(self) -> bool:
        """Whether a person gave its result to a fork; it fits any sort."""
        return self.borrowed and self.outcome is not None and self.outcome.seq == 0

    @property
    def has_outcome(self) -> bool:
        """Whether it is never executed again in this generation."""
        return self.state in OUTCOMES

    @property
    def is_in_doubt(self) -> bool:
        """Whether it is an effect that started and has no known outcome."""
        return self.state is State.IN_DOUBT or (self.effect and self.state is State.RUNNING)

    @property
    def is_unsaid(self) -> bool:
        """Whether it is a plain step that was tried and has no outcome: a call with different
        arguments contradicts nothing."""
        return self.state in UNSAID and not self.effect


class Accepted(msgspec.Struct):
    """An accepted change, and how records were matched before."""

    code: str
    """Version and fingerprint of the code that it was accepted for."""
    seq: int
    old: dict[str, Record]
    placed: dict[tuple[str, int], Record]
    confirmed: bool

    def is_used(self, records: Iterable[Record]) -> bool:
        """Return whether that code went beyond the record since."""
        return any(record.last_seq > self.seq for record in records)


def is_block(started: Entry | None) -> bool:
    """Return, by its first entry, whether a run is a block of a script: no flow can be named that
    would execute it."""
    return started is not None and b'"block":true' in started.body and "block" in facts(started)


_decoder = msgspec.json.Decoder()


def facts(entry: Entry) -> dict[str, Any]:
    """Return an entry's body as plain JSON data; values in it stay encoded."""
    data: dict[str, Any] = _decoder.decode(entry.body)
    return data


def outcome_is_unknown(record: Record) -> bool:
    """Return whether a step may have changed the world without anybody knowing."""
    if not record.effect:
        return False
    if record.state in (State.IN_DOUBT, State.RUNNING):
        return True
    if record.state is not State.FAILED or record.outcome is None:
        return False
    # A doubt that a person gave up (`Failed`) is as unknown as one that `on_doubt="fail"` gave up.
    return record.outcome.kind is Kind.STEP_SETTLED or b'"unknown":true' in record.outcome.body
