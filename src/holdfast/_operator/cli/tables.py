"""Tables for terminals: no rules, control characters escaped, fitted to the terminal's width.

Long cells are folded. Before that, the least important columns are omitted, if a table names them.
In a file or a pipe no column is omitted, and each row is one line.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from holdfast._engine.text import visible
from holdfast._operator.read.run_views import RunSummary, RunView

STYLES = {
    "completed": "green",
    "running": "cyan",
    "queued": "cyan",
    "waiting": "cyan",
    "held": "yellow",
    "in_doubt": "yellow",
    "retrying": "yellow",
    "failed": "red",
    "cancelled": "dim",
}
"""The colour of a status; the text of the status is always printed too."""
GAP = 2
FOLDED = 0.4
"""The part of the width above which a cell is folded."""


def table(*titles: str) -> Table:
    """Return a table without lines."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for title in titles:
        made.add_column(title, overflow="fold")
    return made


def cell(text: str, style: str = "") -> Text:
    """Return untrusted text with control characters escaped."""
    return Text(visible(text), style=style)


def fitted(
    titles: Sequence[str], rows: Sequence[Sequence[Text]], width: int | None, least: Sequence[str]
) -> Table:
    """Return a table that fits the width: omit the columns of `least`, in that order, while it is
    too wide. Without a width, keep all columns."""
    # Fold one long name, so that it does not displace columns for which the other rows have room.
    most = 10_000 if width is None else int(width * FOLDED)
    widths = [
        min(most, max([cell_len(title), *(row[at].cell_len for row in rows)])) + GAP
        for at, title in enumerate(titles)
    ]
    kept = list(range(len(titles)))
    for title in least:
        if width is None or sum(widths[at] for at in kept) - GAP <= width:
            break
        kept.remove(titles.index(title))
    made = table(*(titles[at] for at in kept))
    for row in rows:
        made.add_row(*(row[at] for at in kept))
    return made


def folded(line: str, width: int) -> list[str]:
    """Fold a line of prose between words, and indent the following rows. Each row takes at least
    one character, however narrow the width."""
    width = max(1, width)
    at = len(line) - len(line.lstrip())
    most = width // 2 if width > 3 else 0
    lead = " " * min(at, most)
    inner = " " * min(at + (2 if line.startswith("- ", at) else 0), most)
    rows: list[str] = []
    while (ends := _ends(line, at, width - len(lead))) < len(line):
        blank = line.rfind(" ", at + 1, ends + 1)
        ends = blank if blank > at else ends
        rows.append(lead + line[at:ends].rstrip())
        at, lead = ends, inner
        while line[at : at + 1] == " ":
            at += 1
    return [*rows, lead + line[at:]] if at < len(line) or not rows else rows


def _ends(line: str, at: int, room: int) -> int:
    """Return how many characters of a line fit in the room, at least one."""
    for ends in range(at, len(line)):
        room -= cell_len(line[ends])
        if room < 0:
            return max(ends, at + 1)
    return len(line)


def status_told(run: RunSummary | RunView) -> str:
    """Return the status of a run, with its held reason or the wait, and whether it is being rolled
    back."""
    if not run.rolling_back:
        return _status(run)
    return f"{_status(run)} ({'to be' if run.status == 'queued' else 'being'} rolled back)"


def _status(run: RunSummary | RunView) -> str:
    if run.status == "held":
        return f"held: {run.held_reason}"
    if run.owner_died and run.status == "running":
        return "running: its process is dead"
    if run.abandoned and run.status == "running":
        return "running: abandoned"
    return (
        f"waiting: {run.waiting_for}" if run.waiting_for and run.status == "waiting" else run.status
    )
