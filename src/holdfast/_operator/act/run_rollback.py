"""Ask for a run to be rolled back: the request is an entry.

Nothing is undone here: a process that has the flow performs it. What cannot be undone, as the preview in
`_features/rollback` says, must be confirmed.
"""

from __future__ import annotations

import time
import uuid

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions import action_result, control
from holdfast._engine.decisions.action_result import Answer
from holdfast._engine.decisions.moved_runs import where_else
from holdfast._engine.decisions.resume import doubts_of_the_dead, refuse_moved
from holdfast._engine.journal.changes import RUN_ENDS, PostMessage, TakeMessage
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import Lease, Message, RunRow, Write
from holdfast._features.rollback import model as core
from holdfast._features.rollback.model import Wanted
from holdfast._features.rollback.operator import preview_of, unconfirmed
from holdfast._operator.act import cancellation, run_decisions
from holdfast._operator.read.run_views import fold
from holdfast._stores.contract import Committed, Posted, Store
from holdfast._stores.expected_version import checked_etag
from holdfast._stores.families import open_children
from holdfast._stores.lookups import existing_row
from holdfast.errors import StaleView, UsageError

TRIES = 20
PATIENCE_S = 10.0
"""How long an actor waits for the live owner of the run."""

# -- asking for it -----------------------------------------------------------------------------


def rollback(
    store: Store,
    run_id: str,
    *,
    actor: str,
    reason: str = "",
    to: str | None = None,
    confirm: bool = False,
    wait_s: float = PATIENCE_S,
    expected_version: str | None = None,
) -> Answer:
    """Request the rollback of a run: of all effects, or of those after the step `to`."""
    action_result.check_actor(actor)
    action_result.check_wait("rollback", wait_s)
    posted: list[str] = []
    deadline_s = time.monotonic() + wait_s
    for _ in range(TRIES):
        row = existing_row(store, run_id)
        etag = checked_etag(store, row, expected_version)
        past = fold(store, row)
        if posted and (past.rollback is not None or row.status is Status.ROLLED_BACK):
            return told_now(store, run_id)
        known = _is_known(
            store, row, past, to, actor, confirm=confirm, expected_version=expected_version
        )
        if known is not None:
            return known
        write = _request(store, row, past, Wanted(actor, reason, to), confirm=confirm)
        write.changes = [*write.changes, *map(TakeMessage, posted)]
        if isinstance(store.append([write])[0], Committed):
            because = f"its parent, run {run_id!r}, was rolled back"
            children = [post.run_id for post in write.of(PostMessage)]
            left = cancellation.cancel_children(store, children, actor, because)
            did = f"run {run_id!r} is to be rolled back{_down_to(to)}"
            return _answer(write.lease.row, "; ".join([did, *left]))
        # Somebody has it, or had it meanwhile: the next who claims it finds the message first.
        if not posted and not _post(store, row, write, posted, etag):
            continue
        expected_version = None  # This request itself changes the run.
        if _has_owner(store, row) and not _heard(store, row, deadline_s):
            return _handed_over(store, row)
    if posted:
        return _handed_over(store, existing_row(store, run_id))
    raise StaleView(run_id)


def _is_known(
    store: Store,
    row: RunRow,
    past: History,
    to: str | None,
    actor: str,
    *,
    confirm: bool,
    expected_version: str | None,
) -> Answer | None:
    """Return the answer for a run that is or is being rolled back; None if it has to be requested."""
    if row.status is Status.ROLLED_BACK:
        return _answer(row, f"run {row.run_id!r} was rolled back before", recorded=False)
    refuse_moved(past)
    if past.rollback is None:
        return None
    pending = core.wanted(past.rollback)
    if pending.to != to:
        raise UsageError(
            f"run {row.run_id!r} is being rolled back{_down_to(pending.to)} already, as "
            f"{pending.actor} asked for; see {command('explain', row.run_id)}"
        )
    if row.status is Status.HELD and confirm:
        return None
    if row.status is Status.FAILED:  # One of its undos gave up: that is tried again.
        return run_decisions.resume(
            store, row.run_id, actor=actor, confirm=confirm, expected_version=expected_version
        )
    return _answer(row, f"run {row.run_id!r} is being rolled back{_down_to(to)} already")


