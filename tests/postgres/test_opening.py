"""A new store that several processes open at the same moment is made by one of them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import holdfast
from holdfast._stores.postgres.server_connection import Q
from tests.crash.harness import wait_for

OPENED_AT_ONCE = 4
WAITING = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def makes(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Who has the lock under which the schema is made."""
    with psycopg.connect(postgres_url) as connection:
        connection.execute(Q["lock_schema"].encode())
        yield connection


def wait_for_waiting(makes: psycopg.Connection, number: int) -> None:
    wait_for(lambda: makes.execute(WAITING).fetchone() == (number,), "all wait for the lock")


def has_schema(connection: psycopg.Connection) -> bool:
    found = connection.execute(Q["has_schema"].encode()).fetchone()
    assert found is not None
    return bool(found[0])


def test_a_schema_that_was_made_while_the_lock_was_waited_for_is_seen(
    postgres_url: str, makes: psycopg.Connection
) -> None:
    """The session that waited has looked before, and the server lets it remember that."""
    with (
        psycopg.connect(postgres_url, autocommit=True) as waits,
        ThreadPoolExecutor(1) as pool,
    ):
        assert not has_schema(waits)
        makes.execute("CREATE SCHEMA holdfast; CREATE TABLE holdfast.schema ()")
        waits.execute(Q["begin"].encode())
        locked = pool.submit(waits.execute, Q["lock_schema"].encode())
        wait_for_waiting(makes, 1)
        makes.commit()
        locked.result(60)
        assert has_schema(waits)


def test_all_who_open_a_new_store_at_once_open_the_same_one(
    postgres_url: str, makes: psycopg.Connection
) -> None:
    def opened() -> str:
        with holdfast.open(postgres_url, default=False) as store:
            return store._backend.store_id

    with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
        stores = [pool.submit(opened) for _ in range(OPENED_AT_ONCE)]
        wait_for_waiting(makes, OPENED_AT_ONCE)
        makes.rollback()
        assert len({it.result(60) for it in stores}) == 1
