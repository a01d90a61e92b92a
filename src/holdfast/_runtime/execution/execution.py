"""One run being executed: its lease, its history, its values, and what stops it.

What it writes goes through its recorder (`recorder`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.control import CANCEL, DEADLINE, asked
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Lease, Message
from holdfast._engine.journal.step_keys import Scope, derived_key
from holdfast._engine.scripts.stops import CLASS, Unwind, Waiting
from holdfast._engine.scripts.unreplayed_effects import Replay
from holdfast._engine.values.chunks import Values
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution.branches import Waits
from holdfast._runtime.execution.recorder import Recorder, as_holdfast
from holdfast._runtime.inbox_poller import RunInbox, handle
from holdfast.errors import ClassChanged, LeaseLost, NotSerializable, RunHeld

if TYPE_CHECKING:
    from holdfast._runtime.interrupt_shield import Shield

T = TypeVar("T")

INPUT = "the input"
DEADLINE_FACT = "deadline_us"


class Code(msgspec.Struct):
    """The code that executes a run here."""

    mark: str = ""
    """Version and fingerprint of the flow; a block has none."""
    is_chosen: bool = True
    """Whether it was called for here: a worker does not try again what the same code could not
    replay."""


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
        self.ended = False
        """A block that is replayed after its end; nothing more can be recorded."""
        self.after_data_loss = lease.row.run_no <= engine.backend.accepted_through()
        self.lock = threading.RLock()
        self.stopped: Unwind | None = None
        self.interrupted = threading.Event()
        """Set when the run stops: sleepers wake up."""
        self.waits = Waits()
        self.inbox = RunInbox(lambda seen: engine.backend.inbox(self.run_no, seen), self._handle)
        self.deadline_us = deadline_of(history)
        self.root = Scope()
        self.replay = Replay(history)
        """How far the flow has come in what is recorded."""
        self.code = Code()
        """The code that executes the run."""
        self.instance: Any = None
        """The object whose method the flow is, if it is one."""
        self.shield: Shield | None = None
        """The shield that keeps signals from the thread that executes the flow."""
        self.gates: list[Any] = []
        """The makers of a gate for each call (`gate(call, settings, arguments)`), by feature."""
        self.slots: dict[type, Any] = {}
        """The state of single modules in this execution, by its class."""
        self.recorder = Recorder(self)

    @property
    def run_no(self) -> int:
        """The number of the run in the store."""
        return self.lease.row.run_no

    @property
    def generation(self) -> int:
        """How often the run was taken up after it had ended, plus one."""
        return self.history.generation

    def slot(self, kind: type[T]) -> T:
        """Return what one module keeps of this execution; made when it is first asked for."""
        found: T | None = self.slots.get(kind)
        if found is None:
            found = self.slots[kind] = kind()
        return found

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

    def digest_of(self, key: str, arguments: dict[str, Any]) -> bytes:
        """Return the digest of a call's arguments, under the run's lock; one that cannot be stored is
        refused by its run, step and path."""
        try:
            return self.values.digest(arguments, f"{key}: argument")
        except NotSerializable as refused:
            whose = f"run {self.run_id!r}"
            raise NotSerializable(refused.path, refused.why, whose=whose) from None

    # -- messages ------------------------------------------------------------------------------

    def _handle(self, new: list[Message]) -> None:
        """Handle the messages that steer the run, and wake the lines that wait for the others."""
        for message in new:
            handle(self, message)
        if new:
            self.waits.ring({message.kind for message in new})

    @property
    def waits_for_messages(self) -> bool:
        """Whether a line of the run waits for a message."""
        return self.waits.for_messages()

    def idle(self) -> list[Waiting]:
        """Return what the lines of the run wait for, if all of them do and no step is executing."""
        return [] if self.waits.unawaited else self.waits.idle(self.inbox, self.recorder.open_calls)

    # -- stopping ------------------------------------------------------------------------------

    def check(self) -> None:
        """Called at the start of every durable call: a stopped run goes no further."""
        if self.stopped is not None:
            self.stopped.told = True
            raise self.stopped
        if self.deadline_us is not None and self.engine.now_us() >= self.deadline_us:
            self._expire()
        if self.recorder.failure is not None:
            raise self.stop(Unwind(as_holdfast(self.recorder.failure, self.run_id)))

    def _expire(self) -> None:
        """The time of the run is over: stop it as a cancel would."""
        engine = self.engine
        reason = "its deadline has passed"
        message = asked(CANCEL, f"{CANCEL}:{DEADLINE}", DEADLINE, reason, engine.now_us())
        engine.backend.post(self.run_id, message)
        self.deadline_us = None
        self.inbox.refresh()
        self.check()

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


def deadline_of(history: History) -> int | None:
    """Return until when a run may take, as it was recorded at its start: the timeout of a run."""
    started = history.started
    if history.rollback is not None:
        return None  # What it did is being undone, and that has no deadline.
    if started is None or b'"deadline_us":' not in started.body:
        return None
    found = started.data().get(DEADLINE_FACT)
    return None if found is None else int(msgspec.json.decode(found))
