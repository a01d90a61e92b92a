"""Log lines about the runs that a worker takes, and about how their executions ended.

Texts of errors may hold anything that the run worked with, so they are not logged: the line names the
type and the command that shows the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast._engine.command_lines import command
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_keys import APPROVE
from holdfast._engine.scripts.stops import Waiting
from holdfast._engine.values.moments import at
from holdfast._runtime import log as logs
from holdfast.errors import (
    HoldfastError,
    RunCancelled,
    RunFailed,
    RunHeld,
    RunRolledBack,
    StepFailed,
)

if TYPE_CHECKING:
    from holdfast._stores.contract import Store

NAMED = 3
"""How many of the things that a run waits for are named."""

_WAITS = {
    "timer": "its time",
    "answer": "an answer to",
    "signal": "the signal",
    "child": "its child, run",
}
"""How people say what a run waits for; the name follows."""
_THEN = {
    "hold": "holds it for a person",
    "retry": "sends it again under the same key",
    "fail": "gives it up",
}
"""By what is declared for a doubt, what becomes of it."""


def claimed(row: RunRow) -> None:
    """A run was claimed, for the first time or once more."""
    if row.epoch > 1:
        logs.info("run %s of %s is taken up again", row.run_id, row.flow, about=row)
    else:
        logs.info("run %s of %s is taken", row.run_id, row.flow, about=row)


def tried_again(row: RunRow) -> None:
    """A run that is held as diverged was taken by code that had not tried it."""
    text = "run %s of %s is replayed once more, because the flow has other code now"
    logs.info(text, row.run_id, row.flow, about=row)


def asks_people(store: Store, row: RunRow) -> None:
    """A run waits in this process for a person's answer: name the command that shows the question."""
    how = (
        f"store.questions(run_id={row.run_id!r})"
        if store.url.startswith("memory:")
        else command_in(store, "questions", "--run", row.run_id)
    )
    logs.warning("run %s of %s waits for a person; see: %s", row.run_id, row.flow, how, about=row)


def waits(row: RunRow, waiting: Sequence[Waiting]) -> None:
    """A run was unloaded: it waits, and any worker takes it up when that has come."""
    named = [_named(it) for it in waiting]
    more = f" and {len(named) - NAMED:,} more" if len(named) > NAMED else ""
    ends = [it.until_us for it in waiting if it.until_us is not None]
    until = f" until {at(min(ends)):%Y-%m-%d %H:%M:%S} UTC" if ends else ""
    text = "run %s of %s waits for %s%s%s"
    step = waiting[0].step if len(waiting) == 1 else None
    fields = {} if step is None else {"step": step}
    who = (row.run_id, row.flow)
    logs.info(text, *who, ", ".join(named[:NAMED]), more, until, about=row, **fields)


def _named(one: Waiting) -> str:
    if one.what == "answer" and one.name.startswith(APPROVE):
        return f"an approval of {one.name.removeprefix(APPROVE)}"
    return f"{_WAITS.get(one.what, one.what)} {one.name}".rstrip()


def cut_off(store: Store, row: RunRow, step: str, policy: str) -> None:
    """An effect was interrupted while it was at work: nobody here knows its outcome."""
    text = "run %s of %s: the effect %s was cut off, and is in doubt; %s"
    logs.warning(text, row.run_id, row.flow, step, _next(store, row, policy), about=row, step=step)


def left_at_work(store: Store, row: RunRow, step: str, policy: str) -> None:
    """A worker ended while an effect was at work that nobody can interrupt."""
    text = (
        "run %s of %s: the effect %s is still at work, and the run is left to its lease; unless the "
        "effect ends before this process, it is in doubt, and %s"
    )
    logs.warning(text, row.run_id, row.flow, step, _next(store, row, policy), about=row, step=step)


def _next(store: Store, row: RunRow, policy: str) -> str:
    then = _THEN.get(policy, "asks its on_doubt function")
    see = explain_command(store, row.run_id)
    return f"the next process that takes the run {then} (on_doubt={policy}); see: {see}"


def completed(row: RunRow) -> None:
    """A run came to its end."""
    logs.info("run %s of %s completed", row.run_id, row.flow, about=row)


def given_back(row: RunRow, why: str) -> None:
    """A run was stopped here and may go on elsewhere."""
    logs.info("run %s is released: %s", row.run_id, why, about=row)


def ended(store: Store, row: RunRow, error: BaseException) -> None:
    """Log how an execution ended that returned no result."""
    who = (row.run_id, row.flow)
    see = explain_command(store, row.run_id)
    if isinstance(error, RunHeld):
        at = f" at {error.step}" if error.step else ""
        fields = {"reason": error.reason} | ({"step": error.step} if error.step else {})
        if error.unfit_version:
            text = "run %s of %s does not fit version %s%s, and was released; see: %s"
            logs.warning(text, *who, error.unfit_version, at, see, about=row, **fields)
            return
        text = "run %s of %s is held (%s)%s; see: %s"
        logs.warning(text, *who, error.reason, at, see, about=row, **fields)
    elif isinstance(error, RunFailed):
        cause = error.__cause__
        of_step = cause if isinstance(cause, StepFailed) else None
        name = error.type_name if of_step is None else of_step.type_name
        fields = {"exception": name} | ({} if of_step is None else {"step": of_step.step})
        text = "run %s of %s failed: %s; see: %s"
        logs.warning(text, *who, name, see, about=row, **fields)
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


def explain_command(store: Store, run_id: str) -> str:
    """Return the command that explains a run; of a `memory:` store, which no other process can read,
    the call."""
    if store.url.startswith("memory:"):
        return f"store.explain({run_id!r})"
    return command_in(store, "explain", run_id)


def command_in(store: Store, name: str, *arguments: str) -> str:
    """Return a command line that names its store: the log is read in other shells than the worker's."""
    where = ["--url", store.url]
    if store.namespace != "default":
        where += ["--namespace", store.namespace]
    return command(name, *arguments, *where)
