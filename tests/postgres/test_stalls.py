"""Connections that are open and silent, and notices that never come: rows 43 to 45."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import holdfast
from holdfast import Done, effect, flow, step
from holdfast._engine.journal.changes import ClaimKey
from holdfast._engine.journal.rows import Lease, Message, Write
from holdfast._stores.contract import Query, Store, Wanted
from holdfast._stores.locate import open_store
from holdfast._stores.postgres.notifications import Teller
from holdfast.errors import HoldfastError, StoreFailed
from tests.contract.store_contract import intent, new_run, step as step_entry
from tests.crash.harness import wait_for
from tests.postgres.proxy import TO_SERVER, Proxy
from tests.postgres.server import Server

LEASE_S = 2.0
A = b"a" * 16


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[Proxy]:
    with Proxy(postgres_server.port) as proxy:
        yield proxy


def hurried(proxy: Proxy, database: str) -> str:
    """Return a URL with which a connection that does not come is given up soon."""
    return f"{proxy.url(database)}?connect_timeout=2"


# -- 43 ----------------------------------------------------------------------------------------


@step
def say_hello(name: str) -> str:
    return f"hello {name}"


@flow
def greeting(name: str) -> str:
    return say_hello(name)


def test_row_43_lost_notices_are_made_up_for_by_looking(
    proxy: Proxy, postgres_database: str, postgres_url: str
) -> None:
    proxy.drops_notifications = True
    with holdfast.open(proxy.url(postgres_database)) as store, store.worker(flows=[greeting]):
        with holdfast.open(postgres_url, default=False) as other:
            before = time.monotonic()
            handle = greeting.with_options(store=other).submit("r", "you")
            assert handle.result(timeout=30) == "hello you"
            # One interval of a worker, and one of the caller who waits; the rest is the machine's.
            assert time.monotonic() - before < 10
            # And whoever waits for a change behind the same proxy is not left waiting either.
            assert store._backend.wait_for_change(5)
    assert proxy.dropped


# -- 44 ----------------------------------------------------------------------------------------


def test_row_44_no_call_hangs_on_a_silent_connection(
    proxy: Proxy, postgres_database: str, postgres_url: str
) -> None:
    """Every operation comes back within the lease, with an error that says what is known."""
    truth = open_store(postgres_url)
    store = open_store(hurried(proxy, postgres_database), lease_s=LEASE_S)
    owner = store.register_owner()
    leases = {name: store.start(new_run(name), owner).lease for name in ("a", "b", "c")}
    row = truth.get("a")
    assert row is not None
    calls = {
        "append": lambda: store.append([write(leases["a"])]),
        "keyed": lambda: store.append([keyed(leases["b"])]),
        "within": lambda: store.append_within(given(leases["c"]), lambda _c: write(leases["c"])),
        "start": lambda: store.start(new_run("new"), owner),
        "claim": lambda: store.claim("a", owner, store.now_us()),
        "take": lambda: store.take(Wanted(owner, 10, store.now_us())),
        "post": lambda: store.post("a", Message("m", "signal", "me", 1, b"{}")),
        "pulse": lambda: store.pulse(owner, "{}"),
        "get": lambda: store.get("a"),
        "list": lambda: store.list(Query()),
        "load": lambda: store.load(row),
        "claimable": lambda: store.claimable(store.now_us(), 10),
        "queues": lambda: store.queues(),
        "schedules": store.schedules,
        "pulses": store.pulses,
    }
    proxy.stall()
    began = time.monotonic()
    with ThreadPoolExecutor(len(calls)) as pool:
        answers = {name: pool.submit(call) for name, call in calls.items()}
        for name, answer in answers.items():
            with pytest.raises(StoreFailed):
                answer.result(60)
                raise AssertionError(name)
    # Far from for ever: a few times the patience, which calls that wait in line for each other add.
    assert time.monotonic() - began < 20 * LEASE_S
    proxy.mend()
    proxy.cut_all()
    # What came of it is known now, and the handle is of use again.
    assert store.get("a") == truth.get("a")
    assert isinstance(store.claim("c", owner, store.now_us()), Lease)
    assert truth.verify() == []
    store.close()
    truth.close()


def given(lease: Lease | None) -> Lease:
    assert lease is not None
    return lease


def write(lease: Lease | None) -> Write:
    return Write(given(lease), [step_entry()])


def keyed(lease: Lease | None) -> Write:
    return Write(given(lease), [intent()], changes=[ClaimKey("pay", "k", "e", A)])


PIPELINE_END_BYTES = 5


def test_row_44_a_machine_that_vanished_in_a_transaction_keeps_no_lock(
    proxy: Proxy,
    postgres_server: Server,
    postgres_database: str,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server hears nothing more of it, not even an end. Others get the run all the same."""
    monkeypatch.setattr(Teller, "tell", lambda _teller: None)  # Its bytes would be counted too.
    truth = open_store(postgres_url, lease_s=LEASE_S)
    # One connection, ids of one length, nothing new to prepare: both claims send the same bytes.
    store = open_store(f"{proxy.url(postgres_database)}?pool=1", lease_s=LEASE_S)
    owner, other = store.register_owner(), truth.register_owner()
    for name in "abr":
        store.start(new_run(name), None)
    cut = proxy.cut(TO_SERVER, last_turn(proxy, store, owner), alone=False, late=True)
    # A count that stays, and not the state of the moment, which a slow look may miss.
    given_up = f"SELECT sessions_fatal FROM pg_stat_database WHERE datname = '{postgres_database}'"
    before = postgres_server.execute(given_up)
    with ThreadPoolExecutor(1) as pool:
        claiming = pool.submit(store.claim, "r", owner, store.now_us())
        wait_for(lambda: cut.fired, "it vanished")
        began = time.monotonic()
        taken = wait_for(lambda: claimed(truth, "r", other), "somebody else has the run")
        assert taken.row.epoch == 1
        assert time.monotonic() - began < 5 * LEASE_S
        with pytest.raises(StoreFailed):
            claiming.result(30)
    wait_for(
        lambda: postgres_server.execute(given_up) != before,
        "the server gave up an open transaction",
    )
    proxy.mend()
    store.close()
    truth.close()


