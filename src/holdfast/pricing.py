"""Prices of models, from which the cost of recorded usage is computed."""

from __future__ import annotations

from holdfast._core.budgets import Price
from holdfast._runtime.prices import set_prices

__all__ = [
    "Price",
    "set_prices",
]
