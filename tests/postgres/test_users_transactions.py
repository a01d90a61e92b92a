"""Effects in a user's tables on a server that ends transactions for reasons of its own."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import dict_row

import holdfast
from holdfast import effect, flow
from tests.postgres.server import Server


@pytest.fixture
def store(postgres_url: str) -> Iterator[holdfast.types.Store]:
    with psycopg.connect(postgres_url, autocommit=True) as own:
        own.execute("CREATE TABLE public.booked (place text)")
    with holdfast.open(f"{postgres_url}?pool=1") as store:
        yield store


def booked(server: Server, database: str) -> list[str]:
    return [place for (place,) in server.execute("SELECT place FROM public.booked", database)]


def test_row_40_a_deadlock_inside_the_body_calls_it_again(
    store: holdfast.types.Store, postgres_server: Server, postgres_database: str
) -> None:
    calls: list[int] = []

    @effect(name="users book", transaction=True)
    def book(place: str) -> None:
        calls.append(1)
        holdfast.context.sql_connection().execute("INSERT INTO public.booked VALUES (%s)", (place,))
        if len(calls) == 1:
            raise psycopg.errors.DeadlockDetected("deadlock detected")

    @flow(name="users travel")
    def travel() -> str:
        book("window")
        return "booked"

    assert travel.run("r") == "booked"
    assert len(calls) == 2
    assert booked(postgres_server, postgres_database) == ["window"]
    assert [step.attempts for step in store.get("r").steps] == [1]


def test_row_37_a_connection_lost_inside_the_body_fails_nothing_for_good(
    store: holdfast.types.Store, postgres_server: Server, postgres_database: str
) -> None:
    calls: list[int] = []

    @effect(name="users book late", transaction=True)
    def book(place: str) -> None:
        calls.append(1)
        connection = holdfast.context.sql_connection()
        connection.execute("INSERT INTO public.booked VALUES (%s)", (place,))
        if len(calls) == 1:
            pid = connection.info.backend_pid
            postgres_server.execute(f"SELECT pg_terminate_backend({pid})")
        connection.execute("INSERT INTO public.booked VALUES (%s)", (f"{place} too",))

    @flow(name="users travel late")
    def travel() -> str:
        book("aisle")
        return "booked"

    try:
        result = travel.run("r")
    except holdfast.errors.StoreFailed:
        result = travel.run("r")  # Given back, and taken up again.
    assert result == "booked"
    assert booked(postgres_server, postgres_database) == ["aisle", "aisle too"]


def test_what_a_body_sets_on_its_connection_harms_nobody_after_it(
    store: holdfast.types.Store,
) -> None:
    @effect(name="users count", transaction=True)
    def count() -> int:
        connection = holdfast.context.sql_connection()
        connection.row_factory = dict_row
        return int(connection.execute("SELECT count(*) AS n FROM public.booked").fetchone()["n"])

    @flow(name="users look")
    def look() -> int:
        return count() + count()

    assert look.run("a") == 0
    assert look.run("b") == 0
    assert store.verify() == []
