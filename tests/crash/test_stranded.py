"""A process dies and leaves many runs behind: they are taken up batch by batch, with no herd."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import pytest

from holdfast._runtime.worker.worker import BATCH
from tests import sweeps
from tests.crash.harness import SERVER_IN_SWEEPS, World, wait_for

RUNS = sweeps.size(300, 1_000)
CONCURRENCY = 70


@pytest.mark.sweep
@SERVER_IN_SWEEPS
def test_row_60_many_stranded_runs(world: World, monkeypatch: pytest.MonkeyPatch):
    ended = world.run("stranded.py", RUNS)
    assert ended.code == 9, ended
    monkeypatch.setitem(os.environ, "CRASH_LEDGER", str(world.ledger))
    from tests.crash.scripts.stranded import counted

    with world.store() as store, world.store() as other:
        asked: list[tuple[int, int]] = []
        for one in (store, other):
            monkeypatch.setattr(one._backend, "take", noted(one._backend.take, asked))
        workers = [
            one.worker(flows=[counted], concurrency=CONCURRENCY, name=name)
            for one, name in ((store, "one"), (other, "two"))
        ]
        with workers[0], workers[1]:
            wait_for(lambda: len(store.runs(status="completed", limit=RUNS)) == RUNS, "all of them")
        assert sum(worker.taken for worker in workers) == RUNS
        assert all(worker.taken for worker in workers), "both took their share"
    assert set(world.counts(run=f"r{RUNS - 1}").values()) == {1}
    assert Counter(execution.run for execution in world.executions()).most_common(1)[0][1] == 1
    assert max(limit for limit, _ in asked) <= BATCH
    assert all(got <= limit for limit, got in asked)


def noted(take: Any, asked: list[tuple[int, int]]) -> Any:
    def takes(wanted: Any) -> Any:
        got = take(wanted)
        asked.append((wanted.limit, len(got)))
        assert len(wanted.working) + len(got) <= CONCURRENCY
        return got

    return takes
