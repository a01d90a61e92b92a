"""The watchdog of a worker: about once a minute it looks at the open runs of its store, and does what
their flows declare about what it finds.

Several workers may look at one run: what is decided goes under the id of the finding, so it is done
once. A function is called by one worker at a time, and again if that one dies before it is noted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.changes import TakeMessage
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import CLAIMABLE, Status
from holdfast._engine.journal.rows import Lease, Memo, Message, RunRow, Write
from holdfast._engine.scripts.stops import Unwind
from holdfast._features.watchdog import store as watchdog
from holdfast._features.watchdog.model import (
    Finding,
    Found,
    Severity,
    Watchdog,
    finding_write,
    note,
    noted_in,
    read,
)
from holdfast._features.watchdog.store import Survey
from holdfast._runtime import log as logs
from holdfast._runtime.clocks import CHANCE, Thread
from holdfast._runtime.feature import PeriodicJob, installed
from holdfast._stores.families import open_children
from holdfast.errors import HoldfastError, RunError

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.execution import Execution
    from holdfast._runtime.registry import RegisteredFlow

EVERY_US = 60_000_000
SHARE = 200
"""A round that took long is followed by a pause of so many times its length."""
LOADED_MAX = 500
"""How many journals are read in one round at most."""
CALL_US = 60_000_000
"""How long a worker has for a function, before another one calls it."""
CALLS = "holdfast.watchdog"
"""The memory in which workers say who calls a function."""

Flows = Callable[[], Mapping[str, Any]]
STOPS = {"hold": "pause", "cancel": "cancel"}
"""Actions of a finding on a run, and the messages that do the same."""


class WatchdogLoop(PeriodicJob):
    """Makes the rounds of one worker, each in a thread of its own."""

    def __init__(self, engine: Engine, flows: Flows) -> None:
        self._engine = engine
        self._flows = flows
        self._survey = Survey(engine.backend)
        self._seen: dict[int, tuple[int, int]] = {}
        """Of each run, the last entry that was looked at, and after how long it is quiet."""
        self._due_us = engine.now_us() + int(CHANCE.uniform(0.3, 1.0) * EVERY_US)
        self._thread: threading.Thread | None = None

    def run(self) -> None:
        """Begin a round, if it is time and none is under way."""
        if self._engine.now_us() < self._due_us:
            return
        if self._thread is None or not self._thread.is_alive():
            self._due_us = self._engine.now_us() + EVERY_US
            thread = Thread(target=self._run, name="holdfast-watchdog")
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        began_us = self._engine.now_us()
        try:
            for listener in self._engine.listeners:
                listener.sample()
            for begin in installed.begin_survey:
                begin(self._engine)
            for _ in self.round():
                pass
        except Exception as error:
            if not self._engine.closed:
                logs.warning("the watchdog could not look at the runs: %s", error)
        took_us = self._engine.now_us() - began_us
        self._due_us = began_us + max(
            int(CHANCE.uniform(0.8, 1.2) * EVERY_US), min(took_us * SHARE, 60 * EVERY_US)
        )

    def round(self) -> Iterator[Finding]:
        """Look at what has changed, and act; yields what was acted on. A run that cannot be looked
        at keeps no other from its turn."""
        failed: Exception | None = None
        left = LOADED_MAX
        flows = self._flows()
        met: set[int] = set()
        for row in watchdog.open_rows(self._engine.backend):
            if self._engine.closed or left <= 0:
                break
            met.add(row.run_no)
            if self._is_worth_it(row):
                left -= 1
                try:
                    yield from self._look_at(row, flows)
                except Exception as error:
                    failed = failed or error
        else:
            self._forget(met)
        if failed is not None:
            raise failed

    def _forget(self, met: set[int]) -> None:
        self._seen = {run_no: it for run_no, it in self._seen.items() if run_no in met}

    def _is_worth_it(self, row: RunRow) -> bool:
        """Return whether a look at the journal could show something that was not seen before."""
        now_us = self._engine.now_us()
        sleeps = row.status is Status.WAITING and (row.wake_us is None or row.wake_us > now_us)
        known = self._seen.get(row.run_no)
        if known is not None and known[0] == row.last_seq:
            is_quiet = now_us - row.updated_us > known[1]
            return row.status in CLAIMABLE and is_quiet and (row.owner is not None or not sleeps)
        return not (sleeps and row.owner is None and not row.attempts)

    def _look_at(self, row: RunRow, flows: Mapping[str, Any]) -> Iterator[Finding]:
        quiet_us = self._survey.stuck_us(row)
        found = self._survey.findings(row)
        if (yield from _acted(self._engine, row, found, flows.get(row.flow))):
            self._seen[row.run_no] = (row.last_seq, quiet_us)


def run_once(engine: Engine, flows: Mapping[str, Any], run_id: str | None = None) -> list[Finding]:
    """Make one round now, over all runs or one; returns what was acted on."""
    if run_id is None:
        return list(WatchdogLoop(engine, lambda: flows).round())
    row = engine.backend.get(run_id)
    if row is None or row.deleted_us is not None or row.status not in watchdog.OPEN:
        return []
    found = Survey(engine.backend).findings(row)
    return list(_acted(engine, row, found, flows.get(row.flow)))


def _acted(
    engine: Engine, row: RunRow, found: list[Finding], flow: RegisteredFlow | None
) -> Generator[Finding, None, bool]:
    """Do what a flow declares about findings. Of a flow that is not known here, only what no worker
    could act on is noted: that nobody executes it. Returns whether all of it was reported to the features
    that asked for it."""
    declared = None if flow is None else flow.watch
    watch = declared or engine.options.get("watchdog") or Watchdog()
    reported = [it for it in found if watch.act(it.kind) != "ignore"]
    is_reported = True
    for report in installed.report_findings:
        is_reported &= report(engine, row, reported)
    for finding in found:
        if flow is None and finding.kind is not Found.STUCK:
            continue
        act = watch.act(finding.kind)
        if act == "ignore":
            continue
        if finding.severity is Severity.INFO and act in STOPS:
            act = "note"  # It wants nobody: what it is held for does, or its budget.
        try:
            if watchdog.is_decided(engine.backend, row, finding):
                watchdog.take_in(engine.backend, row.run_id)
                continue
            if callable(act):
                did = _called(engine, finding, act)
                if did is None:
                    continue
            else:
                did = act
            watchdog.tell(engine.backend, finding, did)
        except HoldfastError as error:
            text = "a finding of run %s could not be acted on: %s"
            logs.warning(text, row.run_id, error, about=row)
            continue
        text = "run %s is %s (%s): %s"
        logs.warning(text, row.run_id, finding.kind, did, finding.text, about=row)
        yield finding
    return is_reported


def _called(engine: Engine, finding: Finding, act: Callable[[Finding], object]) -> str | None:
    """Call a function of the user, unless another worker does; None if it is not through."""
    name = getattr(act, "__name__", "a function")
    if not _may_call(engine, finding):
        return None
    try:
        act(finding)
    except Exception as error:
        logs.warning(
            "%s, which is to be called for a finding of run %s, raised %r; it is called again",
            *(name, finding.run_id, error),
        )
        return None
    return f"called {name}"


def _may_call(engine: Engine, finding: Finding) -> bool:
    key = f"{finding.run_id}/{finding.id}"[:180]
    memo = Memo(CALLS, key, b"true", expires_us=engine.now_us() + CALL_US)
    return engine.backend.put_memo(memo, 0) is not None


# -- a run at work here ------------------------------------------------------------------------


def take_in(execution: Execution, message: Message) -> None:
    """Apply a finding to a run that this process executes: note it now; if it stops the run, release
    the run and write both then."""
    decision = read(message)
    kept = execution.engine.backend
    stop = STOPS.get(decision.did)
    if stop == "cancel" and execution.history.rollback is not None:
        stop = None
    row = kept.get(execution.run_id)
    if row is None:
        return
    is_noted = decision.id in noted_in(kept.load(row))
    if stop is not None and not is_noted:
        text = f"run {execution.run_id!r} is {decision.finding}: {decision.text}"
        execution.stop(Unwind(RunError(execution.run_id, text), released=stop), later=True)
        return
    entries = [] if is_noted else [note(decision, execution.engine.now_us())]
    execution.recorder.write(
        entries, execution.recorder.in_background, changes=[TakeMessage(message.message_id)]
    )


def decided(engine: Engine, lease: Lease, history: History, message: Message, at_us: int) -> Write:
    """Return the write of a finding that was taken while this process had the run."""
    entries = engine.backend.load(lease.row)
    children = open_children(engine.backend, lease.row.run_id)
    return finding_write(lease, history, entries, children, read(message), at_us)


def stops(message: Message) -> bool:
    """Return whether a finding stops its run."""
    return read(message).did in STOPS
