"""What families of runs and memories share, decided: whether a pot has enough, and which value of a
memory holds. The same in every store."""

from __future__ import annotations

import msgspec

from holdfast._core.budgets import SPENT_MAX
from holdfast._core.rows import Memo, Pot, Spend


def is_exhausted(pot: Pot, spend: Spend, at_us: int) -> bool:
    """Tell whether a pot has not got what somebody wants to spend, or is used up already."""
    for limit, spent, amount in (
        (pot.usd_nanos, pot.spent_usd_nanos, spend.usd_nanos),
        (pot.tokens, pot.spent_tokens, spend.tokens),
        (pot.steps, pot.spent_steps, spend.steps),
    ):
        if limit is not None and (spent + amount > limit or (amount <= 0 and spent >= limit)):
            return True
    return pot.wall_us is not None and at_us - pot.opened_us >= pot.wall_us


def spent(pot: Pot, spend: Spend) -> Pot:
    """Return the pot after something was taken from it."""
    # The end of an attempt is never refused, so what no database can count stops at its limit.
    return msgspec.structs.replace(
        pot,
        spent_usd_nanos=min(SPENT_MAX, pot.spent_usd_nanos + spend.usd_nanos),
        spent_tokens=min(SPENT_MAX, pot.spent_tokens + spend.tokens),
        spent_steps=min(SPENT_MAX, pot.spent_steps + spend.steps),
    )


def new_limits(pot: Pot, before: Pot | None) -> Pot:
    """Return a pot with new limits, and what was spent of the one before."""
    if before is None:
        return pot
    return msgspec.structs.replace(
        before,
        usd_nanos=pot.usd_nanos,
        tokens=pot.tokens,
        steps=pot.steps,
        wall_us=pot.wall_us,
    )


def next_memo(memo: Memo, before: Memo | None, at_us: int) -> Memo:
    """Return a value of a memory as it is to be written: with the next version."""
    version = 1 if before is None else before.version + 1
    return msgspec.structs.replace(memo, version=version, updated_us=at_us, expected=None)


def is_there(memo: Memo | None, at_us: int) -> bool:
    """Tell whether a value of a memory can be read: it was not removed, and its time is not over."""
    return (
        memo is not None
        and memo.value is not None
        and (memo.expires_us is None or memo.expires_us > at_us)
    )


def is_expired(memo: Memo, at_us: int) -> bool:
    """Tell whether the time of a value is over, and it has not been removed yet."""
    return memo.value is not None and memo.expires_us is not None and memo.expires_us <= at_us


def is_stale(memo: Memo, before_us: int) -> bool:
    """Tell whether a value of a memory has been over for so long that it can be dropped."""
    ended_us = memo.updated_us if memo.value is None else memo.expires_us
    return ended_us is not None and ended_us < before_us


def current_version(memo: Memo | None, at_us: int) -> int:
    """Return which version a writer must have seen: 0 if there is nothing to be seen."""
    return memo.version if memo is not None and is_there(memo, at_us) else 0
