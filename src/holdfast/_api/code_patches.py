"""Changes inside a flow: `patched("id")` tells whether a run takes the new way or the old one.

    if holdfast.versioning.patched("check first"):
        check(order)
    charge(order)

A run that was past this place before the change replays the old way for ever; every other run takes
the new one, and records so when it comes to this place. When no old run is left, the question and the
old way are taken out of the code; the marker in the newer runs needs nobody to ask for it.
"""

from __future__ import annotations

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.step_keys import check_label, marker
from holdfast._runtime.execution.frames import check_owner, in_flow


def patched(change: str, /) -> bool:
    """Inside a flow: True if this run has the change, False if it was past this place without it."""
    frame = in_flow("holdfast.versioning.patched(…)")
    check_owner(frame, "patched")
    check_label("the id of a change", change)
    execution, scope = frame.execution, frame.scope
    execution.check()
    history = execution.history
    key = scope.take_key(marker(change))
    if key in history.records:
        if key in history.old and key not in execution.replay.consumed:
            execution.replay.unreplayed -= 1
        execution.replay.consumed.add(key)
        return True
    if execution.ended or history.goes_beyond(
        scope.path, scope.position, execution.replay.consumed
    ):
        return False
    with execution.lock:
        body = b'{"value":%b}' % execution.values.encode(True, "patched")
        draft = Draft(Kind.VALUE_RECORDED, execution.engine.now_us(), key, body=body)
        execution.recorder.write([draft], lazily=True)
    return True
