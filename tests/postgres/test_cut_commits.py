"""Connections that are cut while something is being committed: nothing is lost, doubled or guessed.

Here with a sample of the bytes; `python -m tests.torture --cuts` takes every single one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast._store.locate import open_store
from holdfast.errors import StoreFailed
from tests.postgres.exchanges import EXCHANGES, Bench, play, play_late
from tests.postgres.proxy import TO_CLIENT, TO_SERVER, Proxy
from tests.postgres.server import Server

CASES = 12
"""About so many bytes of each direction."""
SHORT_LEASE_S = 2.0
LATE = ["plain step", "intent with key", "start", "claim", "take", "transaction"]


@pytest.fixture
def bench(postgres_server: Server, postgres_database: str) -> Iterator[Bench]:
    url = postgres_server.url(postgres_database)
    postgres_server.execute("CREATE TABLE public.paid (run_id text)", postgres_database)
    with Proxy(postgres_server.port) as proxy:
        store = open_store(proxy.url(postgres_database), lease_s=SHORT_LEASE_S)
        truth = open_store(url)
        yield Bench(store, truth, proxy)
        proxy.mend()
        assert truth.verify() == []
        store.close()
        truth.close()


def sample(size: int, cases: int = CASES) -> list[int]:
    """Some of the bytes from 0 to `size`: the ends, and some in between."""
    ends = [0, 1, size - 1, size]
    return sorted({*ends, *range(0, size, max(1, size // cases))})


def sizes(bench: Bench, name: str) -> dict[str, int]:
    exchange = EXCHANGES[name](bench)
    exchange.prepare()
    return bench.proxy.measure(exchange.act)


@pytest.mark.parametrize("name", EXCHANGES)
def test_row_38_a_cut_exchange_is_told_truly(bench: Bench, name: str) -> None:
    measured = sizes(bench, name)
    for way in (TO_SERVER, TO_CLIENT):
        for after in sample(measured[way]):
            fired = play(bench, name, way, after)
            assert fired or after >= measured[way] - 8, (way, after, measured)


@pytest.mark.parametrize("name", LATE)
def test_row_38_what_arrives_late_changes_nothing(bench: Bench, name: str) -> None:
    size = sizes(bench, name)[TO_SERVER]
    for after in sample(size - 1, 2):
        play_late(bench, name, TO_SERVER, after)


@pytest.mark.parametrize("way", [TO_SERVER, TO_CLIENT])
def test_row_38_what_cannot_be_read_back_is_said_to_be_unknown(bench: Bench, way: str) -> None:
    exchange = EXCHANGES["intent with key"](bench)
    exchange.prepare()
    cut = bench.proxy.cut(way, 40, alone=False)
    with pytest.raises(StoreFailed):
        exchange.act()
    assert cut.fired
    bench.proxy.mend()
    exchange.check_unknown()
