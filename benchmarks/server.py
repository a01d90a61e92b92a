"""A PostgreSQL server for all subjects, with the settings that it comes with.

It is the server of the tests (from a wheel, without root), on the disk that is measured. Every
measurement gets a database of its own, after a checkpoint, so that all begin alike.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import psycopg

from benchmarks.processes import cpu_s
from tests.postgres import server as of_tests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTINGS = {
    "max_connections": "300",  # A peer that takes one for each run of W2 shall have it.
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
}
"""The defaults of PostgreSQL 18, but for the connections: fsync and synchronous_commit are on."""

STORED = """
SELECT coalesce(sum(pg_relation_size(c.oid) + pg_indexes_size(c.oid)
  + coalesce(pg_relation_size(t.oid) + pg_indexes_size(t.oid), 0)), 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
WHERE c.relkind IN ('r', 'm') AND n.nspname !~ '^(pg_|information_schema$)'
"""
"""Tables, indexes and what was moved aside (TOAST), without the maps of free space: these are
32 KB for every table that was vacuumed, whatever is in it."""
WAITS = """
SELECT coalesce(wait_event_type || ': ' || wait_event, 'CPU') FROM pg_stat_activity
WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
COUNTERS = """
SELECT (SELECT sum(xact_commit)::bigint FROM pg_stat_database),
       (SELECT wal_bytes::bigint FROM pg_stat_wal),
       (SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal')
"""


class Server:
    def __init__(self, directory: Path) -> None:
        self._server = of_tests.Server(SETTINGS, directory)
        self._names: list[str] = []
        self._made = 0

    def __enter__(self) -> Self:
        self._server.create().start()
        assert self._server.execute("SHOW fsync") == [("on",)]
        assert self._server.execute("SHOW synchronous_commit") == [("on",)]
        return self

    def __exit__(self, *_: object) -> None:
        self._server.remove()

    def version(self) -> str:
        return str(self._server.execute("SHOW server_version")[0][0])

    def fresh_database(self, name: str) -> str:
        self._made += 1
        self._names.append(f"{name}_{self._made}")
        url = self._server.database(self._names[-1])
        self._server.execute("CHECKPOINT")
        return url

    def drop_databases(self) -> None:
        while self._names:
            self._server.execute(f'DROP DATABASE "{self._names.pop()}" WITH (FORCE)')

    def stored_bytes(self, url: str) -> int:
        """All tables and indexes of users, after what was deleted has been given free."""
        database = url.rsplit("/", 1)[1]
        self._server.execute("VACUUM", database)
        return int(self._server.execute(STORED, database)[0][0])

    def cpu_s(self) -> float:
        """CPU time of all processes of the server so far, also of those that have ended."""
        return cpu_s(int((self._server.data / "postmaster.pid").read_text().split()[0]))

    @contextmanager
    def watching(self) -> Iterator[Callable[[], list[str]]]:
        """A look at what each backend that is at work waits for at this moment."""
        with psycopg.connect(self._server.url(), autocommit=True) as connection:
            yield lambda: [str(row[0]) for row in connection.execute(WAITS).fetchall()]

    def counters(self) -> tuple[int, int, int]:
        """Commits, bytes of WAL and syncs of it so far."""
        commits, wal_bytes, syncs = self._server.execute(COUNTERS)[0]
        return int(commits), int(wal_bytes), int(syncs)