def last_turn(proxy: Proxy, store: Store, owner: int) -> int:
    """Return after how many bytes a claim has begun to say its last word, and not ended it. Of what
    comes before, five bytes (the end of a pipeline) are said sooner or later, as it happens."""
    seen = [proxy.turns(lambda: store.claim("a", owner, store.now_us()))[-1]]
    seen += [proxy.turns(lambda: store.claim("b", owner, store.now_us()))[-1]]
    assert abs(seen[0] - seen[1]) in (0, PIPELINE_END_BYTES)
    return min(seen) + PIPELINE_END_BYTES + 1


def claimed(store: Store, run_id: str, owner: int) -> Lease | None:
    try:
        got = store.claim(run_id, owner, store.now_us())
    except StoreFailed:
        return None
    return got if isinstance(got, Lease) else None


# -- 45 ----------------------------------------------------------------------------------------


class Outside:
    """The world, and the cable that is pulled when somebody passes by."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.passing: dict[str, Callable[[], None]] = {}

    def passes(self, place: str) -> None:
        self.passing.pop(place, lambda: None)()


outside = Outside()


@step
def look_up(order: str) -> str:
    outside.passes("look")
    return order


@effect
def pay_for(order: str) -> str:
    outside.paid.append(order)
    outside.passes("pay")
    return f"paid {order}"


@flow
def paying(order: str) -> str:
    return pay_for(look_up(order))


@pytest.mark.parametrize(("place", "payments"), [("look", 0), ("pay", 1)])
def test_row_45_a_partition_starts_no_effect_and_repeats_none(
    proxy: Proxy, postgres_database: str, postgres_url: str, place: str, payments: int
) -> None:
    """Cut off before the effect, it is not started here; inside it, it is in doubt elsewhere."""
    outside.paid.clear()
    with (
        holdfast.open(hurried(proxy, postgres_database), default=False, lease_s=LEASE_S) as cut_off,
        holdfast.open(postgres_url, default=False, lease_s=LEASE_S) as other,
    ):
        outside.passing[place] = proxy.stall
        with pytest.raises(HoldfastError):
            paying.with_options(store=cut_off).run("r", "book")
        assert len(outside.paid) == payments
        proxy.cut_all()  # What it said last is lost for good.
        with other.worker(flows=[paying]):
            if payments:
                wait_for(lambda: other.get("r").status == "held", "another took it over")
                assert other.get("r").held_reason == "in_doubt"
                other.settle("r", "pay_for", Done("paid book"), actor="me")
            handle = other.handle("r")
            assert handle.result(timeout=30) == "paid book"
        assert outside.paid == ["book"]
        assert not other.verify()
        proxy.mend()
