"""What a transactional effect may do with the connection of a SQLite store, and what it may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Committed, Wanted
from holdfast._stores.sqlite.sqlite_database import Q
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from holdfast.errors import UsageError
from tests.contract.store_contract import FakeClock, new_run, step


class Bench:
    """A store with one run at work."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.store = SqliteStore(str(folder / "a.db"), clock=self.clock)
        self.owner = self.store.register_owner()
        lease = self.store.start(new_run("r"), self.owner).lease
        assert lease is not None
        self.lease: Lease = lease

    def within(self, work: Callable[[Any], object]) -> None:
        def lent(connection: Any) -> Write:
            work(connection)
            return Write(self.lease, [step()])

        assert isinstance(self.store.append_within(self.lease, lent), Committed)

    def refused(self, sql: str, match: str) -> None:
        """Have a statement refused; then the run and the store are as before."""
        before = self.store.get("r")
        with pytest.raises(UsageError, match=match) as error:
            self.within(lambda connection: connection.execute(sql))
        assert "'r'" in str(error.value)
        assert self.store.get("r") == before
        assert self.store.verify() == []


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.within(lambda connection: connection.execute("CREATE TABLE orders (name TEXT UNIQUE)"))
    yield made
    made.store.close()


@pytest.mark.parametrize("word", ["BEGIN", "COMMIT", "ROLLBACK", "END"])
def test_the_transaction_is_ended_by_nobody_else(bench: Bench, word: str) -> None:
    bench.refused(word, "leave .* out")


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE runs SET status = 'completed'",
        "DELETE FROM journal",
        "INSERT INTO Pulses VALUES (9, 9, '')",
        "DROP TABLE keys",
        "ALTER TABLE store ADD COLUMN x",
        "DROP INDEX runs_ready",
        "CREATE INDEX more ON runs (flow)",
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM orders; END",
        "DROP VIEW log",
    ],
)
def test_the_tables_of_the_store_are_written_by_the_store(bench: Bench, sql: str) -> None:
    bench.refused(sql, "of the store")


@pytest.mark.parametrize(
    "sql", ["PRAGMA synchronous = OFF", "PRAGMA journal_mode = DELETE", "ATTACH ':memory:' AS m"]
)
def test_the_connection_stays_as_it_is(bench: Bench, sql: str) -> None:
    bench.refused(sql, "change the connection|commit together")


def test_a_trigger_of_the_users_own_does_not_reach_the_store_either(bench: Bench) -> None:
    with pytest.raises(UsageError, match="of the store"):
        bench.within(
            lambda connection: [
                connection.execute(
                    "CREATE TRIGGER t AFTER INSERT ON orders BEGIN DELETE FROM runs; END"
                ),
                connection.execute("INSERT INTO orders VALUES ('tea')"),
            ]
        )
    assert bench.store.verify() == []


def test_everything_else_is_the_users(bench: Bench) -> None:
    def work(connection: Any) -> None:
        connection.executemany("INSERT INTO orders VALUES (?)", [("tea",), ("milk",)])
        assert connection.changes() == 1
        assert connection.last_insert_rowid() == 2
        connection.execute("CREATE INDEX by_name ON orders (name)")
        connection.execute("SAVEPOINT s")
        connection.execute("DELETE FROM orders")
        connection.execute("ROLLBACK TO s")
        found = connection.execute("SELECT name FROM orders ORDER BY name").fetchall()
        assert found == [("milk",), ("tea",)]
        assert connection.execute("PRAGMA table_info(orders)").fetchall()
        assert connection.execute("SELECT status FROM runs").fetchall() == [("running",)]

    bench.within(work)
    assert bench.store.verify() == []


def test_an_error_of_a_statement_is_raised_as_it_is(bench: Bench) -> None:
    bench.within(lambda connection: connection.execute("INSERT INTO orders VALUES ('tea')"))
    with pytest.raises(apsw.ConstraintError):
        bench.within(lambda connection: connection.execute("INSERT INTO orders VALUES ('tea')"))
    bench.within(lambda connection: connection.execute("INSERT INTO orders VALUES ('milk')"))


