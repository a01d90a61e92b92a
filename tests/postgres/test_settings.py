"""What the server, the database or the role has been told to do otherwise: rows 40, 41, 46 to 49."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

import holdfast
from holdfast import effect, flow, gather, step
from holdfast._engine.journal.changes import ClaimKey
from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.contract import Committed, Store
from holdfast._stores.locate import open_store
from holdfast._stores.postgres.postgres_store import PostgresStore
from holdfast._stores.postgres.server_connection import Link
from holdfast.errors import StoreUnusable
from tests.contract.store_contract import intent, new_run, step as step_entry
from tests.crash.harness import wait_for
from tests.postgres.cluster import Cluster
from tests.postgres.server import Server

A = b"a" * 16


@step
def add_up(one: int, other: int) -> int:
    return one + other


@effect(key="tell:{number}")
def tell_sum(number: int) -> int:
    return number


@flow
def sums(number: int) -> int:
    left, right = gather(lambda: add_up(number, 1), lambda: add_up(number, 2))
    return add_up(left, right) + tell_sum(number)


def check_runs(url: str, runs: int = 8) -> None:
    """Several runs at once come to their end, and all is as it should be."""
    with holdfast.open(url, default=False) as store:
        chosen = sums.with_options(store=store)
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda i: chosen.run(f"r{i}", i), range(runs)))
        assert results == [3 * i + 3 for i in range(runs)]
        assert not store.verify()


@pytest.fixture
def role(postgres_server: Server, postgres_database: str) -> Iterator[str]:
    """A role of its own, with what it needs to make our schema."""
    name = f"clerk_{postgres_database}"
    postgres_server.execute(f'CREATE ROLE "{name}" LOGIN')
    postgres_server.execute(f'GRANT CREATE ON DATABASE "{postgres_database}" TO "{name}"')
    yield name
    postgres_server.cut_off(postgres_database)
    postgres_server.execute(f'DROP OWNED BY "{name}" CASCADE', postgres_database)
    postgres_server.execute(f'DROP ROLE "{name}"')


def told(server: Server, role: str, **settings: str) -> None:
    """Give a role defaults of its own."""
    for name, value in settings.items():
        server.execute(f"ALTER ROLE \"{role}\" SET {name} = '{value}'")


# -- 40 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_row_40_stricter_isolation_changes_nothing(
    postgres_server: Server, postgres_database: str, role: str, level: str
) -> None:
    told(postgres_server, role, default_transaction_isolation=level)
    check_runs(postgres_server.url(postgres_database, user=role))


def test_row_40_a_deadlock_is_tried_again(
    postgres_server: Server, postgres_database: str, postgres_url: str
) -> None:
    """Two runs are appended to in one transaction, while another locks them the other way round."""
    store = open_store(postgres_url)
    owner = store.register_owner()
    first, second = (lease_of(store, owner, name) for name in ("first", "second"))
    lock = "SELECT 1 FROM holdfast.runs WHERE run_no = %s FOR UPDATE"
    with psycopg.connect(postgres_url) as other, ThreadPoolExecutor(1) as pool:
        # Ours is the one that is chosen to give way: the other waits much longer.
        other.execute("SET deadlock_timeout = '60s'")
        other.execute(lock, (second.row.run_no,))
        writes = [
            Write(first, [intent()], changes=[ClaimKey("pay", "k", "e", A)]),
            Write(second, [step_entry()]),
        ]
        appended = pool.submit(store.append, writes)
        waiting = (
            "SELECT count(*) FROM pg_stat_activity "
            f"WHERE datname = '{postgres_database}' AND wait_event_type = 'Lock'"
        )
        wait_for(lambda: postgres_server.execute(waiting) == [(1,)], "ours waits")
        other.execute(lock, (first.row.run_no,))
        other.rollback()
        outcomes = appended.result(30)
    assert [type(outcome) for outcome in outcomes] == [Committed, Committed]
    assert kinds(store, "first") == ["step_started"]
    assert kinds(store, "second") == ["step_started", "step_completed"]
    assert store.verify() == []
    store.close()
    deadlocks = f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{postgres_database}'"
    wait_for(lambda: postgres_server.execute(deadlocks)[0][0] >= 1, "there was a deadlock")


def lease_of(store: Store, owner: int, name: str) -> Lease:
    lease = store.start(new_run(name), owner).lease
    assert lease is not None
    return lease


def kinds(store: Store, run_id: str) -> list[str]:
    row = store.get(run_id)
    assert row is not None
    return [part.kind.value for item in store.load(row) for part in item.expand()][2:]


# -- 46 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["off", "local", "remote_write"])
def test_row_46_commits_are_on_disk_whatever_the_role_says(
    postgres_server: Server, postgres_database: str, role: str, level: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Seen from inside: at the moment of each commit of ours it is on."""
    told(postgres_server, role, synchronous_commit=level)
    url = postgres_server.url(postgres_database, user=role)
    seen: list[str] = []
    fetch = Link.fetch

    def looking(link: Link, name: str, values: object = ()) -> list[object]:
        if name == "commit":
            seen.append(fetch(link, "shown_commit")[0][0])
        return fetch(link, name, values)

    from holdfast._stores.postgres import server_connection as module

    monkeypatch.setitem(module.Q, "shown_commit", "SELECT current_setting('synchronous_commit')")
    monkeypatch.setattr(Link, "fetch", looking)
    check_runs(url, runs=2)
    assert seen
    assert set(seen) == {"on"}
    with psycopg.connect(url) as plain:
        assert plain.execute("SHOW synchronous_commit").fetchone() == (level,)


