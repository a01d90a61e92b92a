"""The recorder of a run: makes entries of what scripts ask for, and hands writes to the committer.

All writes of a run go through here, under the run's lock, so that sequence numbers, chunk numbers
and the order of the queue agree. The lock is held while a value is encoded and the write is queued,
never while a commit is waited for.

    append(request) ── drafted: entries ── changes, totals of the row ── numbers foreseen ─► committer
    refused         ── withdraw: numbers, totals, changes and chunks go back

Totals of the row go with the next write. A write that is refused gives back what it carried.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast._engine.journal.changes import SPENT_MAX, TakeMessage
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Change, Lease, RunRow, Write
from holdfast._engine.scripts.requests import Append, Note, StepCall
from holdfast._engine.scripts.stops import Unwind, Waiting, waits_for
from holdfast._engine.values import masks
from holdfast._engine.values.redactor import redact_facts
from holdfast._runtime.commit.committer import Ticket
from holdfast._runtime.execution.version_rules import Upgrade
from holdfast._runtime.feature import installed
from holdfast._stores.contract import Fenced, Outcome
from holdfast.errors import HoldfastError, LeaseLost, RunError

if TYPE_CHECKING:
    from holdfast._engine.scripts.unreplayed_effects import Replay
    from holdfast._engine.values.chunks import Values
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.branches import Waits
    from holdfast._runtime.inbox_poller import RunInbox

EFFECT_PATIENCE_S = 20.0
"""How long an effect waits for a full disk, with its intent as with its outcome: most of a lease."""

DONE = frozenset({Kind.STEP_COMPLETED, Kind.STEP_SETTLED})
"""Outcomes of a step that succeeded."""

_encode = msgspec.json.Encoder().encode


class RecordedRun(Protocol):
    """The execution that a recorder writes for: what an entry is made of, and what it changes."""

    @property
    def engine(self) -> Engine:
        """The committer of the writes."""
        ...

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while a write is made and queued."""
        ...

    @property
    def run_id(self) -> str:
        """The name of the run."""
        ...

    @property
    def lease(self) -> Lease:
        """The lease that guards the writes."""
        ...

    @property
    def history(self) -> History:
        """The history that was loaded with the run."""
        ...

    @property
    def replay(self) -> Replay:
        """How far the flow has come in what is recorded."""
        ...

    @property
    def values(self) -> Values:
        """The values of the run."""
        ...

    @property
    def waits(self) -> Waits:
        """The waits of its lines."""
        ...

    @property
    def inbox(self) -> RunInbox:
        """The known messages of its inbox."""
        ...

    @property
    def stopped(self) -> Unwind | None:
        """Why the run goes no further, if it does not."""
        ...

    @property
    def fenced(self) -> bool:
        """Whether another owner has the run, so that nothing may be written."""
        ...

    def stop(self, unwind: Unwind, *, later: bool = False) -> Unwind:
        """Stop the run."""
        ...


