"""The committer: threads and event loops share commits, and nobody is forgotten."""

from __future__ import annotations

import threading
from typing import Any

import holdfast
from holdfast import effect, flow, step, testing
from holdfast._runtime.execution.recorder import Recorder
from holdfast.errors import KeyConflict

LONG_S = 1.0
"""Far more than a commit in memory takes, far less than a heartbeat."""


def test_a_lazy_write_before_it_does_not_keep_a_write_waiting():
    """`now()` goes with the next write. If that one came while another thread led, the leader hands
    over to whoever is at the head of the queue, and that is the lazy one, which nobody waits for."""
    faults = testing.StoreFaults()
    leads, free, begun = threading.Event(), threading.Event(), threading.Event()

    @step
    def one() -> int:
        return 1

    @flow
    def leading() -> int:
        return one()

    @flow
    def following() -> int:
        begun.set()
        assert leads.wait(10)
        holdfast.context.now()
        return one()

    with testing.store(faults=faults):
        follower = following.start("follows")
        assert begun.wait(10)
        faults.delay("append", at=2, until=free)  # Its last write: after that it leads no more.
        leader = leading.start("leads")
        while faults.count("append") < 2:
            threading.Event().wait(0.001)
        leads.set()
        threading.Event().wait(0.1)  # It has queued both, and waits.
        free.set()
        assert leader.result(timeout=10) == 1
        try:
            assert follower.result(timeout=LONG_S) == 1
        finally:
            follower._engine.heartbeat.beat()  # Starts the thread, which takes what is left.
            follower.result(timeout=10)


def test_threads_with_lazy_and_grouped_writes(sqlite):
    @step
    def each_time(i: int) -> int:
        return i

    @step(commit="grouped")
    def grouped(i: int) -> int:
        return i

    @flow
    def work(n: int) -> int:
        total = 0
        for i in range(10):
            holdfast.context.uuid4()
            total += grouped(i) + each_time(i)
            holdfast.emit(i)
        return total + n

    sqlite._engine.committer._start()  # See above: it must not hang on a known gap.
    handles = [work.start(f"r-{n}", n) for n in range(8)]
    assert [handle.result(timeout=30) for handle in handles] == [90 + n for n in range(8)]
    assert sqlite.verify() == []


def test_what_a_refused_claim_refers_to_is_stored_all_the_same(store, monkeypatch):
    """Another branch may have recorded the same long text meanwhile: it is stored once."""
    stored: list[bool] = []
    taken_back = Recorder.withdraw

    @effect(name="refused-claim", key="k")
    def claims(text: str) -> None: ...

    @flow(name="refused-claims")
    def claiming(text: str) -> str:
        try:
            claims(text * 100)
        except KeyConflict:
            return "refused"
        return "claimed"

    def looks(recorder: Recorder, write: Any, call: Any) -> None:
        execution = recorder._execution
        chunks = execution.engine.backend.chunks(execution.lease.row.run_no, 1)
        stored.append("the other" in chunks[1].decode())
        taken_back(recorder, write, call)

    monkeypatch.setattr(Recorder, "withdraw", looks)

    assert claiming.run("a", "short") == "claimed"
    assert claiming.run("b", "the other ") == "refused"
    assert stored == [True]
