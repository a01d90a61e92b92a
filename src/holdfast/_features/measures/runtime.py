"""Measures that this process writes to the store about once a minute: its work by flow, and how busy
the slots of its worker were.

It counts every committed write in memory and never fails a run: measures that cannot be written are
tried again later. An idle process writes nothing; an idle worker writes four times an hour, so that
the utilization of a fleet is known.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.rows import RunRow, Write
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.measures.model import MINUTE_US, minute_of
from holdfast._features.measures.tally import Tally
from holdfast._runtime import log as logs
from holdfast._runtime.feature import CommitListener

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.worker.slots import Slots

IDLE_US = 15 * MINUTE_US
"""For how long a worker that waits says nothing."""
PENDING_MAX = 2000
"""How many measures are kept that could not be written yet."""


class Measuring(CommitListener):
    """Counts for one engine, that is for one store."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._tally = Tally()
        self._pending: list[Measure] = []
        self._idle: Measure | None = None
        self._told_us = 0
        self._slots: Slots | None = None
        """The places of the worker, if there is one."""
        self._looked: tuple[float, float] = (0.0, 0.0)
        """When they were looked at last, and how long they had been busy by then."""
        self._failed = False
        self._complained = False

    # -- what is counted -----------------------------------------------------------------------

    def wrote(self, writes: Sequence[Write]) -> None:
        """Count writes that are committed."""
        with self._lock:
            for write in writes:
                try:
                    self._tally.wrote(write.lease.row, write.drafts)
                except Exception as error:  # The caller of a run does not suffer from it.
                    if not self._complained:
                        logs.failure("a write could not be counted; runs go on", error=error)
                    self._complained = True

    def noticed(self, row: RunRow, entry: Entry) -> None:
        """The store has written an entry by itself when this process asked for the run."""
        with self._lock:
            self._tally.wrote(row, [entry])

    def traced(self, flow: str) -> None:
        """An attempt had a span of a trace."""
        now_us = self._engine.now_us()
        with self._lock:
            self._tally.at(now_us, flow).traced += 1

    def left(self, run_no: int) -> None:
        """A run is executed here no longer."""
        with self._lock:
            self._tally.left(run_no)

    def sample(self) -> None:
        """Look how many runs are ready or abandoned, and wait for a place; a worker does it about once
        a minute."""
        ready = sum(state.ready + state.abandoned for state in self._engine.backend.queues())
        now_us = self._engine.now_us()
        with self._lock:
            counts = self._tally.at(now_us, "")
            counts.ready += ready
            counts.samples += 1

    def works_in(self, slots: Slots | None) -> None:
        """A worker has places from now on, or none any more."""
        self._look()
        with self._lock:
            self._slots = slots
            if slots is not None:
                self._looked = (time.monotonic(), slots.busy_s())

    def _look(self) -> None:
        """See how busy the worker's places were since the last look."""
        now_us = self._engine.now_us()
        with self._lock:
            if self._slots is None:
                return
            (before_s, busy_before_s), busy_s = self._looked, self._slots.busy_s()
            now_s = time.monotonic()
            self._looked = (now_s, busy_s)
            counts = self._tally.at(now_us, "")
            span_us = int((now_s - before_s) * 1e6)
            counts.span_us += span_us
            counts.places_us += span_us * self._slots.size
            counts.busy_us += int((busy_s - busy_before_s) * 1e6)

    # -- what is written -----------------------------------------------------------------------

    def beat(self) -> None:
        """Called every few seconds: write the minutes that are over."""
        self._look()
        minute_us = minute_of(self._engine.now_us())
        if minute_us > self._told_us:
            self._told_us = minute_us
            self._write(minute_us)

    def flush(self) -> None:
        """Write all that was counted so far, also of this minute."""
        self._look()
        self._write(minute_of(self._engine.now_us()), ends=True)

    def close(self) -> None:
        """Write what is left; a store that could not be written to just now is not waited for."""
        if not self._failed and not self._engine.heartbeat.failed:
            self.flush()

    def _write(self, minute_us: int, *, ends: bool = False) -> None:
        self._engine.hear()
        with self._writing:
            with self._lock:
                process = self._name()
                taken = self._tally.take(minute_us, process)
                self._pending += [it for it in taken if it.flow]
                for measure in (it for it in taken if not it.flow):
                    self._was_at_work(measure)
                open_rows = self._tally.peek(process) if ends else []
                if self._idle is not None and (ends or self._idle.counts.span_us >= IDLE_US):
                    self._pending.append(self._idle)
                    self._idle = None
                del self._pending[:-PENDING_MAX]
                rows = [*self._pending, *open_rows]
            if rows and self._put(rows):
                self._pending = []

    def _put(self, rows: list[Measure]) -> bool:
        try:
            self._engine.backend.put_measures(rows)
        except Exception as error:
            if not self._failed:
                logs.warning("measures could not be written, and are kept for now: %s", error)
            self._failed = True
            return False
        self._failed = False
        return True

    def _was_at_work(self, measure: Measure) -> None:
        """Take a minute of the worker: one in which nothing was at work and nothing waited is joined
        with those before it."""
        idle, counts = self._idle, measure.counts
        follows = idle is not None and measure.at_us - idle.at_us <= (
            idle.counts.span_us + 2 * MINUTE_US
        )
        if idle is not None and (counts.busy_us or counts.ready or not follows):
            self._pending.append(idle)
            self._idle = None
        if counts.busy_us or counts.ready:
            self._pending.append(measure)
        elif self._idle is None:
            self._idle = Measure(measure.at_us, measure.process, "", Counts())
            self._idle.counts.add(counts)
        else:
            self._idle.counts.add(counts)

    def _name(self) -> str:
        """Return what this process is called among measures: nobody else has its number as owner."""
        return f"{os.uname().nodename}:{os.getpid()}:{self._engine.owned_as or 0}"


def measuring(engine: Engine) -> Measuring:
    """Return what counts for an engine."""
    return next(it for it in engine.listeners if isinstance(it, Measuring))
