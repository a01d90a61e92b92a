"""The user's own table in a store's database, as somebody beside Holdfast sees it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import psycopg

ORDERS = "CREATE TABLE orders (name TEXT NOT NULL)"
"""No unique column: a second row must be seen, not refused."""
PATIENCE_MS = 10_000


def mark(url: str) -> str:
    """Return how a parameter is written in SQL."""
    return "?" if url.startswith("sqlite") else "%s"


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """A connection whose statements commit one by one."""
    if not url.startswith("sqlite"):
        with psycopg.connect(url, autocommit=True) as connection:
            yield connection
        return
    beside = apsw.Connection(url.removeprefix("sqlite:///"))
    beside.set_busy_timeout(PATIENCE_MS)
    try:
        yield beside
    finally:
        beside.close()


def create(url: str) -> None:
    """Make the user's table."""
    with connected(url) as connection:
        connection.execute(ORDERS)


def ordered(url: str) -> list[str]:
    """Return what stands in the user's table."""
    with connected(url) as connection:
        found = connection.execute("SELECT name FROM orders ORDER BY name").fetchall()
        return [name for (name,) in found]
