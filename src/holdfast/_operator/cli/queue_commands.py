"""Commands about queues and schedules: list them, change limits, pause and resume."""

from __future__ import annotations

import datetime as dt
from typing import Any

import click
from rich.table import Table

from holdfast._engine.command_lines import command as command_line
from holdfast._engine.text import count, length
from holdfast._features.schedules import operator as schedule_admin
from holdfast._features.schedules.operator import ScheduleView
from holdfast._operator.cli.session import Session, command, subgroup, takes
from holdfast._operator.cli.tables import STYLES, cell, table
from holdfast._operator.read import queue_views
from holdfast._operator.read.queue_views import QueueView, WorkerView
from holdfast._stores.addresses import NoStore
from holdfast.errors import UsageError

# -- queues -------------------------------------------------------------------------------------


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    queues = subgroup(
        "queues", "List queues; change their limits, pause and resume them.", lists=True
    )
    command(queues, "list", pages=True)(_queues)
    command(queues, "show")(_show)
    command(queues, "set", acts=True)(_set)
    command(queues, "pause", acts=True)(_pause)
    command(queues, "resume", acts=True)(_resume)
    group.add_command(queues)
    schedules = subgroup("schedules", "List schedules; pause and resume them.", lists=True)
    command(schedules, "list", pages=True)(_schedules)
    command(schedules, "pause", acts=True)(_pause_schedule)
    command(schedules, "resume", acts=True)(_resume_schedule)
    group.add_command(schedules)


# -- queues ------------------------------------------------------------------------------------


def _queues(session: Session) -> None:
    """List queues with their runs, limits and workers."""
    try:
        store = session.store()
    except NoStore as missing:
        if session.as_json:
            session.answer(queues=[], workers=[], saturation=None)
        else:
            session.say(f"No queues: {missing}.")
        return
    found, alive = queue_views.queues(store), queue_views.workers(store)
    if session.as_json:
        session.answer(queues=found, workers=alive, saturation=queue_views.saturation(alive))
        return
    if found:
        session.show(queues_table(found))
    else:
        session.say("No queue has limits, or an open, failed or held run.")
    session.say(session.pointed(about_workers(alive)), "dim")
    for worker in alive:
        if worker.stands_back is not None:
            session.say(f"{worker.stands_back}.", "yellow")


def queues_table(found: list[QueueView]) -> Table:
    """Return the queues as a table that fits in 80 columns."""
    rows = table("QUEUE", "READY", "NOT DUE", "RUNNING", "FAILED", "HELD", "OLDEST", "ALLOWS")
    for queue in found:
        held = str(queue.held)
        if queue.quarantined:
            held += f", {queue.quarantined} quarantined"
        rows.add_row(
            cell(queue.name),
            cell(str(queue.ready), "yellow" if queue.ready else ""),
            cell(str(queue.delayed)),
            cell(running_told(queue), _running_style(queue)),
            cell(str(queue.failed), "red" if queue.failed else ""),
            cell(held, "yellow" if queue.held else ""),
            cell("" if queue.oldest_s is None else length(queue.oldest_s)),
            cell(allows(queue), "bold" if queue.paused else "dim"),
        )
    return rows


def running_told(queue: QueueView) -> str:
    """Return how many runs are executing, and how many of them lost their process."""
    return f"{queue.running}" + (f", {queue.abandoned} abandoned" if queue.abandoned else "")


def _running_style(queue: QueueView) -> str:
    return "yellow" if queue.abandoned else "cyan" if queue.running else ""


def allows(queue: QueueView) -> str:
    """Return the limits of a queue in a few words."""
    parts = ["paused"] if queue.paused else []
    if queue.concurrency is not None:
        parts.append(f"{queue.taking_room}/{queue.concurrency} at once")
    if queue.concurrency_per_key is not None:
        parts.append(f"{queue.concurrency_per_key} per key")
    if queue.rate is not None:
        parts.append(f"{queue.rate} in {length(queue.period_s)}")
    if queue.rate_per_key is not None:
        parts.append(f"{queue.rate_per_key} per key in {length(queue.period_s)}")
    return ", ".join(parts)


