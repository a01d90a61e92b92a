"""What a run was asked to do by people and has not done yet: to be cancelled, or to be held."""

from __future__ import annotations

import datetime as dt

import msgspec

from holdfast._core.control import CANCEL, PAUSE
from holdfast._core.lifecycle import FINAL
from holdfast._core.rows import RunRow
from holdfast._store.contract import Store
from holdfast.errors import Corrupt

_WHAT = {CANCEL: "cancelled", PAUSE: "held"}


class StoppingView(msgspec.Struct, frozen=True):
    """A request to stop a run that is on its way to the process that has it."""

    what: str
    """"cancelled" or "held"."""
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


def us(at: dt.datetime) -> int:
    """Return a time in microseconds."""
    return round(at.timestamp() * 1e6)
