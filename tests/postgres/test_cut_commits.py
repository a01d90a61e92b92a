"""Connections that are cut while something is being committed: nothing is lost, doubled or guessed.

Here with a sample of the bytes; `python -m tests.torture --postgres cuts` takes every single one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast import NOT_DONE, Done, effect, flow, step
from holdfast._stores.locate import open_store
from holdfast._stores.postgres.notifications import Teller
from holdfast.errors import HoldfastError, RunHeld, StoreFailed
from tests import sweeps
from tests.postgres.exchanges import EXCHANGES, Bench, play, play_late
from tests.postgres.proxy import TO_CLIENT, TO_SERVER, Proxy
from tests.postgres.server import Server

CASES = sweeps.size(4, 8)
"""About so many bytes of each direction."""
SHORT_LEASE_S = 2.0
LATE = ["plain step", "intent with key", "start", "take"]


@pytest.fixture(autouse=True)
def _nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the exchange itself is on the line, so that its bytes can be counted."""
    monkeypatch.setattr(Teller, "tell", lambda _teller: None)


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


def sizes(bench: Bench, name: str) -> tuple[dict[str, int], dict[str, int]]:
    """Return the least and the most bytes of an exchange: the first one of a connection may tell
    the server a statement by which the others go."""
    found = []
    for fresh in (True, False):
        if fresh:
            bench.proxy.cut_all()
        exchange = EXCHANGES[name](bench)
        exchange.prepare()
        found.append(bench.proxy.measure(exchange.act))
    both = {way: [size[way] for size in found] for way in found[0]}
    least = {way: min(size) for way, size in both.items()}
    return least, {way: max(size) for way, size in both.items()}


@pytest.mark.sweep
@pytest.mark.parametrize("name", EXCHANGES)
def test_row_38_a_cut_exchange_is_told_truly(bench: Bench, name: str) -> None:
    least, most = sizes(bench, name)
    for way in (TO_SERVER, TO_CLIENT):
        tried = []
        for after in sample(most[way]):
            fired = play(bench, name, way, after)
            if not fired and after < least[way] - 8:
                # Which connection of a pool is used, and for how much of it, is not always the same.
                bench.proxy.cut_all()
                fired = play(bench, name, way, after, anywhere=True)
            tried.append((after, fired))
        within = [fired for after, fired in tried if after < least[way] - 8]
        assert sum(within) >= 0.7 * len(within), (way, tried, least)


@pytest.mark.parametrize("name", LATE)
def test_row_38_what_arrives_late_changes_nothing(bench: Bench, name: str) -> None:
    least, _ = sizes(bench, name)
    places = sample(least[TO_SERVER] - 8, 2)
    fired = [play_late(bench, name, TO_SERVER, after) for after in places]
    assert sum(fired) >= 0.7 * len(fired), (places, fired)


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


# -- whole runs --------------------------------------------------------------------------------

paid: list[str] = []


@step
def choose(order: str) -> str:
    return order


@effect
def buy(order: str) -> str:
    paid.append(order)
    return f"paid {order}"


@effect(key="ship:{order}")
def ship(order: str) -> str:
    paid.append(f"ship {order}")
    return f"shipped {order}"


@flow
def buying(order: str) -> list[str]:
    return [buy(choose(order)), ship(order)]


@pytest.mark.parametrize("way", [TO_SERVER, TO_CLIENT])
def test_row_38_a_run_whose_connections_are_cut_repeats_no_effect(
    postgres_server: Server, postgres_database: str, way: str
) -> None:
    with (
        Proxy(postgres_server.port) as proxy,
        holdfast.open(proxy.url(postgres_database), default=False) as store,
    ):
        chosen = buying.with_options(store=store)
        chosen.run("warm", "warm")
        size = proxy.measure_all(lambda: chosen.run("measured", "measured"))[way]
        fired = 0
        for after in sample(size, 25):
            paid.clear()
            cut = proxy.cut(way, after, anywhere=True)
            order = f"order {after}"
            assert chosen.run(order, order) == [f"paid {order}", f"shipped {order}"]
            proxy.mend()
            fired += cut.fired
            assert paid == [order, f"ship {order}"]
        assert fired > 20
        assert not store.verify()


@pytest.mark.parametrize("part", [2, 4])
def test_row_38_a_run_that_is_cut_off_for_good_repeats_no_effect(
    postgres_server: Server, postgres_database: str, postgres_url: str, part: int
) -> None:
    """Nothing can be read back: whoever takes the run up finds out, or asks."""
    paid.clear()
    with (
        Proxy(postgres_server.port) as proxy,
        holdfast.open(postgres_url, default=False, lease_s=SHORT_LEASE_S) as truth,
    ):
        url = proxy.url(postgres_database)
        with holdfast.open(url, default=False, lease_s=SHORT_LEASE_S) as store:
            chosen = buying.with_options(store=store)
            chosen.run("warm", "warm")
            size = proxy.measure_all(lambda: chosen.run("measured", "measured"))[TO_CLIENT]
            paid.clear()
            cut = proxy.cut(TO_CLIENT, part * size // 5, anywhere=True, alone=False)
            with pytest.raises(HoldfastError):
                chosen.run("r", "book")
            assert cut.fired
        with truth.worker(flows=[buying]):
            handle = truth.handle("r") if truth._backend.get("r") else None
            if handle is None:
                handle = buying.with_options(store=truth).submit("r", "book")
            done = settled(truth, handle)
        assert done == ["paid book", "shipped book"]
        assert sorted(paid) == ["book", "ship book"]
        assert not truth.verify()


def settled(store: holdfast.types.Store, handle: holdfast.types.Handle[list[str]]) -> list[str]:
    """Wait for the end; where an effect is in doubt, say what the world says."""
    while True:
        try:
            return handle.result(timeout=60)
        except RunHeld as held:
            settle(store, held)


def settle(store: holdfast.types.Store, held: RunHeld) -> None:
    assert held.reason == "in_doubt"
    happened = {"buy": "book", "ship": "ship book"}[held.step] in paid
    if happened:
        value = {"buy": "paid book", "ship": "shipped book"}[held.step]
        store.settle("r", held.step, Done(value), actor="test")
    else:
        store.settle("r", held.step, NOT_DONE, actor="test")
