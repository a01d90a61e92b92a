"""Prices of models, from which the cost of recorded usage is computed."""

from __future__ import annotations

from holdfast._features.budgets.model import Price
from holdfast._features.budgets.prices import set_prices

__all__ = [
    "Price",
    "set_prices",
]
