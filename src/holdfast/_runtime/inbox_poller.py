"""The inboxes of the runs that this process executes, and the thread that polls them.

A message waits in the store until an entry of its run takes it. Of a run at work, this process keeps
what it has seen so far (`RunInbox`). One thread per store (the `InboxPoller`) looks a few times a second
whether there is something new, in one query for all runs; while a line of some run waits for a
message, every commit wakes it and it looks at once.

No line waits for cancel and pause: their handler stops the run at its next durable call.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holdfast._engine.journal.rows import Message
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import log as logs
from holdfast._runtime.clocks import Thread
from holdfast._runtime.feature import installed
from holdfast.errors import Corrupt

if TYPE_CHECKING:
    from holdfast._runtime.commit.listener import Listener
    from holdfast._stores.contract import Store

LOOK_S = 0.25
"""How often runs that wait for no message are looked after."""
QUIET_S = 0.02
"""How long changes gather before they are looked at, so that a busy store is not read all the time."""

CLOSING_S = 5.0
"""How long the end waits for a look that is under way."""

Handler = Callable[[Any, Message], None]
handlers: dict[str, Handler] = {}
"""The handlers of messages that stop or steer a run, by kind: (execution, message)."""


def handle(execution: object, message: Message) -> None:
    """Do what a message asks for, if it is one that steers the run."""
    handler = handlers.get(message.kind) or installed.messages.get(message.kind)
    if handler is not None:
        handler(execution, message)


class RunInbox:
    """The messages of one run at work that no entry has taken yet, as far as they were seen."""

    def __init__(
        self, read: Callable[[int], list[Message]], handle: Callable[[list[Message]], None]
    ) -> None:
        self._read = read
        """Reads the inbox behind a number."""
        self._handle = handle
        """Receives what is new."""
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._untaken: dict[str, dict[str, Message]] = {}
        """Messages that no entry has taken, by kind and id, oldest first."""
        self._kinds: dict[str, str] = {}
        """The kind of each of them, by id."""
        self._reserved: set[str] = set()
        """Those that a line of the run has."""
        self.heard = 0
        """The number of the newest message that was looked at."""
        self.looked = False

    def refresh(self) -> None:
        """Read the new messages; handle those that steer the run, and wake the lines that wait for
        the others. Only this process takes messages of the run, so what it knows stays true."""
        with self._reading:  # One look at a time: each begins behind the one before.
            new = self._saw(self._read(self.heard))
        self._handle(new)

    def begin(self, found: list[Message]) -> None:
        """Take over what the claim of the run has seen in the inbox."""
        self._handle(self._saw(found))

    def _saw(self, found: list[Message]) -> list[Message]:
        """Keep what came; returns what is new."""
        with self._lock:
            new = [message for message in found if message.number > self.heard]
            for message in new:
                self._untaken.setdefault(message.kind, {})[message.message_id] = message
                self._kinds[message.message_id] = message.kind
                self.heard = max(self.heard, message.number)
            self.looked = True
            return new

    @property
    def is_empty(self) -> bool:
        """Whether no message is known that no entry has taken."""
        with self._lock:
            return not self._untaken

    def reserve(self, kind: str | None) -> Message | None:
        """Give out the oldest message of a kind, to one line of the run only."""
        with self._lock:
            message = self._free(kind)
            if message is not None:
                self._reserved.add(message.message_id)
            return message

    def _free(self, kind: str | None) -> Message | None:
        if kind is None:
            return None
        known = self._untaken.get(kind, {}).values()
        return next((it for it in known if it.message_id not in self._reserved), None)

    def first(self, wanted: Callable[[Message], bool]) -> Message | None:
        """Return the oldest message of this sort that no entry and no line of the run has."""
        with self._lock:
            known = (it for kind in self._untaken.values() for it in kind.values())
            free = [it for it in known if it.message_id not in self._reserved and wanted(it)]
            return min(free, key=lambda it: it.number, default=None)

    def mark_taken(self, message_ids: list[str]) -> None:
        """A write that takes these messages is on its way."""
        with self._lock:
            for message_id in message_ids:
                kind = self._kinds.pop(message_id, None)
                if kind is None:
                    continue
                self._reserved.discard(message_id)
                del self._untaken[kind][message_id]
                if not self._untaken[kind]:
                    del self._untaken[kind]

    def all_of(self, kind: str) -> list[str]:
        """Return the ids of all messages of a kind that no entry has taken."""
        with self._lock:
            return list(self._untaken.get(kind, ()))

    def has(self, kind: str | None) -> bool:
        """Return whether a message of this kind is there that nobody has."""
        with self._lock:
            return self._free(kind) is not None


class ListeningRun(Protocol):
    """A run at work here, whose inbox is looked after."""

    @property
    def run_no(self) -> int:
        """Its number in the store."""
        ...

    @property
    def stopped(self) -> Unwind | None:
        """Why it goes no further, if it does not."""
        ...

    @property
    def inbox(self) -> RunInbox:
        """The known messages of its inbox."""
        ...

    @property
    def waits_for_messages(self) -> bool:
        """Whether a line of it waits for a message."""
        ...

    def stop(self, unwind: Unwind, *, later: bool = False) -> Unwind:
        """Stop it: its inbox is damaged."""
        ...


class InboxOwner(Protocol):
    """The engine, as far as inboxes are concerned."""

    @property
    def backend(self) -> Store:
        """Where the inboxes are."""
        ...

    @property
    def listener(self) -> Listener:
        """The listener to changes of the store."""
        ...

    @property
    def closed(self) -> bool:
        """Whether the store is closed."""
        ...

    def executing(self) -> Sequence[ListeningRun]:
        """Return the runs at work here."""
        ...


class InboxPoller:
    """Looks after the inboxes of the runs at work in this process."""

    def __init__(self, engine: InboxOwner) -> None:
        self._engine = engine
        self._rung = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._listens = False
        self._ends = threading.Event()

    def ensure(self) -> None:
        """Start the thread if it is not there: a run is at work. It ends when none is."""
        with self._lock:
            if self._thread is None and not self._ends.is_set():
                thread = Thread(target=self._run, name="holdfast-inbox")
                thread.start()
                self._thread = thread

    def listen(self) -> None:
        """A line waits for a message: listen to every change from now on, until no line waits."""
        with self._lock:
            if not self._listens:
                self._listens = True
                self._engine.listener.add(self._rung.set)

    def close(self) -> None:
        """End the thread."""
        self._ends.set()
        self._rung.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=CLOSING_S)

    def _run(self) -> None:
        while True:
            try:
                if self._is_over():
                    return
                self._wait_and_look()
            except MemoryError:
                # Nothing more, as a log line could fail too: if this thread ended, nobody would hear
                # anything for its runs any more.
                time.sleep(LOOK_S)

    def _wait_and_look(self) -> None:
        if self._rung.wait(LOOK_S):
            if self._ends.wait(QUIET_S):
                return
            self._rung.clear()
        try:
            self.look()
        except MemoryError:
            raise
        except Exception as error:
            if not self._engine.closed:
                logs.debug("the inboxes could not be looked at: %s", error)
        self._hush()

    def _is_over(self) -> bool:
        """Return whether nothing is at work any more; then the thread ends, and the next is another."""
        with self._lock:
            if self._ends.is_set() or not (self._listens or self._engine.executing()):
                self._thread = None
                return True
            return False

    def look(self) -> None:
        """Look once at the inboxes of all runs at work here."""
        executions = {run.run_no: run for run in self._engine.executing() if run.stopped is None}
        if not executions:
            return
        for run_no, newest in self._engine.backend.news(list(executions)).items():
            execution = executions[run_no]
            if newest > execution.inbox.heard:
                try:
                    execution.inbox.refresh()
                except Corrupt as damage:
                    # Go on with the other runs; the next owner of this one finds the damage and holds it.
                    execution.stop(Unwind(damage), later=True)

    def _hush(self) -> None:
        """Stop listening when no line waits for a message any more."""
        with self._lock:
            if self._listens and not any(
                run.waits_for_messages for run in self._engine.executing()
            ):
                self._listens = False
                self._engine.listener.remove(self._rung.set)
