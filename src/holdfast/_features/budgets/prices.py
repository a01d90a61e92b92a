"""Prices of models: data that users give, since prices change and differ between contracts."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast._features.budgets.model import Price
from holdfast.errors import UsageError

VARIABLE = "HOLDFAST_PRICES"

_table: dict[str, Price] = {}
_lock = threading.Lock()
_read: str | None = None
"""The file that was read already."""


def set_prices(table: Mapping[str, Price], /) -> None:
    """Set the prices of models, in dollars for a million tokens:
    `set_prices({"gpt-x": Price(input_mtok=2.5, output_mtok=10)})`. A name that ends in `*` stands for
    all that begin so. Later calls add and replace."""
    for model, price in table.items():
        if not isinstance(model, str) or not model or not isinstance(price, Price):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"holdfast.pricing.set_prices({{{model!r:.80}: {price!r:.80}}}): the name of a model, and a "
                "holdfast.pricing.Price(input_mtok=…, output_mtok=…)"
            )
    with _lock:
        _table.update(table)


def price_of(model: str) -> Price | None:
    """Return what a model costs, or None if nobody said so. The longest name that fits counts."""
    with _lock:
        found = _table.get(model)
        if found is not None:
            return found
        fitting = [name for name in _table if name[-1] == "*" and model.startswith(name[:-1])]
        return _table[max(fitting, key=len)] if fitting else None


def read_file() -> None:
    """Read the file that the environment names, once. Prices that code has set stay."""
    global _read
    path = os.environ.get(VARIABLE)
    if not path or path == _read:
        return
    table = _table_in(path)
    with _lock:
        for model, price in table.items():
            _table.setdefault(model, price)
        _read = path


def _table_in(path: str) -> dict[str, Price]:
    wanted = 'an object such as {"gpt-x": {"input_mtok": 2.5, "output_mtok": 10}}'
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            found: Any = msgspec.json.decode(file.read())
        return {model: Price(**price) for model, price in found.items()}
    except OSError as error:
        raise UsageError(f"{VARIABLE}={path}: it cannot be read ({error.strerror})") from None
    except UsageError as error:
        raise UsageError(f"{VARIABLE}={path}: {error}") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise UsageError(f"{VARIABLE}={path}: {wanted}, not this ({error})") from None
