"""`memory:`, the store that users open: the SQLite store on a temporary file."""

import shutil
from pathlib import Path

from holdfast._stores.contract import Store
from holdfast._stores.locate import open_temporary
from holdfast._stores.temporary_folders import TemporaryFolder
from tests.contract import test_sqlite
from tests.contract.store_contract import new_run


class TestTemporary(test_sqlite.TestSqlite):
    kept: TemporaryFolder | None = None

    def open_store(self, namespace: str = "default") -> Store:
        if self.kept is None:
            self.kept = TemporaryFolder()
            self.kept.hold()  # Until nobody has this test any more.
        return open_temporary(self.kept, namespace=namespace, clock=self.clock)

    def file(self) -> Path:
        assert self.kept is not None
        return Path(self.kept.file)

    def lose_commits(self, run_id: str) -> Store:
        kept = self.folder / "kept"
        kept.mkdir()
        self.store.close()
        self._copy(self.file().parent, kept)
        self.store = self.open_store()
        self.store.start(new_run("lost"), None)
        self.store.close()
        self._copy(kept, self.file().parent)
        return self.open_store()

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        """Copy the file with its log, which stays beside a temporary file when that is closed."""
        for name in ("store.db", "store.db-wal"):
            shutil.copy(source / name, target)
