"""Entries that the store writes by itself in a claim are counted and told by who made the claim: a run
that was claimed once too often is held as quarantined, and no execution is there to say so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import HeldReason
from holdfast._engine.journal.rows import RunRow
from holdfast._runtime import log as logs, observer_registry
from holdfast._runtime.execution.inbox import absorb

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine


def quarantined(engine: Engine, rows: Iterable[RunRow], since_us: int = 0) -> None:
    """Count runs that a claim of this process has held, and notify observers; another process reported
    what was held before `since_us`."""
    for row in rows:
        try:
            _noticed(engine, row, since_us)
        except Exception as error:  # It was held all the same.
            logs.failure("a quarantine could not be counted; runs go on", error=error)


def _noticed(engine: Engine, row: RunRow, since_us: int) -> None:
    if row.held_reason != HeldReason.QUARANTINED:
        return
    entry = engine.backend.entry(row.run_no, row.last_seq)
    if entry is not None and entry.kind is Kind.RUN_HELD and entry.at_us >= since_us:
        for listener in engine.listeners:
            listener.noticed(row, entry)
        observer_registry.noticed(engine.backend, row, entry)
        absorb(engine, row.run_id)  # A cancel that was on its way is carried out all the same.
