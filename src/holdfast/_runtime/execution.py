"""One run being executed: its lease, its history, its values, and everything it writes.

All writes of a run go through `write`, under one lock, so that sequence numbers, chunk numbers
and the order of the queue agree. The lock is held while a value is encoded and the write is
queued, never while a commit is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._core.changes import PutMemo, TakeMessage
from holdfast._core.chunks import Values
from holdfast._core.commands import command
from holdfast._core.entries import Draft, Kind
from holdfast._core.history import History
from holdfast._core.keys import Scope, derived_key
from holdfast._core.memories import kept_by
from holdfast._core.requests import Append, Note, StepCall
from holdfast._core.rows import Change, Lease, Write
from holdfast._core.secrets import hide
from holdfast._core.stops import CLASS, Unwind, Waiting, waits_for
from holdfast._core.unmet import Unmet
from holdfast._runtime import deadlines
from holdfast._runtime.committer import Ticket
from holdfast._runtime.drafting import drafted, track
from holdfast._runtime.gap import AfterGap, used_since
from holdfast._runtime.mail import Mail
from holdfast._runtime.questions import closed_by
from holdfast._runtime.skipping import Loop, Skipping
from holdfast._runtime.spending import Spending
from holdfast._runtime.totals import Totals
from holdfast._runtime.upgrades import Upgrade
from holdfast._runtime.waiting import Waits
from holdfast._store.contract import Fenced, Outcome
from holdfast.errors import ClassChanged, HoldfastError, LeaseLost, RunError, RunHeld

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.shield import Shield

EFFECT_PATIENCE_S = 20.0
"""How long an effect waits for a full disk, with its intent as with its outcome: most of a lease."""

INPUT = "the input"

_encode = msgspec.json.Encoder().encode


class Execution:
    """A run in this process, from claim to release."""

    def __init__(
        self,
        engine: Engine,
        lease: Lease,
        history: History,
        values: Values,
        *,
        awaits: bool,
    ) -> None:
        self.engine = engine
        self.lease = lease
        self.history = history
        self.values = values
        self.awaits = awaits
        self.run_id = lease.row.run_id
        self.run_no = lease.row.run_no
        self.generation = history.generation
        self.ended = False
        """A block that is replayed after its end; nothing more can be recorded."""
        self.adopted = lease.row.run_no <= engine.kept.adopted_through()
        self.lock = threading.RLock()
        self.stopped: Unwind | None = None
        self.interrupted = threading.Event()
        """Set when the run stops: sleepers wake up."""
        self.waits = Waits()
        self.mail = Mail(self)
        self.deadline_us = deadlines.of(history)
        self.key_waits: dict[str, float] = {}
        """Since when calls wait for a key that another run has."""
        self.children: dict[str, Any] = {}
        """Child runs that the flow has called, by run id."""
        self.open_calls: dict[str, StepCall] = {}
        self.intents: set[str] = set()
        """Effects whose start is written, or on its way, and that are not known to have ended."""
        self.progress: dict[str, Any] = {}
        self.unawaited: set[str] = set()
        """Calls of async steps that took their key and were not awaited yet."""
        self.asking: dict[str, str] = {}
        """Which line of the run asks people by which name."""
        self.asked = False
        """Whether it asked people anything, as far as this process has seen."""
        self.doubts: set[str] = set()
        """Effects that were interrupted while the flow went on; they keep it from its end."""
        self.cut_short: dict[tuple[str, bytes], list[str]] = {}  # See `step_key`.
        self.transactions = threading.Lock()
        """One effect in the store's own database at a time: a run's writes have one order."""
        self._parked: list[Ticket] | None = None
        self._last: Ticket | None = None
        self.remembering: Ticket | None = None
        """The last write with values of memories: whoever reads one sees what it wrote."""
        self.root = Scope()
        self.unreplayed = history.recorded()
        self.consumed: set[str] = set()
        """Keys of the records that the flow has asked for."""
        self.unmet = Unmet(history)
        self.skipping = Skipping(history, lease.row)
        self._totals = Totals(lease.row)
        self._failure: BaseException | None = None
        self.upgrade: Upgrade | None = None
        self.code, self.is_chosen = "", True
        """Version and fingerprint of the flow (a block has none); whether it was called for here:
        a worker does not try again what the same code could not replay."""
        self.instance: Any = None
        """What the flow is a method of, if it is one."""
        self.shield: Shield | None = None
        """What keeps signals from the thread that executes the flow."""
        self.after_gap = AfterGap()
        self.spending: Spending | None = None
        """Of a run with a budget; set before its first step."""

    def derived_key(self, step: str) -> str:
        """Return the idempotency key of a step: the one that was shown before, if it was begun and
        is not superseded (a run that came from another store keeps its keys), or a new one."""
        record = self.history.records.get(step)
        if record is not None and record.borrowed:
            record = None  # A fork shows keys of its own.
        shown = None if record is None else record.shown_key()
        if shown is not None:
            return shown
        generation = self.generation if record is None else record.generation
        return derived_key(self.engine.namespace_id, self.run_id, generation, step)

    # -- stopping ------------------------------------------------------------------------------

    def check(self) -> None:
        """Called at the start of every durable call: a stopped run goes no further."""
        if self.stopped is not None:
            self.stopped.told = True
            raise self.stopped
        if self.deadline_us is not None and self.engine.now_us() >= self.deadline_us:
            deadlines.expire(self)
        if self._failure is not None:
            raise self.stop(Unwind(_as_holdfast(self._failure, self.run_id)))

    def stop(self, unwind: Unwind, *, later: bool = False) -> Unwind:
        """Stop the run; the first reason stays. Returns what is to be raised: now, or `later`, at
        the next durable call, if there is one."""
        with self.lock:
            if self.stopped is None:
                self.stopped = unwind
                unwind.told = not later
                self.interrupted.set()
                self.waits.ring()
            elif later and self.stopped.then is None:
                self.stopped.then = unwind
            return self.stopped

    def left_to_parent(self) -> None:
        """In a forked child: this run is another process's."""
        self.lock = threading.RLock()
        self.interrupted = threading.Event()
        self.stopped = Unwind(LeaseLost(self.run_id))

    @property
    def fenced(self) -> bool:
        """Whether another owner has the run, so that nothing may be written."""
        return self.stopped is not None and isinstance(self.stopped.error, LeaseLost)

    def decode(self, node: bytes) -> Any:
        """Return a stored value; the value space serves one caller at a time."""
        with self.lock:
            return self.values.decode(node)

    def read(self, node: bytes, where: str) -> Any:
        """Return a stored value outside of scripts; one that its class cannot take stops the run."""
        try:
            return self.decode(node)
        except ClassChanged as changed:
            raise self.class_changed(changed, where) from None

    def class_changed(self, changed: ClassChanged, where: str) -> Unwind:
        """Hold the run: the value of a step, a loop or the input does not fit today's class."""
        held = RunHeld(
            self.run_id,
            "diverged",
            f"at {where}: {changed}",
            (
                "put the class back as it was and run it again, or",
                f"add to your code: {changed.remedy}, and run it again, or if a worker has it:",
                command("resume", self.run_id),
            ),
            step="" if where == INPUT else where,
        )
        return self.stop(Unwind(held, differs=CLASS, about=changed.class_name))

    # -- writing -------------------------------------------------------------------------------

    def append(
        self, request: Append, callback: Callable[[Ticket], None] | None
    ) -> tuple[Ticket, Any]:
        """Encode and queue what a script wants written; returns the ticket and the copy of the
        value that the caller gets. Raises NotSerializable with nothing written."""
        call = request.call
        with self.lock:
            if self.fenced:
                assert self.stopped is not None
                raise self.stopped
            write, copy = self.prepared(request)
            ticket = Ticket(write, callback)
            ticket.patience_s = EFFECT_PATIENCE_S if call.spec.effect else 0.0
            ticket.lazy = request.lazily
            self._submit(ticket)
            if request.notes and request.notes[-1].ends_attempt:
                self.open_calls.pop(call.key, None)
            if call.spec.effect:
                track(self.intents, call, request.notes)
            return ticket, copy

    def prepared(self, request: Append) -> tuple[Write, Any]:
        """Encode what a script wants written, under the run's lock; the numbers are taken."""
        drafts: list[Draft] = []
        copy: Any = None
        for note in request.notes:
            draft, copy = drafted(self, request.call, note)
            drafts.append(draft)
        changes = self._changes(request)
        if request.call.usage and self.after_gap.compares:
            drafts[:0] = used_since(self, request.call)
        row = self._totals.changes(request)
        self._count(drafts, row)
        return Write(self.lease, drafts, row=row, changes=changes), copy

    def _changes(self, request: Append) -> Sequence[Change]:
        """Return what a write changes beside the run: what its script says, what its call still owes
        to a budget, and what its step wrote to memories."""
        spend = None if self.spending is None else self.spending.of(request)
        if spend is None and not request.call.memos:
            return request.changes
        paid = [] if spend is None else [spend]
        return [*request.changes, *paid, *kept_by(request)]

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
        with self.lock:
            if self.fenced:
                assert self.stopped is not None
                raise self.stopped
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
        closes = closed_by(self, drafts)
        write = Write(self.lease, drafts, row=row, changes=[*changes, *closes])
        ticket = Ticket(write, callback)
        ticket.lazy = lazily
        self._submit(ticket)
        return ticket

    def _count(self, drafts: list[Draft], row: dict[str, Any]) -> None:
        upgrade = self.upgrade
        if upgrade is not None and upgrade.joins(drafts, row, self.history, self.consumed):
            self.upgrade = None
        self.skipping.count(drafts)

    def _submit(self, ticket: Ticket) -> None:
        hide(ticket.write)
        if ticket.write.changes:
            self._expect(ticket)
        self.waits.moved()
        self._last = ticket
        if self._parked is not None:
            # Its chunks stay where they are: the transaction may refer to them, and commits first.
            ticket.parked = True
            self._parked.append(ticket)
            return
        chunks = self.values.take_fresh()
        if not ticket.write.may_be_refused:
            ticket.write.chunks = chunks
        elif chunks:
            # A claim may be refused, and another branch may refer to them already.
            apart = Ticket(Write(self.lease, [], chunks), self.in_background)
            self.engine.committer.submit_lazily(apart)
        if ticket.lazy:
            self.engine.committer.submit_lazily(ticket)
        elif ticket.callback is None:
            self.engine.committer.submit(ticket)
        else:
            self.engine.committer.submit_background(ticket)

    def _expect(self, ticket: Ticket) -> None:
        """Note what a write on its way changes that this execution asks for itself."""
        taken = ticket.write.of(TakeMessage)
        if taken:
            self.mail.taken([change.message_id for change in taken])
        if ticket.write.of(PutMemo):
            self.remembering = ticket

    @property
    def parks(self) -> bool:
        """Whether an effect in the store's own database is at work."""
        return self._parked is not None

    def park(self) -> Ticket | None:
        """Keep the writes of this run back from now on; returns the last one that was queued."""
        with self.lock:
            self._parked = []
            return self._last

    def unpark(self) -> None:
        """Queue what was kept back, in order; totals that it carries are told as they are now."""
        with self.lock:
            parked, self._parked = self._parked or [], None
            for ticket in parked:
                self._totals.renew(ticket.write)
                ticket.parked = False
                self._submit(ticket)
                ticket.nudge()

    def settled(self, ticket: Ticket) -> Outcome:
        """Return the outcome of a finished write; a fenced one stops the run."""
        if ticket.error is not None:
            raise self.stop(Unwind(_as_holdfast(ticket.error, self.run_id)))
        assert ticket.outcome is not None
        if isinstance(ticket.outcome, Fenced):
            raise self.stop(Unwind(LeaseLost(self.run_id)))
        return ticket.outcome

    def in_background(self, ticket: Ticket) -> None:
        """Remember a failed background commit: the next durable call raises it."""
        if ticket.error is not None:
            self._failure = ticket.error
            self.waits.ring()  # A line that waits would not hear of it else.
        elif isinstance(ticket.outcome, Fenced):
            self.stop(Unwind(LeaseLost(self.run_id)))

    def undo_prediction(self, write: Write) -> None:
        """A refused write (a taken key) gave its numbers back, and its chunks are still to go."""
        with self.lock:
            self.values.put_back(write.chunks)
            self._totals.refused(write)
            self.skipping.take_back(write.drafts)
            if self.spending is not None:
                self.spending.refused(write)
            if "version" in write.row:
                self.upgrade = Upgrade(self.lease.row.flow, write.row["version"])

    # -- what it waits for, and what is still at work ------------------------------------------

    def wait_on(self, token: str, why: str) -> None:
        """Say that the run waits for something outside; the next entry of a step ends that."""
        with self.lock:
            if not self._totals.waits:
                self._totals.waits = True
                body = _encode({"for": why})
                draft = Draft(Kind.RUN_WAITING, self.engine.now_us(), body=body)
                self.write([draft], self.in_background, {"waiting_on": token})

    def say_waiting(self, waiting: list[Waiting]) -> None:
        """Say that all lines of the run wait; the entry that ends the wait of one ends that."""
        with self.lock:
            self._totals.waits = True
            draft = Draft(Kind.RUN_WAITING, self.engine.now_us(), body=_encode({"for": waiting}))
            # It has got as far as it can: no claim counts against it, however often it is killed.
            changes = {"waiting_on": waits_for(waiting), "claims": 0}
            self.write([draft], self.in_background, changes)

    def beat(self) -> Ticket | None:
        """Write the starts of plain steps that are still at work and not noted yet, if any."""
        with self.lock:
            drafts: list[Draft] = []
            for call in () if self.fenced else self.open_calls.values():
                if not call.noted and not call.spec.effect and call.started_us:
                    draft, _ = drafted(self, call, Note(Kind.STEP_STARTED))
                    drafts.append(draft)
            return self._queue(drafts, {}, self.in_background) if drafts else None

    # -- loops ---------------------------------------------------------------------------------

    def enter_loop(self, path: str) -> Loop:
        """Begin (or go on with) a loop."""
        with self.lock:
            return self.skipping.enter(path)

    def leave_loop(self, loop: Loop) -> None:
        """End a loop."""
        with self.lock:
            self.skipping.leave(loop)


def _as_holdfast(error: BaseException, run_id: str) -> HoldfastError:
    if isinstance(error, HoldfastError):
        return error
    wrapped = RunError(run_id, f"run {run_id!r}: the store failed: {error!r}")
    wrapped.__cause__ = error
    return wrapped
