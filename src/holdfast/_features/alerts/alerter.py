"""Sends the alerts of one store, in a thread of its own: no run ever waits for it.

    written here ──► look at that run ─┐
    a worker's sweep of held and       ├─► a memo per alert and receiver says who sends it ─► call ─► sent
      failed runs, and its watchdog ───┘        └─ it died, or the call failed: another one, later

Alerts are made of what the store says, so none is lost with the process that wrote it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, TypeVar

import msgspec

from holdfast._engine.journal.rows import Memo, RunRow
from holdfast._features.alerts import model as alerts
from holdfast._features.alerts.model import Alert
from holdfast._features.watchdog import store as watchdog
from holdfast._runtime import log as logs
from holdfast._runtime.clocks import Thread
from holdfast._stores.contract import Query
from holdfast.errors import Corrupt, RunDeleted

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine

T = TypeVar("T")

SPACE = "holdfast.alerts"
"""The memory in which workers say who sends an alert, and that it is sent."""
SWEEP_US = 10_000_000
SHARE = 100
"""A sweep that took long is followed by a pause of so many times its length."""
LOOK_US = 2_000_000
"""How often to look whether another process has sent the alert that it claimed."""
CLAIM_US = 120_000_000
"""How long a process that may be alive has for one call."""
BACKOFF_US, BACKOFF_MAX_US = 2_000_000, 900_000_000
DAY_US = 86_400_000_000
RECENT_US = 7 * DAY_US
"""No alert is sent about an older state."""
KEPT_US = 14 * DAY_US
TAILS = (32, 1024)
"""How many entries are read from the end of a journal, before all of them are."""
ENDING_S = 3.0
"""How long the end of a process may be delayed by alerts that are on their way."""
STOPPING_S = 1.0
"""How long, after that, by a call that was asked to stop."""
AGAIN_S, AGAIN_MAX_S = 1.0, 8.0
"""The pause after a look that failed."""
QUEUED_MAX = 10_000


class Sending(msgspec.Struct):
    """The memo of an alert."""

    sent: bool = False
    tries: int = 0
    until_us: int = 0
    """Until when it is somebody's, or rests after a call that failed."""
    owner: int | None = None
    """Whose; None while it rests."""


class Receiver(msgspec.Struct, frozen=True):
    """A function that receives alerts."""

    call: Callable[[Alert], object]
    name: str
    mark: str
    """Its name, shortened: the same in every process of the fleet."""
    stop: Callable[[Alert], object] | None
    """Ends a call that is under way, if it can be ended."""
    unanswered_us: int
    """After how long it receives an alert about an unanswered question."""


class Pending(msgspec.Struct):
    """An alert that is not known to be sent."""

    alert: Alert
    receiver: Receiver
    due_us: int = 0
    """When it is to be looked after; 0 is at once, whatever the clock says."""