def _request(store: Store, row: RunRow, past: History, wanted: Wanted, *, confirm: bool) -> Write:
    effects = core.effects_to_undo(past, wanted.to)
    stays = core.left_as_they_are(effects)
    if (stays or where_else(row)) and not confirm:
        raise unconfirmed(preview_of(store, row, effects, wanted.to))
    at_us = store.now_us()
    drafts, keys = ([], []) if row.owner is None else doubts_of_the_dead(past, at_us)
    wanted = msgspec.structs.replace(wanted, stays=stays)
    drafts.append(core.requested(past, wanted, at_us))
    changes = {"waiting_on": None, "wake_us": None, "heard": None}
    lease = Lease(row, acting=True)
    # Its children must not repeat effects that are being undone.
    stopped = control.started_after(past, wanted.to, open_children(store, row.run_id))
    posts = control.to_children(row, stopped, wanted.actor, "rolled back", at_us)
    return Write(lease, drafts, row=changes, changes=[*keys, *posts, *RUN_ENDS])


# -- a live process has the run ----------------------------------------------------------------


def _post(store: Store, row: RunRow, write: Write, posted: list[str], etag: str | None) -> bool:
    """Leave the request to the live owner of the run; False if the run has just ended."""
    message_id = f"rollback:{uuid.uuid4().hex}"
    body = write.drafts[-1].body
    wanted = msgspec.json.decode(body, type=Wanted)
    message = Message(
        message_id, "rollback", wanted.actor, store.now_us(), msgspec.json.encode(wanted)
    )
    if store.post(row.run_id, message, etag) is Posted.REFUSED:
        return False
    posted.append(message_id)
    return True


def _heard(store: Store, row: RunRow, deadline_s: float) -> bool:
    """Wait until the owner has recorded the request, or has released the run."""
    while time.monotonic() < deadline_s:
        now = existing_row(store, row.run_id)
        if now.owner != row.owner or now.status is Status.ROLLED_BACK:
            return True
        if fold(store, now).rollback is not None:
            return True
        store.wait_for_change(min(0.2, max(0.0, deadline_s - time.monotonic())))
    return False


def _handed_over(store: Store, row: RunRow) -> Answer:
    owner = "the next process that takes it up"
    if row.owner is not None:
        owner = store.owner_name(row.owner)
    did = (
        f"the request is handed to {owner}, which has run {row.run_id!r} and rolls it back when "
        "what it is executing now has ended"
    )
    return Answer(row.run_id, row.flow, str(row.status), did, recorded=False, goes_on=False)


def _has_owner(store: Store, row: RunRow) -> bool:
    now = existing_row(store, row.run_id)
    return now.owner is not None and not store.owner_is_dead(now.owner)


def _answer(row: RunRow, did: str, *, recorded: bool = True) -> Answer:
    goes_on = row.status in (Status.QUEUED, Status.RUNNING, Status.WAITING)
    return Answer(row.run_id, row.flow, str(row.status), did, recorded=recorded, goes_on=goes_on)


def _down_to(to: str | None) -> str:
    return "" if to is None else f" to {to}"


def told_now(store: Store, run_id: str) -> Answer:
    """Return the state of a rollback that a process has begun."""
    row = existing_row(store, run_id)
    did = f"run {row.run_id!r} is being rolled back"
    if row.status is Status.ROLLED_BACK:
        did = f"run {row.run_id!r} was rolled back"
    elif row.status is Status.HELD:
        did = f"run {row.run_id!r} is held ({row.held_reason})"
    elif row.status is Status.FAILED:
        did = f"the rollback of run {row.run_id!r} failed"
    return _answer(row, did)
