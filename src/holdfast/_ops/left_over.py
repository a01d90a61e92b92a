"""Runs that a deployment left behind: no live worker executes their version of the flow."""

from __future__ import annotations

from holdfast._ops import queues
from holdfast._ops.explanation import Case
from holdfast._ops.text import count
from holdfast._store.decisions import queue_of


def nobody_executes(case: Case) -> bool:
    """Say so if there are workers, and none of them would take this run."""
    row, alive = case.row, queues.workers(case.store)
    if not alive or any(worker.executes(row) for worker in alive):
        return False
    known = case.said.known
    versions = sorted({version for worker in alive for version in worker.flows.get(row.flow, ())})
    among = f"Of {count(len(alive), 'worker')}"
    if not versions:
        known.append(f"{among}, no worker alive has the flow {row.flow}.")
        case.do("Start a worker that has it:", "holdfast worker MODULE")
    elif row.version not in versions:
        known.append(
            f"{among}, no worker alive can run version {row.version} of {row.flow}; they run "
            f"{', '.join(versions)}."
        )
        case.do(
            "Start a worker with the code of that version; or, if newer code replays it, say so "
            f"there, @flow(…, accepts=({row.version!r},)), and start its workers again."
        )
    else:
        known.append(f"{among}, no worker alive takes from its queue, {queue_of(row)}.")
        case.do("Start a worker that does:", f"holdfast worker MODULE --queue {queue_of(row)}")
    return True
