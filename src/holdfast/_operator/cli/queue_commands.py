"""Commands about queues and schedules: list them, change limits, pause and resume."""

from __future__ import annotations

import datetime as dt
from typing import Any

import click
import msgspec
from rich.table import Table

from holdfast._operator.act import queue_admin, schedule_admin
from holdfast._operator.act.schedule_admin import ScheduleView
from holdfast._operator.cli.session import Session, command, os_user
from holdfast._operator.cli.tables import STYLES, cell, table
from holdfast._operator.read import queue_views
from holdfast._operator.read.queue_views import QueueView, WorkerView
from holdfast._operator.text import count, length
from holdfast._stores.addresses import NoStore
from holdfast.errors import UsageError

# -- queues -------------------------------------------------------------------------------------


COUNT_MAX = 2**31 - 1


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "queues", pages=True)(_queues)
    command(group, "queue")(_queue)
    command(group, "schedules", pages=True)(_schedules)
    command(group, "schedule")(_schedule)


def _limit(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Return the number that an option says; 0 is `none`."""
    if value is None or value == "none":
        return None if value is None else 0
    if not value.isdecimal() or not 0 < int(value) <= COUNT_MAX:
        raise click.BadParameter("a number above 0, or none for no limit")
    return int(value)


# -- queues ------------------------------------------------------------------------------------


def _queues(session: Session) -> None:
    """List the queues: what waits, what is at work, what they allow, and who takes from them."""
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
        session.say("No queue has limits, or a run that is open, failed or held.")
    session.say(session.pointed(about_workers(alive)), "dim")
    for worker in alive:
        if worker.stands_back is not None:
            session.say(f"{worker.stands_back}.", "yellow")


def queues_table(found: list[QueueView]) -> Table:
    """Return the queues as a table that fits into 80 columns."""
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
    """Return how many runs are at work, and of how many the process died."""
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
        f"{count(len(alive), 'worker')} alive; {working} of {places} places were in use ({share:.0%}) "
        "when they last said so, up to a third of a lease ago."
    )


# -- queue -------------------------------------------------------------------------------------


@click.argument("name")
@click.option(
    "--concurrency",
    callback=_limit,
    metavar="N|none",
    help="Runs at work at one time, in all workers.",
)
@click.option(
    "--per-key", callback=_limit, metavar="N|none", help="The same for runs that share a limit key."
)
@click.option(
    "--rate", callback=_limit, metavar="N|none", help="Runs begun in any period of --per seconds."
)
@click.option(
    "--per-key-rate",
    callback=_limit,
    metavar="N|none",
    help="The same for runs that share a limit key.",
)
@click.option("--per", type=click.FloatRange(0, min_open=True), help="Seconds; 60 at first.")
@click.option("--pause/--unpause", "paused", default=None, help="Take nothing from it; go on.")
def _queue(
    session: Session,
    name: str,
    concurrency: int | None,
    per_key: int | None,
    rate: int | None,
    per_key_rate: int | None,
    per: float | None,
    paused: bool | None,
) -> None:
    """Show a queue, or change what it allows: at once, for every worker.

    A limit that is not given stays as it is; `none` takes a limit away. What is at work goes on.
    """
    wanted = {
        "concurrency": concurrency,
        "per_key": per_key,
        "rate": rate,
        "per_key_rate": per_key_rate,
    }
    changes: dict[str, Any] = {
        limit: number or None for limit, number in wanted.items() if number is not None
    }
    if per is not None:
        changes["period_us"] = max(1, int(per * 1_000_000))
    if paused is not None:
        changes["paused"] = paused
    store = session.store(create=bool(changes))
    known = {queue.name for queue in queue_views.queues(store)} if changes else set[str]()
    if changes:
        limits = queue_views.limits_of(store, name)
        queue_admin.set_limits(store, msgspec.structs.replace(limits, **changes), os_user())
    found = [queue for queue in queue_views.queues(store) if queue.name == name]
    if not found:
        raise UsageError(
            f"there is no queue {name!r} with limits, or with a run that is open, failed or held; "
            "see: holdfast queues"
        )
    if changes and name not in known and not session.as_json:
        others = ", ".join(sorted(known)) or "none"
        session.note(f"There was no queue {name} before; it has limits now. Known were: {others}.")
    if session.as_json:
        session.answer(queue=found[0])
    else:
        session.show(queues_table(found))


# -- schedules ----------------------------------------------------------------------------------


def _schedules(session: Session) -> None:
    """List the schedules: when each is due next, and what became of its last run."""
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


@click.argument("name")
@click.option("--pause", is_flag=True, help="Start no more runs.")
@click.option("--unpause", is_flag=True, help="Go on; its catch-up says what is made up for.")
def _schedule(session: Session, name: str, pause: bool, unpause: bool) -> None:
    """Pause a schedule, or let it go on. Runs that were started are not concerned."""
    if pause == unpause:
        raise UsageError("say one of --pause and --unpause")
    view = schedule_admin.set_schedule(session.store(), name, paused=pause, actor=os_user())
    if session.as_json:
        session.answer(schedule=view)
    elif view.paused:
        session.say(f"Schedule {view.name} is paused. To let it go on:")
        session.say(f"  {session.pasteable(f'schedule {view.name} --unpause')}")
    else:
        session.say(f"Schedule {view.name} goes on. Its next tick: {_at(view.next_at)}.")
