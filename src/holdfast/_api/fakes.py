"""`step.fake(result)`: what tests put in the place of a step's body."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast._api.steps import Settings


class Fake:
    """Replaces a step's function while it is entered."""

    def __init__(self, settings: Settings, result: Any) -> None:
        self._settings = settings
        self._result = result
        self._real: Callable[..., Any] | None = None

    def __enter__(self) -> None:
        self._real = self._settings.fn
        answer: Callable[..., Any] = (
            self._result if callable(self._result) else _constant(self._result)
        )
        if inspect.iscoroutinefunction(self._real):
            self._settings.replace(_as_async(answer))
        else:
            self._settings.replace(answer)

    def __exit__(self, *exc: object) -> None:
        assert self._real is not None
        self._settings.replace(self._real)


def _constant(result: Any) -> Callable[..., Any]:
    def fake(*_args: Any, **_kwargs: Any) -> Any:
        return result

    return fake


def _as_async(answer: Callable[..., Any]) -> Callable[..., Any]:
    async def fake(*args: Any, **kwargs: Any) -> Any:
        result = answer(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return fake