def test_nothing_commits_by_itself_after_a_statement_rolled_back(bench: Bench) -> None:
    bench.within(lambda connection: connection.execute("INSERT INTO orders VALUES ('tea')"))

    def work(connection: Any) -> None:
        with pytest.raises(apsw.ConstraintError):
            connection.execute("INSERT OR ROLLBACK INTO orders VALUES ('tea')")
        connection.execute("INSERT INTO orders VALUES ('alone')")

    with pytest.raises(UsageError, match="rolled back"):
        bench.within(work)
    found: list[Any] = []
    select = "SELECT name FROM orders"
    bench.within(lambda connection: found.extend(connection.execute(select).fetchall()))
    assert found == [("tea",)]


def test_the_connection_is_of_no_use_afterwards(bench: Bench) -> None:
    kept: list[Any] = []
    bench.within(kept.append)
    with pytest.raises(UsageError, match="over"):
        kept[0].execute("SELECT 1")


def test_runs_are_not_started_from_inside(bench: Bench) -> None:
    with pytest.raises(UsageError, match="after it, not inside"):
        bench.within(lambda _: bench.store.start(new_run("other"), None))
    assert bench.store.get("other") is None
    bench.store.start(new_run("other"), None)


def test_a_long_transaction_beats_along(bench: Bench) -> None:
    """No pulse comes through while it is open, so that it renews the pulse of its process."""
    other = bench.store.start(new_run("beside"), bench.owner).lease
    assert other is not None
    bench.store.pulse(bench.owner, "{}")
    bench.within(lambda _: bench.clock.advance_s(bench.store.lease_s + 1))
    assert bench.store.claimable(bench.clock(), 10) == []


def test_a_take_reads_no_more_than_it_needs(bench: Bench) -> None:
    """By the plan of its queries: each goes by its index, and sorts nothing but what is due by a time
    or a message, and a page of all that."""
    asked: list[str] = []
    connection: Any = bench.store._database.writer
    bench.store.start_all([(new_run(f"q-{number}"), None) for number in range(20)])

    def traced(_cursor: Any, sql: str, _values: Any) -> bool:
        asked.append(sql)
        return True

    connection.exec_trace = traced
    taken = bench.store.take(Wanted(bench.owner, 5, bench.clock(), working=[1]))
    connection.exec_trace = None
    assert len(taken) == 5
    assert asked.count(Q["ready_runs"]) == 1
    values: dict[str, Any] = dict.fromkeys(["flows", "full", "spent", "working"], "[]")
    values |= {"namespace": "default", "queue": "default", "rank": -9, "after": 0, "limit": 5}
    values |= {"at_us": 0, "begins": True, "owner": 1, "until_us": None, "claims": 0}
    for name, index in (("ready_runs", "runs_ready"), ("runs_of_owner", "runs_owned")):
        plan = connection.execute("EXPLAIN QUERY PLAN " + Q[name], values).fetchall()
        told = [row[3] for row in plan]
        assert not any("SCAN runs" in line for line in told)
        (part,) = (row[1] for row in plan if f"SEARCH runs USING INDEX {index} (" in row[3])
        assert not any("TEMP B-TREE" in row[3] for row in plan if row[1] == part)


def test_held_runs_are_found_by_what_they_are_held_on(bench: Bench) -> None:
    """By the plan of its queries: however many runs are held on one thing, that is read once."""
    connection: Any = bench.store._database.writer
    values: dict[str, Any] = {"namespace": "default", "after": "code:", "end": "code;"}
    values |= {"limit": 5, "token": "code:a"}
    for name, found in (
        ("held_on", "runs_held_on (namespace=? AND waiting_on>?)"),
        ("held_runs", "runs_held_on (namespace=? AND waiting_on=? AND run_no>?)"),
    ):
        plan = connection.execute("EXPLAIN QUERY PLAN " + Q[name], values).fetchall()
        told = [row[3] for row in plan]
        assert any(line.endswith(found) for line in told), told
        assert not any("SCAN runs" in line or "TEMP B-TREE" in line for line in told), told
