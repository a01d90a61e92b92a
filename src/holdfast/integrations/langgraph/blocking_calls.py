"""Blocking calls where they may be made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def blocking(work: Callable[[], T]) -> T:
    """Do it here; on an event loop, which a memory refuses to block, in a thread that is waited for.
    Who calls a blocking method there blocks the loop, as with any other saver or store."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-langgraph") as pool:
        return pool.submit(work).result()
