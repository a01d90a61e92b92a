"""The live view of `holdfast worker` in a terminal: processes, runs at work, queues, what was said.

It fits into the terminal, 80 x 24 at least: what there is no room for is counted.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from holdfast._ops import queues
from holdfast._ops.cli.looking import cell, table
from holdfast._ops.cli.queues import queues_table
from holdfast._ops.cli.workforce import Process, Workforce
from holdfast._ops.queues import QueueView
from holdfast._ops.text import count, length, visible
from holdfast._store.contract import Store
from holdfast.errors import StoreError

LOOK_S = 1.0
DRAW_S = 0.25
PROCESSES_SHOWN = 4
QUEUES_SHOWN = 4
SAID_SHOWN = 5


class Panel:
    """Draws a workforce, now and then."""

    def __init__(self, store: Store, out: Console) -> None:
        self._store = store
        self._out = out
        self._said: deque[str] = deque(maxlen=SAID_SHOWN)
        self._queues: list[QueueView] = []
        self._looked_s = self._drawn_s = float("-inf")
        self._live = Live(console=out, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """Remember what is to be seen at the bottom."""
        self._said.append(f"{time.strftime('%H:%M:%S')} {text}")

    def draw(self, workforce: Workforce) -> None:
        """Draw it, if the last time is a while ago."""
        for process in workforce.processes:
            while process.output:
                self._said.append(process.output.popleft())
        now_s = time.monotonic()
        if now_s - self._drawn_s < DRAW_S and not workforce.draining:
            return
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            try:
                self._queues = queues.queues(self._store)
            except StoreError as error:
                self.say(f"! {error}")
        self._drawn_s = now_s
        self._live.update(self.picture(workforce), refresh=True)

    # -- the picture ---------------------------------------------------------------------------

    def picture(self, workforce: Workforce) -> RenderableType:
        """Return what is to be seen now."""
        known = workforce.processes
        parts: list[RenderableType] = [
            self._head(workforce),
            self._processes(known),
            Text(),
        ]
        shown = self._queues[:QUEUES_SHOWN]
        said = list(self._said)
        used = 4 + min(len(known), PROCESSES_SHOWN + 1) + (len(shown) + 2) + (len(said) + 1)
        parts += [self._runs(known, max(1, self._out.height - used - 3)), Text()]
        if shown:
            parts += [queues_table(shown), Text()]
        parts += [Text(visible(line), "dim", no_wrap=True, overflow="ellipsis") for line in said]
        return Group(*parts)

    def _head(self, workforce: Workforce) -> Text:
        state = "draining" if workforce.draining else "ready" if workforce.ready() else "starting"
        working = sum(process.standing.working for process in workforce.processes)
        places = sum(process.order.concurrency for process in workforce.processes)
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append("holdfast worker ", "bold")
        line.append(f"{state}", {"ready": "green"}.get(state, "yellow"))
        line.append(f"  {working} of {places} places in use")
        if workforce.restarts:
            line.append(f"  {count(workforce.restarts, 'restart')}", "red")
        line.append(f"  {visible(self._store.url)}", "dim")
        return line

    @staticmethod
    def _processes(known: list[Process]) -> RenderableType:
        rows = table("PROCESS", "PID", "STATE", "AT WORK", "TAKEN")
        for process in known[:PROCESSES_SHOWN]:
            standing = process.standing
            state = "dead" if not process.pid else "draining" if standing.draining else "ready"
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
            return Text("No run is at work.", "dim")
        rows = table("RUN", "FLOW", "STEP", "FOR")
        now_us = self._store.now_us()
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