def test_row_46_an_append_waits_for_the_replica_whatever_the_role_says() -> None:
    """Seen from outside: with a replica that does not answer, nothing is acknowledged."""
    with Cluster(synchronous=True) as cluster:
        cluster.primary.execute("ALTER ROLE holdfast SET synchronous_commit = 'off'")
        store = open_store(cluster.url(), lease_s=30)
        owner = store.register_owner()
        lease = lease_of(store, owner, "r")
        cluster.hold_back()
        acts = {
            "append": lambda: store.append([Write(lease, [step_entry()])]),
            "start": lambda: store.start(new_run("s"), owner),
            "keyed": lambda: store.append(
                [Write(lease, [intent()], changes=[ClaimKey("pay", "k", "e", A)])]
            ),
        }
        with ThreadPoolExecutor(1) as pool:
            for name, act in acts.items():
                acting = pool.submit(act)
                waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                wait_for(lambda: cluster.primary.execute(waiting) == [(1,)], f"{name} waits")
                assert not acting.done()
                cluster.release()
                acting.result(30)
                cluster.hold_back()
        cluster.release()
        store.close()


def test_row_46_a_server_without_fsync_is_refused() -> None:
    with Server({"fsync": "off"}) as server, pytest.raises(StoreUnusable, match="fsync"):
        open_store(server.url())


# -- 41 ----------------------------------------------------------------------------------------


def test_row_41_a_standby_is_refused() -> None:
    with Cluster(synchronous=False) as cluster:
        open_store(cluster.primary.url()).close()
        cluster.catch_up()
        with pytest.raises(StoreUnusable, match="standby"):
            open_store(cluster.replica.url())
        # Of several hosts, the one that can be written to is taken, in whatever order they stand.
        primary, replica = cluster.primary.port, cluster.replica.port
        for hosts in (f"127.0.0.1:{replica},127.0.0.1:{primary}", f"127.0.0.1:{primary}"):
            store = open_store(f"postgresql://holdfast@{hosts}/postgres")
            store.start(new_run(hosts), None)
            store.close()


# -- 47 ----------------------------------------------------------------------------------------


