"""Times of the store as datetimes in UTC, for people and programs."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def at(us: int) -> dt.datetime:
    """Return a time of the store, microseconds since 1970, as a datetime in UTC."""
    return _EPOCH + dt.timedelta(microseconds=us)
