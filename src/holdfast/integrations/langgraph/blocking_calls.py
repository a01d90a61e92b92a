"""Blocking calls on and off an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def blocking(work: Callable[[], T]) -> T:
    """Execute here, or on an event loop in a thread, because a memory refuses to block a loop. A
    caller of a blocking method blocks its loop, as with any other saver or store."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1, thread_name_prefix="holdfast-langgraph") as pool:
        return pool.submit(work).result()
