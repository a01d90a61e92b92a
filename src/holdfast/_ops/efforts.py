"""How long a step was at work, and who settled it.

Only executed attempts count as work: neither the pause before another attempt nor the time until a
person decided. How long an attempt worked whose process died, nobody knows: it counts nothing.
"""

from __future__ import annotations

import datetime as dt

import msgspec

from holdfast._core.history import Record, State
from holdfast._core.moments import at
from holdfast._core.record import facts


class SettledView(msgspec.Struct, frozen=True):
    """What somebody decided of a step whose outcome was not known."""

    said: str
    """`done`, `not_done` or `failed`."""
    by: str
    at: dt.datetime
    after_s: float | None
    """How long after the doubt was noted."""

    def __str__(self) -> str:
        return f"settled as {self.said.replace('_', ' ')} by {self.by}"


def settled_of(record: Record) -> SettledView | None:
    """Return who settled a step, if that is how it stands."""
    entry = record.settled
    if entry is None:
        return None
    told = facts(entry)
    after_us = None if record.doubt is None else max(0, entry.at_us - record.doubt.at_us)
    return SettledView(
        said=str(told["as"]),
        by=str(told.get("actor") or "its on_doubt function"),
        at=at(entry.at_us),
        after_s=None if after_us is None else after_us / 1e6,
    )


def ended_us(record: Record) -> int | None:
    """Return when a step ended, or None if it has not."""
    ended = record.ended_us if record.state is not State.RUNNING else None
    if ended is None and record.outcome is not None:
        ended = record.outcome.at_us
    return ended


def worked_s(record: Record) -> float | None:
    """Return how long it took; None if it has not ended, or nobody knows."""
    ended = ended_us(record)
    if ended is None:
        return None
    if not record.attempts:  # A wait or a recorded value: it was not executed.
        settled = record.settled is not None
        return None if settled else max(0, ended - record.first_started_us) / 1e6
    return None if record.worked_us is None else record.worked_us / 1e6
