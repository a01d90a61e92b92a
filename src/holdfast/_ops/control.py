"""Cancel and pause, as people do it: recorded at once where nobody has the run, else asked of the
process that has it."""

from __future__ import annotations

import time
import uuid

import msgspec

from holdfast._core import control
from holdfast._core.control import CANCEL, PAUSE, asked, cancel_write, pause_write
from holdfast._core.lifecycle import CLAIMABLE, FINAL, Status
from holdfast._core.rows import RunRow
from holdfast._ops.inspect import fold, found
from holdfast._store.contract import Committed, Posted, Query, Store
from holdfast.errors import StaleView

TRIES = 20
PATIENCE_S = 10.0
"""How long an actor waits for the process that has the run, if nothing else is said."""
CHILDREN_MAX = 100_000


class Stopped(msgspec.Struct, frozen=True):
    """What a cancel or a pause came to: the truth of this moment."""

    run_id: str
    status: str
    outcome: str
    """"cancelled" or "paused"; "finished": the run had ended before, as its status says; "pending":
    asked for, and not done yet, as `detail` says."""
    detail: str = ""
    children: tuple[str, ...] = ()
    """Child runs that were asked to stop too."""


def cancel(
    store: Store, run_id: str, *, actor: str, reason: str = "", wait_s: float = PATIENCE_S
) -> Stopped:
    """Cancel a run, and its children with it."""
    for _ in range(TRIES):
        row = found(store, run_id)
        if row.status is Status.CANCELLED:
            return Stopped(run_id, row.status, "cancelled", "it was cancelled before")
        if row.status in FINAL:
            return Stopped(run_id, row.status, "finished", f"it is {row.status} already")
        history = fold(store, row)
        if history.rollback is not None:
            told = "it is being rolled back, and that cannot be cancelled; it can be paused"
            return Stopped(run_id, row.status, "pending", told)
        children = open_children(store, run_id)
        write = cancel_write(row, history, children, actor, reason, store.now_us())
        if isinstance(store.append([write])[0], Committed):
            return _cancelled(store, write.lease.row, children, actor)
        if _has_owner(store, run_id):
            return _ask(store, run_id, CANCEL, actor, reason, wait_s)
    raise StaleView(run_id)


def _cancelled(store: Store, row: RunRow, children: list[str], actor: str) -> Stopped:
    if row.status is Status.CANCELLED:
        for child in children:
            # They were told in the same transaction; those that nobody has are cancelled now.
            cancel(store, child, actor=actor, reason="its parent was cancelled", wait_s=0)
        return Stopped(row.run_id, row.status, "cancelled", children=tuple(children))
    return Stopped(row.run_id, row.status, "pending", _doubt(store, row))


def pause(
    store: Store, run_id: str, *, actor: str, reason: str = "", wait_s: float = PATIENCE_S
) -> Stopped:
    """Hold a run until somebody resumes it; what is executing at this moment comes to its end."""
    for _ in range(TRIES):
        row = found(store, run_id)
        history = fold(store, row)
        write = pause_write(row, history, actor, reason, store.now_us())
        if isinstance(store.append([write])[0], Committed):
            return Stopped(run_id, write.lease.row.status, "paused")
        if _has_owner(store, run_id):
            return _ask(store, run_id, PAUSE, actor, reason, wait_s)
    raise StaleView(run_id)


def open_children(store: Store, run_id: str) -> list[str]:
    """Return the child runs that have not ended."""
    statuses = [*CLAIMABLE, Status.HELD]
    query = Query(parent=run_id, status=statuses, limit=CHILDREN_MAX)
    return [row.run_id for row in store.list(query)]


def _has_owner(store: Store, run_id: str) -> bool:
    row = found(store, run_id)
    return row.owner is not None and not store.owner_is_dead(row.owner)


def _ask(store: Store, run_id: str, kind: str, actor: str, reason: str, wait_s: float) -> Stopped:
    """Leave it to the live process that has the run, and wait for what comes of it."""
    message = asked(kind, f"{kind}:{uuid.uuid4().hex}", actor, reason, store.now_us())
    if store.post(run_id, message) is Posted.REFUSED:
        return _now(store, run_id, kind)
    deadline_s = time.monotonic() + wait_s
    while time.monotonic() < deadline_s:
        row = found(store, run_id)
        if row.status not in CLAIMABLE:
            return _now(store, run_id, kind)
        store.wait_for_change(min(0.2, max(0.0, deadline_s - time.monotonic())))
    return _now(store, run_id, kind)


def _now(store: Store, run_id: str, kind: str) -> Stopped:
    """Say what is the case now."""
    row = found(store, run_id)
    if row.status is Status.CANCELLED:
        return Stopped(run_id, row.status, "cancelled")
    if row.status in FINAL or row.status is Status.FAILED:
        return Stopped(run_id, row.status, "finished", f"it is {row.status}")
    if kind == PAUSE and row.status is Status.HELD and row.held_reason == "paused":
        return Stopped(run_id, row.status, "paused")
    return Stopped(run_id, row.status, "pending", _doubt(store, row) or _at_work(store, row))


def _doubt(store: Store, row: RunRow) -> str:
    doubts = fold(store, row).open_doubts() if row.status is Status.HELD else []
    if not doubts:
        return ""
    return (
        f"{doubts[0].key} may or may not have happened: settle it, and the run is cancelled"
        if control.requested(fold(store, row))
        else f"{doubts[0].key} may or may not have happened"
    )


def _at_work(store: Store, row: RunRow) -> str:
    owner = store.owner_name(row.owner)
    step = f" ({row.current_step} is the last step that it wrote of)" if row.current_step else ""
    return f"{owner} has the run{step}, and stops it when what is executing now has ended"
