"""A schema is migrated while processes that do not know the new one are at work."""

from __future__ import annotations

import signal

import pytest

from holdfast._stores.sqlite import migrations
from tests.crash.harness import World, wait_for

stores = pytest.mark.parametrize(
    "world", ["sqlite", pytest.param("empty postgresql", id="postgresql")], indirect=True
)
RUNS = 10


def completed(world: World, prefix: str, more_than: int = 0) -> int:
    """Wait until a process has completed some more runs of its own."""
    with world.store() as store:

        def count() -> int:
            return sum(
                run.run_id.startswith(prefix)
                for run in store.runs(status="completed", limit=100_000)
            )

        wait_for(lambda: count() > more_than, f"{more_than} runs of {prefix}")
        return count()


@stores
def test_89_old_processes_go_on_while_the_schema_is_migrated(world: World) -> None:
    old = world.start("migrating.py", "old", "before", lease_s=2)
    seen = completed(world, "before", RUNS)
    new = world.start("migrating.py", "new", "after", lease_s=2).until("new works")
    # Both go on: the one that was there before the migration, and the one that made it.
    completed(world, "before", seen + RUNS)
    completed(world, "after", RUNS)
    # So does one of the old code that is started now.
    late = world.start("migrating.py", "old", "late", lease_s=2)
    completed(world, "late", RUNS)
    # And each takes over what the others leave, whoever wrote it.
    assert new.kill().killed
    completed(world, "late", 2 * RUNS)
    for script in (old, late):
        script.signal(signal.SIGTERM)
        assert script.end().code == 0, script.end()
    with world.store() as store:
        assert not store.runs(status=["held", "failed"])
        assert store.verify() == []
    again = world.start("migrating.py", "new", "again", lease_s=2)
    completed(world, "again", RUNS)
    again.signal(signal.SIGTERM)
    assert again.end().code == 0, again.end()
    with world.store() as store:
        assert not store.runs(status=["held", "failed", "running"])
        assert store.verify() == []


@stores
def test_90_old_processes_are_refused_by_a_store_that_has_left_them_behind(world: World) -> None:
    """What only they needed was taken away: code that does not know that stays outside."""
    behind = len(migrations.steps()) + 1
    new = world.start("migrating.py", "new", "after", lease_s=2, works_from=behind)
    completed_by_new(world, new)
    late = world.start("migrating.py", "old", "late", lease_s=2)
    ended = late.end()
    assert ended.code != 0
    assert "StoreTooNew" in ended.stderr
    assert "upgrade Holdfast" in ended.stderr
    assert not [e for e in world.executions() if e.run.startswith("late")]
    new.signal(signal.SIGTERM)
    assert new.end().code == 0


def completed_by_new(world: World, new) -> None:
    new.until("new works")
    wait_for(lambda: len(world.executions()) > 5 * RUNS, "some runs")
