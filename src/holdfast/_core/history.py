"""The fold of a run's entries: everything that replay asks of the past. Pure.

What is written is checked again when it is read: gapless numbers, one outcome per step, legal
transitions. `match` is the heart of replay: it gives a call its record, or None (run it live),
or raises `Divergence`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

import msgspec

from holdfast._core.entries import Entry, Kind
from holdfast._core.keys import name_of, scope_of
from holdfast._core.lifecycle import ClaimedBecause, Status, next_status
from holdfast._core.reach import Reach
from holdfast.errors import Corrupt


class State(StrEnum):
    """What is known of one step."""

    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    IN_DOUBT = "in_doubt"
    NOT_DONE = "not_done"
    CANCELLED = "cancelled"
    SKIPPED = "skipped_duplicate"


OUTCOMES = frozenset({State.COMPLETED, State.FAILED, State.SKIPPED})


class Record(msgspec.Struct):
    """What the journal knows of one step."""

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
    doubt: Entry | None = None
    failure: Entry | None = None
    """The last failed attempt."""
    progress: Entry | None = None
    ended: bool = False
    """Whether the attempt that left a doubt is known to have ended."""
    lost_us: int | None = None
    """When the run was taken from the owner that left the doubt."""
    degraded: bool = False

    @property
    def effect(self) -> bool:
        """Whether an intent was recorded."""
        return self.intent is not None and b'"effect":true' in self.intent.body

    @property
    def transaction(self) -> bool:
        """Whether it is an effect in the store's own database: never in doubt."""
        return self.effect and self.intent is not None and b'"transaction":true' in self.intent.body

    def shown_key(self) -> str | None:
        """Return the idempotency key that the journal says was shown to the other side."""
        for entry in (self.intent, self.doubt):
            if entry is not None and b'"key":' in entry.body:
                key = _facts(entry).get("key")
                return key if isinstance(key, str) else None
        return None

    @property
    def keeps_place(self) -> bool:
        """Whether it is no step, but the place of a loop or of branches."""
        return self.outcome is not None and self.outcome.kind is Kind.SCOPE_OPENED

    @property
    def has_outcome(self) -> bool:
        """Whether it is never executed again in this generation."""
        return self.state in OUTCOMES


class Divergence(Exception):
    """The flow asked for something else than what the journal has at this place."""

    def __init__(self, step: str, expected: str, found: str) -> None:
        super().__init__(f"the journal has {expected}, the flow now calls {found}")
        self.step = step
        self.expected = expected
        self.found = found


