"""Cancel against completion: many seeds, and one truthful order each time. Fault 73."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from holdfast import aio, errors, flow, testing
from holdfast._engine.decisions.control import Stopped
from holdfast.testing import PrivateStore
from tests.runtime.test_races import MANY, SEEDS, pause, together

TOGETHER = 50
ENDS = {"completed": "run_completed", "cancelled": "run_cancelled"}


@flow(name="race-ends")
async def ends(turns: int) -> int:
    for _ in range(turns):
        await aio.wait_for_signal("go")
    return turns


@pytest.mark.sweep
@MANY
def test_cancel_against_completion_has_one_truthful_order(url: str, seeds: int) -> None:
    seen: Counter[str] = Counter()
    with testing.store(url=url) as store:
        for first in range(0, seeds, TOGETHER):
            runs = [f"r{seed}" for seed in range(first, first + TOGETHER)]
            answers = race(store, runs)
            assert lies(store, answers) == []
            seen.update(answer.outcome for answer in answers.values())
    assert set(seen) <= {"cancelled", "finished"}
    if seeds >= SEEDS["memory:"]:
        assert min(seen["cancelled"], seen["finished"]) > 0, "one always came first: no race"


def race(store: PrivateStore, runs: list[str]) -> dict[str, Stopped]:
    """Let some runs come to their end while somebody cancels each of them."""
    answers: dict[str, Stopped] = {}
    handles = {run_id: ends.submit(run_id, 1) for run_id in runs}

    def somebody_cancels() -> None:
        for run_id in runs:
            pause(random.Random(f"cancel {run_id}"))
            answers[run_id] = store.cancel(run_id, actor="ana", wait_s=20)

    def they_end() -> None:
        for run_id in runs:
            pause(random.Random(f"end {run_id}"))
            try:
                store.signal(run_id, "go")
            except errors.RunEnded:
                continue

    with store.worker(flows=[ends], concurrency=TOGETHER):
        together(somebody_cancels, they_end)
        for handle in handles.values():
            told_the_same(handle)
    return answers


def told_the_same(handle: Any) -> None:
    """Whoever waits for the run is told what its status says."""
    try:
        assert handle.result(timeout=60) == 1
        assert handle.status() == "completed"
    except errors.RunCancelled:
        assert handle.status() == "cancelled"


def lies(store: PrivateStore, answers: dict[str, Stopped]) -> list[str]:
    """Return every answer that does not agree with the status and the journal of its run."""
    found: list[str] = []
    for run_id, answer in answers.items():
        row = store._backend.get(run_id)
        assert row is not None
        kinds = [str(entry.kind) for entry in store._backend.load(row)]
        last = [kind for kind in kinds if kind in ENDS.values()]
        wanted = "cancelled" if answer.outcome == "cancelled" else "completed"
        if row.status != wanted or answer.status != wanted or last != [ENDS[wanted]]:
            found.append(f"{run_id}: told {answer.outcome}, is {row.status}, wrote {last}")
    return found


# -- planted -----------------------------------------------------------------------------------


def test_a_cancel_that_says_so_too_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the answer is "cancelled" as soon as it was asked for."""
    from holdfast._operator.act import cancellation

    def hasty(request: Any) -> Stopped:
        return Stopped(request.run_id, "cancelled", "cancelled")

    monkeypatch.setattr(cancellation._Request, "_post", lambda self, etag: None)
    monkeypatch.setattr(cancellation._Request, "_not_yet", hasty)
    with testing.store() as store:
        handle = ends.start("r", 1)
        store.wait_until("r", waiting="signal:go")
        answer = store.cancel("r", actor="ana", wait_s=0)
        store.signal("r", "go")
        assert handle.result(timeout=20) == 1
        assert lies(store, {"r": answer}) == [
            "r: told cancelled, is completed, wrote ['run_completed']"
        ]
