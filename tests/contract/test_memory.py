from collections.abc import Callable
from typing import Any

from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Committed, Outcome, Store
from tests.contract.store_contract import StoreContract
from tests.model.memory_store import MemoryStore, MemoryWorld


class WithLines(MemoryStore):
    """Memory has no database for users: here, some lines stand for one."""

    lines: list[str]

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        before = list(self.lines)
        try:
            outcome = super().append_within(lease, work)
        except BaseException:
            self.lines[:] = before
            raise
        if not isinstance(outcome, Committed):
            self.lines[:] = before
        return outcome


class TestMemory(StoreContract):
    world: MemoryWorld | None = None
    lines: list[str]

    def open_store(self, namespace: str = "default") -> Store:
        if self.world is None:
            self.world = MemoryWorld(self.clock)
            self.lines = []
        store = WithLines(self.world, namespace=namespace)
        store.lines = self.lines
        return store

    def kill_owner(self, store: Store, owner: int) -> None:
        assert self.world is not None
        self.world.kill(owner)

    def lose_commits(self, run_id: str) -> Store:
        assert self.world is not None
        self.world.lost = "the last 2 of 7 acknowledged commits are missing"
        return self.open_store()

    def users_write(self, connection: Any, text: str) -> None:
        assert connection is None
        self.lines.append(text)

    def users_lines(self) -> list[str]:
        return self.lines