class History:
    """All that replay needs to know of a run."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.status: Status | None = None
        self.generation = 1
        self.last_seq = 0
        self.records: dict[str, Record] = {}
        self.placed: dict[tuple[str, int], Record] = {}
        self.old: dict[str, Record] = {}
        """Records from before an accepted change: matched by key alone."""
        self.saved: dict[str, Entry] = {}
        self.superseded: list[Record] = []
        self.started: Entry | None = None
        self.failed: Entry | None = None
        self.held: Entry | None = None
        self.completed: Entry | None = None
        self.decided_seq = 0
        """Where somebody last decided how the run goes on; a snapshot must not hide it."""
        self.confirmed = False
        """Whether somebody accepted that recorded effects are no longer called."""
        self._reach: Reach | None = None

    @classmethod
    def fold(cls, run_id: str, entries: Iterable[Entry], *, gaps: bool = False) -> History:
        """Fold entries in order; with `gaps`, ranges between snapshots may be left out."""
        history = cls(run_id)
        for entry in entries:
            if not gaps and entry.first_seq != history.last_seq + 1:
                raise Corrupt(f"entry {history.last_seq + 1}", run_id=run_id, why="it is missing")
            history.add(entry)
        return history

    def add(self, entry: Entry) -> None:
        """Take in the next entry."""
        try:
            self.status = next_status(self.status, entry.kind)
        except AssertionError as error:
            raise Corrupt(f"entry {entry.seq}", run_id=self.run_id, why=str(error)) from None
        self.last_seq = entry.seq
        self._reach = None
        _FOLD[entry.kind](self, entry)

    # -- replay ------------------------------------------------------------------------------

    def match(self, key: str, position: int | None, args_digest: bytes | None) -> Record | None:
        """Return the record of this call, None if there is none, or raise Divergence."""
        if position is None:
            record = self.records.get(key)
        else:
            record = self.placed.get((scope_of(key), position))
            if record is None:
                return self._elsewhere(key, position)
        if record is None:
            return None
        if record.key != key:
            raise Divergence(key, f"{record.key} at call {position}", f"{key}")
        if args_digest is not None and record.args_digest not in (None, args_digest):
            raise Divergence(key, f"{key} with other arguments", f"{key} with these")
        return record

    def _elsewhere(self, key: str, position: int) -> Record | None:
        """Nothing is recorded at this place. A call behind an accepted change finds its older
        record by key alone; else a record under this key means that the call was moved."""
        if key in self.old:
            return self.old[key]
        moved = self.records.get(key)
        if moved is not None and moved.position is not None:
            raise Divergence(key, f"{key} at call {moved.position}", f"it as call {position}")
        return None

    def known_key(self, key: str, aliases: tuple[str, ...]) -> str:
        """Return the key under which a step was recorded before it was renamed."""
        if key not in self.records:
            path, _, last = key.rpartition("/")
            tail = last[len(name_of(key)) :]
            for alias in aliases:
                former = f"{path}/{alias}{tail}" if path else alias + tail
                if former in self.records:
                    return former
        return key

    def match_quietly(self, key: str, position: int | None) -> Record | None:
        """Return the record of a call if it has one; says nothing of what does not fit."""
        try:
            return self.match(key, position, None)
        except Divergence:
            return None

    def recorded(self) -> int:
        """Return how many steps have an outcome that a replay would consume."""
        missed, old = self.unconsumed(set())
        return sum(record.has_outcome for record in (*missed, *old))

    def unconsumed(self, consumed: set[str]) -> tuple[list[Record], list[Record]]:
        """Return the records that a flow which has ended never asked for: those that it should
        have met, and those from before an accepted change."""
        turns = [(f"{loop}[", _turn(entry)) for loop, entry in self.saved.items()]

        def is_left_out(record: Record) -> bool:
            return record.key not in consumed and not any(
                record.key.startswith(path)
                and int(record.key[len(path) :].partition("]")[0]) < turn
                for path, turn in turns
            )

        missed = [record for record in self.placed.values() if is_left_out(record)]
        return missed, [record for record in self.old.values() if is_left_out(record)]

    def goes_beyond(self, path: str, position: int, consumed: set[str]) -> bool:
        """Tell whether something is recorded behind a place: in its scope from this position on, or
        behind the scopes that it lies in. Records that have no position, or whose position an
        accepted change has made void, count until they are `consumed`."""
        if self._reach is None:
            self._reach = Reach(self)
        return self._reach.beyond(path, position, consumed)

    def open_doubts(self) -> list[Record]:
        """Return the effects that were started and whose outcome is not known."""
        return [
            record
            for record in self.records.values()
            if record.state is State.IN_DOUBT or (record.effect and record.state is State.RUNNING)
        ]

    # -- folding, one small function per kind ------------------------------------------------

    def _record(self, entry: Entry) -> Record:
        assert entry.step is not None
        record = self.records.get(entry.step)
        if record is None:
            started = entry.at_us if entry.started_us is None else entry.started_us
            record = Record(
                entry.step,
                entry.position,
                entry.args_digest,
                entry.first_seq,
                started,
                generation=self.generation,
            )
            self.records[entry.step] = record
            if entry.position is not None:
                self.placed[scope_of(entry.step), entry.position] = record
        elif record.has_outcome:
            raise Corrupt(
                f"entry {entry.seq}", run_id=self.run_id, why=f"{entry.step} has an outcome already"
            )
        record.last_seq = entry.seq
        return record

    def _run_started(self, entry: Entry) -> None:
        self.started = entry

    def _run_claimed(self, entry: Entry) -> None:
        # Only a dead owner proves that its attempts have ended; one that gave the run back may
        # have left an abandoned thread, and says so in `step_in_doubt`.
        proven = f'"why":"{ClaimedBecause.OWNER_DEAD}"'.encode() in entry.body
        for record in self.records.values():
            if record.state is State.RUNNING or record.state is State.IN_DOUBT:
                # The one whose death is proven must be the one that made the attempt.
                record.ended = record.ended or (proven and record.lost_us is None)
                record.lost_us = record.lost_us or entry.at_us

    def _run_resumed(self, entry: Entry) -> None:
        data = _facts(entry)
        self.decided_seq = entry.seq
        self.generation = int(data.get("generation", self.generation))
        for path in data.get("loops", ()):
            self.saved.pop(path, None)
        for key in data.get("superseded", ()):
            record = self.records.pop(key, None)
            if record is None:
                continue
            self.superseded.append(record)
            self.old.pop(key, None)
            if record.position is not None:
                self.placed.pop((scope_of(key), record.position), None)

    def _change_accepted(self, entry: Entry) -> None:
        if _facts(entry).get("exact"):
            return  # Newer code went on with an older run, and replays all of it as it is.
        self.old.update(self.records)
        self.placed.clear()
        self.decided_seq = entry.seq
        self.confirmed = bool(_facts(entry).get("confirmed"))

    def _run_failed(self, entry: Entry) -> None:
        self.failed = entry

    def _run_held(self, entry: Entry) -> None:
        self.held = entry

    def _run_completed(self, entry: Entry) -> None:
        self.completed = entry

    def _step_started(self, entry: Entry) -> None:
        record = self._record(entry)
        record.state = State.RUNNING
        record.attempts = entry.attempt
        record.started_us = entry.at_us
        record.intent = entry
        record.ended = False
        record.lost_us = None

    def _attempted(self, entry: Entry) -> Record:
        record = self._record(entry)
        record.attempts = max(record.attempts, entry.attempt)
        record.started_us = entry.started_us or record.started_us
        record.ended_us = entry.at_us
        return record

    def _step_completed(self, entry: Entry) -> None:
        record = self._attempted(entry)
        record.state = State.COMPLETED
        record.outcome = entry
        record.degraded = b'"degraded":' in entry.body

    def _skipped_duplicate(self, entry: Entry) -> None:
        record = self._attempted(entry)
        record.state = State.SKIPPED
        record.outcome = entry

    def _step_failed(self, entry: Entry) -> None:
        record = self._attempted(entry)
        record.failure = entry
        data = _facts(entry)
        if data["final"]:
            record.state = State.FAILED
            record.outcome = entry
        else:
            record.state = State.RETRYING
            record.retry_at_us = data.get("retry_at_us")

    def _step_in_doubt(self, entry: Entry) -> None:
        record = self._attempted(entry)
        record.state = State.IN_DOUBT
        record.doubt = entry
        record.ended = record.ended or b'"ended":true' in entry.body

    def _step_settled(self, entry: Entry) -> None:
        record = self._record(entry)
        record.ended_us = entry.at_us
        settled = _facts(entry)["as"]
        if settled == "not_done":
            record.state = State.NOT_DONE
            return
        record.state = State.COMPLETED if settled == "done" else State.FAILED
        record.outcome = entry

    def _step_cancelled(self, entry: Entry) -> None:
        record = self._record(entry)
        record.state = State.CANCELLED
        record.attempts = max(record.attempts, entry.attempt)

    def _step_progressed(self, entry: Entry) -> None:
        record = self.records.get(entry.step or "")
        if record is None or not record.has_outcome:
            self._record(entry).progress = entry

    def _value_recorded(self, entry: Entry) -> None:
        record = self._record(entry)
        record.state = State.COMPLETED
        record.outcome = entry

    def _scope_opened(self, entry: Entry) -> None:
        # A loop or branches: the record only keeps their place.
        self._value_recorded(entry)

    def _emitted(self, entry: Entry) -> None:
        # What a flow emits has a place in it; what a step emits belongs to its attempt.
        if entry.position is not None:
            self._value_recorded(entry)

    def _state_saved(self, entry: Entry) -> None:
        assert entry.step is not None
        self.saved[entry.step] = entry


def _nothing(_history: History, _entry: Entry) -> None:
    """Entries that replay does not look at."""


_FOLD: dict[Kind, Callable[[History, Entry], None]] = {
    kind: getattr(History, f"_{kind.value}", _nothing) for kind in Kind
}
_decoder = msgspec.json.Decoder()


def _facts(entry: Entry) -> dict[str, Any]:
    data: dict[str, Any] = _decoder.decode(entry.body)
    return data


def _turn(saved: Entry) -> int:
    return int(_facts(saved).get("turn", 0))
