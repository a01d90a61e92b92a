"""The state machine of a run: one table says which entry is legal in which status, and where it leads.

    queued → running → waiting → … → completed | failed | cancelled | rolled_back, and held

No code sets a status: it follows from the last entry that appears in `TABLE`. So
`status_of(history)` and the `status` column of `runs` can be compared at any time.

There is no dead letter queue to which a run is moved. A run that nobody can continue stays where it is,
as `failed` or `held` with a reason, and an operator resumes, settles or cancels it.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from holdfast._engine.journal.entries import WAIT_ENDS, Kind


class Status(StrEnum):
    """Where a run is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    HELD = "held"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"


class HeldReason(StrEnum):
    """Why a run waits for a decision."""

    IN_DOUBT = "in_doubt"
    BUDGET = "budget"
    DIVERGED = "diverged"
    DRIFT = "drift"
    CORRUPT = "corrupt"
    QUARANTINED = "quarantined"
    PAUSED = "paused"
    MOVED = "moved"
    """It goes on in another store."""


class ClaimedBecause(StrEnum):
    """Why a run could be claimed: what is known about its former owner."""

    STARTED = "started"
    FREE = "free"
    OWN = "own"
    OWNER_DEAD = "owner_dead"
    LEASE_EXPIRED = "lease_expired"


FINAL = frozenset({Status.COMPLETED, Status.CANCELLED, Status.ROLLED_BACK})
ENDED = FINAL | {Status.FAILED}
CLAIMABLE = frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING})
"""The statuses of runs that a worker may claim."""

_NEW: frozenset[Status | None] = frozenset({None})
_LIVE: frozenset[Status | None] = frozenset({Status.RUNNING, Status.WAITING})
_OPEN: frozenset[Status | None] = frozenset(
    {Status.QUEUED, Status.RUNNING, Status.WAITING, Status.HELD}
)

TABLE: dict[Kind, tuple[frozenset[Status | None], Status]] = {
    Kind.RUN_STARTED: (_NEW, Status.QUEUED),
    Kind.RUN_CLAIMED: (frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING}), Status.RUNNING),
    Kind.RUN_WAITING: (frozenset({Status.RUNNING, Status.WAITING}), Status.WAITING),
    Kind.RUN_RELEASED: (_OPEN, Status.QUEUED),
    Kind.RUN_HELD: (_OPEN | {Status.FAILED}, Status.HELD),
    # A running run that is rolled back to a step enters its next generation.
    Kind.RUN_RESUMED: (frozenset({Status.FAILED, Status.HELD, Status.RUNNING}), Status.QUEUED),
    Kind.RUN_COMPLETED: (_LIVE, Status.COMPLETED),
    Kind.RUN_FAILED: (_LIVE, Status.FAILED),
    Kind.RUN_CANCELLED: (_OPEN | {Status.FAILED}, Status.CANCELLED),
    # A rollback was requested: the run is taken up once more for that.
    Kind.ROLLBACK_REQUESTED: (
        _OPEN | {Status.FAILED, Status.COMPLETED, Status.CANCELLED},
        Status.QUEUED,
    ),
    Kind.RUN_ROLLED_BACK: (_LIVE, Status.ROLLED_BACK),
}
"""kind -> (statuses in which it is legal, the status it leads to)."""

STEP_KINDS_WAKE = (
    frozenset({Kind.STEP_STARTED, Kind.STEP_COMPLETED, Kind.STEP_FAILED, Kind.SKIPPED_DUPLICATE})
    | WAIT_ENDS
)
"""An entry of a working step, or of an ended wait, ends the waiting."""


def next_status(status: Status | None, kind: Kind) -> Status:
    """Return the status after an entry of this kind; an illegal one is a bug of Holdfast."""
    rule = TABLE.get(kind)
    if rule is None:
        assert status is not None, f"{kind} before run_started"
        assert status not in FINAL, f"{kind} after the end ({status})"
        if status is Status.WAITING and kind in STEP_KINDS_WAKE:
            return Status.RUNNING
        return status
    legal, leads_to = rule
    assert status in legal, f"{kind} is not legal in status {status}"
    return leads_to


def status_of(kinds: Iterable[Kind]) -> Status:
    """Return the status that a history says."""
    status: Status | None = None
    for kind in kinds:
        status = next_status(status, kind)
    assert status is not None, "a history begins with run_started"
    return status
