"""Effects in a transaction that try to end it: refused, or else noticed and left to a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

import holdfast
from holdfast import Retry, effect, flow, testing
from holdfast._stores.postgres.postgres_user_connection import check
from holdfast.errors import RunFailed, RunHeld, UsageError
from tests.runtime.stops import kinds

INSERT = "INSERT INTO orders VALUES ('tea')"


@pytest.fixture
def store(postgres_url: str) -> Iterator[testing.PrivateStore]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE orders (name TEXT)")
    with testing.store(url=postgres_url) as store:
        yield store


def orders(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        return len(connection.execute("SELECT name FROM orders").fetchall())


def ends_it(connection: Any) -> None:
    """Round the cursors of psycopg, where nothing is looked at."""
    connection.pgconn.exec_(b"COMMIT")


@pytest.mark.parametrize("key", [None, "order"])
@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("begins", [True, False])
def test_an_effect_that_has_committed_by_itself_is_in_doubt(
    store: testing.PrivateStore, postgres_url: str, key: str | None, raises: bool, begins: bool
):
    @effect(name="lent-commit", transaction=True, retry=Retry(attempts=3), key=key)
    def commits() -> int:
        connection = holdfast.context.sql_connection()
        connection.execute(INSERT)
        ends_it(connection)
        if begins:
            connection.pgconn.exec_(b"BEGIN")
        if raises:
            raise ValueError("after the commit")
        return 1

    @flow(name="lent-committing")
    def committing() -> int:
        return commits()

    with pytest.raises(RunHeld, match="ended its transaction by itself"):
        committing.run("r")
    with pytest.raises(RunHeld) as held:
        committing.run("r")
    assert held.value.reason == "in_doubt"
    assert orders(postgres_url) == 1
    assert "step_failed" not in kinds(store, "r")
    if key is not None:
        with pytest.raises(RunHeld):
            committing.run("another")
    assert orders(postgres_url) == 1
    store.settle("r", "lent-commit", holdfast.Done(1), actor="test")
    assert committing.run("r") == 1
    assert orders(postgres_url) == 1
    assert not list(store.verify())


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "  -- now\n /* really */ commit work;",
        b"ROLLBACK",
        sql.SQL("ABORT"),
        "BEGIN",
        "START TRANSACTION",
        "END",
        "PREPARE TRANSACTION 'x'",
        f"{INSERT}; COMMIT",
        "SET statement_timeout = 1",
        "set role postgres",
    ],
)
def test_what_would_end_the_transaction_or_outlive_it_is_not_sent(
    store: testing.PrivateStore, postgres_url: str, statement: Any
):
    @effect(name="lent-refused", transaction=True)
    def ends() -> None:
        connection = holdfast.context.sql_connection()
        connection.execute(INSERT)
        connection.execute(statement)

    @flow(name="lent-refusing")
    def ending() -> None:
        ends()

    with pytest.raises(RunFailed, match="refused in a transaction"):
        ending.run("r")
    assert orders(postgres_url) == 0


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'a; COMMIT; b'",
        "SELECT e'it\\'s; COMMIT'",
        "DO $$ BEGIN PERFORM 1; END $$",
        "DO $body$ BEGIN PERFORM 1; END; $body$",
        "CREATE FUNCTION two() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END",
        'SELECT 1 AS "x; ROLLBACK"',
        "SAVEPOINT a; ROLLBACK TO a; ROLLBACK WORK TO SAVEPOINT a",
        "SET LOCAL statement_timeout = 1000",
        "SET CONSTRAINTS ALL DEFERRED",
        "SELECT 1 AS ended -- COMMIT",
    ],
)
def test_what_only_looks_like_it_is_the_users(statement: str):
    check(statement)


def test_many_rows_and_savepoints_work(store: testing.PrivateStore, postgres_url: str):
    @effect(name="lent-many", transaction=True)
    def many() -> int:
        connection = holdfast.context.sql_connection()
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO orders VALUES (%s)", [("a",), ("b",)])
            with pytest.raises(UsageError):
                cursor.executemany("COMMIT", [()])
        with pytest.raises(psycopg.errors.UndefinedTable), connection.transaction():
            connection.execute("SELECT 1 FROM nowhere")
        connection.row_factory = dict_row
        return len(connection.execute("SELECT name FROM orders").fetchall())

    @flow(name="lent-many-rows")
    def rows() -> int:
        return many() + many()

    assert rows.run("r") == 6
    assert orders(postgres_url) == 4


def test_an_effect_that_goes_on_after_an_error_is_told_how(
    store: testing.PrivateStore, postgres_url: str
):
    @effect(name="lent-swallow", transaction=True)
    def swallows() -> None:
        connection = holdfast.context.sql_connection()
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT 1 FROM nowhere")

    @flow(name="lent-swallowing")
    def swallowing() -> None:
        swallows()

    with pytest.raises(RunFailed, match="use a savepoint"):
        swallowing.run("r")
