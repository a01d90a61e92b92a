"""Roll a run back: the plan first, then the request, which is an entry.

Nothing is undone here: a process that has the flow performs it. The plan is read from the journal
alone. Whether an effect can be taken back stands in its intent; what cannot be must be confirmed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions import action_result, control
from holdfast._engine.decisions.action_result import Answer
from holdfast._engine.decisions.moved_runs import where_else
from holdfast._engine.decisions.resume import doubts_of_the_dead, moved_to
from holdfast._engine.journal.changes import RUN_ENDS, PostMessage, TakeMessage
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import ENDED, Status
from holdfast._engine.journal.rows import Lease, Message, RunRow, Write
from holdfast._features.rollback import model as core
from holdfast._features.rollback.model import Effect, Fate, Wanted
from holdfast._operator.act import cancellation, run_decisions
from holdfast._operator.read.run_views import fold
from holdfast._stores import lineage
from holdfast._stores.contract import Committed, Posted, Store
from holdfast._stores.families import children, open_children
from holdfast._stores.lookups import existing_row
from holdfast.errors import ConfirmationRequired, RunDeleted, StaleView, UsageError

TRIES = 20
PATIENCE_S = 10.0
"""How long an actor waits for the live process that has the run."""

_MEANS = {
    Fate.UNDO: "is undone",
    Fate.STAYS: "has no undo, and stays as it is unless the code has one by now",
    Fate.IN_DOUBT: "may or may not have happened: settle it first",
    Fate.UNKNOWN: "was given up, and may have happened: it stays as it is",
    Fate.UNDONE: "was undone before",
    Fate.GIVEN_UP: "stays as it is: its undo was given up",
    Fate.LOST: "stays as it is, unless a process with the code of its undo takes the run up",
}


class PlannedUndo(msgspec.Struct, frozen=True):
    """One effect of a run, and what a rollback makes of it."""

    step: str
    fate: str
    """undo, stays, in_doubt, unknown, undone, given_up or lost"""
    means: str
    undo_step: str
    """The step key of its undo."""
    generation: int
    business_key: str | None


class RollbackPreview(msgspec.Struct, frozen=True):
    """What a rollback would do, in this order, and what it would leave as it is."""

    run_id: str
    flow: str
    status: str
    to: str | None
    effects: tuple[PlannedUndo, ...]
    children: tuple[str, ...]
    """Child runs: none of them is rolled back with this one."""
    confirm: bool
    """Whether something cannot be undone, so that it must be confirmed."""
    stopped: tuple[str, ...] = ()
    """Child runs that have not ended: they are cancelled."""
    forks: tuple[str, ...] = ()
    """Forks that stand on what is undone: none of them is rolled back with this one."""
    elsewhere: str = ""
    """Where else the run is, so that it could be undone twice."""

    def __str__(self) -> str:
        down_to = "" if self.to is None else f" to {self.to}"
        lines = [f"Rolling run {self.run_id} of flow {self.flow} back{down_to}:"]
        lines += [f"  {number}. {it.step} {it.means}" for number, it in enumerate(self.effects, 1)]
        if not self.effects:
            lines.append("  no effect is to be undone")
        if self.to is not None:
            resume = command("resume", self.run_id)
            lines.append(f"  then the run is held (paused) until somebody resumes it: {resume}")
        used_up = [it.business_key for it in self.effects if it.business_key and it.fate == "undo"]
        if used_up and self.to is not None:
            keys = ", ".join(used_up)
            lines.append(
                f"  its business keys stay used, so doing it again is a KeyConflict: {keys}"
            )
        lines += [
            f"  run {child} is not rolled back; roll it back by itself: {command('rollback', child)}"
            for child in self.children
        ]
        lines += [f"  run {child} has not ended: it is cancelled" for child in self.stopped]
        lines += [
            f"  run {fork} was forked from it, stands on what is undone and is left as it is; roll it "
            f"back by itself: {command('rollback', fork)}"
            for fork in self.forks
        ]
        if self.elsewhere:
            lines.append(f"  {self.elsewhere}; rolled back in both stores, it is undone twice")
        return "\n".join(lines)


def preview_rollback(store: Store, run_id: str, to: str | None = None) -> RollbackPreview:
    """Return what a rollback of this run would do now."""
    row = existing_row(store, run_id)
    return _preview(store, row, core.effects_to_undo(fold(store, row), to), to)


def _preview(store: Store, row: RunRow, effects: list[Effect], to: str | None) -> RollbackPreview:
    started = list(children(store, row.run_id))
    undone = [effect.record.last_seq for effect in effects if effect.fate is Fate.UNDO]
    return RollbackPreview(
        run_id=row.run_id,
        flow=row.flow,
        status=str(row.status),
        to=to,
        effects=tuple(_planned_undo(effect, to) for effect in effects),
        children=tuple(child.run_id for child in started if child.status != Status.ROLLED_BACK),
        stopped=tuple(child.run_id for child in started if child.status not in ENDED),
        forks=standing_on(store, row.run_id, undone),
        confirm=bool(core.left_as_they_are(effects) or where_else(row)),
        elsewhere=where_else(row),
    )


def _planned_undo(effect: Effect, to: str | None) -> PlannedUndo:
    record = effect.record
    means = _MEANS[effect.fate]
    if to is not None and effect.fate in (Fate.STAYS, Fate.UNKNOWN):
        means += ", and is done once more when the run goes on"
    return PlannedUndo(
        step=record.key,
        fate=effect.fate.value,
        means=means,
        undo_step=effect.undo_step,
        generation=record.generation,
        business_key=core.effect_undone(record).key,
    )


def standing_on(store: Store, run_id: str, seqs: Sequence[int]) -> tuple[str, ...]:
    """Return the forks of a run, and the forks of those, that borrow something with one of these
    numbers: as an outcome, or in the state of a loop. One that was rolled back stands on nothing."""
    if not seqs:
        return ()
    forks = lineage.forks(store)
    found: list[str] = []
    below = list(forks.get(run_id, ()))
    for fork in below:
        below += forks.get(fork, ())
        row = store.get(fork)
        if row is None or row.deleted_us is not None or row.status is Status.ROLLED_BACK:
            continue
        try:
            told = lineage.told_of(store, row)
        except RunDeleted:
            continue
        if any(part.run == run_id and min(seqs) <= part.seq for part in told.parts):
            found.append(fork)
    return tuple(found)


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
) -> Answer:
    """Ask for a run to be rolled back: all of it, or what came after the step `to`."""
    action_result.check_actor(actor)
    action_result.check_wait("rollback", wait_s)
    posted: list[str] = []
    deadline_s = time.monotonic() + wait_s
    for _ in range(TRIES):
        row = existing_row(store, run_id)
        past = fold(store, row)
        if posted and (past.rollback is not None or row.status is Status.ROLLED_BACK):
            return told_now(store, run_id)
        known = _is_known(store, row, past, to, actor, confirm=confirm)
        if known is not None:
            return known
        write = _request(store, row, past, Wanted(actor, reason, to), confirm=confirm)
        write.changes = [*write.changes, *map(TakeMessage, posted)]
        if isinstance(store.append([write])[0], Committed):
            for post in write.of(PostMessage):  # Those that nobody has are cancelled now.
                because = f"its parent, run {run_id!r}, was rolled back"
                cancellation.cancel(store, post.run_id, actor=actor, reason=because, wait_s=0)
            return _answer(write.lease.row, f"run {run_id!r} is to be rolled back{_down_to(to)}")
        # Somebody has it, or had it meanwhile: the next who claims it finds the message first.
        if not posted and not _post(store, row, write, posted):
            continue
        if _has_owner(store, row) and not _heard(store, row, deadline_s):
            return _handed_over(store, row)
    if posted:
        return _handed_over(store, existing_row(store, run_id))
    raise StaleView(run_id)


def _is_known(
    store: Store, row: RunRow, past: History, to: str | None, actor: str, *, confirm: bool
) -> Answer | None:
    """Answer for a run that is rolled back already, or on the way; None if it is to be asked for."""
    if row.status is Status.ROLLED_BACK:
        return _answer(row, f"run {row.run_id!r} was rolled back before", recorded=False)
    gone = moved_to(past)
    if gone is not None:
        raise UsageError(f"run {row.run_id!r} was moved to {gone['url']}; roll it back there")
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
        return run_decisions.resume(store, row.run_id, actor=actor, confirm=confirm)
    return _answer(row, f"run {row.run_id!r} is being rolled back{_down_to(to)} already")


def _request(store: Store, row: RunRow, past: History, wanted: Wanted, *, confirm: bool) -> Write:
    effects = core.effects_to_undo(past, wanted.to)
    stays = core.left_as_they_are(effects)
    if (stays or where_else(row)) and not confirm:
        raise unconfirmed(_preview(store, row, effects, wanted.to))
    at_us = store.now_us()
    drafts, keys = ([], []) if row.owner is None else doubts_of_the_dead(past, at_us)
    wanted = msgspec.structs.replace(wanted, stays=stays)
    drafts.append(core.requested(past, wanted, at_us))
    changes = {"waiting_on": None, "wake_us": None, "heard": None}
    lease = Lease(row, acting=True)
    # What it started must not go on doing what is being taken back.
    stopped = control.started_after(past, wanted.to, open_children(store, row.run_id))
    posts = control.to_children(row, stopped, wanted.actor, "rolled back", at_us)
    return Write(lease, drafts, row=changes, changes=[*keys, *posts, *RUN_ENDS])


def unconfirmed(plan: RollbackPreview) -> ConfirmationRequired:
    """Return the error that shows what a rollback would leave as it is, and says how to confirm it."""
    more = () if plan.to is None else ("--to", plan.to)
    stays = [f"{it.step} ({it.means})" for it in plan.effects if it.fate != Fate.UNDO]
    return ConfirmationRequired(
        plan.run_id,
        f"{plan}\nwhat cannot be undone, or might be undone twice, has to be confirmed",
        stays or [plan.elsewhere],
        [
            command("rollback", plan.run_id, *more, "--confirm"),
            f"store.rollback({plan.run_id!r}, confirm=True)",
        ],
    )


# -- a live process has the run ----------------------------------------------------------------


def _post(store: Store, row: RunRow, write: Write, posted: list[str]) -> bool:
    """Leave the request to the live process that has the run; False if it has just ended."""
    message_id = f"rollback:{uuid.uuid4().hex}"
    body = write.drafts[-1].body
    wanted = msgspec.json.decode(body, type=Wanted)
    message = Message(
        message_id, "rollback", wanted.actor, store.now_us(), msgspec.json.encode(wanted)
    )
    if store.post(row.run_id, message) is Posted.REFUSED:
        return False
    posted.append(message_id)
    return True


def _heard(store: Store, row: RunRow, deadline_s: float) -> bool:
    """Wait until the process has taken the request in, or has given the run back."""
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
    """Return the answer as it stands when a process has taken the request in."""
    row = existing_row(store, run_id)
    did = f"run {row.run_id!r} is being rolled back"
    if row.status is Status.ROLLED_BACK:
        did = f"run {row.run_id!r} was rolled back"
    elif row.status is Status.HELD:
        did = f"run {row.run_id!r} is held ({row.held_reason})"
    elif row.status is Status.FAILED:
        did = f"the rollback of run {row.run_id!r} failed"
    return _answer(row, did)