class Alerter:
    """Sends the alerts of one store."""

    def __init__(self, engine: Engine, receivers: Callable[[], tuple[Receiver, ...]]) -> None:
        self._engine = engine
        self._receivers = receivers
        """Returns the receivers of now."""
        self._changed = threading.Condition()
        self._heard: dict[str, tuple[Receiver, ...]] = {}
        """Runs to look at, and the receivers of the moment when this process heard of them."""
        self._pending: dict[str, Pending] = {}
        self._known: dict[int, int] = {}
        """Of each run, the last entry up to which every alert is sent or queued."""
        self._since: dict[str, int] = {}
        self._sweep_us: int | None = None
        self._closed = False
        self._given_up = False
        """Whether the process does not wait any longer for what is on its way."""
        self._calling: Pending | None = None
        self._thread: threading.Thread | None = None

    # -- called by others; never waits for a call ----------------------------------------------

    def hear(self, run_id: str) -> None:
        """A run was held or failed just now."""
        with self._changed:
            if len(self._heard) < QUEUED_MAX:  # A sweep finds the rest.
                self._heard[run_id] = self._receivers()
            self._ensure()

    def sweep(self) -> None:
        """Look at all held and failed runs now and then, from now on."""
        with self._changed:
            if self._sweep_us is None:
                self._sweep_us = 0
            self._ensure()

    def offer(
        self,
        alert: Alert,
        since_us: int | None,
        to: Collection[Receiver] | None = None,
        heard: Collection[Receiver] = (),
    ) -> bool:
        """Send an alert about a state that began at this time; None is now. Receivers that were
        registered when this process `heard` of it get it in any case. Returns False if the queue
        is full: then offer it again."""
        known = to or self._receivers()
        wanted = [it for it in known if it in heard or self._wants(it, since_us)]
        with self._changed:
            for receiver in wanted:
                key = f"{alert.id}:{receiver.mark}"
                if key not in self._pending:
                    if not self._has_room():
                        return False
                    self._pending[key] = Pending(alert, receiver)
            self._ensure()
        return True

    def _has_room(self) -> bool:
        return len(self._pending) < QUEUED_MAX

    def close(self) -> None:
        """Send what can be sent in a moment, and end. A command does not outlive its process: what
        it was to send is sent by another one, or later."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(ENDING_S)
        self._given_up = True
        deadline = time.monotonic() + STOPPING_S
        while thread.is_alive() and time.monotonic() < deadline:
            pending = self._calling
            if pending is not None and pending.receiver.stop is not None:
                pending.receiver.stop(pending.alert)
            thread.join(0.02)

    def _ensure(self) -> None:
        if self._closed:
            return
        if self._thread is None or not self._thread.is_alive():
            thread = Thread(target=self._run, name="holdfast-alerts")
            thread.start()
            self._thread = thread
        self._changed.notify_all()

    # -- its thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        again_s = AGAIN_S
        while not self._engine.closed:
            now_us = self._engine.now_us()
            with self._changed:
                wait_s = self._due_s(now_us)
                if wait_s > 0 and not self._closed:
                    self._changed.wait(wait_s)
            # The time is asked again: what came while it waited is due as well.
            if self._closed and not self._hears() and not self._due(self._engine.now_us()):
                return
            error = self._turn()
            if error is None:
                again_s = AGAIN_S
                continue
            if self._closed or self._engine.closed:
                return
            logs.warning("alerts could not be looked after: %s", error)
            with self._changed:
                self._changed.wait(again_s)
            again_s = min(AGAIN_MAX_S, again_s * 2)

    def _turn(self) -> Exception | None:
        """Look and send; returns the first error, after all of it was tried."""
        try:
            looked = self._look()
            return _each(self._due(self._engine.now_us()), self._send) or looked
        except Exception as error:
            return error

    def _hears(self) -> bool:
        """Return whether there is a run to look at, and room for its alerts."""
        return bool(self._heard) and self._has_room()

    def _due_s(self, now_us: int) -> float:
        if self._hears():
            return 0.0
        times = [it.due_us for it in self._pending.values()]
        if self._sweep_us is not None:
            times.append(self._sweep_us)
        return max(0.0, (min(times, default=now_us + SWEEP_US) - now_us) / 1e6)

    def _due(self, now_us: int) -> list[str]:
        return [key for key, it in list(self._pending.items()) if it.due_us <= now_us]

    def _look(self) -> Exception | None:
        """Look at the runs that this process heard of, and at all runs if that is due. Returns the
        first error; the run that raised it is looked at again."""
        failed = _each(list(self._heard) if self._hears() else (), self._look_for)
        began_us = self._engine.now_us()
        if self._sweep_us is None or self._closed or began_us < self._sweep_us:
            return failed
        failed = self._sweep_all(began_us) or failed
        took_us = self._engine.now_us() - began_us
        self._sweep_us = began_us + max(SWEEP_US, took_us * SHARE)
        return failed

    def _look_for(self, run_id: str) -> None:
        with self._changed:  # Before the look: it may be heard of again meanwhile.
            heard = self._heard.pop(run_id, ())
        done = False
        try:
            row = self._engine.backend.get(run_id)
            done = row is None or self._look_at(row, heard)
        finally:
            if not done:
                with self._changed:
                    self._heard.setdefault(run_id, heard)

    def _sweep_all(self, now_us: int) -> Exception | None:
        since_us = min((self._since_us(it) for it in self._receivers()), default=now_us)
        since_us = max(since_us, now_us - RECENT_US)
        met: set[int] = set()

        def look(row: RunRow) -> None:
            met.add(row.run_no)
            if row.updated_us >= since_us and self._known.get(row.run_no) != row.last_seq:
                self._look_at(row)

        query = Query(status=list(alerts.ENTRIES))
        rows = watchdog.open_rows(self._engine.backend, query)
        failed = _each(itertools.takewhile(lambda _: not self._closed, rows), look)
        self._known = {run_no: seq for run_no, seq in self._known.items() if run_no in met}
        return failed

    def _look_at(self, row: RunRow, heard: tuple[Receiver, ...] = ()) -> bool:
        """Send the alerts of a run that is held or failed; returns whether all of them were queued.
        Only then it counts as known: after a failure it is looked at again."""
        if row.status not in alerts.ENTRIES or row.deleted_us is not None:
            return True
        alert = self._state(row)
        since_us = round(alert.since.timestamp() * 1e6)
        for receiver in heard:  # If it is not sent from here, it is no past for others.
            self._since_us(receiver, since_us)
        if not self.offer(alert, since_us, heard=heard):
            return False
        self._known[row.run_no] = row.last_seq
        return True

    def _state(self, row: RunRow) -> Alert:
        return state_of(self._engine, row)

    def _wants(self, receiver: Receiver, since_us: int | None) -> bool:
        """Return whether a receiver wants an alert about a state that began at a time; None is now."""
        told_since_us = self._since_us(receiver)
        if since_us is None:
            return True
        return since_us >= max(told_since_us, self._engine.now_us() - RECENT_US)

    def _since_us(self, receiver: Receiver, now_us: int | None = None) -> int:
        """Return since when a receiver gets alerts: a new one gets none about the past."""
        known = self._since.get(receiver.mark)
        if known is None:
            kept, now_us = self._engine.backend, now_us or self._engine.now_us()
            key = f"since:{receiver.mark}"
            kept.put_memo(Memo(SPACE, key, b"%d" % now_us), 0)
            memo = kept.memo(SPACE, key)
            known = now_us if memo is None or memo.value is None else int(memo.value)
            self._since[receiver.mark] = known
        return known

    # -- sending -------------------------------------------------------------------------------

    def _send(self, key: str) -> None:
        if self._given_up:
            return
        pending = self._pending[key]
        due_us = None if self._is_over(pending) else self._try(key, pending)
        with self._changed:
            if due_us is None or pending.receiver not in self._receivers():
                self._pending.pop(key, None)
            else:
                pending.due_us = due_us

    def _is_over(self, pending: Pending) -> bool:
        """Return whether a run is no longer as an alert says that it is."""
        row = self._engine.backend.get(pending.alert.run_id)
        if pending.alert.kind == alerts.ASKED:
            return row is None or not self._still_asks(row, pending.alert)
        if pending.alert.kind not in alerts.ENTRIES:
            return False
        if row is None or row.status not in alerts.ENTRIES or row.deleted_us is not None:
            return True
        return self._state(row).id != pending.alert.id

    def _still_asks(self, row: RunRow, alert: Alert) -> bool:
        kept = self._engine.backend
        asked = (alerts.of_question(kept.store_id, row, it) for it in kept.questions(row.run_id))
        return any(it.id == alert.id for it in asked)

    def _try(self, key: str, pending: Pending) -> int | None:
        """Call, unless another process does; returns when to look again, or None if it is sent."""
        kept, now_us = self._engine.backend, self._engine.now_us()
        memo = kept.memo(SPACE, key)
        said = Sending() if memo is None or memo.value is None else _read(memo.value)
        if said.sent:
            return None
        if said.until_us > now_us and not self._was_left(said):
            return min(said.until_us, now_us + LOOK_US)
        tries = said.tries + 1
        claim = Sending(tries=tries, until_us=now_us + CLAIM_US, owner=self._engine.owner())
        mine = self._note(key, claim, 0 if memo is None else memo.version)
        if mine is None:
            return now_us + LOOK_US
        self._calling = pending
        try:
            pending.receiver.call(pending.alert)
        except Exception as error:
            return self._failed(key, pending, mine, tries, error)
        finally:
            self._calling = None
        self._note(key, Sending(sent=True, tries=tries), mine)
        return None

    def _was_left(self, said: Sending) -> bool:
        """Return whether the process that wanted to send it is dead."""
        return said.owner is not None and self._engine.backend.owner_is_dead(said.owner)

    def _failed(
        self, key: str, pending: Pending, mine: int, tries: int, error: Exception
    ) -> int | None:
        rests_us: int = min(BACKOFF_MAX_US, BACKOFF_US * 2 ** min(tries - 1, 20))
        now_us = self._engine.now_us()
        logs.warning(
            "an alert (%s) about run %s was not sent: %s: %s; it is tried again in %d s",
            *(pending.alert.kind, pending.alert.run_id, type(error).__name__),
            *(alerts.plain(str(error))[:300], rests_us // 1_000_000),
            run_id=pending.alert.run_id,
            flow=pending.alert.flow,
        )
        self._note(key, Sending(tries=tries, until_us=now_us + rests_us), mine)
        return now_us + rests_us

    def _note(self, key: str, said: Sending, expected: int) -> int | None:
        expires_us = self._engine.now_us() + KEPT_US
        memo = Memo(SPACE, key, msgspec.json.encode(said), expires_us=expires_us)
        made: Memo | None = self._engine.backend.put_memo(memo, expected)
        return None if made is None else made.version


def _each(what: Iterable[T], do: Callable[[T], object]) -> Exception | None:
    """Do something with each. One that fails keeps no other from its turn; returns the first error."""
    first: Exception | None = None
    for one in what:
        try:
            do(one)
        except Exception as error:
            first = first or error
    return first


def _read(value: bytes) -> Sending:
    return msgspec.json.decode(value, type=Sending)


def state_of(engine: Engine, row: RunRow) -> Alert:
    """Return the alert about a run that is held or failed. Only the end of its journal is looked at,
    if that goes back far enough."""
    kept = engine.backend
    try:
        for tail in TAILS:
            if row.last_seq > tail:
                entries = kept.load(row, ((1, row.last_seq - tail),))
                found = alerts.of_state(kept.store_id, row, entries) if entries else None
                if found is not None:
                    return found
        whole = kept.load(row)
    except (Corrupt, RunDeleted):
        whole = []
    found = alerts.of_state(kept.store_id, row, whole)
    assert found is not None, "a journal has the entry that says what its row says"
    return found
