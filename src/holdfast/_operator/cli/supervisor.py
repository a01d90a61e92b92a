"""Start a run's process, follow it through the journal, and start another when it dies.

A dead process proves nothing about the run, so nothing is decided here: the next process takes the
run over and resumes it from its journal. If process after process dies without a new record, the
store quarantines the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

import msgspec

from holdfast._engine.journal.lifecycle import CLAIMABLE
from holdfast._operator.cli.child_process import start
from holdfast._operator.cli.exit_codes import ERROR, HELD, INTERRUPTED
from holdfast._operator.cli.progress_lines import Follower
from holdfast._operator.cli.run_process import Order, Report
from holdfast.errors import StoreError

LOOK_S = 0.05
BACKOFF_S = 0.2
BACKOFF_MAX_S = 5.0
DEATHS_BEFORE_START = 3
"""How many processes may die without recording anything."""
RELEASE_S = 3.0
GRACE_S = 30.0
"""How long a process may take to release its run: after Ctrl-C, and after SIGTERM."""


class Child:
    """A process that executes the run."""

    def __init__(
        self, order: Order, *, stdout: int | None, env: dict[str, str] | None = None
    ) -> None:
        self._reads, writes = os.pipe()
        life_reads, self._life = os.pipe()
        order = msgspec.structs.replace(order, report_fd=writes, life_fd=life_reads)
        self.process = start(
            "holdfast._operator.cli.run_process",
            order,
            (writes, life_reads),
            stdout=stdout,
            env=None if env is None else os.environ | env,
        )
        os.close(writes)
        os.close(life_reads)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def ended(self) -> bool:
        """Return whether the process is gone."""
        return self.process.poll() is not None

    def report(self) -> Report | None:
        """Return its report, or None if it died."""
        self.process.wait()
        os.close(self._life)
        with os.fdopen(self._reads, "rb") as pipe:
            raw = pipe.read()
        return msgspec.json.decode(raw, type=Report) if raw else None

    def fate(self) -> str:
        """Return the cause of death of a process."""
        code = self.process.returncode
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code} before its run did"


class Supervisor:
    """Executes one run, in as many processes as needed."""

    def __init__(
        self,
        follower: Follower,
        start: Callable[[], Child],
        on_death: Callable[[Child, float], None],
    ) -> None:
        self.follower = follower
        self.start = start
        self.on_death = on_death
        self.deaths = 0
        self.restarts = 0

    def work(self) -> Report:
        """Return the report of the run's last process."""
        while True:
            before = self._brought_on()
            child = self.start()
            try:
                self._watch(child)
            except KeyboardInterrupt:
                # At a terminal the child has received the signal too, and is releasing its run.
                return self._interrupt(child, RELEASE_S)
            except SystemExit:
                return self._interrupt(child, 0.0)
            report = child.report()
            self.follower.follow()
            if report is not None and self._was_freed(report):
                continue
            if report is not None:
                return report
            if not self._goes_on():
                return Report(ERROR, f"its process {child.fate()}")
            self.deaths = 1 if self._brought_on() > before else self.deaths + 1
            if self._dies_at_once():
                return Report(ERROR, f"its process {child.fate()}, {self.deaths} times in a row")
            pause_s = min(BACKOFF_S * 2 ** (self.deaths - 1), BACKOFF_MAX_S)
            self.on_death(child, pause_s)
            self.restarts += 1
            try:
                time.sleep(pause_s)
            except (KeyboardInterrupt, SystemExit):
                return Report(INTERRUPTED)

    def _watch(self, child: Child) -> None:
        try:
            while not child.ended():
                self.follower.follow()
                self.follower.store.wait_for_change(LOOK_S)
        except StoreError:
            # An unreadable journal cannot be followed. The process gets the same error and reports
            # it.
            child.process.wait()

    def _was_freed(self, report: Report) -> bool:
        """Return whether somebody settled the run while its process was still executing. A run that
        does not fit this version of its flow can continue too, but not with this code."""
        return report.code == HELD and not report.unfit and self._goes_on()

    def _goes_on(self) -> bool:
        row = self.follower.store.get(self.follower.run_id)
        return row is None or row.status in CLAIMABLE

    def _brought_on(self) -> tuple[int, str]:
        """Return a mark of the progress of a process; a claim of the run does not count."""
        row = self.follower.store.get(self.follower.run_id)
        return (0, "") if row is None else (row.steps, row.skips)

    def _dies_at_once(self) -> bool:
        return self.follower.seen == 0 and self.deaths >= DEATHS_BEFORE_START

    def _interrupt(self, child: Child, patience_s: float) -> Report:
        """Let the process release its run; after a second interrupt, stop waiting."""
        try:
            if not _ends(child, patience_s):
                child.process.send_signal(signal.SIGTERM)
                if not _ends(child, GRACE_S):
                    child.process.kill()
        except KeyboardInterrupt:
            child.process.kill()
        child.report()
        self.follower.follow()
        return Report(INTERRUPTED)


def _ends(child: Child, within_s: float) -> bool:
    try:
        child.process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True
