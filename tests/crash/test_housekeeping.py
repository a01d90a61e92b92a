"""Killed at any moment, a removal has happened or not, and the next one goes on with the rest."""

from __future__ import annotations

import holdfast
from holdfast import flow, step
from tests.crash.harness import BOTH_STORES, World


@step
def swept_work(n: int) -> str:
    return "x" * 3000 * n


@flow
def swept_child(n: int) -> int:
    return len(swept_work(n))


@flow
def swept_parent(n: int) -> int:
    return swept_child(n) + swept_child(n + 1)


RUNS = 6
"""Two families of a parent and two children."""


def there(world: World) -> int:
    """Return how many runs are left; everything that is stored is sound."""
    with world.store() as store:
        assert store.verify() == []
        runs = [run.run_id for run in store.runs()]
        for run_id in runs:
            assert store.history(run_id)[-1].kind == "run_completed"
        return len(runs)


@BOTH_STORES
def test_killed_in_the_middle_of_a_sweep(world: World) -> None:
    with holdfast.open(world.url) as store:
        for name in ("a", "b"):
            swept_parent.with_options(store=store).run(name, 1)
    assert there(world) == RUNS

    world.crash("sweep.py", at="before forget 1")
    assert there(world) == RUNS
    world.crash("sweep.py", at="after forget 1")
    assert there(world) == RUNS - 1
    world.crash("sweep.py", at="before forget 2")  # Of a family whose parent is gone.
    assert there(world) == RUNS - 2
    ended = world.run("sweep.py")

    assert len(ended.result) == RUNS - 2
    assert there(world) == 0
    with world.store() as store:
        for name in ("a", "b"):
            row = store._backend.get(name)
            assert row is not None
            assert row.deleted_us is not None
