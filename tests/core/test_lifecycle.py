"""The table of a run's life: every status and every kind of entry."""

import pytest

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import (
    CLAIMABLE,
    ENDED,
    FINAL,
    STEP_KINDS_WAKE,
    TABLE,
    Status,
    next_status,
    status_of,
)

Q, R, W, H = Status.QUEUED, Status.RUNNING, Status.WAITING, Status.HELD
C, F, X, B = Status.COMPLETED, Status.FAILED, Status.CANCELLED, Status.ROLLED_BACK

# Written out by hand a second time: what the design says, not what the table says.
LEGAL: dict[Kind, dict[Status | None, Status]] = {
    Kind.RUN_STARTED: {None: Q},
    Kind.RUN_CLAIMED: {Q: R, R: R, W: R},
    Kind.RUN_WAITING: {R: W, W: W},
    Kind.RUN_RELEASED: {Q: Q, R: Q, W: Q, H: Q},
    Kind.RUN_HELD: {Q: H, R: H, W: H, H: H, F: H},
    Kind.RUN_RESUMED: {F: Q, H: Q, R: Q},
    Kind.RUN_COMPLETED: {R: C, W: C},
    Kind.RUN_FAILED: {R: F, W: F},
    Kind.RUN_CANCELLED: {Q: X, R: X, W: X, H: X, F: X},
    Kind.ROLLBACK_REQUESTED: {Q: Q, R: Q, W: Q, H: Q, F: Q, C: Q, X: Q},
    Kind.RUN_ROLLED_BACK: {R: B, W: B},
}
STATUSES = [None, *Status]


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind in TABLE])
@pytest.mark.parametrize("status", STATUSES)
def test_entries_of_the_run_change_its_status_or_are_illegal(status, kind):
    expected = LEGAL[kind].get(status)
    if expected is None:
        with pytest.raises(AssertionError, match=kind.value):
            next_status(status, kind)
    else:
        assert next_status(status, kind) is expected


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in TABLE])
@pytest.mark.parametrize("status", STATUSES)
def test_entries_of_steps_leave_it_as_it_is(status, kind):
    if status is None or status in FINAL:
        with pytest.raises(AssertionError, match=kind.value):
            next_status(status, kind)
    elif status is W and kind in STEP_KINDS_WAKE:
        assert next_status(status, kind) is R
    else:
        assert next_status(status, kind) is status


def test_every_status_can_be_reached():
    assert set(Status) == {leads_to for _, leads_to in TABLE.values()}


def test_final_is_final_but_for_an_explicit_rollback():
    assert FINAL < ENDED
    assert not CLAIMABLE & ENDED
    for status in FINAL:
        for kind in set(Kind) - {Kind.ROLLBACK_REQUESTED}:
            with pytest.raises(AssertionError):
                next_status(status, kind)


def test_a_history_says_its_status():
    life = [Kind.RUN_STARTED, Kind.RUN_CLAIMED, Kind.STEP_COMPLETED]
    assert status_of(life) is R
    assert status_of([*life, Kind.RUN_WAITING, Kind.STEP_STARTED]) is R
    assert status_of([*life, Kind.RUN_FAILED, Kind.RUN_RESUMED]) is Q
    with pytest.raises(AssertionError, match="begins with run_started"):
        status_of([])
    with pytest.raises(AssertionError, match="before run_started"):
        status_of([Kind.STEP_STARTED])
