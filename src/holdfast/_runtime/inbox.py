"""The inbox: what people said to a run while this process had it.

Only the holder of the epoch appends to a journal. So a decision on a run that is at work elsewhere
is a message, and the process that has the run makes the entry of it when it gives the run back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._core import resume
from holdfast._core.lifecycle import Status
from holdfast._core.rows import Lease, Message, RunRow, Write
from holdfast._runtime import logs
from holdfast._runtime.admission import load
from holdfast._store.contract import Committed
from holdfast.errors import HoldfastError, UsageError

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine


TRIES = 5


def absorb(engine: Engine, run_id: str) -> None:
    """Make entries of the messages of a run that was just given back."""
    for _ in range(TRIES):
        row = engine.kept.get(run_id)
        if row is None:
            return
        messages = engine.kept.inbox(row.run_no)
        if not messages or row.owner is not None:
            return
        try:
            write = _write(engine, row, messages[0])
        except HoldfastError as error:
            logs.warning("a message to run %s cannot be taken in: %s", run_id, error)
            return
        if not isinstance(engine.kept.append([write])[0], Committed):
            continue  # Somebody else was quicker: look again.


def _write(engine: Engine, row: RunRow, message: Message) -> Write:
    """Return the write that takes one message in; one that no longer fits is only taken."""
    lease = Lease(row, acting=True)
    history = load(engine, row, whole=True)
    facts: dict[str, Any] = msgspec.json.decode(message.body)
    try:
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
    except UsageError as error:
        logs.warning("a decision on run %s came too late: %s", row.run_id, error)
    return Write(lease, [], took=[message.message_id])
