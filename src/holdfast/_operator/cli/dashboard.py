"""Render the screen of `holdfast top` from an overview. Pure.

Everything important is in the first 24 rows of 80 columns. Rows that do not fit are counted, long
texts are cut with an ellipsis, and the least important columns are left out first.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from holdfast._engine.text import count, length, visible
from holdfast._operator.cli.queue_commands import allows
from holdfast._operator.cli.tables import STYLES, folded, status_told
from holdfast._operator.read.overview import Overview, Shown
from holdfast._operator.read.queue_views import QueueView, WorkerView

WORKERS_SHOWN = 3
QUEUES_SHOWN = 4
BAR_CELLS = 8
KEYS = "↑↓ choose  Enter explain  h only what needs a person  ? help  q quit"
HELP = """\
holdfast top shows the fleet of a store as it is now.

    workers   processes that execute runs, and how many of their places are in use
  queues    runs that are ready, not due, at work, failed and held; for how long
            the oldest ready one has waited; what the queue allows
  runs      first those that need a person (held, asking, failed), then those
            whose process died, those at work, those that are queued or wait

  ↑ ↓ j k        choose a run           PgUp PgDn Home End   go far
    Enter          explain its status and the safe next actions
    h              only runs that need a person; press again for all
    r              refresh now
  ? or any key   this page, and back
  q or Ctrl-C    leave
"""


class Look(msgspec.Struct):
    """The data to render, and the choices of the person at the terminal."""

    url: str
    fleet: Overview | None = None
    trouble: str | None = None
    """The error of the store, while it does not answer."""
    warning: str | None = None
    chosen: str | None = None
    """The id of the run at the cursor."""
    only_needed: bool = False
    start: str = "holdfast worker MODULE"
    """The command that starts a worker of this store."""
    plain: bool = False
    """Whether the terminal shows only ASCII."""

    def runs(self) -> list[Shown]:
        """Return the runs to show."""
        found = [] if self.fleet is None else self.fleet.runs
        return [it for it in found if it.needs_a_person or not self.only_needed]


def picture(look: Look, width: int, height: int) -> list[Text]:
    """Return the lines of the fleet, as many as the terminal has rows."""
    lines = _head(look, width)
    fleet = look.fleet
    if fleet is not None:
        lines += _workers(fleet.workers, width, look.plain, look.start)
        lines += _queues(fleet.queues, width, min(QUEUES_SHOWN, max(1, height - 20)))
        lines += _runs(look, width, max(1, height - len(lines) - 2))
    lines = lines[: height - 1]
    lines += [Text()] * (height - 1 - len(lines))
    return [*lines, _cut(Text(_ascii(KEYS) if look.plain else KEYS, "dim"), width)]


def page_of(title: str, text: str, width: int, height: int, first: int) -> tuple[list[Text], int]:
    """Return the lines of a longer text from row `first` on, and the last row to scroll to."""
    rows: list[Text] = []
    for line in text.splitlines():
        rows += map(Text, folded(visible(line), width))
    room = max(1, height - 3)
    last = max(0, len(rows) - room)
    first = min(first, last)
    shown = rows[first : first + room]
    more = f"  {first + 1}-{first + len(shown)} of {len(rows)} lines, ↑↓" if last else ""
    lines = [_cut(Text(visible(title), "bold"), width), Text(), *shown]
    lines += [Text()] * (height - 1 - len(lines))
    return [*lines, _cut(Text(f"q back{more}", "dim"), width)], last


# -- parts -------------------------------------------------------------------------------------


def _head(look: Look, width: int) -> list[Text]:
    line = Text("holdfast top", "bold")
    fleet = look.fleet
    if fleet is None:
        line.append("  looking …" if look.trouble is None else "", "dim")
    else:
        line.append(f"  {count(len(fleet.workers), 'worker')}", "" if fleet.workers else "bold red")
        if fleet.saturation is not None:
            line.append(f"  {_bar(fleet.saturation, look.plain)} {fleet.saturation:.0%} busy")
        needed = [
            (f"  {number:,} {name}", style)
            for number, name, style in (
                (fleet.held, "held", "bold yellow"),
                (fleet.asking, "asking", "bold yellow"),
                (fleet.failed, "failed", "bold red"),
            )
            if number
        ]
        for told, style in needed or [("  nothing needs a person", "green")]:
            line.append(told, style)
    return [_cut(line, width), _second(look, width), Text()]


def _second(look: Look, width: int) -> Text:
    """Return the second line: the store's problem or address, and the time of the data."""
    clock = "" if look.fleet is None else f"  {look.fleet.at:%H:%M:%S} UTC"
    line = Text(visible(look.url), "dim")
    if look.trouble is not None:
        line = Text(f"! the store does not answer: {visible(look.trouble)}", "bold red")
    elif look.warning is not None:
        line = Text(f"! commits are lost: {visible(look.warning)}", "bold red")
    line = _cut(line, width - len(clock))
    line.append(" " * (width - len(clock) - line.cell_len) + clock, "dim")
    return line


def _bar(share: float, plain: bool) -> str:
    full = min(BAR_CELLS, round(share * BAR_CELLS))
    return ("#" if plain else "█") * full + ("-" if plain else "░") * (BAR_CELLS - full)