def about_workers(alive: list[WorkerView]) -> str:
    """Return the number of workers and their load, as text."""
    if not alive:
        return "No worker is alive. To start one: holdfast worker MODULE"
    working = sum(worker.working for worker in alive)
    places = sum(worker.concurrency for worker in alive)
    share = queue_views.saturation(alive) or 0.0
    return (
        f"{count(len(alive), 'worker')} alive; {working} of {places} places in use ({share:.0%}), "
        "as last reported, up to a third of a lease ago."
    )


# -- one queue ---------------------------------------------------------------------------------


@click.argument("queue")
def _show(session: Session, queue: str) -> None:
    """Show one queue: its runs and its limits."""
    _tell(session, queue_views.view(session.store(), queue))


@takes("set_queue", but=("paused",))
def _set(session: Session, **asked: Any) -> None:
    """Limits that you omit stay unchanged; `none` removes a limit. Running runs continue."""
    if all(asked[it] is None for it in asked if it not in ("name", "actor")):
        raise UsageError("give at least one limit, such as --concurrency 5")
    _changed(session, "set_queue", asked)


@takes("pause_queue")
def _pause(session: Session, **asked: Any) -> None:
    """Running runs continue."""
    _changed(session, "pause_queue", asked)


@takes("resume_queue")
def _resume(session: Session, **asked: Any) -> None:
    session.act("resume_queue", asked)
    _tell(session, queue_views.view(session.store(), asked["name"]))


def _changed(session: Session, action: str, asked: dict[str, Any]) -> None:
    """Change a queue, which may be new, and print it."""
    store = session.store()
    known = {it.name for it in queue_views.queues(store)}
    session.act(action, asked)
    _tell_new(session, asked["name"], known)
    _tell(session, queue_views.view(store, asked["name"]))


def _tell_new(session: Session, name: str, known: set[str]) -> None:
    """Report that the queue is new: its name may be misspelled."""
    if name not in known and not session.as_json:
        others = ", ".join(sorted(known)) or "none"
        session.note(f"Queue {name} is new; it has limits now. Known queues: {others}.")


def _tell(session: Session, queue: QueueView) -> None:
    if session.as_json:
        session.answer(queue=queue)
    else:
        session.show(queues_table([queue]))


# -- schedules ----------------------------------------------------------------------------------


def _schedules(session: Session) -> None:
    """List schedules with their next time and last run."""
    try:
        found = schedule_admin.schedules(session.store())
    except NoStore as missing:
        if session.as_json:
            session.answer(schedules=[])
        else:
            session.say(f"No schedules: {missing}.")
        return
    if session.as_json:
        session.answer(schedules=found)
    elif found:
        session.show(_table(found))
    else:
        session.say("No worker of this store has declared a schedule yet.")


def _table(found: list[ScheduleView]) -> Table:
    rows = table("SCHEDULE", "WHEN", "ZONE", "NEXT", "LAST RUN", "")
    for view in found:
        rows.add_row(
            cell(view.name),
            cell(view.when),
            cell(view.timezone),
            cell("paused" if view.paused else _at(view.next_at), "yellow" if view.paused else ""),
            cell(view.last_run_id or ""),
            cell(view.last_status or "", STYLES.get(view.last_status or "", "")),
        )
    return rows


def _at(at: dt.datetime | None) -> str:
    return "never" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"


@takes("pause_schedule")
def _pause_schedule(session: Session, **asked: Any) -> None:
    """Runs that the schedule started continue."""
    view: ScheduleView = session.act("pause_schedule", asked)
    if session.as_json:
        session.answer(schedule=view)
        return
    session.say(f"Schedule {view.name} is paused. To resume it:")
    session.say(f"  {session.pasteable(command_line('schedules resume', view.name))}")


@takes("resume_schedule")
def _resume_schedule(session: Session, **asked: Any) -> None:
    view: ScheduleView = session.act("resume_schedule", asked)
    if session.as_json:
        session.answer(schedule=view)
    else:
        session.say(f"Schedule {view.name} is resumed. Its next tick: {_at(view.next_at)}.")
