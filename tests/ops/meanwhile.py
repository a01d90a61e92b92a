"""What somebody else does to a store in the middle of a look at it, at every moment in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._stores.contract import Store


class Meanwhile:
    """A store in which somebody does something just before its n-th call."""

    def __init__(self, kept: Store, at: int, then: Callable[[], None]) -> None:
        self._kept, self._then, self.left = kept, then, at

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kept, name)
        if not callable(found):
            return found

        def called(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                self._then()
            return found(*args, **kwargs)

        return called
