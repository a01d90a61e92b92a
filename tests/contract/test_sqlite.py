import shutil

from holdfast._store.contract import Store
from holdfast._store.sqlite import SqliteStore
from holdfast.testing.store_contract import StoreContract, new_run


class TestSqlite(StoreContract):
    def open_store(self, namespace: str = "default") -> Store:
        return SqliteStore(str(self.folder / "a.db"), namespace=namespace, clock=self.clock)

    def kill_owner(self, store: Store, owner: int) -> None:
        store.close()  # The kernel releases the lock of a process that is gone in the same way.

    def lose_commits(self, run_id: str) -> Store:
        kept = self.folder / "kept"
        kept.mkdir()
        self.store.close()
        shutil.copy(self.folder / "a.db", kept)
        self.store = self.open_store()
        self.store.start(new_run("lost"), None)
        self.store.close()
        shutil.copy(kept / "a.db", self.folder)
        return self.open_store()
