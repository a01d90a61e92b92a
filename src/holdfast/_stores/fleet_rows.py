"""Sealed rows that a fleet shares: queue limits and schedules.

Rows are verified on reading. Damage stops the operations that depend on the row, until it is set
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.rows import GENESIS
from holdfast._engine.values.digest import seal
from holdfast._stores.contract import Limits, ScheduleRow
from holdfast._stores.lookups import Fetch
from holdfast.errors import Corrupt

Values = Sequence[Any]


def limits_values(namespace: str, limits: Limits) -> tuple[Any, ...]:
    """Return the values to insert into queues; the digest comes last."""
    return _sealed(namespace, limits)


def limits_in(fetch: Fetch, namespace: str) -> dict[str, Limits]:
    """Return the verified limits of a namespace, by queue. All rows are read, so that a row with a
    damaged namespace is noticed too."""
    return limits_of_rows(fetch("all_limits", ()), namespace)


def limits_of_rows(rows: Iterable[Values], namespace: str) -> dict[str, Limits]:
    """Return the verified limits of a namespace among all rows of queues."""
    found = [(values[0], limits_of(values)) for values in rows]
    return {limits.queue: limits for place, limits in found if place == namespace}


def schedules_in(fetch: Fetch, namespace: str) -> list[ScheduleRow]:
    """Return the verified schedules of a namespace, by name."""
    found = [(values[0], schedule_of(values)) for values in fetch("all_schedules", ())]
    return [row for place, row in found if place == namespace]


def schedule_in(fetch: Fetch, namespace: str, name: str) -> ScheduleRow | None:
    """Return a verified schedule, or None if there is none."""
    found = fetch("schedule", (namespace, name))
    return schedule_of(found[0]) if found else None


def limits_of(values: Values) -> Limits:
    """Return the verified limits of a queue."""
    _check(values, f"the limits of queue {values[1]!r}", "set them again")
    limits = Limits(*values[1:-1])
    limits.paused = bool(limits.paused)
    return limits


def queue_name(name: object) -> str:
    """Return the queue name in a run's row; a name that is not a string is damage."""
    if not isinstance(name, str):
        raise Corrupt("the queue of a run", why=f"{name!r} is no name")
    return name


def schedule_values(namespace: str, row: ScheduleRow) -> tuple[Any, ...]:
    """Return the values to insert into schedules; the digest comes last."""
    return _sealed(namespace, row)


def schedule_of(values: Values) -> ScheduleRow:
    """Return a verified schedule."""
    _check(values, f"schedule {values[1]!r}", "restore a backup")
    row = ScheduleRow(*values[1:-1])
    row.paused = bool(row.paused)
    return row


def _sealed(namespace: str, row: Limits | ScheduleRow) -> tuple[Any, ...]:
    values = (namespace, *msgspec.structs.astuple(row)[:-1], int(row.paused))
    return (*values, seal(GENESIS, values))


def _check(values: Values, what: str, remedy: str) -> None:
    try:
        expected = seal(GENESIS, values[:-1])
    except (TypeError, ValueError, AttributeError) as error:
        raise Corrupt(what, why=f"{error!r}; {remedy}") from None
    if values[-1] != expected:
        raise Corrupt(what, why=f"the digest does not match; {remedy}")
