"""The primary is lost and its replica takes over, with workers at work: row 39, and the promise of
docs/operate/postgresql.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast._engine.journal.rows import Memo, Message, Write
from holdfast._stores.contract import Committed, Posted, Store
from holdfast._stores.locate import open_store
from holdfast.errors import StoreError
from tests.contract.store_contract import new_run, step as step_entry
from tests.crash.harness import payment_server, wait_for
from tests.crash.payments import Client
from tests.postgres.cluster import Cluster
from tests.postgres.fleet import Fleet
from tests.postgres.pooler import Pooler

RUNS = 20
WORKERS = 3
WORK_S = 0.1
"""How long a step takes, so that the failover falls into the middle of many."""


@pytest.fixture
def payments() -> Iterator[Client]:
    with payment_server() as client:
        yield client


def in_the_middle(fleet: Fleet, more: int = 20) -> None:
    """Wait until the workers have got so much more done."""
    before = len(fleet.acknowledged())
    wait_for(lambda: len(fleet.acknowledged()) >= before + more, "they are at work")


@pytest.mark.sweep(whole=True)
def test_failover_to_a_synchronous_replica_loses_nothing(payments: Client, tmp_path: Path) -> None:
    with Cluster(synchronous=True) as cluster:
        url = cluster.database("runs")
        fleet = Fleet(tmp_path, env={"CRASH_PAYMENTS": payments.url}, elsewhere=url)
        try:
            names = fleet.submit(RUNS)
            fleet.start_workers(WORKERS, work_s=WORK_S)
            in_the_middle(fleet)
            cluster.fail_over()
            told = len(fleet.acknowledged())
            fleet.until_completed(names)
            fleet.stop_workers()
            assert len(fleet.acknowledged()) > told, "the failover came after everything"
            assert fleet.violations(names, payments) == []
            with fleet.store() as store:
                assert store._backend.regression() is None
        finally:
            fleet.close()


@pytest.mark.sweep(whole=True)
def test_row_39_failover_to_an_asynchronous_replica_is_noticed(
    payments: Client, tmp_path: Path
) -> None:
    with Cluster(synchronous=False) as cluster:
        url = cluster.database("runs")
        fleet = Fleet(tmp_path, env={"CRASH_PAYMENTS": payments.url}, elsewhere=url)
        try:
            names = fleet.submit(RUNS)
            fleet.start_workers(WORKERS, work_s=WORK_S)
            in_the_middle(fleet)
            cluster.hold_back()
            in_the_middle(fleet)
            cluster.fail_over()
            with fleet.store() as store:
                wait_for(lambda: all_are_back(store), "every worker has compared what it knows")
                assert noticed(store)
                lost = lost_runs(fleet, store)
                assert lost, "nothing was lost, and nothing shown"
                wait_for(lambda: all(is_held(store, run) for run in lost), "its runs are held")
                # Whatever else there is to do: no effect before somebody has adopted the store.
                wait_for(lambda: "Effects wait until" in fleet.errors(), "effects wait")
                quiet = effects(fleet)
                assert not {run for run, _ in quiet} - set(names)
                held = {run: store.explain(run) for run in lost}
                assert all("accept-data-loss" in str(told) for told in held.values())
                assert effects(fleet) == quiet
                accepted = store.accept_data_loss(actor="me")
                assert "missing" in accepted
            fleet.until_completed(names)
            fleet.stop_workers()
            assert after_adoption(fleet, names, payments) == []
        finally:
            fleet.close()


def all_are_back(store: holdfast.types.Store) -> bool:
    """Tell whether every worker has been heard since the failover: `holdfast workers` shows it."""
    now_us = store._backend.now_us()
    return len([p for p in store._backend.pulses() if p.until_us > now_us]) >= WORKERS


def noticed(store: holdfast.types.Store) -> str | None:
    store._backend.pulse(store._backend.register_owner(), "{}")
    return store._backend.regression()


def is_held(store: holdfast.types.Store, run: str) -> bool:
    found = store.get(run)
    return found.status == "held" and found.held_reason == "corrupt"


def lost_runs(fleet: Fleet, store: holdfast.types.Store) -> set[str]:
    """The runs of which something is missing that a flow had been told is there."""
    lost = set()
    recorded: dict[str, set[str]] = {}
    for told in fleet.acknowledged():
        if told.run not in recorded:
            history = store.history(told.run)
            recorded[told.run] = {str(e.body.get("result")) for e in history}
        if not any(told.value in result for result in recorded[told.run]):
            lost.add(told.run)
    return lost


def effects(fleet: Fleet) -> list[tuple[str, str]]:
    return [(e.run, e.step) for e in fleet.executions() if not e.step.startswith("work")]


def after_adoption(fleet: Fleet, names: list[str], payments: Client) -> list[str]:
    """What must hold although something was lost: no effect happened twice, and all is sound."""
    wrong = [
        line for line in fleet.violations(names, payments) if "was acknowledged as" not in line
    ]
    return [line for line in wrong if "executed again after its outcome" not in line]


# -- without a fleet ---------------------------------------------------------------------------


def test_row_38_what_is_read_back_is_on_the_replica_too() -> None:
    """The primary crashes after it committed and before its replica has it. What is found there
    when it is up again is not acknowledged until the replica has it."""
    with Cluster(synchronous=True) as cluster:
        store = open_store(cluster.primary.url(), lease_s=30)
        owner = store.register_owner()
        lease = store.start(new_run("r"), owner).lease
        assert lease is not None
        acts = {
            "append": lambda: store.append([Write(lease, [step_entry()])]),
            "start": lambda: store.start(new_run("s"), owner),
            "claim": lambda: store.claim("r", owner, store.now_us()),
            "post": lambda: store.post("r", Message("m", "signal", "me", 1, b"{}")),
            "memory": lambda: store.put_memo(Memo("s", "k", b"1"), 0),
        }
        with ThreadPoolExecutor(1) as pool:
            for name, act in acts.items():
                cluster.replica.stop()
                acting = pool.submit(act)
                wait_for(lambda: waits(cluster) == 1, f"{name} waits for the replica")
                cluster.primary.stop("immediate")
                cluster.primary.start()
                wait_for(lambda: waits(cluster) == 1 or acting.done(), f"{name} reads back")
                assert not acting.done(), f"{name} was acknowledged and is on one server only"
                cluster.replica.start()
                check(name, acting.result(30), store)
        assert store.verify() == []
        store.close()


def waits(cluster: Cluster) -> int:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return cluster.primary.execute(waiting)[0][0]


def check(name: str, told: object, store: Store) -> None:
    row = store.get("r")
    assert row is not None
    kinds = [part.kind.value for item in store.load(row) for part in item.expand()]
    if name == "append":
        assert isinstance(told, list)
        assert isinstance(told[0], Committed)
        assert kinds.count("step_completed") == 1
    if name == "start":
        assert getattr(told, "created", False)
    if name == "claim":
        assert kinds.count("run_claimed") == 2
    if name == "post":
        assert told is Posted.ACCEPTED
        assert len(store.inbox(row.run_no)) == 1
    if name == "memory":
        assert told == store.memo("s", "k")
        assert getattr(told, "version", 0) == 1


def test_row_39_a_failover_behind_a_pooler_is_noticed_by_the_pulse() -> None:
    """The pooler keeps the connections of its clients: nothing breaks, and the tail is gone."""
    with Cluster(synchronous=False) as cluster, Pooler(cluster.primary.port) as pooler:
        store = open_store(pooler.url())
        owner = store.register_owner()
        store.pulse(owner, "{}")
        cluster.hold_back()
        store.start(new_run("lost"), None)
        cluster.fail_over()
        pooler.server_port = cluster.replica.port
        wait_for(lambda: notices(store, owner), "the pulse says it")
        assert store.get("lost") is None
        store.close()


def notices(store: Store, owner: int) -> str | None:
    try:
        store.pulse(owner, "{}")
    except StoreError:
        pass
    return store.regression()
