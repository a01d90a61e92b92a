"""Cancel or pause a run: written at once if no process owns it, else requested of its owner."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator

from holdfast._engine.decisions import control
from holdfast._engine.decisions.action_result import check_actor, check_wait
from holdfast._engine.decisions.control import (
    CANCEL,
    PAUSE,
    Stopped,
    asked,
    cancel_write,
    pause_write,
)
from holdfast._engine.decisions.resume import held_facts, moved_to, refuse_moved
from holdfast._engine.journal.changes import TakeMessage
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import ENDED, FINAL, HeldReason, Status
from holdfast._engine.journal.rows import Lease, RunRow, Write, is_moved
from holdfast._engine.journal.step_record import facts
from holdfast._operator.read.run_views import fold
from holdfast._stores.contract import Committed, Posted, Store
from holdfast._stores.expected_version import checked_etag
from holdfast._stores.families import open_children
from holdfast._stores.lookups import existing_row
from holdfast.errors import RunHeld, StaleView

TRIES = 20
PATIENCE_S = 10.0
"""How long an actor waits for the run's owner by default."""
LOOK_S = 0.2
"""The interval between looks at a store that does not notify of changes."""


def cancel(
    store: Store,
    run_id: str,
    *,
    actor: str,
    reason: str = "",
    wait_s: float = PATIENCE_S,
    expected_version: str | None = None,
) -> Stopped:
    """Cancel a run and its children."""
    return _Request(store, run_id, CANCEL, actor, reason, expected_version).carried_out(wait_s)


def pause(
    store: Store,
    run_id: str,
    *,
    actor: str,
    reason: str = "",
    wait_s: float = PATIENCE_S,
    expected_version: str | None = None,
) -> Stopped:
    """Hold a run until somebody resumes it; the call that is executing now ends first."""
    return _Request(store, run_id, PAUSE, actor, reason, expected_version).carried_out(wait_s)


