"""A store that is closed while code of its runs is at work: nobody may take that for a death."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import holdfast
from holdfast import effect, flow, step
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores.sqlite import owner_locks
from holdfast.errors import RunBusy


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a.db"
    return request.getfixturevalue("postgres_url")


class Blocked:
    """An effect that has begun and does not end before it is told to."""

    def __init__(self) -> None:
        self.inside, self.free = threading.Event(), threading.Event()

    def call(self) -> None:
        self.inside.set()
        assert self.free.wait(30)


def test_a_store_closed_with_an_effect_in_its_call_proves_no_death(url):
    blocked = Blocked()

    @effect(name="closing pay")
    def pay() -> str:
        blocked.call()
        return "paid"

    @flow(name="closing shop")
    def shop() -> str:
        return pay()

    store = holdfast.open(url)
    owner = store._engine.owner()
    handle = shop.start("r")
    assert blocked.inside.wait(10)
    store.close()
    with holdfast.open(url, default=False) as other:
        assert not other._backend.owner_is_dead(owner)
        assert other._backend.claimable(other._backend.now_us(), 9) == []
    blocked.free.set()
    handle._thread.join(10)  # type: ignore[union-attr]


def test_a_store_closed_with_an_abandoned_attempt_proves_no_death(url):
    blocked = Blocked()

    @effect(name="closing slow pay", timeout=0.05, on_doubt="fail")
    def pay() -> None:
        blocked.call()

    @flow(name="closing slow shop")
    def shop() -> str:
        try:
            pay()
        except holdfast.errors.StepFailed:
            return "went on"
        return "paid"

    store = holdfast.open(url)
    owner = store._engine.owner()
    assert shop.run("r") == "went on"
    store.close()
    with holdfast.open(url, default=False) as other:
        assert not other._backend.owner_is_dead(owner)
    blocked.free.set()


def test_a_store_closed_in_order_is_a_proof(url):
    store = holdfast.open(url, default=False)
    owner = store._engine.owner()
    store.close()
    with holdfast.open(url, default=False) as other:
        assert other._backend.owner_is_dead(owner)


def test_row_36_an_error_in_the_process_table_proves_nothing(monkeypatch):
    row = owner_locks.describe(1, 0, 0)
    assert not owner_locks.is_gone(row)

    def no_descriptors(*_args, **_kwargs):
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(Path, "read_text", no_descriptors)
    monkeypatch.setattr(owner_locks, "_boot_id", lambda: row.boot_id)
    assert not owner_locks.is_gone(row)


def test_a_run_that_the_worker_has_is_busy_for_the_callers_of_its_process(store):
    blocked = Blocked()

    @step(name="closing wait")
    def wait() -> None:
        blocked.call()

    @flow(name="closing waits")
    def waits() -> str:
        wait()
        return "done"

    handle = waits.submit("r")
    with store.worker(flows=[waits], concurrency=1) as worker:
        assert blocked.inside.wait(10)
        assert worker.works_on("r")
        with pytest.raises(RunBusy):
            waits.run("r")
        blocked.free.set()
        assert handle.result(timeout=10) == "done"


def test_a_write_that_went_through_in_the_dark_does_not_strand_its_run(store):
    """The lease that is to be given back stands on a row that is not the last one any more."""

    @flow(name="closing dark")
    def dark() -> None: ...

    dark.submit("r")
    kept, engine = store._backend, store._engine
    lease = kept.claim("r", engine.owner(), kept.now_us())
    assert isinstance(lease, Lease)
    stale = Lease(lease.row)
    entry = Draft(Kind.VALUE_EMITTED, kept.now_us(), "emit", body=b'{"value":1}')
    kept.append([Write(lease, [entry])])
    engine.abandon(stale)
    engine.heartbeat.beat()
    engine.heartbeat.beat()
    row = kept.get("r")
    assert row.owner is None
    assert engine.abandoned() == []
    assert isinstance(kept.claim("r", engine.owner(), kept.now_us()), Lease)


def test_a_run_given_back_because_it_could_not_write_has_made_no_progress(store):
    @flow(name="closing unlucky")
    def unlucky() -> None: ...

    unlucky.submit("r")
    kept, owner = store._backend, store._engine.owner()
    for count in range(1, 5):
        lease = kept.claim("r", owner, kept.now_us())
        assert isinstance(lease, Lease)
        assert lease.row.claims == count
        body = b'{"why":"store error","error":{}}'
        kept.append([Write(lease, [Draft(Kind.RUN_RELEASED, kept.now_us(), body=body)])])
    kept.claim("r", owner, kept.now_us())
    assert kept.get("r").held_reason == "quarantined"
