"""The command `trends`: latency, cost and errors over time, one line per signal."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

import click

from holdfast._engine.text import length, moment
from holdfast._features.operator_side import WIDTH_CHARS
from holdfast._operator.cli.session import DurationType, Session, command
from holdfast._operator.cli.tables import cell, table
from holdfast._operator.read import trends
from holdfast._operator.read.trends import DAY, SINCE_MAX_S, Trends
from holdfast._stores.addresses import NoStore

WIDTH = 38
"""The number of characters of a line over time, so that the table fits in 80 columns."""
BARS, PLAIN = "▁▂▃▄▅▆▇█", "_.:-=+*#"

Values = Sequence[float | None]
Shown = Callable[[float], str]


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "trends")(_trends)


@click.option(
    "--since",
    "since_s",
    type=DurationType(1, SINCE_MAX_S),
    default=DAY,
    show_default=True,
    help="How far back to begin.",
)
@click.option("--flow", metavar="NAME", help="Only this flow; saturation covers all workers.")
def _trends(session: Session, since_s: float, flow: str | None) -> None:
    """Show latency, cost, errors, trace coverage and saturation over time.

    Each process writes its measures into the store about once a minute; this command adds them up.
    PEAK is the highest value on the line, ALL is the value over the whole time.
    """
    try:
        found = trends.trends(session.store(), since=since_s, flow=flow)
    except NoStore as missing:
        if session.as_json:
            session.answer(trends=None)
        else:
            session.say(f"No trends: {missing}.")
        return
    if session.as_json:
        session.answer(trends=found)
        return
    for note in found.notes:
        session.note(session.pointed(f"Note: {note}"))
    if not found.processes:
        session.say(f"No measures in the last {length(since_s)}.")
        return
    if flow is not None and flow not in found.flows:
        known = ", ".join(found.flows) or "none"
        session.note(f"No measures of flow {flow} in this time. Measured flows: {known}.")
    _show(session, found)


def _show(session: Session, found: Trends) -> None:
    bars = BARS if (session.out.encoding or "").lower().startswith("utf") else PLAIN
    rows = table("SIGNAL", "OVER TIME", "PEAK", "ALL")
    for name, field, shown in SIGNALS:
        values: Values = getattr(found.series, field)
        known = [value for value in values if value is not None]
        (whole,) = getattr(found.totals, field)
        rows.add_row(
            cell(name),
            cell(line(values, bars)),
            cell(shown(max(known)) if known else ""),
            cell("" if whole is None else shown(whole)),
        )
    session.show(rows)
    of = "all flows" if found.flow is None else f"flow {found.flow}"
    begin, end = (moment(int(at.timestamp() * 1e6))[:16] for at in (found.start, found.end))
    session.say(f"From {begin} to {end} UTC, {of}; parts of {length(found.bucket_s)}.", "dim")
    for part in textwrap.wrap(found.lost, WIDTH_CHARS):
        session.say(part, "dim")


def line(values: Values, bars: str = BARS, width: int = WIDTH) -> str:
    """Return values over time as one line of characters; a blank means unknown. With more values
    than characters, a character shows the highest of several."""
    each = -(-len(values) // width) or 1
    parts = [
        [value for value in values[at : at + each] if value is not None]
        for at in range(0, len(values), each)
    ]
    most = max((max(part) for part in parts if part), default=0)
    return "".join(_sign(max(part), most, bars) if part else " " for part in parts)


def _sign(value: float, most: float, bars: str) -> str:
    """Return the character of a value; only 0 has the lowest."""
    if value <= 0 or most <= 0:
        return bars[0]
    return bars[max(1, min(len(bars) - 1, round(value / most * (len(bars) - 1))))]


def _share(value: float) -> str:
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def _number(value: float) -> str:
    return f"{value:,.1f}" if value != int(value) else f"{int(value):,}"


def _money(value: float) -> str:
    return f"${value:,.2f}" if value >= 1 or not value else f"${value:.4f}"


SIGNALS: tuple[tuple[str, str, Shown], ...] = (
    ("runs completed", "runs_completed", _number),
    ("runs failed", "runs_failed", _number),
    ("runs held", "runs_held", _number),
    ("run time p50", "run_p50_s", length),
    ("run time p95", "run_p95_s", length),
    ("steps", "steps", _number),
    ("step time p50", "step_p50_ms", lambda ms: length(ms / 1000)),
    ("step time p95", "step_p95_ms", lambda ms: length(ms / 1000)),
    ("errors", "errors", _number),
    ("error rate", "error_rate", _share),
    ("retries", "retries", _number),
    ("cost", "cost_usd", _money),
    ("tokens", "tokens", _number),
    ("traced", "traced", _share),
    ("saturation", "saturation", _share),
    ("waiting", "waiting", _number),
)
