"""The inbox: what people said to a run while this process had it.

Only the holder of the epoch appends to a journal. So a decision on a run that is at work elsewhere
is a message, and a process that has the run makes the entry of it:

    carried_out   in the transaction that gives the run back
    obey          after a claim, before the journal is read
    absorb        on a run that nobody has and nobody claims by itself: held ones

The first two leave no moment in which another process could claim the run again, so what stops a run
takes effect within two claims, whatever the length of its journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.decisions import control, resume
from holdfast._engine.journal.changes import PostMessage, SetKey, TakeMessage
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import ENDED, ClaimedBecause, HeldReason, Status
from holdfast._engine.journal.rows import OPEN_KEYS, Change, Lease, Message, RunRow, Write
from holdfast._engine.scripts.doubt import key_token
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import inbox_poller, log as logs
from holdfast._runtime.execution.run_end import Ending
from holdfast._runtime.feature import installed
from holdfast._stores.contract import Committed
from holdfast._stores.families import open_children
from holdfast.errors import (
    HoldfastError,
    LeaseLost,
    RunCancelled,
    RunError,
    RunHeld,
    UsageError,
)

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.execution import Execution


TRIES = 20
HELD_ON_KEY = "key:"
KEYS = 200
"""How many keys that runs are held on are looked at in one round."""
DECISIONS = frozenset({"settle", *control.MESSAGES})
"""Messages that are decisions about a run, besides those of features."""
TAKEN_OVER = (ClaimedBecause.OWNER_DEAD, ClaimedBecause.LEASE_EXPIRED)
GOES_ON = frozenset({Kind.RUN_RELEASED, Kind.RUN_WAITING})
"""Entries by which an execution gives a run back for others to go on."""


def absorb(engine: Engine, run_id: str) -> None:
    """Make entries of the messages of a run that was just given back."""
    for _ in range(TRIES):
        row = engine.backend.get(run_id)
        if row is None or row.owner is not None or row.status in ENDED:
            return
        if row.held_reason == HeldReason.MOVED:
            return  # Its messages go along with the next move.
        # Others, such as signals, wait for the run itself.
        messages = [it for it in engine.backend.inbox(row.run_no) if _decides(it)]
        try:
            lease = Lease(row, acting=True)
            write = _write(engine, lease, messages[0]) if messages else _cancel(engine, lease)
            if write is None:
                return
        except HoldfastError as error:
            logs.warning("a message to run %s cannot be taken in: %s", run_id, error)
            return
        if not isinstance(engine.backend.append([write])[0], Committed):
            continue  # Somebody else was quicker: look again.
        engine.wrote(write)
        reach_children(engine, write.changes)
        free_waiting(engine, write)


def reach_children(engine: Engine, changes: Sequence[Change]) -> None:
    """Children were asked to stop: one that nobody has, a held one too, takes it in now; others when
    they are given back or claimed."""
    for change in changes:
        if isinstance(change, PostMessage) and change.message.kind == control.CANCEL:
            absorb(engine, change.run_id)


# -- runs that are held on the key of another --------------------------------------------------


def free_waiting(engine: Engine, write: Write) -> None:
    """Release the runs that are held on keys which a write has settled. A held run looks at the
    key once more after that is written, so one of the two sees the other."""
    for change in write.of(SetKey):
        if change.state != "in_doubt":
            for row in engine.backend.waiting_on(key_token(change.effect, change.key)):
                _free(engine, row)


def free_if_settled(engine: Engine, row: RunRow) -> None:
    """Release a run that was just held on the key of another run, if that is settled by now."""
    token = row.waiting_on or ""
    if row.status is Status.HELD and token.startswith(HELD_ON_KEY) and _is_settled(engine, token):
        _free(engine, row)


def free_all_settled(engine: Engine, after: str) -> str:
    """Release runs that are held on keys which are settled. Who settled a key, or was held on it, may
    have died before it could do so. Looks at so many keys; returns behind which to look next."""
    tokens = engine.backend.held_on(HELD_ON_KEY, after, KEYS)
    for token in tokens:
        if _is_settled(engine, token):
            for row in engine.backend.waiting_on(token):
                _free(engine, row)
    return tokens[-1] if len(tokens) == KEYS else ""


def _is_settled(engine: Engine, token: str) -> bool:
    _, effect, name = token.split(":", 2)
    key = engine.backend.key(effect, name)
    return key is None or key.state not in OPEN_KEYS


def _free(engine: Engine, row: RunRow) -> None:
    if row.status is not Status.HELD or engine.load(row, whole=True).open_doubts():
        return  # It moves by itself, or has a doubt of its own.
    body = msgspec.json.encode({"why": "key_settled", "actor": "holdfast"})
    released = Draft(Kind.RUN_RELEASED, engine.now_us(), body=body)
    write = Write(Lease(row, acting=True), [released], row={"waiting_on": None})
    if isinstance(engine.backend.append([write])[0], Committed):
        engine.wrote(write)


def _cancel(engine: Engine, lease: Lease) -> Write | None:
    """Return the write of a cancel that waited for a doubt, if there is one and the doubt is gone."""
    history = engine.load(lease.row, whole=True)
    who = control.requested(history)
    if who is None or history.open_doubts():
        return None
    children = open_children(engine.backend, lease.row.run_id)
    return control.cancel_write(lease, history, children, *who, engine.now_us())


# -- the owner decides -------------------------------------------------------------------------


def obey(engine: Engine, lease: Lease) -> list[Message]:
    """Carry out what stops a run that was just claimed, before its journal is read for execution.
    Returns what else its inbox has; raises RunHeld or RunCancelled if the run goes no further."""
    found = engine.backend.inbox(lease.row.run_no)
    left = [message for message in found if not _stops(message)]
    for message in found:
        if _stops(message):
            _given_back(engine, _write(engine, lease, message), found)
    return left


def cancel_if_requested(engine: Engine, lease: Lease, history: History) -> None:
    """Cancel a run that was just claimed, if that was asked for and waited for a doubt which is
    settled now; raises RunCancelled."""
    if control.requested(history) is not None and not history.open_doubts():
        write = _cancel(engine, lease)
        if write is not None:
            _given_back(engine, write, ())


def _given_back(engine: Engine, write: Write, messages: Sequence[Message]) -> None:
    """Commit a decision of the owner; raise what became of the run, unless it goes on."""
    lease = write.lease
    if not isinstance(engine.backend.append([write])[0], Committed):
        raise LeaseLost(lease.row.run_id)
    engine.wrote(write)
    if lease.row.owner is not None:
        return  # The message came too late: it is only taken.
    reach_children(engine, write.changes)
    taken = {change.message_id for change in write.of(TakeMessage)}
    if any(_decides(it) and it.message_id not in taken for it in messages):
        absorb(engine, lease.row.run_id)
    told: dict[str, Any] = msgspec.json.decode(write.drafts[-1].body)
    if write.drafts[-1].kind is Kind.RUN_CANCELLED:
        raise RunCancelled(lease.row.run_id, told["actor"], told["reason"])
    why = (told["reason"], told["detail"], tuple(told["actions"]))
    raise RunHeld(lease.row.run_id, *why, step=told["step"])


def carried_out(execution: Execution, end: Ending) -> Ending:
    """Return how an execution ends: one that would release its run carries out the stop requests that it
    knows of, in the same write."""
    message = execution.inbox.first(_ends)
    if message is None or not end.drafts or end.drafts[-1].kind not in GOES_ON:
        return end
    engine = execution.engine
    ticket = execution.recorder.write(
        []
    )  # Everything that was queued before is in the journal now.
    engine.committer.wait(ticket)
    execution.recorder.settled(ticket)
    try:
        has_open = bool(execution.history.open_doubts())
        write = _write(engine, execution.lease, message, has_open=has_open)
    except HoldfastError as error:
        text = "run %s is released, and a message to it is left to the next claim: %s"
        logs.warning(text, execution.run_id, error)
        return end
    if not write.drafts:  # It came too late.
        return msgspec.structs.replace(end, changes=[*end.changes, *write.changes])
    return msgspec.structs.replace(
        end,
        drafts=write.drafts,
        row=write.row,
        changes=[*(it for it in end.changes if isinstance(it, TakeMessage)), *write.changes],
        tells_parent=False,
        asked=isinstance(end.error, HoldfastError),
    )


def _stops(message: Message) -> bool:
    """Return whether a message is one that stops a run."""
    decision = installed.decisions.get(message.kind)
    return message.kind in control.MESSAGES if decision is None else decision.stops(message)


def _ends(message: Message) -> bool:
    """Return whether a message takes the place of giving the run back."""
    decision = installed.decisions.get(message.kind)
    return _stops(message) or (decision is not None and decision.at_end)


def _decides(message: Message) -> bool:
    """Return whether a message is a decision about a run, and not meant for its flow."""
    return message.kind in DECISIONS or message.kind in installed.decisions


def stop(execution: Execution, message: Message) -> None:
    """Stop a run at work at its next durable call: somebody wants it cancelled or paused. One that
    is being rolled back is not cancelled half way."""
    if message.kind == control.CANCEL and execution.history.rollback is not None:
        return
    told = RunError(execution.run_id, f"run {execution.run_id!r} is asked to {message.kind}")
    execution.stop(Unwind(told, released=message.kind), later=True)


inbox_poller.handlers.update(dict.fromkeys(control.MESSAGES, stop))


def _write(engine: Engine, lease: Lease, message: Message, *, has_open: bool = False) -> Write:
    """Return the write that takes one message in; one that no longer fits is only taken. The lease is
    that of the owner, who executes nothing of the run, or of an actor on a run that nobody has."""
    row, at_us = lease.row, engine.now_us()
    try:
        write = _decision(engine, lease, message, at_us, has_open=has_open)
    except (UsageError, RunError) as error:
        logs.warning("a decision on run %s came too late: %s", row.run_id, error)
        write = Write(lease, [])
    write.changes = [*write.changes, TakeMessage(message.message_id)]
    return write


def _decision(
    engine: Engine, lease: Lease, message: Message, at_us: int, *, has_open: bool = False
) -> Write:
    """Return what a message means for a run as it stands now. With `has_open`, its owner found effects
    that owners before it left open."""
    row = lease.row
    facts: dict[str, Any] = msgspec.json.decode(message.body)
    if message.kind == control.PAUSE and not lease.acting:
        # Its owner, who executes nothing of it, needs no history for that, unless it took the run over.
        past = engine.load(row, whole=True) if has_open else _taken_over(engine, row)
        return control.pause_write(lease, past, message.actor, facts["reason"], at_us)
    history = engine.load(row, whole=True)
    if message.kind == control.PAUSE:
        return control.pause_write(lease, history, message.actor, facts["reason"], at_us)
    if message.kind == control.CANCEL:
        children = open_children(engine.backend, row.run_id)
        told = (message.actor, facts["reason"], at_us)
        return control.cancel_write(lease, history, children, *told)
    if message.kind == "settle":
        result = msgspec.json.encode(facts["result"]) if "result" in facts else None
        said = (facts["step"], facts["outcome"], result, facts.get("reason"))
        drafts, keys = resume.settle_drafts(history, *said, message.actor, message.at_us)
        changes = {"waiting_on": None} if history.status is Status.HELD else {}
        return Write(lease, drafts, row=changes, changes=keys)
    decision = installed.decisions.get(message.kind)
    write = None if decision is None else decision.write(engine, lease, history, message, at_us)
    return write or Write(lease, [])


def _taken_over(engine: Engine, row: RunRow) -> History | None:
    """Return the history of a run whose last entry says that it was taken from an owner that did not
    give it back: that one may have left effects open. Not if it left nothing but its claim: it may
    have died of reading the history, and a pause takes effect within two claims."""
    last = engine.backend.entry(row.run_no, row.last_seq)
    if last is None or last.kind is not Kind.RUN_CLAIMED:
        return None
    if msgspec.json.decode(last.body).get("why") not in TAKEN_OVER:
        return None
    before = engine.backend.entry(row.run_no, last.first_seq - 1)
    if before is not None and before.kind is Kind.RUN_CLAIMED:
        return None
    try:
        return engine.load(row, whole=True)
    except HoldfastError as error:
        logs.warning("run %s is paused, and its history cannot be read: %s", row.run_id, error)
        return None
