from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast._stores.contract import Store
from holdfast._stores.postgres.postgres_store import PostgresStore
from tests.contract.ground import Ground
from tests.contract.keys import Sharing
from tests.contract.store_contract import StoreContract, new_run
from tests.contract.writes import Writing
from tests.postgres.server import Server


class OnServer(Ground):
    """How a store on a server is opened, and how its processes and commits are lost."""

    server: Server
    url: str

    @pytest.fixture(autouse=True)
    def _database(self, postgres_server: Server, postgres_store_url: str) -> None:
        self.server = postgres_server
        self.url = postgres_store_url

    def open_store(self, namespace: str = "default") -> Store:
        return PostgresStore(self.url, namespace=namespace, clock=self.clock)

    def kill_owner(self, store: Store, owner: int) -> None:
        store.close()  # It says so; a process that is gone on this host is found out likewise.

    def lose_commits(self, run_id: str) -> Store:
        """What a failover to a replica that was behind does: an acknowledged run is not there."""
        self.store.start(new_run("lost"), None)
        database = self.url.rpartition("/")[2]
        for table in ("journal", "chunks", "runs"):
            number = "(SELECT run_no FROM holdfast.runs WHERE run_id = 'lost')"
            self.server.execute(f"DELETE FROM holdfast.{table} WHERE run_no = {number}", database)
        self.cut_connections(database)
        assert self.store.get("lost") is None
        return self.open_store()

    def cut_connections(self, database: str) -> None:
        self.server.cut_off(database)

    def users_write(self, connection: Any, text: str) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS lines (no serial, line text)")
        connection.execute("INSERT INTO lines (line) VALUES (%s)", (text,))

    def users_lines(self) -> list[str]:
        with psycopg.connect(self.url, autocommit=True) as beside:
            if beside.execute("SELECT to_regclass('lines')").fetchone() == (None,):
                return []
            found = beside.execute("SELECT line FROM lines ORDER BY no").fetchall()
            return [line for (line,) in found]


class TestPostgres(OnServer, StoreContract):
    """The whole contract."""


class TestPartitioned(OnServer, Writing, Sharing):
    """What is written and read, with journal, chunks and inbox divided by run number."""

    @pytest.fixture(autouse=True)
    def _database(self, postgres_server: Server, postgres_url: str) -> None:
        self.server = postgres_server
        self.url = postgres_url

    def open_store(self, namespace: str = "default") -> Store:
        url = f"{self.url}?partitions=3"
        return PostgresStore(url, namespace=namespace, clock=self.clock)

    def test_tables_are_divided_by_run(self) -> None:
        database = self.url.rpartition("/")[2]
        found = self.server.execute(
            "SELECT relname::text FROM pg_partitioned_table JOIN pg_class ON oid = partrelid",
            database,
        )
        assert sorted(name for (name,) in found) == ["chunks", "inbox", "journal"]
