"""Forks on a server: a run that one stands on is not removed while the fork is being written.

Both sides take the lock on the name of the run's inbox first, and look then: so one of them sees what
the other has done.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast._engine.journal.rows import RunRow
from holdfast._stores import lineage, lookups
from holdfast._stores.postgres.postgres_queries import fetch_with
from holdfast._stores.postgres.postgres_side_tables import inbox_lock

if TYPE_CHECKING:
    from holdfast._stores.postgres.server_connection import Link


def keep_origins(
    link: Link, namespace: str, rows: Iterable[RunRow], etags: Sequence[str | None] = ()
) -> None:
    """Keep the runs that these were forked from until the commit; raises if one was deleted, or
    has another etag, and the fork is not there yet."""
    views = itertools.chain(etags, itertools.repeat(None))
    forked = [
        (row, of.run, view)
        for row, view in zip(rows, views, strict=False)
        if (of := lineage.origin_of(row)) is not None
    ]
    if not forked:
        return
    link.fetch("lock_names", (sorted({inbox_lock(namespace, origin) for _, origin, _ in forked}),))
    find = functools.partial(lookups.find_run, fetch_with(link), namespace)
    for row, origin, view in forked:
        if find(row.run_id) is not None:
            continue
        other = None if view is None else find(origin)
        if other is not None:  # From here on it stays as it is.
            link.fetch("lock_run", (other.run_no,))
        lineage.check_origin(row, find, view)


def has_fork(link: Link, namespace: str, run_id: str) -> bool:
    """Tell whether a fork stands on a run whose name is locked."""
    return bool(link.fetch("fork_of", (namespace, *lineage.written_by_forks(run_id))))
