"""The retry backoff: which errors to retry, how often, and when to give up. Pure.

The wait between two attempts grows exponentially, with jitter. Time and randomness are parameters.
"""

from __future__ import annotations

import datetime as dt
from typing import NoReturn

import msgspec

from holdfast._engine.values.durations import is_seconds
from holdfast.errors import UsageError

MAX_RETRY_AFTER_S = 3600.0
"""The other side may ask for a wait, up to this limit."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How a step is retried.

    `attempts` counts all attempts, including the first. The wait before attempt n+1 is
    `initial_wait_s * backoff**(n-1)`, at most `max_wait_s`, less a random share of at most
    `jitter`. Only exceptions in `retry_on` are retried, except those in `give_up_on`.
    `max_elapsed_s` counts from the first start. A `retry_after` (seconds) on the exception, or a
    Retry-After header on its response, is respected.
    """

    attempts: int = 3
    initial_wait_s: float = 0.5
    backoff: float = 2.0
    max_wait_s: float = 60.0
    jitter: float = 0.5
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()
    max_elapsed_s: float | None = None

    def __post_init__(self) -> None:
        """Refuse an impossible policy."""
        if not _is_number(self.attempts, whole=True) or self.attempts < 1:
            self._refuse("attempts", "a whole number from 1 on")
        if not is_seconds(self.initial_wait_s):
            self._refuse("initial_wait_s", "seconds, 0 or more")
        if not is_seconds(self.max_wait_s):
            self._refuse("max_wait_s", "seconds, 0 or more")
        if not _is_number(self.backoff) or not self.backoff >= 1:
            self._refuse("backoff", "a number from 1 on")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            self._refuse("jitter", "a number from 0 to 1")
        if self.max_elapsed_s is not None and not (
            is_seconds(self.max_elapsed_s) and self.max_elapsed_s > 0
        ):
            self._refuse("max_elapsed_s", "seconds above 0, or None")
        for name in ("retry_on", "give_up_on"):
            kinds = getattr(self, name)
            if not isinstance(kinds, tuple) or not all(map(_is_exception, kinds)):  # pyright: ignore[reportUnknownArgumentType]
                self._refuse(name, "a tuple of classes of exceptions")

    def _refuse(self, name: str, expected: str) -> NoReturn:
        raise UsageError(f"Retry({name}={getattr(self, name)!r}): {name} is {expected}")


def _is_number(value: object, *, whole: bool = False) -> bool:
    """Return whether something is a number; True and False are none."""
    return isinstance(value, int if whole else int | float) and not isinstance(value, bool)


def _is_exception(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


ONCE = Retry(attempts=1)
"""Without `retry=` a step is tried once."""


def pause_s(
    policy: Retry,
    *,
    attempt: int,
    error: BaseException,
    elapsed_s: float,
    now_s: float,
    chance: float,
) -> float | None:
    """Return how long to wait before the next attempt, or None to give up."""
    if attempt >= policy.attempts or not isinstance(error, policy.retry_on):
        return None
    if isinstance(error, policy.give_up_on):
        return None
    asked = retry_after_s(error, now_s)
    try:
        pause = min(policy.initial_wait_s * policy.backoff ** (attempt - 1), policy.max_wait_s)
    except OverflowError:
        pause = policy.max_wait_s
    pause -= pause * policy.jitter * chance
    if asked is not None:
        pause = max(pause, min(asked, MAX_RETRY_AFTER_S))
    if policy.max_elapsed_s is not None and elapsed_s + pause >= policy.max_elapsed_s:
        return None
    return pause


def retry_after_s(error: BaseException, now_s: float) -> float | None:
    """Return the wait that the other side requested, if the exception has one."""
    direct = getattr(error, "retry_after", None)
    if isinstance(direct, int | float) and direct >= 0:
        return float(direct)
    headers = getattr(getattr(error, "response", None), "headers", None)
    try:
        text = headers.get("retry-after") if headers is not None else None
    except Exception:
        return None
    return _parsed(text, now_s) if isinstance(text, str) else None


def _parsed(text: str, now_s: float) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime  # A slow import that is rarely needed.

    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=dt.UTC)
    return max(0.0, when.timestamp() - now_s)
