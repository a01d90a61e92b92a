"""Amounts of money: nano dollars, as whole numbers, so that sums are exact."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from holdfast.errors import UsageError

NANOS = 10**9
"""Nano dollars in a dollar."""
USD_MAX = 10**9
COUNT_MAX = 2**62
"""Sums of an account stay far below what a database can count."""

Amount = int | float | Decimal


def nanos(amount: Any, what: str) -> int:
    """Return dollars as nano dollars; what is no amount of money is refused."""
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal):
        raise UsageError(f"{what}: dollars, as a number, not {amount!r:.80}")
    money = exact(amount)
    if not money.is_finite() or money < 0 or money > USD_MAX:
        raise UsageError(f"{what}: dollars, from 0 to {USD_MAX:,}, not {amount!r:.80}")
    return int((money * NANOS).to_integral_value(ROUND_HALF_EVEN))


def exact(amount: Amount) -> Decimal:
    """Return an amount without the error of a binary fraction: 0.3 means 0.3."""
    return Decimal(repr(amount)) if isinstance(amount, float) else Decimal(amount)


def dollars(amount: int) -> str:
    """Return nano dollars as people write them: with cents, and more places where there are any."""
    whole, rest = divmod(abs(amount), NANOS)
    places = f"{rest:09}".rstrip("0").ljust(2, "0")
    return f"{'-' if amount < 0 else ''}${whole:,}.{places}"