class Recorder:
    """Writes what one run does, in order."""

    def __init__(self, execution: RecordedRun) -> None:
        self._execution = execution
        row = execution.lease.row
        self.open_calls: dict[str, StepCall] = {}
        """Calls whose user code is at work, by step key."""
        self.intents: set[str] = set()
        """Effects whose start is written, or on its way, and that are not known to have ended."""
        self.doubts: set[str] = set()
        """Effects that were interrupted while the flow went on; they keep it from its end."""
        self.transactions = threading.Lock()
        """One effect in the store's own database at a time: a run's writes have one order."""
        self.read_back: Ticket | None = None
        """The last write with a change that the run may read back; a read waits for its commit."""
        self.failure: BaseException | None = None
        """Why a background commit failed; the next durable call raises it."""
        self.upgrade: Upgrade | None = None
        self.derive_entries: list[Callable[[Any, StepCall], list[Draft]]] = []
        """Entries of features about the usage of a call, in front of its outcome."""
        self.snapshots = Snapshots(execution.history, row)
        self._totals = Totals(row)
        self._parked: list[Ticket] | None = None
        self._last: Ticket | None = None

    def start_again(self, history: History) -> None:
        """Go on with a history that was read again; nothing is at work."""
        self.snapshots = Snapshots(history, self._execution.lease.row)
        self.open_calls.clear()

    def append(
        self, request: Append, callback: Callable[[Ticket], None] | None
    ) -> tuple[Ticket, Any]:
        """Encode and queue what a script wants written; returns the ticket and the copy of the
        value that the caller gets. Raises NotSerializable with nothing written."""
        call = request.call
        with self._execution.lock:
            if self._execution.stopped is not None and self._execution.fenced:
                raise self._execution.stopped
            write, copy = self.prepared(request)
            ticket = Ticket(write, callback)
            ticket.lazy = request.lazily
            if call.spec.effect:
                ticket.patience_s = EFFECT_PATIENCE_S
            self._submit(ticket)
            if request.notes and request.notes[-1].ends_attempt:
                self.open_calls.pop(call.key, None)
            if call.spec.effect:
                track(self.intents, call, request.notes)
            return ticket, copy

    def prepared(self, request: Append) -> tuple[Write, Any]:
        """Encode what a script wants written, under the run's lock; the numbers are taken."""
        call = request.call
        drafts: list[Draft] = []
        copy: Any = None
        for note in request.notes:
            draft, copy = drafted(self._execution, call, note)
            drafts.append(draft)
        changes = request.changes
        if call.gates or call.attempt.outcome_changes:
            changes = self._changes(request)
        if call.attempt.usage:
            for derive in self.derive_entries:
                drafts[:0] = derive(self._execution, call)
        row = self._totals.changes(request)
        self._count(drafts, row)
        return Write(self._execution.lease, drafts, row=row, changes=changes), copy

    def _changes(self, request: Append) -> Sequence[Change]:
        """Return what a write changes beside the run: what its script says, what the gates of its
        call add, and what the step asked for if this is its success."""
        call = request.call
        changes = [*request.changes]
        for gate in call.gates:
            changes += gate.changes(request)
        if call.attempt.outcome_changes and request.notes and request.notes[-1].kind in DONE:
            changes += call.attempt.outcome_changes
        return changes

    def write(
        self,
        drafts: list[Draft],
        callback: Callable[[Ticket], None] | None = None,
        row: dict[str, Any] | None = None,
        *,
        changes: Sequence[Change] = (),
        lazily: bool = False,
    ) -> Ticket:
        """Queue entries that belong to no step call; lazily means: with the next write."""
        with self._execution.lock:
            if self._execution.fenced:
                assert self._execution.stopped is not None
                raise self._execution.stopped
            return self._queue(
                drafts, row or {}, self.in_background if lazily else callback, changes, lazily
            )

    def _queue(
        self,
        drafts: list[Draft],
        row: dict[str, Any],
        callback: Callable[[Ticket], None] | None,
        changes: Sequence[Change] = (),
        lazily: bool = False,
    ) -> Ticket:
        self._count(drafts, row)
        changes = [*changes]
        for derive in installed.derive_changes:
            changes += derive(self._execution, drafts)
        write = Write(self._execution.lease, drafts, row=row, changes=changes)
        ticket = Ticket(write, callback)
        ticket.lazy = lazily
        self._submit(ticket)
        return ticket

    def _count(self, drafts: list[Draft], row: dict[str, Any]) -> None:
        upgrade = self.upgrade
        if upgrade is not None and upgrade.joins(
            drafts, row, self._execution.history, self._execution.replay.consumed
        ):
            self.upgrade = None
        self.snapshots.count(drafts)

    def _submit(self, ticket: Ticket) -> None:
        write = ticket.write
        if masks.registered:
            write.mask_secrets()
        if write.changes:
            self._expect(ticket)
        self._execution.waits.moved_s = time.monotonic()
        self._last = ticket
        if self._parked is not None:
            # Its chunks stay where they are: the transaction may refer to them, and commits first.
            ticket.parked = True
            self._parked.append(ticket)
            return
        chunks = self._execution.values.take_fresh()
        if not (write.changes and write.may_be_refused):
            write.chunks = chunks
        elif chunks:
            # A claim may be refused, and another branch may refer to them already.
            apart = Ticket(Write(self._execution.lease, [], chunks), self.in_background)
            self._execution.engine.committer.submit_lazily(apart)
        if ticket.lazy:
            self._execution.engine.committer.submit_lazily(ticket)
        elif ticket.callback is None:
            self._execution.engine.committer.submit(ticket)
        else:
            self._execution.engine.committer.submit_background(ticket)

    def _expect(self, ticket: Ticket) -> None:
        """Note what a write on its way changes that this execution asks for itself."""
        taken = ticket.write.of(TakeMessage)
        if taken:
            self._execution.inbox.mark_taken([change.message_id for change in taken])
        if any(change.is_read_back for change in ticket.write.changes):
            self.read_back = ticket

    @property
    def parks(self) -> bool:
        """Whether an effect in the store's own database is at work."""
        return self._parked is not None

    def park(self) -> Ticket | None:
        """Keep the writes of this run back from now on; returns the last one that was queued."""
        with self._execution.lock:
            self._parked = []
            return self._last

    def unpark(self) -> None:
        """Queue the parked writes, in order; the totals that they carry are those of now."""
        with self._execution.lock:
            parked, self._parked = self._parked or [], None
            for ticket in parked:
                self._totals.renew(ticket.write)
                ticket.parked = False
                self._submit(ticket)
                ticket.nudge()

    def settled(self, ticket: Ticket) -> Outcome:
        """Return the outcome of a finished write; a fenced one stops the run."""
        if ticket.error is not None:
            raise self._execution.stop(Unwind(as_holdfast(ticket.error, self._execution.run_id)))
        assert ticket.outcome is not None
        if isinstance(ticket.outcome, Fenced):
            raise self._execution.stop(Unwind(LeaseLost(self._execution.run_id)))
        return ticket.outcome

    def in_background(self, ticket: Ticket) -> None:
        """Remember a failed background commit: the next durable call raises it."""
        if ticket.error is not None:
            self.failure = ticket.error
            self._execution.waits.ring()  # Else a waiting line would not notice it.
        elif isinstance(ticket.outcome, Fenced):
            self._execution.stop(Unwind(LeaseLost(self._execution.run_id)))

    def withdraw(self, write: Write, call: StepCall) -> None:
        """A refused write (a taken key) gave its numbers back, and its chunks are still to go."""
        with self._execution.lock:
            self._execution.values.put_back(write.chunks)
            self._totals.refused(write)
            self.snapshots.take_back(write.drafts)
            for gate in call.gates:
                gate.withdrawn(write)
            if "version" in write.row:
                self.upgrade = Upgrade(self._execution.lease.row.flow, write.row["version"])

    # -- what it waits for, and what is still at work ------------------------------------------

    def wait_on(self, token: str, why: str) -> None:
        """Record that the run waits for something outside; the next entry of a step ends that."""
        with self._execution.lock:
            if not self._totals.waits:
                self._totals.waits = True
                body = _encode({"for": why})
                draft = Draft(Kind.RUN_WAITING, self._execution.engine.now_us(), body=body)
                self.write([draft], self.in_background, {"waiting_on": token})

    def say_waiting(self, waiting: list[Waiting]) -> None:
        """Record that all lines of the run wait; the entry that ends the wait of one ends that."""
        with self._execution.lock:
            self._totals.waits = True
            draft = Draft(
                Kind.RUN_WAITING, self._execution.engine.now_us(), body=_encode({"for": waiting})
            )
            # It has got as far as it can: no claim counts against it, however often it is killed.
            changes = {"waiting_on": waits_for(waiting), "claims": 0}
            self.write([draft], self.in_background, changes)

    def start_of(self, call: StepCall) -> list[Draft]:
        """Return the start of a plain step that is at work, if it is not written yet: it goes before
        what the step says in between. Called under the run's lock."""
        if call.attempt.noted or call.spec.effect or not call.attempt.started_us:
            return []
        draft, _ = drafted(self._execution, call, Note(Kind.STEP_STARTED))
        return [draft]

    def beat(self) -> Ticket | None:
        """Write the starts of plain steps that are still at work and not noted yet, if any."""
        with self._execution.lock:
            drafts: list[Draft] = []
            for call in () if self._execution.fenced else self.open_calls.values():
                drafts += self.start_of(call)
            return self._queue(drafts, {}, self.in_background) if drafts else None

    # -- loops ---------------------------------------------------------------------------------

    def enter_loop(self, path: str) -> Loop:
        """Begin (or go on with) a loop."""
        with self._execution.lock:
            return self.snapshots.enter(path)

    def leave_loop(self, loop: Loop) -> None:
        """End a loop."""
        with self._execution.lock:
            self.snapshots.leave(loop)