class _Request:
    """One request to stop a run, until it is carried out or the time is over.

    The run's owner carries it out when it releases the run; without an owner, this process does. The
    entry takes the message, so the request is carried out once.
    """

    def __init__(
        self,
        store: Store,
        run_id: str,
        kind: str,
        actor: str,
        reason: str,
        expected_version: str | None,
    ) -> None:
        check_actor(actor)
        self.store = store
        self.run_id = run_id
        self.kind = kind
        self.actor = actor
        self.reason = reason
        self.expected_version = expected_version
        self.posted: str | None = None
        self.posted_us = 0

    def carried_out(self, wait_s: float) -> Stopped:
        check_wait(self.kind, wait_s)
        deadline_s = time.monotonic() + wait_s
        tries, etag = 0, None
        while True:
            row = existing_row(self.store, self.run_id)
            if self.posted is None:
                etag = checked_etag(self.store, row, self.expected_version)
            history = fold(self.store, row)
            settled = self._settled(row, history)
            if settled is not None:
                return settled
            write, children = self._write(row, history)
            if isinstance(self.store.append([write])[0], Committed):
                return self._done(write.lease.row, children)
            # The run has an owner, or had one meanwhile: the next owner finds the message first.
            self._post(etag)
            if _has_owner(self.store, self.run_id):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    return self._not_yet()
                self.store.wait_for_change(min(LOOK_S, left_s))
            else:
                tries += 1  # The owner changed meanwhile: look again.
                if tries > TRIES:
                    if self.posted is not None:
                        return self._not_yet()
                    raise StaleView(self.run_id)

    def _settled(self, row: RunRow, history: History) -> Stopped | None:
        """Return the result, if nothing is left to do."""
        if is_moved(row):
            if self.posted is None:
                refuse_moved(history)
            told = f"{held_facts(history).get('detail')}, with this request"
            return Stopped(self.run_id, row.status, "pending", told)
        if self.kind == PAUSE:
            if self.posted is not None and _is_paused(row):
                return _paused(self.store, row)
            if self.posted is None and _is_paused(row) and moved_to(history) is None:
                return _paused(self.store, row, "it is paused already")
            if self.posted is not None and row.status in ENDED:
                return Stopped(self.run_id, row.status, "finished", f"it is {row.status}")
            if self.posted is not None and self._is_taken(row):
                row = existing_row(
                    self.store, self.run_id
                )  # The owner may have paused it in between.
                if _is_paused(row):
                    return _paused(self.store, row)
                return self._taken_since(row)
            if self.posted is not None and row.status is Status.HELD:
                told = str(held_facts(history).get("detail", "")) or str(row.held_reason)
                return Stopped(self.run_id, row.status, "pending", f"it is held: {told}")
            return None
        if row.status is Status.CANCELLED:
            told = "" if self.posted is not None else "it was cancelled before"
            return self._done(row, open_children(self.store, self.run_id), told)
        if row.status in FINAL:
            return Stopped(self.run_id, row.status, "finished", f"it is {row.status} already")
        if history.rollback is not None:
            told = "it is being rolled back, and that cannot be cancelled; it can be paused"
            return Stopped(self.run_id, row.status, "pending", told)
        if row.status is Status.HELD and control.requested(history) and history.open_doubts():
            return Stopped(self.run_id, row.status, "pending", _doubt(history))
        return None

    def _taken_since(self, row: RunRow) -> Stopped:
        """Return the result of a pause whose message was taken, for a run that is not paused now. Only the
        entry of this pause proves that the run was paused: a run that was held or ended first takes the
        message without that entry."""
        if row.status in ENDED:
            return Stopped(self.run_id, row.status, "finished", f"it is {row.status}")
        past = fold(self.store, row)
        if any(map(self._is_mine, self.store.load(row))):
            told = "it was paused, and has been resumed since"
            return Stopped(self.run_id, row.status, "paused", told)
        if row.status is Status.HELD:
            held = str(held_facts(past).get("detail", "")) or str(row.held_reason)
            return Stopped(self.run_id, row.status, "pending", f"it is held: {held}")
        told = "it was not paused: it was held first, and somebody has resumed it; ask again"
        return Stopped(self.run_id, row.status, "pending", told)

    def _is_mine(self, entry: Entry) -> bool:
        """Return whether an entry is the one by which this pause was carried out."""
        if entry.kind is not Kind.RUN_HELD or entry.at_us < self.posted_us:
            return False
        told = facts(entry)
        return told.get("reason") == HeldReason.PAUSED and told.get("actor") == self.actor

    def _write(self, row: RunRow, history: History) -> tuple[Write, list[str]]:
        at_us, lease = self.store.now_us(), Lease(row, acting=True)
        if self.kind == PAUSE:
            write, children = pause_write(lease, history, self.actor, self.reason, at_us), []
        else:
            children = open_children(self.store, self.run_id)
            write = cancel_write(lease, history, children, self.actor, self.reason, at_us)
        if self.posted is not None and not self._is_taken(row):
            write.changes = [*write.changes, TakeMessage(self.posted)]
        return write, children

    def _is_taken(self, row: RunRow) -> bool:
        """Return whether an entry of the run has taken the message: a write on this row cannot."""
        return all(it.message_id != self.posted for it in self.store.inbox(row.run_no))

    def _post(self, etag: str | None) -> None:
        """Leave the request to the run's owner, or to the next process that claims the run."""
        if self.posted is None:
            name = f"{self.kind}:{uuid.uuid4().hex}"
            at_us = self.store.now_us()
            message = asked(self.kind, name, self.actor, self.reason, at_us)
            if self.store.post(self.run_id, message, etag) is Posted.ACCEPTED:
                self.posted, self.posted_us = name, at_us

    def _done(self, row: RunRow, children: list[str], told: str = "") -> Stopped:
        if row.status is Status.CANCELLED:
            because = f"its parent, run {self.run_id!r}, was cancelled"
            left = cancel_children(self.store, children, self.actor, because)
            told = "; ".join([*filter(None, [told]), *left])
            return Stopped(row.run_id, row.status, "cancelled", told, tuple(children))
        if _is_paused(row):
            return _paused(self.store, row)
        return Stopped(row.run_id, row.status, "pending", _doubt(fold(self.store, row)))

    def _not_yet(self) -> Stopped:
        row = existing_row(self.store, self.run_id)
        settled = self._settled(row, fold(self.store, row))
        return settled or Stopped(self.run_id, row.status, "pending", _at_work(self.store, row))


def cancel_children(
    store: Store, children: Iterable[str], actor: str, because: str
) -> Iterator[str]:
    """Cancel runs whose parent has stopped, and yield what stands against it. They received the request
    in the transaction of their parent; those without an owner are cancelled now."""
    for child in children:
        try:
            cancel(store, child, actor=actor, reason=because, wait_s=0)
        except RunHeld as moved:
            yield f"child run {child!r} was not cancelled: {moved.detail}"


def _is_paused(row: RunRow) -> bool:
    return row.status is Status.HELD and row.held_reason == HeldReason.PAUSED


def _paused(store: Store, row: RunRow, detail: str = "") -> Stopped:
    """Return that a run is paused, with the children that go on all the same."""
    children = tuple(open_children(store, row.run_id))
    if children:
        go_on = f"child runs go on; pause them by themselves: {', '.join(children[:10])}"
        detail = f"{detail}; {go_on}" if detail else go_on
    return Stopped(row.run_id, row.status, "paused", detail, children)


def _has_owner(store: Store, run_id: str) -> bool:
    row = existing_row(store, run_id)
    return row.owner is not None and not store.owner_is_dead(row.owner)


def _doubt(history: History) -> str:
    step = history.open_doubts()[0].key
    return f"{step} may or may not have happened: settle it, and the run is cancelled"


def _at_work(store: Store, row: RunRow) -> str:
    if row.owner is None:
        return "the next process that takes the run up carries it out before anything else"
    owner = store.owner_name(row.owner)
    step = f" ({row.current_step} is the last step that it wrote of)" if row.current_step else ""
    return (
        f"{owner} has the run{step}, and stops it when what is executing now has "
        "ended, unless that was the last thing the run had to do"
    )
