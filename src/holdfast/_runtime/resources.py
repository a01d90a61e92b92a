"""Resources of steps: clients and secrets that `resource(factory)` stands for. They are never recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

overrides: dict[Callable[[], Any], Any] = {}
"""Resources that tests put in the place of what a factory would build."""


class Resources:
    """The resources of one opened store: each is built once, when it is first needed."""

    def __init__(self) -> None:
        self._made: dict[Callable[[], Any], Any] = {}
        self._lock = threading.RLock()

    def get(self, factory: Callable[[], Any]) -> Any:
        """Return what a factory builds, or what a test has put in its place."""
        if factory in overrides:
            return overrides[factory]
        with self._lock:
            if factory not in self._made:
                made = factory()
                if type(made).__name__ == "coroutine":
                    made = Awaitable(made)
                self._made[factory] = made
            return self._made[factory]

    def clear(self) -> None:
        """Forget them: the store is closed."""
        self._made.clear()


class Awaitable:
    """A resource whose factory is async: the first caller awaits it, once."""

    def __init__(self, coroutine: Any) -> None:
        self._coroutine = coroutine
        self._made: Any = None

    async def get(self) -> Any:
        """Return the resource."""
        import asyncio

        if self._made is None:
            self._made = asyncio.ensure_future(self._coroutine)
        return await asyncio.shield(self._made)
