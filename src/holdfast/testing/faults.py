"""Stores that fail on purpose: the n-th operation, once or for ever, before or after it is done.

    faults = testing.StoreFaults()
    faults.fail("append", at=3, error=StoreFull("no space"))
    with testing.store(faults=faults):
        ...

Operations have the names of the store contract; the ones that write are `start_all`, `start`,
`claim`, `append`, `post`, `put_account`, `put_memo` and `forget`. `faults.seen` says afterwards what was
done and what failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from holdfast._engine.journal.rows import Write
from holdfast._stores.contract import Fenced, Outcome, Store
from holdfast.errors import UsageError
from holdfast.testing.store_proxy import Through

T = TypeVar("T")


class _Fault(msgspec.Struct):
    """One planned fault."""

    operation: str
    at: int
    forever: bool = False
    after: bool = False
    error: BaseException | None = None
    seconds: float = 0.0
    until: threading.Event | None = None
    fences: bool = False

    def is_due(self, operation: str, number: int) -> bool:
        """Return whether it strikes now."""
        if operation != self.operation:
            return False
        return number >= self.at if self.forever else number == self.at


class StoreFaults:
    """Planned faults, by operation and number."""

    def __init__(self) -> None:
        self._faults: list[_Fault] = []
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self.seen: list[str] = []
        """Every operation in order; a fault that struck it follows a colon."""

    def fail(
        self,
        operation: str,
        *,
        error: BaseException,
        at: int = 1,
        forever: bool = False,
        after: bool = False,
    ) -> None:
        """Make the n-th call of an operation raise; `after` means that the store has done it."""
        self._add(_Fault(operation, at, forever, after, error))

    def fence(self, *, at: int = 1, forever: bool = False) -> None:
        """Make the n-th append be refused, as if another owner had taken the run over."""
        self._add(_Fault("append", at, forever, fences=True))

    def delay(
        self,
        operation: str,
        *,
        at: int = 1,
        seconds: float = 0.0,
        until: threading.Event | None = None,
    ) -> None:
        """Make the n-th call wait, for a time or until an event is set."""
        self._add(_Fault(operation, at, seconds=seconds, until=until))

    def count(self, operation: str) -> int:
        """Return how often an operation was called."""
        return self._counts.get(operation, 0)

    def _add(self, fault: _Fault) -> None:
        if not hasattr(Store, fault.operation):
            raise UsageError(f"a store has no operation {fault.operation!r}")
        if fault.at < 1:
            raise UsageError(f"at={fault.at}: operations are counted from 1")
        self._faults.append(fault)

    def due(self, operation: str, what: str) -> _Fault | None:
        """Count a call, and return the fault that strikes it."""
        with self._lock:
            number = self._counts[operation] = self.count(operation) + 1
            fault = next((it for it in self._faults if it.is_due(operation, number)), None)
            struck = "" if fault is None else f": {fault.error!r}" if fault.error else ": struck"
            self.seen.append(f"{what}{struck}")
            return fault


class FaultyStore(Through):
    """A store that fails as planned."""

    def __init__(self, inner: Store, faults: StoreFaults) -> None:
        super().__init__(inner)
        self._faults = faults

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        """Append, unless it is fenced."""
        refused: list[Outcome] = [Fenced() for _ in writes]
        return self.around(
            "append", _batch_text(writes), lambda: self.inner.append(writes), refused
        )

    def around(
        self, operation: str, what: str, perform: Callable[[], T], refused: T | None = None
    ) -> T:
        """Perform an operation, or fail as planned."""
        fault = self._faults.due(operation, what)
        if fault is None:
            return perform()
        if fault.seconds:
            time.sleep(fault.seconds)
        if fault.until is not None:
            fault.until.wait()
        if fault.fences and refused is not None:
            return refused
        if fault.error is None:
            return perform()
        if fault.after:
            perform()
        raise fault.error


def _batch_text(writes: Sequence[Write]) -> str:
    kinds: list[Any] = [draft.kind.value for write in writes for draft in write.drafts]
    return f"append {', '.join(kinds)}".rstrip()
