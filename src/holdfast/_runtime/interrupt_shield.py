"""Keeps Ctrl-C out of the moments in which an outcome is being recorded.

Python raises KeyboardInterrupt in the main thread between any two instructions. While a durable
operation is under way there, the handlers of SIGINT and SIGTERM are replaced by one that only
remembers the signal; they are back in place while user code runs, and a remembered signal is
given to its handler at the end. So an effect that returned is recorded before the interrupt
goes on. In other threads there is nothing to do: Python never interrupts them.
"""

from __future__ import annotations

import importlib
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

# What `signal` is made of: these functions make no enums, and stand on every step's path.
_signal: Any = importlib.import_module("_signal")
getsignal = _signal.getsignal
set_signal = _signal.signal

_SIGNALS = (int(signal.SIGINT), int(signal.SIGTERM))
_main = threading.main_thread().ident


class Shield:
    """`with Shield() as shield:` defers signals; `with shield.open():` lets them through."""

    __slots__ = ("_handlers", "_pending")

    def __init__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []
        self._pending: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Self:
        if threading.get_ident() == _main:
            for number in _SIGNALS:
                handler = getsignal(number)
                # Only handlers written in Python can raise; the rest needs no shield.
                if callable(handler) and not isinstance(getattr(handler, "__self__", None), Shield):
                    self._handlers.append((number, handler))
                    set_signal(number, self._remember)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lower()

    def lower(self) -> None:
        """Put the handlers back and hand over what came meanwhile."""
        handlers, self._handlers = self._handlers, []
        for number, handler in handlers:
            set_signal(number, handler)
        pending, self._pending = self._pending, []
        for came, frame in pending:
            handler = getsignal(came)
            if callable(handler):
                handler(came, frame)

    raise_again = __enter__
    """Defer signals again after `lower`."""

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self._pending.append((number, frame))


def shield_here() -> Shield | None:
    """Return a shield that is up, or None in a thread that Python never interrupts."""
    return Shield().__enter__() if threading.get_ident() == _main else None


class InterruptsLast(Shield):
    """`with InterruptsLast():` calls signal handlers at once and raises their exception at the end.

    For a main thread that must not leave its block early, such as one whose branches are at work
    in other threads. A handler that raises nothing works as it does elsewhere.
    """

    __slots__ = ("_error",)

    def __init__(self) -> None:
        super().__init__()
        self._error: BaseException | None = None

    def lower(self) -> None:
        """Put the handlers back and raise the last exception of a handler."""
        super().lower()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _remember(self, number: int, frame: FrameType | None) -> None:
        handler = dict(self._handlers).get(number)
        if handler is None:  # It struck while `lower` puts the handlers back.
            super()._remember(number, frame)
            return
        try:
            handler(number, frame)
        except BaseException as error:
            self._error = error


def after_fork() -> None:
    """Learn the new main thread's identity."""
    global _main
    _main = threading.get_ident()
