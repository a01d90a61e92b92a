"""Bars of a run's timeline: what one is, in which lane it is drawn, and how many there are at most.

Each branch gets a lane for as long as it lasts, and more where its calls overlap. Of a long run the oldest bars are joined into one, with
a count.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import msgspec

from holdfast._core.keys import scope_of

BARS_MAX = 500
SPECIAL_MAX = 100
"""How many gaps and times held are kept when a long run is thinned."""


class Bar(msgspec.Struct):
    """Something that took time."""

    kind: str
    """step, attempt, wait, gap, held; `joined` for the oldest of a long run."""
    key: str
    """The step key; empty for a gap, a time held and what is joined."""
    name: str
    effect: bool
    status: str
    """Of a step or an attempt its state (an attempt that died with its process is `interrupted`);
    of a wait `waiting`, `ended`, `timed_out` or `refused`; of a gap `died`, `lease_ran_out` or
    `queued`; of a time held its reason."""
    start: dt.datetime
    end: dt.datetime | None
    """None while it goes on."""
    attempt: int
    """Of an attempt its number; of a step how many there were."""
    generation: int
    lane: int = 0
    """Bars with one lane never overlap, but for a step and its attempts, and gaps and times held, which
    lie in lane 0 under all others. 0 is the run's main line."""
    branch: str = ""
    """The branch that it stands in, such as `gather[0]`; empty for the main line."""
    superseded: bool = False
    """Whether a later generation has left it behind."""
    count: int = 1
    """How many bars it stands for."""
    known_until: dt.datetime | None = None
    """Of an attempt whose process died: until when it is known to have been at work. It went on after
    that for nobody knows how long, but not after `end`."""


def branch_of(key: str) -> str:
    """Return the innermost branch that a step stands in; turns of a loop are no branch."""
    parts = scope_of(key).split("/")
    for end in range(len(parts), 0, -1):
        if parts[end - 1].endswith("]") and not parts[end - 1].startswith(("turns", "undo")):
            return "/".join(parts[:end])
    return ""


def give_lanes(bars: Iterable[Bar], now: dt.datetime) -> int:
    """Give each line of calls the first lane that is free for as long as it lasts; returns their
    number. A branch is one line, or several where its calls overlap: async code may have made them
    side by side without a branch."""
    lines: dict[tuple[str, int], list[Bar]] = {("", 0): []}
    for branch, calls in _by_branch(bars).items():
        busy: list[dt.datetime] = []
        for call in sorted(calls, key=lambda call: (call[0].start, call[0].key)):
            at = _free(busy, *_span(call, now))
            lines.setdefault((branch, at), []).extend(call)
    busy = []
    main = lines.pop(("", 0))
    for line in sorted(lines.values(), key=lambda line: (line[0].start, line[0].branch)):
        lane = _free(busy, *_span(line, now)) + 1
        for bar in line:
            bar.lane = lane
    for bar in main:
        bar.lane = 0
    return len(busy) + 1


def _by_branch(bars: Iterable[Bar]) -> dict[str, list[list[Bar]]]:
    """Return the calls of each branch, each with all its bars: a step and its attempts are one. Times
    without a call, in which nobody had the run, lie under all others."""
    calls: dict[tuple[str, str, int], list[Bar]] = {}
    for bar in bars:
        if bar.kind not in ("gap", "held"):
            calls.setdefault((bar.branch, bar.key, bar.generation), []).append(bar)
    branches: dict[str, list[list[Bar]]] = {}
    for (branch, _, _), call in calls.items():
        branches.setdefault(branch, []).append(call)
    return branches


def _span(bars: Iterable[Bar], now: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    return min(bar.start for bar in bars), max(bar.end or now for bar in bars)


def _free(busy: list[dt.datetime], begun: dt.datetime, ended: dt.datetime) -> int:
    """Take the first place that is free from `begun` on, until `ended`."""
    free = next((at for at, until in enumerate(busy) if until <= begun), len(busy))
    busy[free : free + 1] = [max(begun, ended)]
    return free


def thinned(bars: list[Bar]) -> tuple[list[Bar], int]:
    """Leave out what says nothing more than its step, and join the oldest of too many bars."""
    retried = {(bar.key, bar.generation) for bar in bars if bar.attempt > 1}
    told = [bar for bar in bars if bar.kind != "attempt" or (bar.key, bar.generation) in retried]
    if len(told) <= BARS_MAX:
        return told, 0
    special = [bar for bar in told if bar.kind in ("gap", "held")][-SPECIAL_MAX:]
    others = [bar for bar in told if bar.kind not in ("gap", "held")]
    room = BARS_MAX - len(special) - 1
    old = others[:-room]
    ends = [bar.end for bar in old if bar.end is not None]
    one = Bar(
        "joined",
        "",
        "earlier steps",
        False,
        "",
        old[0].start,
        max(ends, default=old[-1].start),
        0,
        old[0].generation,
        count=len(old),
    )
    return sorted([one, *special, *others[-room:]], key=lambda bar: bar.start), len(old)
