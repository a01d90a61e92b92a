from holdfast._store.contract import Store
from holdfast._store.memory import MemoryStore, MemoryWorld
from holdfast.testing.store_contract import StoreContract


class TestMemory(StoreContract):
    world: MemoryWorld | None = None

    def open_store(self, namespace: str = "default") -> Store:
        if self.world is None:
            self.world = MemoryWorld(self.clock)
        return MemoryStore(self.world, namespace=namespace)

    def kill_owner(self, store: Store, owner: int) -> None:
        assert self.world is not None
        self.world.kill(owner)

    def lose_commits(self, run_id: str) -> Store:
        assert self.world is not None
        self.world.lost = "the last 2 of 7 acknowledged commits are missing"
        return self.open_store()
