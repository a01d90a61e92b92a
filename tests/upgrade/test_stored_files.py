"""Stores that earlier versions wrote are opened, brought up to date, and go on."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import Done
from holdfast._engine.journal.rows import Account, Memo
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._stores.contract import Limits, Wanted
from holdfast._stores.sqlite import migrations
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.upgrade import flows

FILES = sorted(Path(__file__).parent.glob("schema-*.tar.gz"))


def _name(file: Path) -> str:
    return file.name.partition(".")[0]


@pytest.fixture(params=FILES, ids=_name)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    with tarfile.open(request.param) as packed:
        packed.extractall(tmp_path, filter="data")
    flows.charges.clear()
    yield tmp_path / "a.db"
    flows.charges.clear()


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    raw = apsw.Connection(str(path))
    try:
        return list(raw.execute(sql).fetchall())
    finally:
        raw.close()


def test_it_is_brought_up_to_date_and_nothing_that_was_written_changes(path: Path) -> None:
    everything = "SELECT run_no, head, digest FROM runs ORDER BY run_no"
    before = rows(path, everything), rows(path, "SELECT * FROM journal")
    ((version,),) = rows(path, "PRAGMA user_version")
    assert version in range(1, len(migrations.steps()) + 1)
    with holdfast.open(f"sqlite:///{path}", default=False) as store:
        assert store._backend.regression() is None
        assert store.verify() == []
        found = {run.run_id: run.status for run in store.runs()}
    assert found == {
        "done": "completed",
        "talked": "completed",
        "queued": "queued",
        "stopped": "queued",
        "silent": "queued",
        "doubted": "held",
    }
    assert (rows(path, everything), rows(path, "SELECT * FROM journal")) == before
    assert rows(path, "PRAGMA user_version") == [(len(migrations.steps()),)]
    raw = apsw.Connection(str(path))
    assert migrations.objects(raw) == migrations.expected()
    raw.close()


def test_its_runs_go_on_where_they_stopped(path: Path) -> None:
    with holdfast.open(f"sqlite:///{path}") as store:
        assert flows.order.run("done", "done", 30) == "receipt done 30: 30"
        assert flows.order.run("stopped", "stopped", 40) == "receipt stopped 40: 40"
        assert flows.talk.run("silent", 2) == 2
        assert flows.charges == []
        assert flows.order.run("queued", "queued", 2) == "receipt queued 2: 2"
        assert flows.charges == ["queued"]
        store.settle("doubted", "charge", Done("receipt doubted 5"), actor="me")
        assert flows.order.run("doubted", "doubted", 5) == "receipt doubted 5: 5"
        assert flows.charges == ["queued"]
        assert {run.status for run in store.runs()} == {"completed"}
        assert store.verify() == []


def test_its_runs_are_in_the_default_queue(path: Path) -> None:
    store = SqliteStore(str(path))
    owner = store.register_owner()
    (state,) = store.queues()
    assert (state.limits, state.ready, state.held) == (Limits("default"), 3, 1)
    store.set_limits(Limits("default", concurrency=2))
    taken = store.take(Wanted(owner, 10, store.now_us()))
    assert [lease.row.run_id for lease in taken] == ["queued", "stopped"]
    assert store.verify() == []
    store.close()


def test_what_a_fleet_left_is_there_and_wakes_as_before(path: Path) -> None:
    store = SqliteStore(str(path), namespace="fleet")
    assert [state.limits for state in store.queues()][1] == Limits("mail", concurrency=3, rate=7)
    assert [row.name for row in store.schedules()] == ["daily"]
    now_us = store.now_us()
    due = [row.run_id for row in store.claimable(now_us, 10)]
    assert due == ["due", "spoken to", "new"]
    owner = store.register_owner()
    taken = store.take(Wanted(owner, 10, now_us))
    assert sorted(lease.row.run_id for lease in taken) == sorted(due)
    row = store.get("spoken to")
    assert row is not None
    assert [(it.message_id, it.number) for it in store.inbox(row.run_no)] == [("m", 1)]
    assert store.verify() == []
    store.close()


def test_what_people_were_asked_and_runs_spent_is_there(path: Path) -> None:
    store = SqliteStore(str(path), namespace="people")
    (question,) = store.questions("asks")
    assert (question.name, question.to, question.body) == ("ok?", "ops", b'{"text":"?"}')
    assert store.account("asks") == Account("asks", 5, usd_nanos=10**9, spent_usd_nanos=3)
    memo = store.memo("notes", "a")
    assert memo == Memo("notes", "a", b'{"n":1}', None, 1, memo.updated_us if memo else 0)
    child = store.get("child")
    assert child is not None
    assert (child.parent, child.root) == ("asks", "asks")
    assert store.verify() == []
    store.close()


def test_its_measures_are_there_and_go_on(path: Path) -> None:
    store = SqliteStore(str(path))
    before = store.measures(0, 1 << 60).rows
    assert [(row.flow, row.counts.steps) for row in before if row.flow == "order"] == [("order", 6)]
    measure = Measure(60_000_000, "a", "order", Counts(steps=3))
    store.put_measures([measure])
    assert store.measures(0, 1 << 60).rows == [measure, *before]
    assert store.verify() == []
    store.close()