def test_row_47_a_pool_of_one_is_enough(postgres_url: str) -> None:
    check_runs(f"{postgres_url}?pool=1", runs=20)


def test_row_47_heartbeats_have_their_own_connection(postgres_url: str) -> None:
    """Somebody keeps the only connection of the pool, and another appends: the pulse goes on."""
    store = open_store(f"{postgres_url}?pool=1")
    owner = store.register_owner()
    lease = lease_of(store, owner, "r")
    busy, done = threading.Event(), threading.Event()

    def work(connection: object) -> Write:
        busy.set()
        assert done.wait(30)
        return Write(lease, [step_entry()])

    with ThreadPoolExecutor(1) as pool:
        within = pool.submit(store.append_within, lease, work)
        assert busy.wait(30)
        assert store.pulse(owner, "{}", [(lease.row.run_no, lease.row.epoch)]) == []
        done.set()
        assert isinstance(within.result(30), Committed)
    store.close()


# -- 48 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        {"idle_in_transaction_session_timeout": "1ms"},
        {"statement_timeout": "60ms"},
        {"lock_timeout": "5ms"},
        {"transaction_timeout": "60ms"},
    ],
)
def test_row_48_sessions_that_are_killed_early_cost_time_and_nothing_else(
    postgres_server: Server, postgres_database: str, role: str, setting: dict[str, str]
) -> None:
    url = postgres_server.url(postgres_database, user=role)
    open_store(url).close()  # The schema is made in peace.
    told(postgres_server, role, **setting)
    check_runs(url)


@pytest.mark.parametrize("limit", ["statement_timeout", "transaction_timeout"])
def test_row_48_one_state_is_read_for_as_long_as_it_takes(
    postgres_server: Server, postgres_database: str, role: str, limit: str
) -> None:
    """`verify` needs one state of a whole store: a limit meant for short work must not end it."""
    url = postgres_server.url(postgres_database, user=role)
    open_store(url).close()
    told(postgres_server, role, **{limit: "60ms"})
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    link = store._database.connect()
    with link.one_state():
        link.execute("SELECT pg_sleep(0.2)")
    link.close()
    store.close()


def test_row_48_idle_sessions_that_are_ended_are_replaced(
    postgres_server: Server, postgres_database: str, postgres_url: str
) -> None:
    with holdfast.open(postgres_url, default=False) as store:
        chosen = sums.with_options(store=store)
        for number in range(3):
            assert chosen.run(f"r{number}", number) == 3 * number + 3
            postgres_server.cut_off(postgres_database)
        assert not store.verify()


# -- 49 ----------------------------------------------------------------------------------------


def test_row_49_numbers_that_were_skipped_and_ids_that_wrapped_do_not_matter(
    postgres_server: Server, postgres_database: str, postgres_url: str
) -> None:
    """The order of events is that of their numbers in their run, not that of transactions."""
    store = open_store(postgres_url)
    owner = store.register_owner()
    lease = lease_of(store, owner, "old")
    store.append([Write(lease, [step_entry("a")])])
    for jump in (2**31 - 1, 2**32 + 1, 2**40):
        postgres_server.execute(f"SELECT setval('holdfast.run_numbers', {jump})", postgres_database)
        name = f"after {jump}"
        made = store.start(new_run(name), owner)
        assert made.row.run_no == jump + 1
        assert made.lease is not None
        store.append([Write(made.lease, [step_entry()])])
        assert kinds(store, name) == ["step_started", "step_completed"]
    # A snapshot that is held for long sees the past, and hinders nobody.
    with psycopg.connect(postgres_url) as snapshot:
        snapshot.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        count = "SELECT count(*) FROM holdfast.journal"
        before = snapshot.execute(count).fetchone()
        store.append([Write(lease, [step_entry("b")])])
        assert snapshot.execute(count).fetchone() == before
    assert kinds(store, "old") == ["step_started", "step_completed"] * 2
    assert store.verify() == []
    store.close()
