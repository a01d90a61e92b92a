"""Suspects: runs that may be a poison pill, which kills each process that executes it.

A suspect was claimed twice without a new outcome. It is executed alone in its process, so that nothing
else dies with it. An idle worker takes one at once. When a suspect has waited for a while, a busy
worker stops taking runs until it is empty, and then takes the suspect. If it does not become empty in
time it works as usual and tries again later. A suspect that executes for long gets company again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from holdfast._engine.journal.rows import Lease, RunRow
from holdfast._runtime import log as logs, worker_log
from holdfast._runtime.clocks import CHANCE
from holdfast._stores.claim_rules import SUSPECT_AT
from holdfast._stores.contract import Store, Wanted

HUNGRY_AFTER_S = 5.0
"""How long a suspect waits for a worker with nothing to do, before one that is at work makes room."""
EMPTYING_S = 60.0
"""How long a worker takes nothing, at most, until it is empty."""
SATED_S = 60.0
"""How long it goes on as usual after it was not empty in time."""
ALONE_S = 60.0
"""How long a suspect has the worker to itself, at most: what has lived so long does not kill quickly,
and others do not wait for it any longer."""
HERD = 1.4
"""Workers become hungry at different times: one that has not yet sees that another was first."""


class Hunger:
    """The waiting suspects, as one worker knows them."""

    def __init__(self) -> None:
        self.sees_one = False
        """Whether the last look passed one over."""
        self._hungry_at_s: float | None = None
        self._until_s: float | None = None
        self._sated_until_s = 0.0

    def looked(self, passed_over: bool, saw_all: bool) -> None:
        """Take in what a look for other runs came by. One that found enough before it was through
        says nothing about the rest."""
        now_s = time.monotonic()
        self.sees_one = passed_over
        if not passed_over:
            self._hungry_at_s = None if saw_all else self._hungry_at_s
            return
        if self._hungry_at_s is None:
            self._hungry_at_s = now_s + HUNGRY_AFTER_S * CHANCE.uniform(1.0, HERD)
        if now_s >= max(self._hungry_at_s, self._sated_until_s):
            self._until_s = now_s + EMPTYING_S
            logs.info("a run is to be executed alone: nothing is taken until this worker is empty")

    @property
    def is_emptying(self) -> bool:
        """Whether nothing is to be taken beside what is at work."""
        until_s = self._until_s  # The pulse asks as well, in a thread of its own.
        if until_s is not None and time.monotonic() >= until_s:
            self._until_s = None
            self._sated_until_s = time.monotonic() + SATED_S
        return self._until_s is not None

    def asked(self) -> None:
        """A suspect was asked for: taken, or gone."""
        self.sees_one = False
        self._hungry_at_s = self._until_s = None


def at_work_alone(rows: Iterable[tuple[RunRow, int]], now_us: int) -> RunRow | None:
    """Return the run beside which nothing is taken, of those at work, each with the time since when:
    one that was taken to be alone, has brought nothing new, and was not at work for long."""
    for row, since_us in rows:
        if row.claims > SUSPECT_AT and now_us - since_us < ALONE_S * 1e6:
            return row
    return None


def why_alone(row: RunRow) -> dict[str, str]:
    """Return what the pulse says of a run that is executed alone."""
    return {"run_id": row.run_id, "why": _died(row.claims - 1)}


def log_suspects(store: Store, wanted: Wanted, leases: Iterable[Lease]) -> None:
    """Log which runs a take has held, and which suspect is executed now."""
    for row in wanted.quarantined:
        text = "run %s of %s is quarantined: %s; see: %s"
        see = worker_log.explain_command(store, row.run_id)
        logs.warning(text, row.run_id, row.flow, _died(row.claims), see, about=row)
    for row in (lease.row for lease in leases if wanted.suspects):
        text = "run %s of %s is executed alone: %s"
        logs.warning(text, row.run_id, row.flow, _died(row.claims - 1), about=row)


def _died(times: int) -> str:
    """Return why a run is a suspect."""
    return f"{times} times in a row its process ended before anything new was recorded"
