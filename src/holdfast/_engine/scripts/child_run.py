"""Child runs, or child workflows: a flow called inside a flow is a run, and its id follows from its place.

The parent records the start of the child, and later its end with the result: once, whatever dies in
between. The child's end is written together with a message to the parent, which wakes an unloaded
parent; a resumed parent reads the child's row itself. To cancel a child, its parent or an operator
posts a message to it (`decisions/control.py` does so for every child of a cancelled run).

    child_started ── StartChild ── Await ── ReadChild ── child_ended
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast._engine.journal.changes import PostMessage, TakeMessage
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Message, RunRow
from holdfast._engine.journal.step_keys import CHILD_SEPARATOR, RUN_ID_MAX_CHARS
from holdfast._engine.journal.step_record import CHILD_RUN, Record, facts
from holdfast._engine.scripts.attempts import marked
from holdfast._engine.scripts.requests import (
    Append,
    Await,
    ChildEnd,
    Decode,
    FindChild,
    Note,
    Now,
    ReadChild,
    Script,
    StartChild,
    StepCall,
    Wrote,
)
from holdfast._engine.scripts.step_script import check_renamed, find
from holdfast.errors import ChildFailed

CHILD = "child:"
LOOK_US = 2_000_000
"""How often a parent that waits in its process checks whether the child's process has died."""
ENDS = frozenset({Kind.RUN_COMPLETED, Kind.RUN_FAILED, Kind.RUN_CANCELLED, Kind.RUN_ROLLED_BACK})


def child_id(parent: str, key: str) -> str:
    """Return the ID of the child run that a call starts: the same on every replay."""
    made = f"{parent}{CHILD_SEPARATOR}{key}"
    if len(made) <= RUN_ID_MAX_CHARS:
        return made
    short = hashlib.blake2b(made.encode(), digest_size=16).hexdigest()
    root = parent.partition(CHILD_SEPARATOR)[0]
    room = RUN_ID_MAX_CHARS - len(CHILD_SEPARATOR) - len(short)
    return f"{root[:room]}{CHILD_SEPARATOR}{short}"


def start_script(call: StepCall, history: History, run_id: str, flow: str) -> Script:
    """Start a child, or continue a started one; return without waiting for its end."""
    record = find(call, history, sort=CHILD_RUN)
    if record is not None and record.has_outcome:
        return None
    if record is None:
        yield from check_renamed(call, history)
        # A child that failed before belongs to a superseded call: it is taken up again.
        again: int | None = yield FindChild(run_id)
        told: dict[str, Any] = {"run": run_id, "flow": flow}
        if again is not None:
            told["again"] = again
        yield Append(call, [Note(Kind.CHILD_STARTED, told)])
    else:
        again = _again(record)
    yield StartChild(call, run_id, again)
    return None


def end_script(call: StepCall, history: History, run_id: str, decode: Decode) -> Script:
    """Wait for the end of a started child, and record its result."""
    record = find(call, history, decode, CHILD_RUN)
    if record is not None and record.has_outcome:
        return _ended(call, record, decode)
    again = None if record is None else _again(record)
    while True:
        end: ChildEnd = yield ReadChild(run_id, again)
        if end.status is not None:
            break
        looks_us = None
        if not end.unloads:
            now_us: int = yield Now()
            looks_us = now_us + LOOK_US
        message: Message | None = yield Await(call, None, CHILD + run_id, looks_us)
        if message is None:
            yield StartChild(call, run_id, again)
    taken = [TakeMessage(message_id) for message_id in end.messages]
    if end.error is None:
        note = Note(Kind.CHILD_ENDED, {"run": run_id, "status": end.status}, {"value": end.value})
        wrote: Wrote = yield Append(call, [note], changes=taken)
        return wrote.value
    told = {"run": run_id, "status": end.status, "error": end.error}
    yield Append(call, [Note(Kind.CHILD_ENDED, told)], changes=taken)
    raise _failed(call, told)


def child_script(
    call: StepCall, history: History, run_id: str, flow: str, decode: Decode
) -> Script:
    """Start a child and wait for its end: a flow called inside a flow."""
    yield from start_script(call, history, run_id, flow)
    return (yield from end_script(call, history, run_id, decode))


def _again(record: Record) -> int | None:
    found: int | None = None if record.begun is None else facts(record.begun).get("again")
    return found


def _ended(call: StepCall, record: Record, decode: Decode) -> Any:
    assert record.outcome is not None
    data = record.outcome.data()
    if "error" in data:
        raise _failed(call, {name: msgspec.json.decode(raw) for name, raw in data.items()})
    return decode(bytes(data["value"] if "value" in data else data["result"]))


def _failed(call: StepCall, told: dict[str, Any]) -> BaseException:
    error = told["error"]
    failed = ChildFailed(told["run"], told["status"], error["type"], error["message"])
    return marked(failed, call.key)


def to_parent(row: RunRow, drafts: list[Draft], at_us: int) -> list[PostMessage]:
    """Return the message of a finished run to its parent."""
    if row.parent is None or not drafts or drafts[-1].kind not in ENDS:
        return []
    message_id = f"{CHILD}{row.run_id}#{row.generation}"
    return [
        PostMessage(row.parent, Message(message_id, CHILD + row.run_id, "holdfast", at_us, b"{}"))
    ]
