"""The command `run`: execute a run in a child process, which is replaced when it dies."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import Any, NoReturn

import click

from holdfast._engine.command_lines import command as command_line
from holdfast._engine.decisions.resume import facts_of
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.text import brief_json, clipped, count, length
from holdfast._operator.cli.decision_commands import OBJECT, parsed
from holdfast._operator.cli.exit_codes import CANCELLED, FAILED, HELD, INTERRUPTED, OK
from holdfast._operator.cli.progress_lines import Follower, Lines
from holdfast._operator.cli.run_details import explained
from holdfast._operator.cli.run_process import Order, Report
from holdfast._operator.cli.session import Session, command, console
from holdfast._operator.cli.supervisor import Child, Supervisor
from holdfast._operator.read import run_views
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row

# -- run ----------------------------------------------------------------------------------------


_CODES = {
    Status.COMPLETED: OK,
    Status.HELD: HELD,
    Status.FAILED: FAILED,
    Status.CANCELLED: CANCELLED,
    Status.ROLLED_BACK: CANCELLED,
}
TRACE_CHARS = 4_000


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "run")(_run)


@click.argument("target", metavar="MODULE:FLOW")
@click.argument("run_id")
@click.option(
    "--input",
    "given",
    metavar="JSON",
    help="An object of arguments by name, or an array of them in order. An existing run keeps its "
    "input.",
)
def _run(session: Session, target: str, run_id: str, given: str | None) -> int:
    """Execute a run until it ends or is held; if its process dies, another one continues.

    MODULE is a name that you can import from this folder, or a file: agent:research,
    agent.py:research. Ctrl-C releases the run; the same command continues it later. Without --url
    and HOLDFAST_URL, the command uses the store that the module opens, if any.
    """
    if given is not None:
        parsed("--input", given, like=OBJECT)
    session.follow([target.rpartition(":")[0]])
    store = session.store(create=True)
    order = Order(target, run_id, session.url, session.namespace, given)
    lines = Lines(console(stderr=True) if session.as_json else session.out)
    follower = Follower(store, run_id, lines)
    recorded = follower.catch_up()
    follower.heading = f"Executing run {run_id}."
    if recorded:
        steps = "1 step is" if recorded == 1 else f"{recorded:,} steps are"
        follower.heading = f"Continuing run {run_id}: {steps} recorded and not executed again."
    report, restarts = _supervised(session, order, follower)
    return _tell(session, store, run_id, report, restarts)


def _supervised(session: Session, order: Order, follower: Follower) -> tuple[Report, int]:
    # The output of the flow must not mix with the JSON object.
    stdout = sys.stderr.fileno() if session.as_json else None

    def died(child: Child, pause_s: float) -> None:
        session.note(
            f"! process {child.pid} {child.fate()}; another starts in {length(pause_s)}",
            "bold red",
        )

    supervisor = Supervisor(follower, lambda: Child(order, stdout=stdout), died)
    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        return supervisor.work(), supervisor.restarts
    finally:
        signal.signal(signal.SIGTERM, before)


def _terminated(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise SystemExit(128 + number)


# -- the result --------------------------------------------------------------------------------


def _tell(session: Session, store: Store, run_id: str, report: Report, restarts: int) -> int:
    row = store.get(run_id)
    ended = None if row is None else _CODES.get(row.status)
    # Any other report (wrong input, a live owner) describes this call, not the run.
    code = report.code if report.code not in (OK, FAILED, HELD, CANCELLED) or row is None else ended
    code = report.code if code is None else code
    if session.as_json:
        run = None if row is None else run_views.view(store, run_id, plain=True)
        told: dict[str, Any] = {"run": run, "restarts": restarts, "exit_code": code}
        if report.message and code != OK:
            told["error"] = {"message": report.message}
        session.answer(**told)
        return code
    if code == INTERRUPTED:
        session.say(f"Interrupted. Run {run_id} is released; the same command continues it.")
    elif code == OK:
        run = run_views.view(store, run_id, plain=True)
        again = f", {count(restarts, 'restart')}" if restarts else ""
        session.say(f"Completed: {count(run.totals.steps, 'step')}{again}.", "green")
        session.say(f"Result: {brief_json(run.result)}")
    elif code == HELD and ended == HELD:
        session.say()
        session.say(str(explained(session, store, run_id)))
    elif code == FAILED and ended == FAILED:
        _tell_failure(session, store, run_id)
    else:
        session.note(f"holdfast: {session.pointed(report.message)}")
    return code


def _tell_failure(session: Session, store: Store, run_id: str) -> None:
    row = existing_row(store, run_id)
    last = store.entry(row.run_no, row.last_seq)
    facts = {} if last is None or last.kind is not Kind.RUN_FAILED else facts_of(last)
    trace = str(facts.get("trace", ""))
    if trace:
        session.note(trace[-TRACE_CHARS:].rstrip(), "dim")
    error = facts.get("error", {})
    session.say(
        f"Failed: {clipped(str(error.get('type')))}: {clipped(str(error.get('message')))}", "red"
    )
    more = session.pasteable(command_line("explain", run_id))
    session.say(f"The same command executes it again. To see why it failed: {more}")
