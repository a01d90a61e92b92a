"""Garbage collection: remove runs whose retention has ended; report the runs removed and those left."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast._engine.values import durations
from holdfast._engine.values.durations import Duration
from holdfast._features.retention import store as sweeping
from holdfast._features.retention.model import Asked, checked_statuses
from holdfast._features.retention.store import Sweeper, Swept
from holdfast._stores.contract import Progress, Store, no_progress


class Collected(msgspec.Struct, frozen=True):
    """The result of a collection, or of its dry run."""

    removed: list[Swept]
    left: list[Swept]
    """Matching runs that stay, each with the reason."""
    dry_run: bool
    beside: int = 0
    """How many old values of memories, and leftovers of dead processes, were removed too."""
    measures: int = 0
    """How many old measures were removed too."""


def collect(
    store: Store,
    *,
    older_than: Duration | None = None,
    flow: str | None = None,
    status: str | Iterable[str] | None = None,
    dry_run: bool = False,
    trends_retention: Duration | None = None,
    progress: Progress = no_progress,
) -> Collected:
    """Remove ended runs whose retention is over; their ids are kept, and not given again."""
    older_than_us = (
        None if older_than is None else durations.micros(older_than, "prune(older_than=…)")
    )
    keep_us = sweeping.MEASURES_US
    if trends_retention is not None:
        keep_us = durations.micros(trends_retention, "prune(trends_retention=…)")
    asked = Asked(older_than_us, flow=flow, statuses=checked_statuses(status))
    swept: list[Swept] = []
    for run in Sweeper(store, asked, dry_run=dry_run).sweep():
        swept.append(run)
        progress("runs", len(swept), 0)
    beside, measures = 0, 0
    if not dry_run:
        beside = sweeping.tidy(store)
        measures = sweeping.drop_measures(store, keep_us)
    return Collected(
        [run for run in swept if run.removed],
        [run for run in swept if not run.removed],
        dry_run,
        beside,
        measures,
    )
