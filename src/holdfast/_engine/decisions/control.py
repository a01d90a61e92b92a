"""Stop a run on purpose: the journal entries of cancel and pause. Pure.

Operators' tools write them for a run without an owner. An owner writes the same entries in the
transaction that releases the run, and a new owner writes them before it reads the journal, so no
other claim comes between the message and its entry. While an effect of the run is in doubt, a
cancel holds the run, and the run is cancelled when the doubt is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.resume import (
    doubts_of_former_owners,
    doubts_of_the_dead,
    draft,
    held_reason,
)
from holdfast._engine.journal.changes import RUN_ENDS, PostMessage, SetKey
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import ENDED, FINAL, HeldReason, Status
from holdfast._engine.journal.rows import Lease, Message, RunRow, Write
from holdfast._engine.journal.step_record import facts
from holdfast._engine.scripts.child_run import to_parent
from holdfast._engine.scripts.doubt import settle_actions
from holdfast.errors import RunEnded, RunHeld, UsageError

CANCEL, PAUSE = "cancel", "pause"
MESSAGES = frozenset({CANCEL, PAUSE})
"""Kinds of messages that stop a running run."""
DEADLINE = "deadline"
"""The actor that cancels a run after its timeout."""


class Stopped(msgspec.Struct, frozen=True):
    """The result of a cancel or a pause: the state of this moment."""

    run_id: str
    status: str
    outcome: Literal["cancelled", "paused", "finished", "pending"]
    """"cancelled" or "paused"; "finished": the run had ended before, as its status says; "pending":
    requested and not done yet, as `detail` says."""
    detail: str = ""
    children: tuple[str, ...] = ()
    """Child runs that received the request too."""


def asked(kind: str, message_id: str, actor: str, reason: str, at_us: int) -> Message:
    """Return the message that asks the owner to cancel or pause a run."""
    return Message(message_id, kind, actor, at_us, msgspec.json.encode({"reason": reason}))


def cancel_write(
    lease: Lease, history: History, children: Sequence[str], actor: str, reason: str, at_us: int
) -> Write:
    """Return the write that cancels a run and notifies its children and its parent, or holds the
    run because an effect is in doubt. The lease is an actor's, for a run without a live owner, or
    the owner's, which executes nothing of the run."""
    row = lease.row
    if history.rollback is not None:
        raise UsageError(f"run {row.run_id!r} is being rolled back, and that cannot be cancelled")
    drafts, keys = _left_open(lease, history, at_us)
    doubts = history.open_doubts()
    changes: dict[str, Any] = {"waiting_on": None, "wake_us": None, "heard": None}
    told = {"actor": actor, "reason": reason}
    if not doubts:
        drafts.append(draft(Kind.RUN_CANCELLED, at_us, told))
        posts = to_children(row, children, actor, "cancelled", at_us)
        posts += to_parent(row, drafts, at_us)
        return Write(lease, drafts, row=changes, changes=[*keys, *posts, *RUN_ENDS])
    if history.cancel is None:
        drafts.append(draft(Kind.CANCEL_REQUESTED, at_us, told))
    if history.status is not Status.HELD or held_reason(history) != HeldReason.IN_DOUBT:
        step = doubts[0].key
        held = {
            "reason": HeldReason.IN_DOUBT.value,
            "detail": f"{step} may or may not have happened; the run is cancelled when that is "
            "settled",
            "step": step,
            "actions": list(settle_actions(row.run_id, step)),
        }
        drafts.append(draft(Kind.RUN_HELD, at_us, held))
        changes["held_reason"] = HeldReason.IN_DOUBT.value
    else:
        changes = {}
    return Write(lease, drafts, row=changes, changes=keys)


def pause_write(
    lease: Lease, history: History | None, actor: str, reason: str, at_us: int
) -> Write:
    """Return the write that holds a run until somebody resumes it. The run's owner, which executes
    nothing of it, passes no history unless an earlier owner may have left effects open."""
    row = lease.row
    drafts: list[Any] = []
    keys: list[SetKey] = []
    if history is not None:
        check_pause(row, history)
        drafts, keys = _left_open(lease, history, at_us)
    held = {
        "reason": HeldReason.PAUSED.value,
        "detail": f"paused by {actor}{reason and ': ' + reason}",
        "step": row.current_step or "",
        "actions": [command("resume", row.run_id)],
    }
    drafts.append(draft(Kind.RUN_HELD, at_us, {**held, "actor": actor}))
    changes = {
        "held_reason": HeldReason.PAUSED.value,
        "waiting_on": None,
        "wake_us": None,
        "heard": None,
    }
    return Write(lease, drafts, row=changes, changes=keys)


def check_pause(row: RunRow, history: History) -> None:
    """Refuse to pause a run that is not going to continue."""
    if row.status in ENDED:
        raise RunEnded(row.run_id, row.status, "a pause")
    if row.status is Status.HELD:
        told = {} if history.held is None else facts(history.held)
        actions = tuple(told.get("actions", ()))
        raise RunHeld(row.run_id, row.held_reason or "held", str(told.get("detail", "")), actions)


def requested(history: History) -> tuple[str, str] | None:
    """Return the actor and reason of a cancel that waits for a doubt to be settled, or None."""
    if history.cancel is None or history.status in FINAL:
        return None
    told = facts(history.cancel)
    return str(told.get("actor", "")), str(told.get("reason", ""))


def _left_open(lease: Lease, history: History, at_us: int) -> tuple[list[Any], list[SetKey]]:
    """Return the entries for what a dead owner left open: an actor's write succeeds only if the
    owner is dead, and an owner knows the state that earlier owners left."""
    if not lease.acting:
        return doubts_of_former_owners(history, at_us)
    return doubts_of_the_dead(history, at_us) if lease.row.owner is not None else ([], [])


def to_children(
    row: RunRow, children: Sequence[str], actor: str, became: str, at_us: int
) -> list[PostMessage]:
    """Return the request that stops the children of a run because of the run's new state."""
    reason = f"its parent, run {row.run_id!r}, was {became}"
    name = f"{CANCEL}:{row.run_id}:{row.generation}:{became}"
    return [PostMessage(child, asked(CANCEL, name, actor, reason, at_us)) for child in children]


def started_after(history: History, to: str | None, children: Sequence[str]) -> list[str]:
    """Return the children that a rollback to a step concerns: those started after it. Without a
    step, return all."""
    if to is None or to not in history.records:
        return list(children)
    behind = history.records[to].last_seq
    started = {
        str(facts(record.begun)["run"])
        for record in history.records.values()
        if record.begun is not None
        and record.begun.kind is Kind.CHILD_STARTED
        and record.begun.seq > behind
    }
    return [child for child in children if child in started]
