"""Times of the store as people and programs see them: datetimes in UTC."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def at(us: int) -> dt.datetime:
    """Return a time of the store, microseconds since 1970, as a datetime in UTC."""
    return _EPOCH + dt.timedelta(microseconds=us)
