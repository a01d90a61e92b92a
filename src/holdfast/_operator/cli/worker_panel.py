"""The live terminal view of `holdfast worker`: processes, running runs, queues, log lines.

It fits in the terminal, 80 x 24 at least: rows without room are counted.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast._engine.text import count, length, visible
from holdfast._operator.cli.queue_commands import queues_table
from holdfast._operator.cli.tables import cell, table
from holdfast._operator.cli.worker_pool import Process, WorkerPool
from holdfast._operator.read import queue_views
from holdfast._operator.read.queue_views import QueueView
from holdfast._stores.contract import Store
from holdfast.errors import StoreError

LOOK_S = 1.0
DRAW_S = 0.25
PROCESSES_SHOWN = 4
QUEUES_SHOWN = 4
SAID_ROWS = 6
LINE_ROWS = 3
"""The maximum number of rows of one log line."""
_LOGGED = re.compile(r"^\d{4}-\d\d-\d\d (\d\d:\d\d:\d\d),\d{3} (\w+) ")


class Panel:
    """Draws the state of a pool at intervals."""

    def __init__(self, opens: Callable[[], Store], url: str, out: Console) -> None:
        self._opens = opens
        self._url = url
        self._out = out
        self._store: Store | None = None
        self._said: deque[str] = deque(maxlen=SAID_ROWS)
        self._queues: list[QueueView] = []
        self._drawn_s = float("-inf")
        self._ending = threading.Event()
        self._looker = threading.Thread(target=self._run, name="holdfast-view", daemon=True)
        self._live = Live(console=out, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        self._looker.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()
        self._ending.set()
        self._looker.join(LOOK_S)

    def _run(self) -> None:
        """Query the store in a separate thread: a store that does not answer must not block the
        panel."""
        while not self._ending.is_set():
            self.look()
            self._ending.wait(LOOK_S)

    def look(self) -> None:
        """Read the queues; the processes report problems of the store."""
        with contextlib.suppress(StoreError):
            self._store = self._store or self._opens()
            self._queues = queue_views.queues(self._store)

    def say(self, text: str) -> None:
        """Add a line to the bottom of the panel."""
        self._said.append(f"{time.strftime('%H:%M:%S')} {text}")

    def draw(self, pool: WorkerPool) -> None:
        """Draw the panel, if the last time is long enough ago."""
        for process in pool.processes:
            while process.output:
                self._said.append(brief(process.output.popleft()))
        now_s = time.monotonic()
        if now_s - self._drawn_s < DRAW_S and not pool.draining:
            return
        self._drawn_s = now_s
        self._live.update(self.picture(pool), refresh=True)

    # -- the picture ---------------------------------------------------------------------------

    def picture(self, pool: WorkerPool) -> RenderableType:
        """Return the current picture."""
        known = pool.processes
        parts: list[RenderableType] = [
            self._head(pool),
            self._processes(known),
            Text(),
        ]
        shown = self._queues[:QUEUES_SHOWN]
        said = self._rows_said()
        used = 4 + min(len(known), PROCESSES_SHOWN + 1) + (len(shown) + 2) + (len(said) + 1)
        parts += [self._runs(known, max(1, self._out.height - used - 3)), Text()]
        if shown:
            parts += [queues_table(shown), Text()]
        return Group(*parts, *said)

    def _rows_said(self) -> list[Text]:
        """Return the last log lines; long ones take several rows."""
        rows: list[Text] = []
        for line in reversed(self._said):
            folded = list(Text(visible(line), "dim").wrap(self._out, self._out.width))
            if len(folded) > LINE_ROWS:
                folded = [*folded[: LINE_ROWS - 1], folded[LINE_ROWS - 1].append(" …")]
            if rows and len(rows) + len(folded) > SAID_ROWS:
                break
            rows = [*folded, *rows]
        for row in rows:
            row.no_wrap, row.overflow = True, "ellipsis"
        return rows

    def _head(self, pool: WorkerPool) -> Text:
        state, style = self._state(pool)
        working = sum(process.standing.working for process in pool.processes)
        places = sum(process.order.concurrency for process in pool.processes)
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("holdfast worker ", "bold")
        line.append(state, style)
        line.append(f"  {working} of {places} places in use")
        if pool.restarts:
            line.append(f"  {count(pool.restarts, 'restart')}", "red")
        line.append(f"  {visible(self._url)}", "dim")
        return line

    @staticmethod
    def _state(pool: WorkerPool) -> tuple[str, str]:
        if pool.draining:
            return ("ended" if pool.ended else "draining"), "yellow"
        standings = [process.standing for process in pool.processes]
        silent = [one.silent_since for one in standings if one.silent_since is not None]
        if silent:
            since = time.strftime("%H:%M:%S", time.localtime(min(silent)))
            return f"the store cannot be reached since {since}", "bold red"
        return ("ready", "green") if pool.ready() else ("starting", "yellow")

    @staticmethod
    def _processes(known: list[Process]) -> RenderableType:
        rows = table("PROCESS", "PID", "STATE", "AT WORK", "TAKEN")
        for process in known[:PROCESSES_SHOWN]:
            standing = process.standing
            state = "draining" if standing.draining else "ready"
            if not process.pid:
                state = "dead" if process.code else "ended" if process.code == 0 else "starting"
            if state == "ready" and not standing.ready:
                state = "starting" if standing.trouble is None else "store!"
            rows.add_row(
                cell(standing.name or "…"),
                cell(str(process.pid or "")),
                cell(state, "green" if state == "ready" else "yellow"),
                cell(f"{standing.working}/{process.order.concurrency}"),
                cell(str(standing.taken)),
            )
        if len(known) > PROCESSES_SHOWN:
            rows.add_row(cell(f"and {len(known) - PROCESSES_SHOWN} more"))
        return rows

    def _runs(self, known: Iterable[Process], room: int) -> RenderableType:
        running = sorted(
            (run for process in known for run in process.standing.runs),
            key=lambda run: run.since_us,
        )
        total = sum(process.standing.working for process in known)
        if not running:
            return Text("No run is executing.", "dim")
        rows = table("RUN", "FLOW", "STEP", "FOR")
        now_us = time.time_ns() // 1000 if self._store is None else self._store.now_us()
        shown = running[: room if total <= room else max(1, room - 1)]
        for run in shown:
            rows.add_row(
                cell(run.run_id),
                cell(run.flow),
                cell(run.step or ""),
                cell(length(max(0.0, (now_us - run.since_us) / 1e6))),
            )
        if total > len(shown):
            rows.add_row(cell(f"and {total - len(shown)} more", "dim"))
        for column in rows.columns:
            column.no_wrap, column.overflow = True, "ellipsis"
        return rows


def brief(line: str) -> str:
    """Return a log line without its date and level, to save room."""
    return _LOGGED.sub(lambda it: f"{it[1]} {'' if it[2] == 'INFO' else '! '}", line)
