"""Figures for Prometheus: what a process counts, what several count together, and what a store says."""

import asyncio
import math
import sys
import threading
import time
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

import holdfast
from holdfast import Retry, ask, effect, flow, step
from holdfast._features.measures.runtime import measuring
from holdfast._features.watchdog import operator as finding_side
from holdfast._operator.read import store_metrics as store_side
from holdfast._operator.read.metrics_merge import Family, Sums, collected, text_of
from holdfast._operator.read.store_metrics import store_metrics
from holdfast._operator.read.trends import trends
from holdfast.context import record_usage
from holdfast.errors import Corrupt, Rollback, RunFailed, RunHeld, RunRolledBack
from holdfast.observers import metrics
from tests.attempts import attempt
from tests.contract.ground import new_run

CANARY = "canary-91c2"


def figures(text: str) -> dict[tuple, float]:
    """Each sample, by its name and its labels; read as Prometheus reads it."""
    return {
        (it.name, *sorted(it.labels.items())): it.value
        for family in text_string_to_metric_families(text)
        for it in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    return figures(text)[f"holdfast_{name}", *sorted(labels.items())]


@pytest.fixture
def counted():
    made = metrics.observe()
    yield made
    made.close()


@step(retry=Retry(attempts=2, initial_wait_s=0.001))
def counted_think(text: str) -> str:
    record_usage(model="m-1", input_tokens=7, output_tokens=3, cost_usd=0.5)
    if attempt() == 1:
        raise OSError(CANARY)
    return f"{text} {CANARY}"


@step
async def counted_wait(text: str) -> str:
    await asyncio.sleep(0)
    return text


@effect
def counted_pay(text: str) -> str:
    raise OSError(CANARY)


@flow
def counted_report(text: str) -> str:
    return counted_think(text)


@flow
async def counted_agent(text: str) -> str:
    return await counted_wait(text)


@flow
def counted_doubtful(text: str) -> str:
    return counted_pay(text)


@flow
def counted_failing(text: str) -> str:
    raise ValueError(CANARY)


@effect
def counted_sent() -> str:
    return "sent"


@flow
def counted_half_way() -> None:
    counted_sent()
    raise ValueError("half way")


def test_a_process_counts_attempts_runs_tokens_and_cost(holdfast_store, counted):
    counted_report.run("count-1", CANARY)
    asyncio.run(counted_agent.run("count-2", CANARY))
    with pytest.raises(RunFailed):
        counted_failing.run("count-3", CANARY)
    with pytest.raises(RunHeld):
        counted_doubtful.run("count-4", CANARY)
    text = counted.text()
    think = {"flow": "counted_report", "step": "counted_think"}
    assert value(text, "attempts_total", **think, outcome="failed") == 1
    assert value(text, "attempts_total", **think, outcome="completed") == 1
    assert value(text, "attempt_duration_seconds_count", **think) == 2
    assert value(text, "runs_ended_total", flow="counted_agent", status="completed") == 1
    assert value(text, "runs_ended_total", flow="counted_failing", status="failed") == 1
    assert value(text, "runs_held_total", flow="counted_doubtful", reason="in_doubt") == 1
    assert value(text, "tokens_total", model="m-1", direction="input") == 14
    assert value(text, "tokens_total", model="m-1", direction="output") == 6
    assert value(text, "cost_usd_total", model="m-1") == 1.0
    assert value(text, "runs_executing") == 0
    assert CANARY not in text
    assert "count-" not in text  # No id of a run is a label.


counted_goes_on = threading.Event()
counted_ended: list[threading.Thread] = []


@step(timeout=0.5, retry=Retry(attempts=2, initial_wait_s=0.001))
def counted_hang(number: int) -> int:
    counted_ended.append(threading.current_thread())
    if attempt() == 1:
        counted_goes_on.wait(30)
    return number


@flow
def counted_late() -> int:
    return counted_hang(1)


def test_an_attempt_that_was_given_up_counts_once_and_not_as_completed(holdfast_store, counted):
    counted_goes_on.clear()
    counted_ended.clear()
    assert counted_late.run("count-late") == 1
    hang = {"flow": "counted_late", "step": "counted_hang"}

    def attempts() -> dict[str, float]:
        return {
            outcome: value(counted.text(), "attempts_total", **hang, outcome=outcome)
            for outcome in ("completed", "failed")
        }

    assert attempts() == {"completed": 1, "failed": 1}  # The first one is still at work.
    counted_goes_on.set()
    for thread in counted_ended:
        thread.join(30)
    assert attempts() == {"completed": 1, "failed": 1}
    assert value(counted.text(), "attempt_duration_seconds_count", **hang) == 2


@effect(undo=lambda result, text: None)
def counted_book(text: str) -> str:
    return text


@flow
def counted_regretted(text: str) -> None:
    counted_book(text)
    raise Rollback


def test_an_undo_is_not_counted_as_the_effect(holdfast_store, counted):
    with pytest.raises(RunRolledBack):
        counted_regretted.run("count-undo", "x")
    text = counted.text()
    where = {"flow": "counted_regretted", "outcome": "completed"}
    assert value(text, "attempts_total", step="counted_book", **where) == 1
    assert value(text, "attempts_total", step="counted_book.undo", **where) == 1


def poisoned(store, run_id: str) -> None:
    """A run that was claimed four times and never got on: the next claim holds it."""
    counted_report.submit(run_id, "x")
    for _ in range(4):
        store._backend.claim(run_id, store._engine.owner(), store._backend.now_us())


def test_a_quarantine_is_counted_by_who_finds_it(holdfast_store, counted):
    poisoned(holdfast_store, "count-called")
    with pytest.raises(RunHeld):
        counted_report.run("count-called", "x")
    with pytest.raises(RunHeld):  # It is held already: nothing new.
        counted_report.run("count-called", "x")
    where = {"flow": "counted_report", "reason": "quarantined"}
    assert value(counted.text(), "runs_held_total", **where) == 1
    poisoned(holdfast_store, "count-taken")
    with holdfast_store.worker(flows=[counted_report]):
        limit_s = time.monotonic() + 60
        while holdfast_store.get("count-taken").status != "held":
            assert time.monotonic() < limit_s
            time.sleep(0.01)
    assert value(counted.text(), "runs_held_total", **where) == 2
    measuring(holdfast_store._engine).flush()
    assert sum(it or 0 for it in [*trends(holdfast_store._backend).totals.runs_held]) == 2


def test_what_is_replayed_is_not_counted_again(holdfast_store, counted):
    counted_report.run("count-5", "x")
    before = counted.text()
    counted_report.run("count-5", "x")
    assert counted.text() == before
    counted.close()
    counted_report.run("count-6", "x")
    assert counted.text() == before


def test_a_registry_of_the_user_is_used(holdfast_store):
    registry = CollectorRegistry()
    made = metrics.observe(registry)
    try:
        counted_report.run("count-7", "x")
    finally:
        made.close()
    labels = {"flow": "counted_report", "status": "completed"}
    assert registry.get_sample_value("holdfast_runs_ended_total", labels) == 1


def test_names_beyond_the_room_are_counted_together(holdfast_store, counted, monkeypatch):
    monkeypatch.setattr(metrics, "NAMES_MAX", 3)

    @flow
    def counted_many(number: int) -> None:
        for it in range(number):
            holdfast.run_step(f"counted_{it}" + "x" * 150, lambda: None)

    counted_many.run("count-8", 10)
    text = counted.text()
    assert value(text, "attempts_total", flow="other", step="other", outcome="completed") == 7
    steps = {dict(key[1:]).get("step", "") for key in figures(text)}
    assert max(map(len, steps)) == metrics.NAME_MAX_CHARS


# -- several processes -------------------------------------------------------------------------


def told(completed: float, executing: float) -> list[Family]:
    return [
        Family("holdfast_x", "counter", "x", [("holdfast_x_total", {"flow": "f"}, completed)]),
        Family("holdfast_y", "gauge", "y", [("holdfast_y", {}, executing)]),
    ]


def test_sums_never_fall_when_a_process_dies():
    sums = Sums()

    def now() -> tuple[float, float]:
        text = text_of(sums.families())
        return value(text, "x_total", flow="f"), value(text, "y")

    sums.hear(1, told(3, 1))
    sums.hear(2, told(4, 2))
    assert now() == (7, 3)
    sums.ended(1)
    assert now() == (7, 2)
    sums.hear(1, told(5, 1))  # What it said last is read when it is gone.
    assert now() == (9, 2)
    sums.begins(1)
    assert now() == (9, 2)
    sums.hear(1, told(1, 1))
    assert now() == (10, 3)


def test_what_one_registry_has_comes_out_of_another_the_same(holdfast_store, counted):
    counted_report.run("count-9", "x")
    sums = Sums()
    sums.hear(1, collected(counted.registry))
    without = {key: it for key, it in figures(counted.text()).items() if "_created" not in key[0]}
    assert figures(text_of(sums.families())) == without


# -- a store -----------------------------------------------------------------------------------


@flow
def counted_asking() -> bool:
    return ask("May I?", name="ok", type=bool)


def test_a_store_says_what_waits_who_works_and_who_is_asked(tmp_path: Path):
    hostile = 'nasty"\\\u00e9 queue'
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        counted_report.with_options(queue=hostile).submit("count-10", CANARY)
        with store.worker(flows=[counted_asking, counted_doubtful], concurrency=7, name="w-1"):
            counted_asking.submit("count-11")
            counted_doubtful.submit("count-12", CANARY)
            deadline = time.monotonic() + 30
            while store.get("count-12").status != "held" or not store.questions():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            text = store_metrics(store._backend)
        assert value(text, "queue_runs", queue=hostile, status="ready") == 1
        assert value(text, "queue_runs", queue="default", status="held") == 1
        assert value(text, "queue_oldest_ready_seconds", queue=hostile) > 0
        # What waits for an answer is not late: it is not due.
        after = store_metrics(store._backend)
        assert value(after, "queue_runs", queue="default", status="not_due") == 1
        assert value(text, "workers", draining="false") == 1
        worker = next(key for key in figures(text) if key[0] == "holdfast_fleet_places")
        assert dict(worker[1:])["worker"] == "w-1"
        assert figures(text)[worker] == 7
        assert value(text, "questions_open", kind="question") == 1
        assert value(text, "questions_open", kind="approval") == 0
        assert value(text, "runs_held_now", reason="in_doubt") == 1
        assert value(text, "store_regressed") == 0
        assert value(text, "findings_complete") == 1
        assert CANARY not in text
        assert "count-1" not in text


def test_queues_beyond_the_room_are_counted_together(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(store_side, "SERIES_MAX", 2)
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        for number in range(5):
            counted_report.with_options(queue=f"q-{number}").submit(f"count-2{number}", "x")
        text = store_metrics(store._backend)
    assert value(text, "queue_runs", queue="q-0", status="ready") == 1
    assert value(text, "queue_runs", queue="other", status="ready") == 3


def test_ten_thousand_runs_are_counted_in_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(finding_side, "FINDINGS_EVERY_S", float("inf"))
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        store._backend.start_all([(new_run(f"many-{number}"), None) for number in range(10_000)])
        store_metrics(store._backend)  # Once, the watchdog looks for as long as it may.
        calls: list[str] = []
        sys.setprofile(lambda _frame, event, _argument: calls.append(event))
        try:
            text = store_metrics(store._backend)
        finally:
            sys.setprofile(None)
    assert value(text, "queue_runs", queue="default", status="ready") == 10_000
    assert len(calls) < 10_000, "calls and returns: no run is read by itself"


# -- what is not known -------------------------------------------------------------------------


def unreadable(*_args: object, **_named: object) -> None:
    raise Corrupt("planted damage", run_id=None)


READS = {
    "queues": "queues",
    "workers": "pulses",
    "questions": "questions",
    "held": "list",
    "findings": "list",
    "recent": "measures",
}
"""Which operation of the store each figure stands on."""

SAMPLES = {
    "queues": "queue_",
    "workers": "workers",
    "questions": "questions_open",
    "held": "runs_held_now",
    "findings": "findings",
}


def test_every_figure_is_in_the_table_of_failing_reads():
    assert set(store_side.FIGURES) == {*READS, "store"}  # What `store` says is in memory.


@pytest.mark.parametrize("figure", READS)
def test_a_figure_that_cannot_be_read_is_absent_and_said_to_be(
    tmp_path: Path, monkeypatch, figure: str
):
    monkeypatch.setattr(finding_side, "FINDINGS_EVERY_S", 0.0)
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        counted_report.submit("count-30", "x")
        before = store_metrics(store._backend)
        assert value(before, "incomplete", figure=figure) == 0
        monkeypatch.setattr(store._backend, READS[figure], unreadable)
        text = store_metrics(store._backend)
        assert value(text, "incomplete", figure=figure) == 1
        assert value(text, "store_regressed") == 0  # Another figure is not taken away.
        if figure in SAMPLES:
            name = f"holdfast_{SAMPLES[figure]}"
            assert not [key for key in figures(text) if key[0].startswith(name)]


def test_findings_of_old_runs_are_counted_however_many_are_newer(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(finding_side, "FINDINGS_EVERY_S", 0.0)
    monkeypatch.setattr(finding_side, "FINDINGS_TIME_S", 0.0)  # One run at a time.
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        with pytest.raises(RunFailed):
            counted_half_way.run("count-40")
        for number in range(5):
            counted_report.submit(f"count-5{number}", "x")
        seen = [store_metrics(store._backend) for _ in range(7)]
        assert math.isnan(value(seen[0], "findings", kind="partial_failure", severity="warning"))
        assert math.isnan(value(seen[0], "findings_age_seconds"))
        assert value(seen[0], "findings_complete") == 0
        assert value(seen[0], "incomplete", figure="findings") == 1
        assert value(seen[-1], "findings", kind="partial_failure", severity="error") == 1
        assert value(seen[-1], "findings", kind="looping", severity="warning") == 0
        assert value(seen[-1], "findings_complete") == 1
        assert value(seen[-1], "findings_runs") == 6
        assert value(seen[-1], "findings_age_seconds") >= 0
        store.cancel("count-50", actor="kim")
        later = [store_metrics(store._backend) for _ in range(12)][-1]
        assert value(later, "findings_runs") == 5
        assert value(later, "findings", kind="partial_failure", severity="error") == 1


def test_counts_that_stop_early_tell_no_nought(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(store_side, "HELD_MAX", 1)
    monkeypatch.setattr(store_side, "QUESTIONS_MAX", 0)
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        for number in range(2):
            counted_report.submit(f"count-6{number}", "x")
            store.pause(f"count-6{number}", actor="kim")
        assert value(store_metrics(store._backend), "incomplete", figure="questions") == 0
        with store.worker(flows=[counted_asking]):
            counted_asking.submit("count-63")
            deadline = time.monotonic() + 30
            while not store.questions():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        text = store_metrics(store._backend)
    assert value(text, "runs_held_now", reason="paused") == 1
    assert math.isnan(value(text, "runs_held_now", reason="in_doubt"))
    assert value(text, "incomplete", figure="held") == 1
    assert math.isnan(value(text, "questions_open", kind="approval"))
    assert value(text, "incomplete", figure="questions") == 1
