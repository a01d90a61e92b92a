import shutil
from pathlib import Path
from typing import Any

import apsw

from holdfast._stores.contract import Store
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.contract.store_contract import StoreContract, new_run


class TestSqlite(StoreContract):
    def open_store(self, namespace: str = "default") -> Store:
        return SqliteStore(str(self.file()), namespace=namespace, clock=self.clock)

    def file(self) -> Path:
        return self.folder / "a.db"

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

    def users_write(self, connection: Any, text: str) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS lines (line TEXT)")
        connection.execute("INSERT INTO lines VALUES (?)", (text,))

    def users_lines(self) -> list[str]:
        beside = apsw.Connection(str(self.file()), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            if not beside.execute("SELECT 1 FROM sqlite_schema WHERE name = 'lines'").fetchall():
                return []
            return [line for (line,) in beside.execute("SELECT line FROM lines ORDER BY rowid")]
        finally:
            beside.close()
