"""Fold entries into a history: one small function per kind. Pure.

`History` answers questions about the fold; this module builds it. Replay does not read facts that
are missing here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.drift_record import DriftRecord
from holdfast._engine.journal.entries import WAIT_BEGINS, WAIT_ENDS, Entry, Kind
from holdfast._engine.journal.lifecycle import ClaimedBecause
from holdfast._engine.journal.step_keys import is_undo, scope_of
from holdfast._engine.journal.step_record import Accepted, Record, State, facts
from holdfast.errors import Corrupt

DOES_NOT_FIT = b'{"why":"does_not_fit"'
"""Why a run is released by code of another version that could not replay it."""
OTHER_CODE = b'{"why":"other_code"'
"""Why a diverged run is released for code that has not tried it: restored or repaired code."""
TRY_AGAIN = b'{"why":"try_again"'
"""The reason with which a diverged run is released to be replayed once more, by any code."""


class Folding:
    """The part of a history that folds entries."""

    if TYPE_CHECKING:
        run_id: str
        generation: int
        records: dict[str, Record]
        placed: dict[tuple[str, int], Record]
        old: dict[str, Record]
        saved: dict[str, Entry]
        lent: dict[str, Entry]
        superseded: list[Record]
        started: Entry | None
        failed: Entry | None
        held: Entry | None
        unfit: dict[str, Entry]
        accepted: Accepted | None
        tried: list[str]
        again: Entry | None
        completed: Entry | None
        over: bool
        reborn: Entry | None
        decided_seq: int
        confirmed: bool
        drift: DriftRecord
        rollback: Entry | None
        cancel: Entry | None

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
        elif entry.args_digest is not None:
            record.args_digest = entry.args_digest  # Of the attempt that counts, the last one.
        record.last_seq = entry.seq
        return record

    def _run_started(self, entry: Entry) -> None:
        self.started = entry

    def _run_claimed(self, entry: Entry) -> None:
        # Only a dead owner proves that its attempts have ended. One that released the run may have
        # left an abandoned thread, and records that in `step_in_doubt`.
        proven = f'"why":"{ClaimedBecause.OWNER_DEAD}"'.encode() in entry.body
        self.drift.claimed(entry)
        for record in self.records.values():
            if record.state is State.RUNNING or record.state is State.IN_DOUBT:
                # The proven death must be that of the owner which made the attempt.
                record.ended = record.ended or (proven and record.lost_us is None)
                record.lost_us = record.lost_us or entry.at_us

    def _run_resumed(self, entry: Entry) -> None:
        data = facts(entry)
        self.decided_seq = entry.seq
        self._anew()
        self._live_again(entry)
        self.drift.decided(data)
        if "rolled_back_to" in data:
            self.rollback = None
        self.supersede(data)

    def _drift_found(self, entry: Entry) -> None:
        self.decided_seq = entry.seq
        data = facts(entry)
        self.drift.add_found(data)
        self.supersede(data)

    def supersede(self, data: dict[str, Any]) -> None:
        """Supersede the records that an entry names: they stay and are never replayed."""
        self.generation = int(data.get("generation", self.generation))
        for path in data.get("loops", ()):
            self.saved.pop(path, None)
        for path in data.get("lent", ()):
            self.saved[path] = self.lent[path]
        for key in data.get("superseded", ()):
            self.drift.forget(key)
            record = self.records.pop(key, None)
            if record is None:
                continue
            self.superseded.append(record)
            self.old.pop(key, None)
            if record.position is not None:
                self.placed.pop((scope_of(key), record.position), None)

    def _change_accepted(self, entry: Entry) -> None:
        if facts(entry).get("exact"):
            return  # Newer code continued an older run and replays all of it unchanged.
        self._anew()
        self._accept_for(entry)
        self.old.update({key: it for key, it in self.records.items() if not is_undo(key)})
        self.placed.clear()
        self.decided_seq = entry.seq
        self.confirmed = bool(facts(entry).get("confirmed"))

    def _accept_for(self, entry: Entry) -> None:
        """Remember how records are matched by code that nobody has accepted. An accepted change
        that came to nothing does not justify the next one."""
        code, former = facts(entry).get("code"), self.accepted
        if not code:
            self.accepted = None
        elif former is not None and not former.is_used(self.records.values()):
            self.accepted = Accepted(code, entry.seq, former.old, former.placed, former.confirmed)
        else:
            before = dict(self.old), dict(self.placed), self.confirmed
            self.accepted = Accepted(code, entry.seq, *before)

    def _live_again(self, entry: Entry) -> None:
        if self.over:
            self.over, self.reborn = False, entry

    def _rollback_requested(self, entry: Entry) -> None:
        self.decided_seq = entry.seq
        self._live_again(entry)
        self.rollback = entry
        self.cancel = None  # A run that was to be cancelled is to be undone instead.

    def _run_cancelled(self, _entry: Entry) -> None:
        self.rollback = None
        self.over = True

    def _run_failed(self, entry: Entry) -> None:
        self.failed = entry
        self.over = True

    def _run_held(self, entry: Entry) -> None:
        self.held = entry
        self._tried(entry)

    def _run_released(self, entry: Entry) -> None:
        if DOES_NOT_FIT in entry.body:
            self._tried(entry)
        elif TRY_AGAIN in entry.body:
            self._anew()
        elif OTHER_CODE in entry.body:
            self.again = entry

    def _tried(self, entry: Entry) -> None:
        if b'"code":' in entry.body and (code := facts(entry).get("code")):
            self.unfit[code] = entry
            self._has_tried(code)
        elif b'"tried":' in entry.body and (mark := facts(entry).get("tried")):
            self._has_tried(mark)

    def _has_tried(self, mark: str) -> None:
        if mark not in self.tried:
            self.tried.append(mark)

    def _anew(self) -> None:
        """Somebody decided: any code may try."""
        self.unfit.clear()
        self.tried.clear()

    def _cancel_requested(self, entry: Entry) -> None:
        self.cancel = entry
        self.decided_seq = entry.seq

    def _run_completed(self, entry: Entry) -> None:
        self.completed = entry
        self.over = True

    def _step_started(self, entry: Entry) -> None:
        record = self._record(entry)
        if record.state is State.WAITING:  # It waited for an approval and begins only now.
            record.first_started_us = entry.at_us
        record.state = State.RUNNING
        record.attempts = entry.attempt
        record.started_us = entry.at_us
        record.intent = entry
        record.ended = False
        record.lost_us = None
        record.settled = None

    def _attempted(self, entry: Entry, *, died: bool = False) -> Record:
        record = self._record(entry)
        record.attempts = max(record.attempts, entry.attempt)
        record.started_us = entry.started_us or record.started_us
        record.ended_us = entry.at_us
        if record.started_us and not died and record.state is not State.IN_DOUBT:
            record.worked_us = (record.worked_us or 0) + max(0, entry.at_us - record.started_us)
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
        data = facts(entry)
        if data["final"]:
            record.state = State.FAILED
            record.outcome = entry
        else:
            record.state = State.RETRYING
            record.retry_at_us = data.get("retry_at_us")

    def _step_in_doubt(self, entry: Entry) -> None:
        # The time at which a doubt is found says nothing about how long the dead process's attempt
        # ran.
        record = self._attempted(entry, died=b'"why":"process_died"' in entry.body)
        record.state = State.IN_DOUBT
        record.doubt = entry
        record.ended = record.ended or b'"ended":true' in entry.body

    def _step_settled(self, entry: Entry) -> None:
        record = self._record(entry)
        record.ended_us = entry.at_us
        record.settled = entry
        settled = facts(entry)["outcome"]
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

    def _dependency_recorded(self, entry: Entry) -> None:
        self._value_recorded(entry)

    def _scope_opened(self, entry: Entry) -> None:
        # A loop or branches: the record only keeps their place.
        self._value_recorded(entry)

    def _value_emitted(self, entry: Entry) -> None:
        # A value that a flow emits has a place in it; one that a step emits belongs to its attempt.
        if entry.position is not None:
            self._value_recorded(entry)

    def _state_saved(self, entry: Entry) -> None:
        assert entry.step is not None
        self.saved[entry.step] = entry

    def wait_begun(self, entry: Entry) -> None:
        record = self._record(entry)
        if record.intent is None:  # An effect that waits for consent to be retried is not new.
            record.state = State.WAITING
        record.begun = entry

    def wait_ended(self, entry: Entry) -> None:
        record = self._record(entry)
        is_refusal = entry.kind is Kind.QUESTION_ANSWERED and "refused" in entry.data()
        record.state = State.FAILED if is_refusal else State.COMPLETED
        record.ended_us = entry.at_us
        record.outcome = entry


def _nothing(_history: Folding, _entry: Entry) -> None:
    """Entries that replay ignores."""


FOLD: dict[Kind, Callable[[Folding, Entry], None]] = {
    **{kind: getattr(Folding, f"_{kind.value}", _nothing) for kind in Kind},
    **dict.fromkeys(WAIT_BEGINS, Folding.wait_begun),
    **dict.fromkeys(WAIT_ENDS, Folding.wait_ended),
}
"""The fold function of each kind."""