# -- entries -----------------------------------------------------------------------------------


def drafted(execution: RecordedRun, call: StepCall, note: Note) -> tuple[Draft, Any]:
    """Return the entry of a step call, under the run's lock, and the copy of its value that the
    caller gets. A plain step's start is joined with its outcome, unless it was written before."""
    kind, attempt = note.kind, call.attempt
    parts: list[bytes] = []
    started_us = None
    if kind is Kind.STEP_STARTED or kind is Kind.SKIPPED_DUPLICATE or attempt.number == 0:
        parts.append(b'"args":' + call.args_node)
        attempt.noted = kind is Kind.STEP_STARTED
    elif not attempt.noted and note.ends_attempt and not call.spec.effect:
        parts.append(b'"args":' + call.args_node)
        started_us = attempt.started_us
    redact, path = execution.values.redact, ""
    if redact is not None:
        path = redact_facts(note.facts, call.key, redact)
    for name, fact in note.facts.items():
        parts.append(b'"%b":%b' % (name.encode(), _encode(fact)))
    copy: Any = None
    for name, value in note.values.items():
        node, copy = execution.values.copy(value, path + name)
        parts.append(b'"%b":%b' % (name.encode(), node))
    begins = kind is Kind.STEP_STARTED
    if call.spec.polls and (begins or note.ends_attempt):
        parts.append(b'"polls":true')
    if begins and call.spec.timeout_s is not None and not call.spec.effect:
        parts.append(b'"timeout_s":' + _encode(call.spec.timeout_s))
    if attempt.usage and note.ends_attempt:
        parts.append(b'"usage":' + _encode(attempt.usage))
    if call.made_by and note.ends_attempt:
        parts.append(call.made_by)
    draft = Draft(
        kind,
        execution.engine.now_us() if kind is not Kind.STEP_STARTED else attempt.started_us,
        call.key,
        attempt.number,
        call.position,
        call.args_digest,
        started_us,
        b"{" + b",".join(parts) + b"}",
    )
    return draft, copy


