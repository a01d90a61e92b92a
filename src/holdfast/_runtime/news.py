"""What the log says of a run that a worker takes and of how its execution ended.

Texts of errors may hold anything that the run worked with, so they are not logged: the line names the
type and the command that shows the rest.
"""

from __future__ import annotations

from holdfast._core.commands import command
from holdfast._core.rows import RunRow
from holdfast._runtime import logs
from holdfast.errors import (
    HoldfastError,
    RunCancelled,
    RunFailed,
    RunHeld,
    RunRolledBack,
    StepFailed,
)


def taken(row: RunRow) -> None:
    """A run was claimed, for the first time or once more."""
    if row.epoch > 1:
        logs.info("run %s of %s is taken up again", row.run_id, row.flow, about=row)
    else:
        logs.debug("run %s of %s is taken", row.run_id, row.flow, about=row)


def asks_people(row: RunRow) -> None:
    """A run waits in this process for what a person says: whoever looks at it must not wonder."""
    how = command("questions", "--run", row.run_id, values=0)
    logs.warning("run %s of %s waits for a person; see: %s", row.run_id, row.flow, how, about=row)


def completed(row: RunRow) -> None:
    """A run came to its end."""
    logs.info("run %s of %s completed", row.run_id, row.flow, about=row)


def given_back(row: RunRow, why: str) -> None:
    """A run was stopped here and may go on elsewhere."""
    logs.info("run %s is given back: %s", row.run_id, why, about=row)


def ended(row: RunRow, error: BaseException) -> None:
    """Say what came out of a run, if it is not its result."""
    who = (row.run_id, row.flow)
    if isinstance(error, RunHeld):
        at = f" at {error.step}" if error.step else ""
        fields = {"reason": error.reason} | ({"step": error.step} if error.step else {})
        text = "run %s of %s is held (%s)%s; see: %s"
        logs.warning(text, *who, error.reason, at, _explain(row), about=row, **fields)
    elif isinstance(error, RunFailed):
        cause = error.__cause__
        of_step = cause if isinstance(cause, StepFailed) else None
        name = error.type_name if of_step is None else of_step.type_name
        fields = {"exception": name} | ({} if of_step is None else {"step": of_step.step})
        text = "run %s of %s failed: %s; see: %s"
        logs.warning(text, *who, name, _explain(row), about=row, **fields)
    elif isinstance(error, RunRolledBack):
        logs.info("run %s of %s was rolled back", *who, about=row)
    elif isinstance(error, RunCancelled):
        logs.warning("run %s of %s was cancelled", *who, about=row)
    elif isinstance(error, HoldfastError):
        logs.warning("run %s: %s", row.run_id, error, about=row)
    elif isinstance(error, Exception):
        logs.failure("run %s could not be executed", row.run_id, error=error, about=row)
    else:
        text = "run %s was interrupted by %s"
        logs.warning(text, row.run_id, type(error).__name__, about=row)


def _explain(row: RunRow) -> str:
    return command("explain", row.run_id)
