"""Each guard against the faults of a server, taken away: the tests of this folder must notice."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from holdfast._stores.locate import open_store
from holdfast._stores.postgres import server_connection as link_module
from holdfast._stores.postgres.acknowledged_heads import Remembered
from holdfast._stores.postgres.postgres_append import Batch
from holdfast._stores.postgres.server_connection import Link
from tests.contract.store_contract import new_run
from tests.crash.harness import Execution
from tests.postgres import fleet
from tests.postgres.exchanges import EXCHANGES, Bench, play
from tests.postgres.pooler import Pooler
from tests.postgres.proxy import TO_CLIENT, Proxy
from tests.postgres.server import Server


@pytest.fixture
def bench(postgres_server: Server, postgres_database: str) -> Iterator[Bench]:
    with Proxy(postgres_server.port) as proxy:
        store = open_store(proxy.url(postgres_database))
        truth = open_store(postgres_server.url(postgres_database))
        yield Bench(store, truth, proxy)
        store.close()
        truth.close()


def cut_before_ready(bench: Bench, name: str) -> bool:
    """Cut the connection after the commit and before the client is told that all is over. Returns
    whether there was a cut: now and then a store asks for the time besides, and the last message
    comes later than in the exchange that was measured."""
    exchange = EXCHANGES[name](bench)
    exchange.prepare()
    ready = 6
    return play(bench, name, TO_CLIENT, bench.proxy.measure(exchange.act)[TO_CLIENT] - ready)


@pytest.mark.parametrize("name", ["plain step", "effect intent", "intent with key"])
def test_a_store_that_does_not_read_back_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert any(cut_before_ready(bench, name) for _ in range(5))
    monkeypatch.setattr(Batch, "was_committed", lambda *_: False)
    with pytest.raises(AssertionError):
        for _ in range(5):
            cut_before_ready(bench, name)
    bench.proxy.mend()


@pytest.mark.parametrize("remembers", [True, False])
def test_a_store_that_does_not_remember_what_it_was_told_is_found(
    postgres_server: Server, postgres_database: str, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:  # fmt: skip
    if not remembers:
        monkeypatch.setattr(Remembered, "acknowledged", lambda *_: None)
    store = open_store(postgres_server.url(postgres_database))
    store.start(new_run("r"), None)
    for table in ("journal", "runs"):
        postgres_server.execute(f"DELETE FROM holdfast.{table}", postgres_database)
    postgres_server.cut_off(postgres_database)
    assert store.get("r") is None
    assert bool(store.regression()) is remembers
    store.close()


@pytest.mark.parametrize("forced", [True, False])
def test_a_store_that_takes_the_role_s_word_for_durability_is_found(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, forced: bool
) -> None:
    if not forced:
        monkeypatch.setitem(link_module.Q, "commit_for_good", "SELECT %s::text")
    with Link.connect(postgres_url, autocommit=True) as link:
        link.execute("SET synchronous_commit = off")
        with link.writing():
            shown = link.execute("SHOW synchronous_commit").fetchone()
    assert shown == ("on" if forced else "off",)


def test_a_store_that_keeps_something_in_its_session_is_found(
    postgres_server: Server, postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "_NO_SUCH_STATEMENT", b"no such error")
    with Pooler(postgres_server.port) as pooler:
        store = open_store(pooler.url(postgres_database))
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            store.start(new_run("r"), None)
        store.close()


# -- the oracle of fleets ----------------------------------------------------------------------


def made(label: str, *notes: str) -> list[Execution]:
    return [Execution("r", label, 1, at, note) for at, note in enumerate(notes)]


@pytest.mark.parametrize(
    ("label", "value", "executions", "told", "found"),
    [
        ("work-0", "a", made("work-0", "a"), {"a"}, 0),
        ("work-0", "b", made("work-0", "a", "b"), {"b"}, 0),
        ("work-0", "b", made("work-0", "a", "b"), {"a", "b"}, 1),
        ("work-0", "a", made("work-0", "a", "b"), {"a"}, 1),
        ("work-0", "a", [], {"a"}, 1),
        ("work-0", "a", made("work-0", "a"), set(), 1),
        ("order", "a", made("order", "a"), {"a"}, 0),
        ("order", "a", made("order", "a", "a"), {"a"}, 1),
    ],
)
def test_the_oracle_of_fleets_sees(
    label: str, value: str, executions: list[Execution], told: set[str], found: int
) -> None:
    assert len(fleet._compare(label, value, executions, told)) == found


def test_the_oracle_of_fleets_sees_two_charges() -> None:
    once = {"k": {"charges": [{"charge": "c"}]}}
    twice = {"k": {"charges": [{"charge": "c"}, {"charge": "c"}]}}
    assert fleet._compare_books(once, {"c"}) == []
    assert fleet._compare_books(twice, {"c"})
    assert fleet._compare_books(once, set())
