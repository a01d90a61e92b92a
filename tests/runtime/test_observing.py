"""Observers hear of what happens and is committed, never of what is replayed, and cannot harm a run."""

import asyncio

import pytest

import holdfast
from holdfast import Retry, effect, flow, step
from holdfast.observers import ObservedAttempt, ObservedEntry, ObservedRun, Observer


class Ear(Observer):
    def __init__(self) -> None:
        self.heard: list[tuple] = []

    def run_claimed(self, run: ObservedRun, *, resumed: bool) -> None:
        self.heard.append(("taken", run.run_id, resumed))

    def run_released(self, run: ObservedRun, status: str) -> None:
        self.heard.append(("left", run.run_id, status))

    def attempt_started(self, attempt: ObservedAttempt):
        self.heard.append(("began", attempt.key, attempt.number))
        return attempt.key

    def attempt_ended(self, attempt: ObservedAttempt, begun) -> None:
        assert begun == attempt.key
        error = type(attempt.error).__name__ if attempt.error else None
        self.heard.append(("ended", attempt.key, error, attempt.usage))

    def entries_committed(self, run: ObservedRun, entries) -> None:
        self.heard += [("entry", entry.kind, entry.step) for entry in entries]


@pytest.fixture
def ear():
    ear = Ear()
    end = holdfast.observers.observe(ear)
    yield ear
    end()


tries = {"n": 0}


@step(retry=Retry(attempts=2, initial_wait_s=0.001))
def watched_search(topic: str) -> str:
    tries["n"] += 1
    holdfast.context.record_usage(model="m-1", input_tokens=3, output_tokens=4)
    if tries["n"] == 1:
        raise OSError("busy")
    return topic.upper()


@effect(on_doubt="retry")
def watched_publish(text: str) -> str:
    return f"published {text}"


@step
async def watched_think(text: str) -> str:
    await asyncio.sleep(0)
    return text[::-1]


@flow
def watched_report(topic: str) -> str:
    return watched_publish(watched_search(topic))


@flow
async def watched_agent(topic: str) -> str:
    return await watched_think(topic)


def test_each_attempt_and_each_entry_is_told_once(holdfast_store, ear):
    tries["n"] = 0
    watched_report.run("watched-1", "refunds")
    usage = {"model": "m-1", "input_tokens": 3, "output_tokens": 4}
    assert ("taken", "watched-1", False) in ear.heard
    assert ("left", "watched-1", "completed") in ear.heard
    kinds = [one[1:] for one in ear.heard if one[0] == "entry"]
    assert kinds.count(("step_failed", "watched_search")) == 1
    assert kinds.count(("step_completed", "watched_search")) == 1
    assert kinds.count(("step_started", "watched_publish")) == 1
    assert kinds.count(("step_completed", "watched_publish")) == 1
    assert kinds.count(("run_completed", None)) == 1
    ended = [one[1:] for one in ear.heard if one[0] == "ended"]
    assert ended[:2] == [("watched_search", "OSError", usage), ("watched_search", None, usage)]
    assert ended[2] == ("watched_publish", None, None)


def test_a_replay_is_told_to_nobody(holdfast_store, ear):
    watched_report.run("watched-2", "refunds")
    ear.heard.clear()
    assert watched_report.run("watched-2", "refunds") == "published REFUNDS"
    assert ear.heard == []


def test_async_steps_are_told_too(holdfast_store, ear):
    asyncio.run(watched_agent.run("watched-3", "abc"))
    assert ("began", "watched_think", 1) in ear.heard
    assert ("ended", "watched_think", None, None) in ear.heard


def test_who_waits_for_a_run_finds_everything_told(holdfast_store, ear):
    asyncio.run(watched_agent.run("watched-6", "abc"))
    assert ear.heard[-2:] == [("entry", "run_completed", None), ("left", "watched-6", "completed")]
    watched_report.run("watched-7", "a")
    assert [one for one in ear.heard if one[0] == "left" and one[1] == "watched-7"] == [
        ("left", "watched-7", "completed")
    ]


@step(timeout=0.01, name="watched-slow")
async def watched_slow() -> None:
    await asyncio.sleep(30)


@flow
async def watched_slowly() -> None:
    await watched_slow()


def test_an_attempt_that_ran_out_of_time_is_told_with_its_error(holdfast_store, ear):
    with pytest.raises(holdfast.errors.RunFailed):
        asyncio.run(watched_slowly.run("watched-8"))
    assert ("ended", "watched-slow", "TimeoutError", None) in ear.heard


@effect(name="watched-charge", on_doubt="retry", retry=Retry(attempts=2, initial_wait_s=0.001))
def watched_charge() -> None:
    tries["n"] += 1
    holdfast.context.record_usage(input_tokens=tries["n"])
    if tries["n"] == 1:
        raise OSError("cut")


@flow
def watched_charging() -> None:
    watched_charge()


def test_each_attempt_is_told_with_what_it_used_itself(holdfast_store, ear):
    tries["n"] = 0
    watched_charging.run("watched-9")
    ended = [one[3] for one in ear.heard if one[0] == "ended"]
    assert ended == [{"input_tokens": 1}, {"input_tokens": 2}]


def test_a_run_that_is_taken_up_is_told_with_its_past(holdfast_store):
    taken: list[ObservedRun] = []

    class Past(Observer):
        def run_claimed(self, run, *, resumed):
            taken.append(run)

    end = holdfast.observers.observe(Past())
    try:
        with pytest.raises(holdfast.errors.RunFailed):
            watched_past.run("watched-10", 1)
        watched_past.run("watched-10", 1)
    finally:
        end()
    first, second = (run.past for run in taken)
    assert first is not None
    assert second is not None
    assert (first.epoch, first.reborn_seq, first.died) == (None, 0, False)
    assert second.epoch == taken[0].epoch
    assert second.reborn_seq > 0
    assert second.ended_us >= second.began_us >= taken[0].created_us
    assert taken[0].trace_id == taken[1].trace_id


@step(name="watched-once")
def watched_once(number: int) -> int:
    tries["once"] = tries.get("once", 0) + 1
    if tries["once"] == 1:
        raise OSError("once")
    return number


@flow
def watched_past(number: int) -> int:
    return watched_once(number)


class Broken(Observer):
    def attempt_started(self, attempt):
        raise RuntimeError("no")

    def entries_committed(self, run, entries):
        raise RuntimeError("no")

    def run_released(self, run, status):
        raise RuntimeError("no")


def test_an_observer_that_raises_harms_nothing(holdfast_store, ear, caplog):
    end = holdfast.observers.observe(Broken())
    try:
        assert watched_report.run("watched-4", "a") == "published A"
    finally:
        end()
    assert ("left", "watched-4", "completed") in ear.heard
    told = [record for record in caplog.records if "Broken" in record.getMessage()]
    assert {record.args[1] for record in told} == {
        "attempt_started",
        "entries_committed",
        "run_released",
    }


def test_values_are_no_facts(holdfast_store):
    seen: list[ObservedEntry] = []

    class Facts(Observer):
        def entries_committed(self, run, entries):
            seen.extend(entries)

    end = holdfast.observers.observe(Facts())
    try:
        watched_report.run("watched-5", "secret-topic")
    finally:
        end()
    told = [entry.facts() for entry in seen]
    assert "secret" not in repr(told).lower()


def test_only_an_observer_is_taken():
    with pytest.raises(holdfast.errors.UsageError, match="subclass of Observer"):
        holdfast.observers.observe(object())  # type: ignore[arg-type]
