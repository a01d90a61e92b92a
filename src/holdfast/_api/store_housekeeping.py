"""What keeps a store tidy, as methods of an opened store: prune, export, import; its memories, and
what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast._engine.values.durations import Duration
from holdfast._features.memory.runtime import Memory

if TYPE_CHECKING:
    from holdfast._operator.act.garbage_collection import Collected
    from holdfast._operator.act.run_files import Imported, Written
    from holdfast._operator.read.trends import Trends
    from holdfast._runtime.engine import Engine
    from holdfast._stores.contract import Store as Kept


class Housekeeping:
    """The part of `Store` that is not about single runs at work."""

    if TYPE_CHECKING:
        _backend: Kept
        _engine: Engine

    def memory(self, name: str, *, recorded: bool = True) -> Memory:
        """Return a memory of this store; `holdfast.memory` is one of the default store, or of the
        run that asks. With `recorded=False` a run, too, reads and writes it at once, and its journal
        says nothing of it: for what has a history of its own."""
        return Memory(name, self._engine, recorded=recorded)

    def prune(
        self,
        *,
        older_than: Duration | None = None,
        flow: str | None = None,
        status: str | Iterable[str] | None = None,
        dry_run: bool = False,
        trends_retention: Duration | None = None,
    ) -> Collected:
        """Remove runs that ended longer ago than this; without it, as long ago as `@flow(retention=…)`
        of each says. Failed ones only if `status` names them. Their ids are not given again.
        Measures (`holdfast trends`) are kept for 14 days, or as long as `trends_retention` says."""
        from holdfast._operator.act import garbage_collection

        return garbage_collection.collect(
            self._backend,
            older_than=older_than,
            flow=flow,
            status=status,
            dry_run=dry_run,
            trends_retention=trends_retention,
        )

    def trends(self, *, hours: float = 24, flow: str | None = None) -> Trends:
        """Return latency, cost, errors, trace coverage and saturation over the last hours, of all
        processes that executed runs. They write what they did about once a minute."""
        from holdfast._operator.read import trends

        return trends.trends(self._backend, hours=hours, flow=flow)

    def export_run(self, run_id: str, path: str | Path) -> Written:
        """Write a run to a new file, with its chain and the runs that belong to it."""
        from holdfast._operator.act import run_files

        return run_files.export(self._backend, run_id, path)

    def import_run(self, path: str | Path) -> Imported:
        """Read a run that was exported into this store; raises Corrupt if the file was changed."""
        from holdfast._operator.act import run_files

        return run_files.import_runs(self._backend, path)
