"""What a run was asked to do by people and has not done yet: to be cancelled, to be held, or to be
rolled back."""

from __future__ import annotations

import datetime as dt

import msgspec

from holdfast._core.control import CANCEL, PAUSE
from holdfast._core.entries import Kind
from holdfast._core.history import History
from holdfast._core.keys import is_undo
from holdfast._core.lifecycle import CLAIMABLE, FINAL, Status
from holdfast._core.rows import RunRow
from holdfast._store.contract import Store
from holdfast.errors import Corrupt

_WHAT = {CANCEL: "cancelled", PAUSE: "held", "rollback": "rolled back"}
_BETWEEN = frozenset(
    {Kind.RUN_CLAIMED, Kind.RUN_RELEASED, Kind.RUN_RESUMED, Kind.RUN_HELD, Kind.STEP_SETTLED}
)
"""What may stand behind the request of a rollback, or behind an undo, while it is not ended."""
BEHIND = 10
"""How many such entries are looked behind."""


class StoppingView(msgspec.Struct, frozen=True):
    """A request to stop a run that is on its way to the process that has it."""

    what: str
    """"cancelled", "held" or "rolled back"."""
    actor: str
    at: dt.datetime
    reason: str = ""


def stopping(store: Store, row: RunRow) -> StoppingView | None:
    """Return what was asked first and not carried out; a cancel before a pause. None if nothing was,
    or if the run has ended."""
    if row.status in FINAL:
        return None
    try:
        asked = [message for message in store.inbox(row.run_no) if message.kind in _WHAT]
    except Corrupt:
        return None  # What is damaged is told elsewhere; the rest of the run can be seen.
    for message in sorted(asked, key=lambda it: (it.kind != CANCEL, it.number)):
        reason = str(msgspec.json.decode(message.body, type=dict[str, object]).get("reason") or "")
        at = dt.datetime.fromtimestamp(message.at_us / 1e6, dt.UTC)
        return StoppingView(_WHAT[message.kind], message.actor, at, reason)
    return None


def rolls_back(store: Store, row: RunRow, past: History | None = None) -> bool:
    """Say whether a run is to be rolled back or is being rolled back: from its history if that was
    read, else from the end of its journal."""
    if row.status not in CLAIMABLE and row.status is not Status.HELD:
        return False
    if past is not None:
        return past.rollback is not None
    try:
        for seq in range(row.last_seq, max(1, row.last_seq - BEHIND), -1):
            entry = store.entry(row.run_no, seq)
            if entry is None or b'"rolled_back_to":' in entry.body:
                return False
            if entry.kind is Kind.ROLLBACK_REQUESTED or is_undo(entry.step or ""):
                return True
            if entry.kind not in _BETWEEN:
                return False
    except Corrupt:
        pass  # One damaged run is no reason to list none.
    return False


def us(at: dt.datetime) -> int:
    """Return a time in microseconds."""
    return round(at.timestamp() * 1e6)
