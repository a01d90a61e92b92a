"""The outside world of the agents under test: every call leaves a line in a file, which no kill
takes back. The tools are plain functions; each integration makes them recorded in its own way."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 20.0


def folder() -> Path:
    return Path(os.environ["WORLD"])


def note(file: str, **facts: Any) -> None:
    """Add a line, in one write: it is there when we are gone."""
    line = json.dumps({**facts, "at": time.time(), "pid": os.getpid()}) + "\n"
    with (folder() / file).open("ab", buffering=0) as out:
        out.write(line.encode())


def lines(where: Path, file: str) -> list[dict[str, Any]]:
    path = where / file
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def lookup_order(order: str) -> str:
    """Look up an order."""
    return _looked("lookup_order", "check_stock", f"order {order}: one lamp, 30 EUR")


def check_stock(item: str) -> str:
    """Say how many of an item are in stock."""
    return _looked("check_stock", "lookup_order", f"{item}: 7 in stock")


def _looked(me: str, other: str, found: str) -> str:
    note("calls", tool=me, what="begin")
    if os.environ.get("TOGETHER") == "1":  # Both are under way, or the run does not get on.
        _wait_for(other)
    note("calls", tool=me, what="end")
    return found


def _wait_for(tool: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not any(it["tool"] == tool for it in lines(folder(), "calls")):
        if time.monotonic() > end:
            raise TimeoutError(f"{tool} was not called while the other one was under way")
        time.sleep(0.005)


def refund(order: str, amount: int, key: str) -> str:
    """Pay money back: once for each key, as a bank does; every call is a line."""
    note("calls", tool="refund", what="begin")
    note("bank", key=key, order=order, amount=amount)
    note("calls", tool="refund", what="end")
    return f"refunded {amount} EUR for order {order}"


def refunded(order: str, amount: int) -> str | None:
    """Look at the bank whether it was paid: what an `on_doubt` function does."""
    found = [it for it in lines(folder(), "bank") if it["order"] == order]
    return f"refunded {amount} EUR for order {order}" if found else None
