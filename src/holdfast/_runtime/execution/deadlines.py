"""Deadlines: the timeout of a run. When it is over, the run is cancelled as by a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast._engine.decisions.control import CANCEL, DEADLINE, asked
from holdfast._engine.journal.history import History

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution

FACT = "deadline_us"


def of(history: History) -> int | None:
    """Return until when a run may take, as it was recorded at its start."""
    started = history.started
    if history.rollback is not None:
        return None  # What it did is being undone, and that has no deadline.
    if started is None or b'"deadline_us":' not in started.body:
        return None
    found = started.data().get(FACT)
    return None if found is None else int(msgspec.json.decode(found))


def expire(execution: Execution) -> None:
    """The time of a run at work is over: stop it as a cancel would."""
    engine = execution.engine
    reason = "its deadline has passed"
    message = asked(CANCEL, f"{CANCEL}:{DEADLINE}", DEADLINE, reason, engine.now_us())
    engine.kept.post(execution.run_id, message)
    execution.deadline_us = None
    execution.mail.refresh()
    execution.check()
