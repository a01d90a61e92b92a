"""Doubt policies: the answers to a doubt, and their treatment."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from holdfast.errors import UsageError

T = TypeVar("T")

KEY_TTL_S = 24 * 3600.0
"""How long the other side is expected to remember a key, unless `key_ttl=` says otherwise."""
TTL_MARGIN_S = 60.0
"""A key is not sent any more this long before it may be forgotten (clocks differ)."""
ENDED_MARGIN_S = 5.0
"""Added to a declared timeout before a lost owner's attempt counts as ended."""


class Done(msgspec.Struct, Generic[T], frozen=True):
    """It happened, and this is its result."""

    result: T


class _Answer(Enum):
    NOT_DONE = "NOT_DONE"
    UNKNOWN = "UNKNOWN"

    def __repr__(self) -> str:
        return self.value


NOT_DONE: Final = _Answer.NOT_DONE
"""It did not happen; it may be executed."""
UNKNOWN: Final = _Answer.UNKNOWN
"""It cannot be found out; a person decides."""

NotDone = Literal[_Answer.NOT_DONE]
Unknown = Literal[_Answer.UNKNOWN]


class Failed(msgspec.Struct, frozen=True):
    """Treat it as failed; the flow gets `StepFailed` with this reason."""

    reason: str


OnDoubt = Literal["hold", "retry", "fail"] | Callable[..., Any]


def check_on_doubt(policy: object, effect: str) -> OnDoubt:
    """Return the policy, or raise a UsageError that names the choices."""
    if policy in ("hold", "retry", "fail") or callable(policy):
        return policy
    raise UsageError(
        f'on_doubt={policy!r} of {effect}: use "hold", "retry", "fail" or a function that '
        "returns Done(result), NOT_DONE or UNKNOWN"
    )


def policy_name(policy: OnDoubt) -> str:
    """Return the policy as the journal records it."""
    return policy if isinstance(policy, str) else "function"


def may_send(first_started_us: int, now_us: int, key_ttl_s: float) -> bool:
    """Return whether a key is still young enough to be shown to the other side again."""
    margin_s = min(TTL_MARGIN_S, key_ttl_s / 10)
    return (now_us - first_started_us) / 1e6 < key_ttl_s - margin_s


def not_done_is_believed(
    *, ended: bool, lost_us: int | None, timeout_s: float | None, now_us: int
) -> bool:
    """Return whether NOT_DONE is final: the attempt that left the doubt can no longer act."""
    if ended:
        return True
    if lost_us is None or timeout_s is None:
        return False
    return (now_us - lost_us) / 1e6 >= timeout_s + ENDED_MARGIN_S
