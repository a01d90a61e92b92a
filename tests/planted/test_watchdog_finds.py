"""Each guard that lets the watchdog act once, taken out, is noticed."""

from __future__ import annotations

import itertools

import pytest

import holdfast
from holdfast import Watchdog, flow, step, testing, wait_for_signal
from holdfast._features.watchdog import model as findings, store as watchdog, watchdog_loop
from tests.runtime.facts import until

called: list[str] = []


def page(finding: holdfast.types.Finding) -> None:
    called.append(finding.run_id)


@step(name="plwd-look")
def look() -> None:
    pass


@flow(name="plwd-held", watchdog=Watchdog(looping="hold", loop_after=3))
def held() -> None:
    for _ in range(3):
        look()
    wait_for_signal("go")


@flow(name="plwd-paged", watchdog=Watchdog(looping=page, loop_after=3))
def paged() -> None:
    for _ in range(3):
        look()
    wait_for_signal("go")


def told_twice() -> tuple[int, int]:
    """Let two workers who saw the same decide the same; return how often it was noted and held."""
    with testing.store() as store:
        with store.worker(flows=[held], concurrency=1):
            held.submit("r")
            until(lambda: (row := store._backend.get("r")) and row.waiting_on and row.owner is None)
        [finding] = store.findings("r")
        watchdog.tell(store._backend, finding, "hold")
        watchdog.tell(store._backend, finding, "hold")
        kinds = [entry.kind for entry in store.history("r")]
        return kinds.count("finding_noted"), kinds.count("run_held")


def test_the_id_of_a_finding_and_the_journal_keep_the_second_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert told_twice() == (1, 1)
    count = itertools.count()
    monkeypatch.setattr(findings, "message_id", lambda _id: f"finding:{next(count)}")
    assert told_twice() == (1, 1), "the journal alone keeps it out"
    monkeypatch.setattr(findings, "noted_in", lambda _entries: {})
    assert told_twice() == (2, 1), "the planted bug notes it twice"


def paged_by_two() -> list[str]:
    """Let two workers find the same at the same moment: both before either has noted it."""
    called.clear()
    with testing.store(url="sqlite:") as store:
        with store.worker(flows=[paged], concurrency=1):
            paged.submit("r")
            until(lambda: (row := store._backend.get("r")) and row.waiting_on and row.owner is None)
        found = store.findings("r")
        with holdfast.open(store.url, default=False) as other:
            for engine in (store._engine, other._engine):
                for finding in found:
                    watchdog_loop._called(engine, finding, page)
    return list(called)


def test_one_worker_at_a_time_calls_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paged_by_two() == ["r"]
    monkeypatch.setattr(watchdog_loop, "_may_call", lambda *_: True)
    assert paged_by_two() == ["r", "r"], "the planted bug pages twice"
