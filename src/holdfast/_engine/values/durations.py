"""Durations and end times: seconds, a timedelta, "1h30m", or a datetime. Pure."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable

from holdfast.errors import UsageError

Duration = float | str | dt.timedelta
_UNITS_US = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
LONGEST_US = 100 * 365 * _UNITS_US["d"]
"""A hundred years: a longer duration is a mistake in the unit."""


def micros(duration: object, what: str, *, positive: bool = False) -> int:
    """Return a duration in microseconds, or raise a UsageError with the accepted forms."""
    found = _micros(duration)
    if found is None:
        raise UsageError(
            f'{what}: seconds, a timedelta, or a string such as "90s", "2h", "1h30m" or "3d"; '
            f"not {duration!r:.80}"
        )
    if not positive <= found <= LONGEST_US:
        least = "more than 0" if positive else "0 or more"
        raise UsageError(f"{what}: {least} and at most a hundred years, not {duration!r:.80}")
    return found


def seconds(duration: object, what: str, *, positive: bool = False) -> float:
    """Return a duration in seconds, as `micros` does in microseconds."""
    return micros(duration, what, positive=positive) / 1e6


def is_seconds(value: object) -> bool:
    """Return whether something is a number of seconds, from 0 to a hundred years; True and NaN are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= LONGEST_US / 1e6


def _micros(duration: object) -> int | None:
    if isinstance(duration, dt.timedelta):
        return duration // dt.timedelta(microseconds=1)
    if isinstance(duration, str):
        return _parsed(duration)
    if isinstance(duration, bool) or not isinstance(duration, int | float):
        return None
    try:
        return round(duration * 1e6) if math.isfinite(duration) else None
    except OverflowError:
        return LONGEST_US + 1


def _parsed(text: str) -> int | None:
    rest, total, parts = text.strip().lower(), 0.0, 0
    while rest:
        part = _PART.match(rest)
        if part is None:
            return None
        total += float(part[1]) * _UNITS_US[part[2]]
        parts += 1
        rest = rest[part.end() :].lstrip()
    if not math.isfinite(total):
        return LONGEST_US + 1
    return round(total) if parts else None


def ends(duration: object, what: str) -> Callable[[int], int]:
    """Return a function from the beginning of a wait to its end. A datetime in the past is an end
    that has come."""
    if isinstance(duration, dt.datetime):
        if duration.tzinfo is None:
            raise UsageError(
                f"{what}: {duration!r} has no time zone; write "
                "datetime(…, tzinfo=…), for instance datetime.UTC"
            )
        moment_us = round(duration.timestamp() * 1e6)
        return lambda _now_us: moment_us
    length_us = micros(duration, what)
    return lambda now_us: now_us + length_us


def as_text(length_us: int) -> str:
    """Return a duration as people read it: its two largest parts."""
    if length_us < 1_000_000:
        return f"{length_us / 1000:.0f} ms"
    seconds = length_us // 1_000_000
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