def track(intents: set[str], call: StepCall, notes: list[Note]) -> None:
    """Keep up which effects have begun, as far as is written, and are not known to have ended."""
    for note in notes:
        if note.kind is Kind.STEP_STARTED:
            intents.add(call.key)
        elif note.ends_attempt or note.kind in _ENDS:
            intents.discard(call.key)


_ENDS = frozenset({Kind.STEP_IN_DOUBT, Kind.STEP_SETTLED, Kind.STEP_CANCELLED})


# -- the row of the run ------------------------------------------------------------------------


class Totals:
    """The totals of a run at work; used under the run's lock."""

    def __init__(self, row: RunRow) -> None:
        self.waits = False
        """Whether the row says that the run waits; the next entry of a step ends that."""
        self._usage: dict[str, Any] = msgspec.json.decode(row.usage)
        self._owes_usage = False
        self._degraded = row.degraded

    def changes(self, request: Append) -> dict[str, Any]:
        """Count what a request brings, and return what its write changes in the row."""
        changes: dict[str, Any] = {}
        if self.waits:
            self.waits = False
            changes["waiting_on"] = None
        call = request.call
        if call.attempt.usage and request.notes and request.notes[-1].ends_attempt:
            for name, amount in call.attempt.usage.items():
                if isinstance(amount, int | float):
                    self._usage[name] = min(SPENT_MAX, self._usage.get(name, 0) + amount)
            call.attempt.usage = None
            self._owes_usage = True
        if self._owes_usage:
            self._owes_usage = False
            changes["usage"] = self._used()
        if request.degraded:
            self._degraded += request.degraded
            changes["degraded"] = self._degraded
        return changes

    def refused(self, write: Write) -> None:
        """A write was refused: what it carried goes with the next one."""
        self.waits = self.waits or "waiting_on" in write.row
        self._owes_usage = self._owes_usage or "usage" in write.row

    def renew(self, write: Write) -> None:
        """A write was parked: set the totals that it carries to those of now."""
        if "usage" in write.row:
            write.row["usage"] = self._used()
        if "degraded" in write.row:
            write.row["degraded"] = self._degraded

    def _used(self) -> str:
        return _encode(self._usage).decode()


