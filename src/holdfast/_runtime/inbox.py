"""The inbox: what people said to a run while this process had it.

Only the holder of the epoch appends to a journal. So a decision on a run that is at work elsewhere
is a message, and the process that has the run makes the entry of it when it gives the run back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._core import control, findings, resume, rollback
from holdfast._core.lifecycle import ENDED, Status
from holdfast._core.rows import Lease, Message, RunRow, Write
from holdfast._core.stops import Unwind
from holdfast._runtime import logs, mail, patrol
from holdfast._runtime.admission import load
from holdfast._runtime.spending import BUDGET_RAISED, budget_raised
from holdfast._store.contract import Committed
from holdfast._store.families import open_children
from holdfast.errors import HoldfastError, RunError, UsageError

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution import Execution


TRIES = 20
DECISIONS = frozenset({"settle", "rollback", findings.FINDING, *control.MESSAGES})
"""What is said about a run, and not to it."""


def absorb(engine: Engine, run_id: str) -> None:
    """Make entries of the messages of a run that was just given back."""
    for _ in range(TRIES):
        row = engine.kept.get(run_id)
        if row is None or row.owner is not None or row.status in ENDED:
            return
        # Others, such as signals, wait for the run itself.
        messages = [it for it in engine.kept.inbox(row.run_no) if it.kind in DECISIONS]
        try:
            write = _write(engine, row, messages[0]) if messages else _cancel(engine, row)
            if write is None:
                return
        except HoldfastError as error:
            logs.warning("a message to run %s cannot be taken in: %s", run_id, error)
            return
        if not isinstance(engine.kept.append([write])[0], Committed):
            continue  # Somebody else was quicker: look again.
        engine.wrote(write)
        for post in write.posts:
            if post.message.kind == control.CANCEL:
                # A child that nobody has, a held one too, takes it in now; others when they stop.
                absorb(engine, post.run_id)


def _cancel(engine: Engine, row: RunRow) -> Write | None:
    """Return the write of a cancel that waited for a doubt, if there is one and the doubt is gone."""
    history = load(engine, row, whole=True)
    who = control.requested(history)
    if who is None or history.open_doubts():
        return None
    return control.cancel_write(
        row, history, open_children(engine.kept, row.run_id), *who, engine.now_us()
    )


def stop(execution: Execution, message: Message) -> None:
    """Stop a run at work at its next durable call: somebody wants it cancelled or paused. One that
    is being rolled back is not cancelled half way."""
    if message.kind == control.CANCEL and execution.history.rollback is not None:
        return
    told = RunError(execution.run_id, f"run {execution.run_id!r} is asked to {message.kind}")
    execution.stop(Unwind(told, released=message.kind), later=True)


mail.handlers.update(dict.fromkeys(control.MESSAGES, stop))
mail.handlers[findings.FINDING] = patrol.take_in


def _write(engine: Engine, row: RunRow, message: Message) -> Write:
    """Return the write that takes one message in; one that no longer fits is only taken."""
    lease = Lease(row, acting=True)
    history = load(engine, row, whole=True)
    facts: dict[str, Any] = msgspec.json.decode(message.body)
    try:
        if message.kind == control.CANCEL:
            children = open_children(engine.kept, row.run_id)
            write = control.cancel_write(
                row, history, children, message.actor, facts["reason"], engine.now_us()
            )
            write.took = [message.message_id]
            return write
        if message.kind == control.PAUSE:
            write = control.pause_write(
                row, history, message.actor, facts["reason"], engine.now_us()
            )
            write.took = [message.message_id]
            return write
        if message.kind == findings.FINDING:
            entries, children = engine.kept.load(row), open_children(engine.kept, row.run_id)
            write = findings.finding_write(
                row, history, entries, children, findings.read(message), engine.now_us()
            )
            write.took = [message.message_id]
            return write
        if message.kind == "rollback" and history.rollback is None:
            wanted = msgspec.json.decode(message.body, type=rollback.Wanted)
            at_us = engine.now_us()
            asked = rollback.requested(history, wanted, at_us)
            changes = {"waiting_on": None, "wake_us": None, "heard": None}
            write = Write(lease, [asked], changes=changes, took=[message.message_id], closes=["*"])
            stopped = control.started_after(
                history, wanted.to, open_children(engine.kept, row.run_id)
            )
            write.posts = control.to_children(row, stopped, wanted.actor, "rolled back", at_us)
            return write
        if message.kind == "settle":
            result = msgspec.json.encode(facts["result"]) if "result" in facts else None
            drafts, keys = resume.settle_drafts(
                history,
                facts["step"],
                facts["as"],
                result,
                facts.get("reason"),
                message.actor,
                message.at_us,
            )
            changes = {"waiting_on": None} if history.status is Status.HELD else {}
            return Write(lease, drafts, changes=changes, keys=keys, took=[message.message_id])
        if message.kind == BUDGET_RAISED:
            return Write(lease, [budget_raised(message)], took=[message.message_id])
    except (UsageError, RunError) as error:
        logs.warning("a decision on run %s came too late: %s", row.run_id, error)
    return Write(lease, [], took=[message.message_id])
