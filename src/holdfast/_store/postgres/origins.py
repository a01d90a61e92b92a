"""Forks on a server: a run that one stands on is not removed while the fork is being written.

Both sides take the lock on the name of the run's inbox first, and look then: so one of them sees what
the other has done.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast._core.rows import RunRow
from holdfast._store import lineage, lookups
from holdfast._store.postgres.beside import inbox_lock
from holdfast._store.postgres.packing import fetch_with

if TYPE_CHECKING:
    from holdfast._store.postgres.link import Link


def keep_origins(link: Link, namespace: str, rows: Iterable[RunRow]) -> None:
    """Keep the runs that these were forked from until the commit; raises if one was deleted and the
    fork is not there yet."""
    forked = [(row, of.run) for row in rows if (of := lineage.origin_of(row)) is not None]
    if not forked:
        return
    link.fetch("lock_names", (sorted({inbox_lock(namespace, origin) for _, origin in forked}),))
    find = functools.partial(lookups.find_run, fetch_with(link), namespace)
    for row, _ in forked:
        if find(row.run_id) is None:
            lineage.check_origin(row, find)


def has_fork(link: Link, namespace: str, run_id: str) -> bool:
    """Tell whether a fork stands on a run whose name is locked."""
    return bool(link.fetch("fork_of", (namespace, *lineage.written_by_forks(run_id))))
