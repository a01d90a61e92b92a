"""Stores that pass every operation to another store, except the planned failures.

A handle of a process that dies (`Mortal`) and one whose operations fail (`faults.FaultyStore`) are
both built on `Through`: it counts the writes and describes each one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, cast

from holdfast._engine.journal.rows import Lease, Message, Write
from holdfast._stores.contract import Busy, NewRun, Outcome, Posted, Started, Store

T = TypeVar("T")
When = Literal["before", "after"]

TOLD_MAX = 3
"""How many entries of a batch are named."""

WITHIN = "within"
"""An effect in the store's own database, before its commit."""
WRITES = (
    *("start", "start_all", "claim", "take", "append", "append_within", WITHIN, "post"),
    *("put_account", "put_memo", "put_memos", "drop_memos", "forget"),
)
"""The operations of the contract that move runs on or remove them, and the body inside a
transaction."""


class Through:
    """A store in front of another one. Subclasses change operations in `around`."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.lock = threading.RLock()
        self.writes: int = 0

    def as_store(self) -> Store:
        """Return this, typed as the store that it stands for."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if not callable(found) or name in ("now_us", "close", "wait_for_change"):
            return found

        def operation(*args: Any, **kwargs: Any) -> Any:
            return self.around(name, name, lambda: found(*args, **kwargs))

        return operation

    def start(self, new: NewRun, owner: int | None) -> Started:
        return self.around("start", "start", lambda: self.inner.start(new, owner))

    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> list[Started]:
        return self.around("start_all", "start", lambda: self.inner.start_all(news))

    def claim(self, run_id: str, owner: int, at_us: int) -> Lease | Busy:
        return self.around("claim", "claim", lambda: self.inner.claim(run_id, owner, at_us))

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        return self.around("append", batch_text(writes), lambda: self.inner.append(writes))

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        def inside(connection: Any) -> Write:
            return self.around(WITHIN, "the body of a transaction", lambda: work(connection))

        return self.around(
            "append_within", "a transaction", lambda: self.inner.append_within(lease, inside)
        )

    def post(self, run_id: str, message: Message, etag: str | None = None) -> Posted:
        what = f"post {message.kind}"
        return self.around("post", what, lambda: self.inner.post(run_id, message, etag))

    def around(self, operation: str, what: str, perform: Callable[[], T]) -> T:
        """Perform an operation of the contract; `what` describes it."""
        raise NotImplementedError(f"{operation}: {what}, {perform}")


def batch_text(writes: Sequence[Write]) -> str:
    """Describe a batch of writes."""
    parts = [
        f"{draft.kind.value} {draft.step}" if draft.step else draft.kind.value
        for write in writes
        for draft in write.drafts
    ]
    if len(parts) > TOLD_MAX:
        parts = [*parts[:TOLD_MAX], f"and {len(parts) - TOLD_MAX} more"]
    return ", ".join(parts) or "renew the lease"


class Killed(BaseException):
    """The process is dead: nothing more reaches the store."""


def _stay(what: str) -> None:
    """Die in name only: everything that the process does from now on is refused."""


class Mortal(Through):
    """The handle of a process that dies at its n-th write, before or after the store has it.

    Its earlier writes stay, as after a real death: leases are left, and its owner is proven dead
    once the handle is closed. `die` performs the death: by default every operation raises.
    """

    def __init__(
        self,
        inner: Store,
        at: int | None = None,
        when: When = "before",
        die: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(inner)
        self.at = at
        self.when = when
        self.died_in: str | None = None
        self._die: Callable[[str], None] = die or _stay

    @property
    def dead(self) -> bool:
        """Whether the process has died."""
        return self.died_in is not None

    def around(self, operation: str, what: str, perform: Callable[[], T]) -> T:
        """Perform an operation, unless this is the moment of death or later."""
        with self.lock:
            if self.dead:
                raise Killed(self.died_in)
            if operation not in WRITES:
                return perform()
            self.writes += 1
            if self.writes != self.at:
                return perform()
            if self.when == "after":
                perform()
            self.died_in = what
            self._die(what)
            raise Killed(what)
