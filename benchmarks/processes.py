"""CPU time of a process and of all that it started, read from outside (Linux)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
OWN_AND_ENDED = slice(11, 15)  # utime, stime, cutime, cstime: after pid, name and state.


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and its descendants, also of those that ended and were awaited."""
    return sum(_ticks(process) for process in tree(pid)) / TICKS_PER_S


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for process in found:
        found += _children(process)
    return found


def _children(pid: int) -> list[int]:
    """Threads may end, and the process too, while they are looked at."""
    found: list[int] = []
    with suppress(OSError):
        for task in list(Path(f"/proc/{pid}/task").iterdir()):
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def _ticks(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[OWN_AND_ENDED]))