# -- numbers and snapshots ---------------------------------------------------------------------


class Loop:
    """A loop of turns that is under way: which part of the journal a resume may skip."""

    __slots__ = ("clean", "low", "path")

    def __init__(self, path: str, low: int) -> None:
        self.path = path
        self.low = low
        self.clean = True

    def holds(self, step: str) -> bool:
        """Return whether an entry of this step belongs to the loop."""
        return step == self.path or step.startswith(self.path + "[")


class Snapshots:
    """The numbers of one run's writes. Used under the run's lock."""

    def __init__(self, history: History, row: RunRow) -> None:
        self._history = history
        self._loops: list[Loop] = []
        self._loaded_seq = self._next_seq = row.last_seq
        self._skips: list[tuple[int, int]] = [
            (low, high) for low, high in msgspec.json.decode(row.skips)
        ]

    @property
    def has_written(self) -> bool:
        """Whether anything was written since the run was loaded."""
        return self._next_seq != self._loaded_seq

    def count(self, drafts: list[Draft]) -> None:
        """Foresee the numbers of entries that are queued."""
        for draft in drafts:
            self._next_seq += 1 if draft.started_us is None else 2
            for loop in self._loops:
                if draft.step is not None and not loop.holds(draft.step):
                    loop.clean = False

    def take_back(self, drafts: list[Draft]) -> None:
        """Give the numbers of a refused write back."""
        self._next_seq -= sum(draft.span for draft in drafts)

    def enter(self, path: str) -> Loop:
        """Begin (or go on with) a loop; a snapshot that was found keeps its skipped range."""
        loop = Loop(path, self._next_seq + 1)
        low = self._first_seq_of(loop)
        if low > self._history.decided_seq:
            loop.low = low
        self._loops.append(loop)
        return loop

    def _first_seq_of(self, loop: Loop) -> int:
        """Return where the part of the journal begins that the loop's next snapshot replaces:
        what was recorded of the loop before, unless something else stands in between."""
        after = self._next_seq + 1
        records = self._history.records.values()
        saved = self._history.saved.get(loop.path)
        if saved is not None:
            low = next((low for low, high in self._skips if high == saved.seq - 1), saved.seq)
        else:
            inside = loop.path + "["
            firsts = (r.first_seq for r in records if r.key.startswith(inside))
            low = min(firsts, default=after)
        strangers = any(record.last_seq >= low for record in records if not loop.holds(record.key))
        return after if self.has_written or strangers else low

    def leave(self, loop: Loop) -> None:
        """End a loop; what it recorded last stays."""
        if loop in self._loops:
            self._loops.remove(loop)

    def with_snapshot(self, loop: Loop) -> dict[str, Any]:
        """Return the row change that lets a resume skip what the next snapshot replaces."""
        high = self._next_seq
        if not loop.clean:
            loop.low = high + 1
            loop.clean = True
            return {}
        if high < loop.low or is_in_branch(loop.path):
            return {}
        kept = [(low, last) for low, last in self._skips if not loop.low <= low <= high]
        self._skips = sorted([*kept, (loop.low, high)])
        return {"skips": _encode(self._skips).decode()}


def is_in_branch(path: str) -> bool:
    """Return whether a loop stands in a branch of `gather` or `each`."""
    return any(not part.startswith("turns") for part in path.split("/"))


def as_holdfast(error: BaseException, run_id: str) -> HoldfastError:
    """Return an error of a commit as one of ours."""
    if isinstance(error, HoldfastError):
        return error
    wrapped = RunError(run_id, f"run {run_id!r}: the store failed: {error!r}")
    wrapped.__cause__ = error
    return wrapped
