"""The reference of the command line, made from the commands themselves.

`python -m holdfast._ops.cli.reference` prints it as a page for the documentation.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click
import msgspec

from holdfast._core.comparing import Preflight
from holdfast._core.control import Stopped
from holdfast._core.drift import Change
from holdfast._ops.actions import Answer
from holdfast._ops.budget_view import BudgetView
from holdfast._ops.cli.main import main
from holdfast._ops.cli.session import EXIT_CODES
from holdfast._ops.doctor import Checkup, Trouble
from holdfast._ops.explanation import Action, Explanation
from holdfast._ops.families import ChildView
from holdfast._ops.fork import Fork
from holdfast._ops.housekeeping import Collected
from holdfast._ops.inspect import ErrorView, RunSummary, RunView, StepView, Totals
from holdfast._ops.memories import MemoView
from holdfast._ops.messages import SignalView
from holdfast._ops.people import Answered, QuestionView
from holdfast._ops.queues import QueueView, Resumed, WorkerView
from holdfast._ops.rollback import PlannedUndo, RollbackPlan
from holdfast._ops.schedules import ScheduleView
from holdfast._ops.signals import Sent
from holdfast._ops.trends import Series, Trends
from holdfast._store.contract import Finding
from holdfast._store.sweeping import Swept

_OTHER = "what the run waits for now, if that is something else; else null"
SHAPES: dict[str, dict[str, str]] = {
    "answer": {"answer": "Answered", "note": _OTHER},
    "approve": {"answer": "Answered", "note": _OTHER},
    "adopt": {"adopted": "text, or null if nothing was missing", "actor": "text"},
    "backup": {"backup": "path", "bytes": "number"},
    "cancel": {
        "answer": "Stopped",
        "next": "commands that help if it is pending",
        "exit_code": "number",
    },
    "copy": {
        "source": "address",
        "target": "address",
        "dry_run": "true or false",
        "runs": "how many of each fate: copied, there already, busy, conflict, damaged, stays, missing",
        "left": "list of run_id, fate, why: what is not in the target",
        "queues": "names of queues whose limits were set",
        "schedules": "names of schedules that were moved",
        "exit_code": "number",
    },
    "demo": {
        "as_promised": "true or false",
        "wrong": "list of texts",
        "executed": "how often each function was executed",
        "e_mails": "number",
    },
    "doctor": {
        "checkup": "Checkup; null if one run is asked about",
        "findings": "list of run_id, flow, kind, severity, id, since, steps, entries, text, actions, "
        "noted_at, did, open",
        "exit_code": "number",
    },
    "explain": {"explanation": "Explanation"},
    "fork": {"fork": "Fork", "next": "commands that execute it"},
    "export": {
        "export": "path",
        "runs": "ids of the run and of those that belong to it",
        "bytes": "number",
    },
    "gc": {"collected": "Collected"},
    "history": {"run_id": "text", "entries": "list of seq, kind, step, attempt, at, body"},
    "pause": {
        "answer": "Stopped",
        "next": "the command that lets it go on",
        "exit_code": "number",
    },
    "preflight": {"preflight": "Preflight"},
    "raise-budget": {"answer": "Answer", "next": "commands that execute what was freed"},
    "import": {"imported": "ids of runs", "there": "ids of runs that were here, the same"},
    "memory": {
        "value": "MemoView, or null (get, set)",
        "values": "list of MemoView (list)",
        "removed": "true or false (delete)",
    },
    "restore": {"restored": "path"},
    "questions": {"questions": "list of QuestionView, each with the commands that answer it"},
    "queue": {"queue": "QueueView"},
    "queues": {
        "queues": "list of QueueView",
        "workers": "list of WorkerView",
        "saturation": "how much of their places is in use, from 0 to 1; null without workers",
    },
    "resume": {
        "answer": "Answer; null when many are taken up together",
        "next": "commands that execute what was freed",
        "resumed": "list of Resumed: what became of each of many",
        "refused": "how many of them were left as they are",
    },
    "rollback": {
        "plan": "RollbackPlan",
        "answer": "Answer; null if only the plan was asked for",
        "next": "commands that perform it",
    },
    "run": {
        "run": "RunView, or null",
        "restarts": "number",
        "exit_code": "number",
        "error": "message; only if it did not complete",
    },
    "runs": {"runs": "list of RunSummary"},
    "schedule": {"schedule": "ScheduleView"},
    "schedules": {"schedules": "list of ScheduleView"},
    "settle": {"answer": "Answer", "next": "commands that execute what was freed"},
    "show": {"run": "RunView", "trace_id": "32 hexadecimal digits: its trace, if it is traced"},
    "signal": {"signal": "Sent", "note": _OTHER},
    "trends": {"trends": "Trends; its series and totals are Series, null if there is no store"},
    "worker": {"exit_code": "number"},
    "verify": {"sound": "true or false", "findings": "list of Finding"},
}
"""What each command adds to the object of `--json`."""

OBJECTS = (
    RunView,
    RunSummary,
    StepView,
    Totals,
    BudgetView,
    ErrorView,
    Explanation,
    Action,
    Checkup,
    Trouble,
    Answer,
    Preflight,
    Change,
    Fork,
    RollbackPlan,
    PlannedUndo,
    Finding,
    QueueView,
    WorkerView,
    Trends,
    Series,
    Resumed,
    ScheduleView,
    Collected,
    Swept,
    MemoView,
    QuestionView,
    Answered,
    Sent,
    SignalView,
    Stopped,
    ChildView,
)


def reference() -> str:
    """Return the whole page."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "This page is made from the commands themselves: `python -m holdfast._ops.cli.reference`."
    yield ""
    yield from _fenced(_help(main, "holdfast"))
    yield "## Exit codes"
    yield ""
    yield from _fenced(inspect.cleandoc(EXIT_CODES.removeprefix("\b\n").partition("\n")[2]))
    for name in sorted(main.commands):
        yield f"## holdfast {name}"
        yield ""
        yield from _fenced(_help(main.commands[name], f"holdfast {name}"))
        yield from _parts(name)
        yield "With `--json`:"
        yield ""
        for field, what in SHAPES[name].items():
            yield f"* `{field}`: {what}"
        yield ""
    yield from _json()


def _parts(name: str) -> Iterator[str]:
    """Yield what is said of the commands of a group."""
    group = main.commands[name]
    if isinstance(group, click.Group):
        for part, command in sorted(group.commands.items()):
            yield from _fenced(_help(command, f"holdfast {name} {part}"))


def _json() -> Iterator[str]:
    yield "## JSON"
    yield ""
    yield (
        'With `--json` a command prints one object on standard output. It has `"version": 1`, '
        '`"command"`, and `"warning"` if the store lost commits. A later version may add fields, '
        "and takes none away without another number. A command that fails prints `error` (`type`, "
        "`message`, and what the error carries) and `exit_code`. Times are in UTC; values are shown "
        'in a form that needs none of your classes, such as `{"Chat": {"messages": []}}`.'
    )
    yield ""
    for shape in OBJECTS:
        fields = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(shape))
        yield f"* **{shape.__name__}**: {fields}"


def _help(command: click.Command, name: str) -> str:
    context = click.Context(command, info_name=name, max_content_width=80, terminal_width=80)
    text = command.get_help(context)
    return text.partition("\n\n  Exit codes:")[0]


def _fenced(text: str) -> Iterator[str]:
    yield "```text"
    yield from (line.rstrip() for line in text.splitlines())
    yield "```"
    yield ""


if __name__ == "__main__":
    click.echo(reference(), nl=False)