def _workers(alive: Sequence[WorkerView], width: int, plain: bool, start: str) -> list[Text]:
    if not alive:
        told = f"No worker is alive. To start one: {visible(start)}"
        return [*(Text(row, "yellow") for row in folded(told, width)), Text()]
    widths = _widths(width, (24, 22, 20, 0))
    lines = [_row(("WORKER", "HOST", "PLACES", "QUEUES"), widths, "bold")]
    busiest = sorted(alive, key=lambda it: (-it.saturation, it.name))
    shown = busiest[: WORKERS_SHOWN if len(alive) <= WORKERS_SHOWN else WORKERS_SHOWN - 1]
    for it in shown:
        places = f"{_bar(it.saturation, plain)} {it.working}/{it.concurrency}"
        takes = "all" if it.queues is None else ", ".join(it.queues)
        state = "draining; " if it.draining else "one run alone; " if it.stands_back else ""
        lines.append(_row((it.name, f"{it.host} {it.pid}", places, state + takes), widths))
    if len(alive) > len(shown):
        lines.append(Text(f"and {len(alive) - len(shown)} more, less busy", "dim"))
    return [*lines, Text()]


def _queues(known: Sequence[QueueView], width: int, room: int) -> list[Text]:
    if not known:
        return []
    titles = ("QUEUE", "READY", "NOT DUE", "RUNNING", "FAILED", "HELD", "OLDEST", "ALLOWS")
    widths = _widths(width, (18, 7, 9, 11, 8, 7, 8, 0))
    lines = [_row(titles, widths, "bold")]
    fullest = sorted(known, key=lambda it: (-it.ready - it.abandoned, -it.running, it.name))
    shown = fullest[: room if len(known) <= room else max(1, room - 1)]
    for it in shown:
        oldest = "" if it.oldest_s is None else length(it.oldest_s)
        running = f"{it.running}, {it.abandoned} left" if it.abandoned else it.running
        cells = (it.name, it.ready, it.delayed, running, it.failed, it.held, oldest, allows(it))
        styles = {1: "yellow"} if it.ready else {}
        styles |= {3: "yellow"} if it.abandoned else {}
        styles |= {4: "red"} if it.failed else {}
        styles |= {5: "yellow"} if it.held else {}
        lines.append(_row([str(cell) for cell in cells], widths, styles=styles))
    if len(known) > len(shown):
        lines.append(Text(f"and {len(known) - len(shown)} more", "dim"))
    return [*lines, Text()]


def _runs(look: Look, width: int, room: int) -> list[Text]:
    runs = look.runs()
    if not runs or look.fleet is None:
        told = "Nothing needs a person." if look.only_needed else "No run is open, held or failed."
        return [Text(told, "green" if look.only_needed else "dim")]
    widths = _widths(width, (24, 18, 12, 0, 8), least=2)
    at = next((n for n, it in enumerate(runs) if it.run.run_id == look.chosen), 0)
    room = max(1, room - 1)
    first = min(max(0, at - room + 1), max(0, len(runs) - room)) if len(runs) > room else 0
    title = "  NEEDS A PERSON" if look.only_needed else "  RUN"
    title += f" ({at + 1} of {len(runs)})" if len(runs) > room else ""
    return [
        _row((title, "STATUS", "FLOW", "AT", "CHANGED"), widths, "bold"),
        *(
            _run(it, look.fleet.at, widths, chosen=number == at)
            for number, it in enumerate(runs[first : first + room], first)
        ),
    ]


def _run(it: Shown, now: dt.datetime, widths: Sequence[int], *, chosen: bool) -> Text:
    run = it.run
    told = {"asks": "asks a person", "left": "its process died"}.get(it.why) or status_told(run)
    mark = "! " if it.needs_a_person else "? " if it.why == "left" else "  "
    since = length(max(0.0, (now - run.updated_at).total_seconds()))
    step = "" if it.why == "queued" else _ending(run.current_step or "", widths[3] - 1)
    style = STYLES.get(run.status, "")
    cells = (mark + run.run_id, told, run.flow, step, since)
    line = _row(cells, widths, styles={1: "yellow" if it.why in ("asks", "left") else style})
    if chosen:
        line.stylize("reverse")
    return line


# -- lines -------------------------------------------------------------------------------------


def _widths(width: int, wanted: Sequence[int], least: int | None = None) -> list[int]:
    """Return the widths of columns. Width 0 takes the remaining space; on a wide terminal the first
    grows."""
    spare = width - sum(wanted)
    found = list(wanted)
    rest = found.index(0)
    if spare < 8 and least is not None:
        spare, found[least] = spare + found[least], 0
    found[rest] = max(0, spare)
    if spare > 30:
        more = (spare - 30) // 2
        found[0], found[rest] = found[0] + more, spare - more
    return found


def _row(
    cells: Sequence[str],
    widths: Sequence[int],
    style: str = "",
    styles: dict[int, str] | None = None,
) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        if width > 0:
            line.append(_clipped(visible(cell), width - 1) + " ", (styles or {}).get(at, style))
    line.rstrip()
    return line


def _clipped(text: str, width: int) -> str:
    if cell_len(text) > width:
        text = set_cell_size(text, max(0, width - 1)).rstrip() + "…"
    return set_cell_size(text, max(0, width))


def _ending(text: str, width: int) -> str:
    """Return the end of a text: step keys differ at their end."""
    text = visible(text)
    return text if cell_len(text) <= width else "…" + text[len(text) - max(0, width - 1) :]


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def _ascii(text: str) -> str:
    return text.replace("↑↓", "up/down")
