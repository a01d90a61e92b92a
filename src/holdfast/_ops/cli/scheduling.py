"""Commands about schedules: see when each is due, and pause one."""

from __future__ import annotations

import datetime as dt

import click
from rich.table import Table

from holdfast._ops import schedules
from holdfast._ops.cli.session import Session, command, os_user
from holdfast._ops.cli.tables import STYLES, cell, table
from holdfast._ops.schedules import ScheduleView
from holdfast._store.addresses import NoStore
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "schedules", pages=True)(_schedules)
    command(group, "schedule")(_schedule)


def _schedules(session: Session) -> None:
    """List the schedules: when each is due next, and what became of its last run."""
    try:
        found = schedules.schedules(session.store())
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


@click.argument("name")
@click.option("--pause", is_flag=True, help="Start no more runs.")
@click.option("--unpause", is_flag=True, help="Go on; its catch-up says what is made up for.")
def _schedule(session: Session, name: str, pause: bool, unpause: bool) -> None:
    """Pause a schedule, or let it go on. Runs that were started are not concerned."""
    if pause == unpause:
        raise UsageError("say one of --pause and --unpause")
    view = schedules.set_schedule(session.store(), name, paused=pause, actor=os_user())
    if session.as_json:
        session.answer(schedule=view)
    elif view.paused:
        session.say(f"Schedule {view.name} is paused. To let it go on:")
        session.say(f"  {session.pasteable(f'schedule {view.name} --unpause')}")
    else:
        session.say(f"Schedule {view.name} goes on. Its next tick: {_at(view.next_at)}.")
