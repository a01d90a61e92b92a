"""A run that is given back while its user code still works: the end of a worker waits no longer.

Nobody can stop a thread. But what it does in a plain step has no effect that counts: whoever takes the
run up executes the step anew, and what the thread brings later is refused by the store. An effect at
work is another matter: the run stays as it is, and whoever takes it up finds it in doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._engine.decisions.control import MESSAGES
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Lease
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import log as logs
from holdfast._runtime.execution.inbox import absorb
from holdfast.errors import LeaseLost

if TYPE_CHECKING:
    from holdfast._runtime.commit.committer import Ticket
    from holdfast._runtime.execution.execution import Execution


def let_go(execution: Execution) -> bool:
    """Give a run back while a plain step of it is at work. False if it is left to its lease: an
    effect is at work, or it cannot be written."""
    engine, lease = execution.engine, execution.lease
    asked = execution.stopped is not None and execution.stopped.released in MESSAGES
    ticket = _released(execution)
    if ticket is None:
        return False
    try:
        engine.committer.wait(ticket)
        execution.recorder.settled(ticket)
    except BaseException as error:
        if not isinstance(error, Exception | Unwind):
            raise
        logs.warning("run %s could not be given back: %s", execution.run_id, error)
        engine.abandon(lease)
        return False
    finally:
        engine.leave(execution)
    if asked:
        absorb(engine, execution.run_id)
    return True


def _released(execution: Execution) -> Ticket | None:
    """Queue the run's last entry, and cut its user code off from the journal: nothing that it asks
    for after this is written, since its lease is that of a row which is no more."""
    with execution.lock:
        at_work = (
            execution.recorder.intents
            or execution.recorder.parks
            or execution.history.rollback is not None
        )
        if at_work or execution.fenced:
            return None
        row = msgspec.structs.replace(execution.lease.row)
        body = msgspec.json.encode(
            {"why": "drained", "at_work": sorted(execution.recorder.open_calls)}
        )
        draft = Draft(Kind.RUN_RELEASED, execution.engine.now_us(), body=body)
        ticket = execution.recorder.write([draft])
        execution.lease = Lease(row)
        execution.stopped = Unwind(LeaseLost(execution.run_id))
        return ticket
