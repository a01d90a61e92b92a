"""Removing runs that have had their time: which go, which stay and why, and what is left of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import effect, flow, step, testing
from holdfast._engine.journal.rows import RunRow
from holdfast._features.retention import RetentionJob
from holdfast._features.retention.model import Asked
from holdfast._features.retention.store import Sweeper
from holdfast.errors import RunDeleted, RunFailed, UsageError


@step
def house_work(n: int) -> int:
    if n < 0:
        raise ValueError("negative")
    return n * 2


@effect(key="house:{n}", key_ttl=3600)
def house_short_key(n: int) -> int:
    return n


@effect(key="house-long:{n}")
def house_day_key(n: int) -> int:
    return n


@flow
def house_plain(n: int) -> int:
    return house_work(n)


@flow(retention="30d")
def house_kept(n: int) -> int:
    return house_work(n)


@flow
def house_keyed(n: int, day: bool) -> int:
    return house_day_key(n) if day else house_short_key(n)


@flow
def house_child(n: int) -> int:
    return house_work(n)


@flow
def house_parent(n: int) -> int:
    return house_child(n)


def removed(collected: object) -> list[str]:
    return sorted(run.run_id for run in collected.removed)  # type: ignore[attr-defined]


def left(collected: object) -> dict[str, str]:
    return {run.run_id: run.why for run in collected.left}  # type: ignore[attr-defined]


@pytest.fixture(params=["memory:", "sqlite:"])
def timed(request: pytest.FixtureRequest) -> Iterator[testing.PrivateStore]:
    """A store whose clock the test moves."""
    with testing.store(url=request.param, clock=testing.FakeClock()) as opened:
        yield opened


def test_what_is_removed_leaves_its_id(store: testing.PrivateStore) -> None:
    assert house_plain.run("gone", 1) == 2
    assert removed(store.prune(older_than=0)) == ["gone"]
    for look in (store.get, store.history, store.explain, store.handle, store.resume):
        with pytest.raises(RunDeleted, match="its id is not given again"):
            look("gone")
    for begin in (house_plain.run, house_plain.start, house_plain.submit):
        with pytest.raises(RunDeleted):
            begin("gone", 1)
    with pytest.raises(RunDeleted), holdfast.run("gone"):
        raise AssertionError("the body is not executed")
    assert store.runs() == []
    assert removed(store.prune(older_than=0)) == []
    assert store.verify() == []


def test_only_runs_that_have_ended_go(store: testing.PrivateStore) -> None:
    house_plain.run("done", 1)
    house_plain.submit("queued", 1)
    with pytest.raises(RunFailed):
        house_plain.run("failed", -1)
    plan = store.prune(older_than=0, dry_run=True)
    assert (removed(plan), plan.dry_run) == (["done"], True)
    assert store.get("done").status == "completed"
    assert removed(store.prune(older_than=0, flow="house_kept")) == []
    assert removed(store.prune(older_than=0)) == ["done"]
    assert removed(store.prune(older_than=0, status="failed")) == ["failed"]
    assert store.get("queued").status == "queued"
    with pytest.raises(UsageError, match="only runs that have ended"):
        store.prune(older_than=0, status="running")


def test_age_counts_from_the_end(timed: testing.PrivateStore) -> None:
    house_plain.run("old", 1)
    timed.clock.advance(86_400 * 10)
    house_plain.run("young", 1)
    assert removed(timed.prune(older_than="10d")) == ["old"]
    assert timed.get("young").result == 2


def test_a_flow_says_how_long(timed: testing.PrivateStore) -> None:
    house_kept.run("kept", 1)
    house_plain.run("plain", 1)
    timed.clock.advance(86_400 * 29)
    collected = timed.prune()
    assert removed(collected) == []
    assert left(collected) == {"kept": "its time is over in 1 d"}
    timed.clock.advance(86_400)
    assert removed(timed.prune()) == ["kept"]
    assert timed.get("plain").status == "completed"
    with pytest.raises(UsageError, match="retention= of flow"):
        flow(retention="a while")(lambda: None)


def test_a_worker_removes_what_its_flows_keep_no_longer(timed: testing.PrivateStore) -> None:
    for n in range(25):
        house_kept.run(f"kept-{n}", n)
    house_plain.run("plain", 1)
    flows = {"house_kept": house_kept, "house_plain": house_plain}
    job = RetentionJob(timed._engine, lambda: flows)
    job.run()
    timed.clock.advance(86_400 * 31)
    job.run()
    assert len(timed.runs()) == 6, "a few at a time"
    timed.clock.advance(1)
    job.run()
    assert [run.run_id for run in timed.runs()] == ["plain"]


def test_a_key_that_may_be_remembered_keeps_its_run(timed: testing.PrivateStore) -> None:
    house_keyed.run("short", 1, day=False)
    house_keyed.run("day", 1, day=True)
    assert left(timed.prune(older_than=0)) == {
        "short": "its key 'house:1' of house_short_key is younger than its key_ttl",
        "day": "its key 'house-long:1' of house_day_key is younger than its key_ttl",
    }
    timed.clock.advance(3601)
    assert removed(timed.prune(older_than=0)) == ["short"]
    assert house_keyed.run("again", 1, day=False) == 1
    timed.clock.advance(86_400)
    assert removed(timed.prune(older_than=0)) == ["again", "day"]


def test_children_go_with_their_parent(store: testing.PrivateStore) -> None:
    assert house_parent.run("family", 3) == 6
    [child] = [run.run_id for run in store.runs() if run.run_id != "family"]
    assert removed(store.prune(older_than=0, flow="house_child")) == []
    collected = store.prune(older_than=0)
    assert removed(collected) == sorted(["family", child])
    assert store.verify() == []


def test_a_child_without_a_parent_goes_too(store: testing.PrivateStore) -> None:
    """As a sweep that was killed half way leaves it; one that failed is no exception."""
    assert house_parent.run("family", 3) == 6
    row = store._backend.get("family")
    assert row is not None
    assert store._backend.forget(row, store._backend.now_us())
    [child] = [run.run_id for run in store.runs()]
    assert removed(store.prune(older_than=0)) == [child]


def test_a_run_that_a_fork_stands_on_stays(store: testing.PrivateStore) -> None:
    house_plain.run("origin", 3)
    store.fork("origin", "fork", before="house_work", actor="test")
    assert left(store.prune(older_than=0)) == {"origin": "run 'fork' was forked from it"}
    assert house_plain.run("fork", 3) == 6
    assert removed(store.prune(older_than=0)) == ["fork", "origin"]


def test_a_fork_that_is_made_during_the_sweep_keeps_its_origin(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        house_plain.run(name, 3)
    forget = store._backend.forget

    def forked_just_before(row: RunRow, at_us: int) -> bool:
        if row.run_id == "a":
            store.fork("a", "fork", before="house_work", actor="test")
        return forget(row, at_us)

    monkeypatch.setattr(store._backend, "forget", forked_just_before)
    collected = store.prune(older_than=0)
    assert removed(collected) == ["b"]
    assert left(collected) == {"a": "run 'fork' was forked from it meanwhile"}
    assert store.verify() == []
    assert house_plain.run("fork", 3) == 6


def test_what_changed_meanwhile_stays(store: testing.PrivateStore) -> None:
    with pytest.raises(RunFailed):
        house_plain.run("r", -1)
    asked = Asked(0, statuses=frozenset({holdfast.types.Status.FAILED}))
    sweep = Sweeper(store._backend, asked)
    row = store._backend.get("r")
    assert row is not None
    store.resume("r")
    assert store._backend.forget(row, 1) is False
    assert list(sweep.sweep()) == []


def test_old_values_of_memories_go_too(timed: testing.PrivateStore) -> None:
    short = timed.memory("short")
    short.set("k", 1, ttl="1h")
    short.set("removed", 1)
    short.delete("removed")
    short.set("stays", 1)
    timed.clock.advance(86_400 * 20)
    assert timed.prune().beside == 1  # What was over is removed now; versions go on for 30 days.
    assert timed.prune().beside == 0
    assert timed._backend.expired_memos() == []
    timed.clock.advance(86_400 * 20)
    assert timed.prune().beside == 1
    timed.clock.advance(86_400 * 20)
    assert timed.prune().beside == 1
    assert timed.prune().beside == 0
    assert short.get("stays") == 1
    assert timed.verify() == []


@step
def house_large(n: int) -> str:
    return "x" * n


@flow
def house_heavy(n: int) -> int:
    return len(house_large(n))


def test_freed_pages_are_used_again_and_vacuum_gives_them_back(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    sizes: list[int] = []
    for name in ("first", "second"):
        with holdfast.open(f"sqlite:///{path}", default=False) as store:
            for n in range(8):
                house_heavy.with_options(store=store).run(f"{name}-{n}", 200_000)
            assert len(store.prune(older_than=0).removed) == 8
        sizes.append(path.stat().st_size)
    assert sizes[1] < sizes[0] * 1.3, "the second eight took the place of the first"
    connection = apsw.Connection(str(path))
    connection.execute("VACUUM")
    connection.close()
    assert path.stat().st_size < sizes[1] / 2
    with holdfast.open(f"sqlite:///{path}", default=False) as store:
        assert (store.verify(), store._backend.regression()) == ([], None)
        with pytest.raises(RunDeleted):
            store.get("first-0")
