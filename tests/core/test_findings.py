"""The checks of the watchdog: each finds what it is for, and nothing else, at its very threshold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from holdfast import Watchdog
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import GENESIS, Account, Lease, RunRow, Write, apply
from holdfast._features.watchdog.model import (
    Limits,
    decided,
    finding_message,
    finding_write,
    noted_in,
    read,
)
from holdfast._features.watchdog.partial_failure import partial_failure
from holdfast._features.watchdog.repeated_actions import duplicate_action, looping
from holdfast._features.watchdog.runaway_cost import runaway_cost
from holdfast._features.watchdog.stuck import KNOWN, SLOWER, UNKNOWN_SLOWER, nearly_all, stuck
from holdfast._features.watchdog.subject import Deed, Subject
from holdfast.errors import UsageError

START_US = 1_767_236_400_000_000
S = 1_000_000
FLOOR_US = Limits().stuck_us


class Past:
    """A journal in the making."""

    def __init__(self, **limits: Any) -> None:
        self.now_us = START_US
        self.row = RunRow(
            *(1, "default", "r", "pay", "1", Status.QUEUED, None, 1, 1, 7, 0, 0, GENESIS, 1, b""),
            *(None, 0, 0, 0, 0, "", None, None, "{}", "{}", START_US, START_US),
        )
        self.entries: list[Any] = []
        self.position = 0
        watch: dict[str, Any] = {"watch": Limits(**limits)} if limits else {}
        self.add(Kind.RUN_STARTED, **watch)
        self.add(Kind.RUN_CLAIMED, why="free")

    def add(self, kind: Kind, step: str | None = None, attempt: int = 0, **facts: Any) -> Past:
        fields = {name: facts.pop(name) for name in ("args_digest", "started_us") if name in facts}
        draft = Draft(kind, self.now_us, step, attempt, body=msgspec.json.encode(facts), **fields)
        applied = apply(self.row, Write(Lease(self.row), [draft]), 0)
        self.row = applied.row
        if kind is Kind.RUN_HELD:
            self.row.held_reason = facts["reason"]
        self.entries += applied.entries
        return self

    def later(self, us: int) -> Past:
        self.now_us += us
        return self

    def did(self, step: str, args: bytes = b"a" * 16, us: int = 0, **facts: Any) -> Past:
        """A step that took so long, and was written with its outcome."""
        began_us, self.now_us = self.now_us, self.now_us + us
        return self.add(
            Kind.STEP_COMPLETED, step, 1, args_digest=args, started_us=began_us, **facts
        )

    def begins(self, step: str, args: bytes = b"a" * 16, **facts: Any) -> Past:
        return self.add(Kind.STEP_STARTED, step, 1, args_digest=args, **facts)

    def effect(self, step: str, args: bytes = b"a" * 16, **facts: Any) -> Past:
        self.begins(step, args, effect=True, key="k", **facts)
        return self.add(Kind.STEP_COMPLETED, step, 1)

    def seen(self, **facts: Any) -> Subject:
        history = History.fold("r", self.entries)
        return Subject(self.row, self.entries, history, self.now_us, **{"at_work": True, **facts})


# -- stuck -------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 3_600 * S), min_size=KNOWN, max_size=40),
    st.integers(0, 20 * 3_600 * S),
    st.integers(0, 40),
)
def test_a_step_is_stuck_when_it_takes_far_longer_than_nearly_all_before(before, took_us, own):
    past = Past()
    for number, us in enumerate(before[:own]):
        past.did("search" if number == 0 else f"search#{number + 1}", us=us)
    past.begins("search#99").later(took_us)
    seen = past.seen(durations_us={"search": before[own:]})
    may_take_us = max(FLOOR_US, SLOWER * nearly_all(before))
    assert bool(list(stuck(seen))) == (took_us > may_take_us)


@given(st.integers(1, 7_200), st.integers(-2, 2))
def test_a_declared_timeout_counts(timeout_s, more_us):
    past = Past().begins("search", timeout_s=timeout_s).later(timeout_s * S + FLOOR_US + more_us)
    found = list(stuck(past.seen(durations_us={"search": [9_999 * S] * KNOWN})))
    assert bool(found) == (more_us > 0)


@given(st.integers(-2, 2), st.integers(0, KNOWN - 1))
def test_a_step_of_which_little_is_known_has_more_time(more_us, known):
    past = Past().begins("search").later(UNKNOWN_SLOWER * FLOOR_US + more_us)
    found = list(stuck(past.seen(durations_us={"search": [S] * known})))
    assert bool(found) == (more_us > 0)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_nearly_all_are_nineteen_of_twenty(durations):
    usual = nearly_all(durations)
    assert sum(it <= usual for it in durations) * 20 >= 19 * len(durations)
    assert sum(it < usual for it in durations) * 20 < 19 * len(durations)


def test_progress_and_the_time_of_a_retry_count_as_life():
    past = Past().begins("load").later(UNKNOWN_SLOWER * FLOOR_US)
    past.add(Kind.STEP_PROGRESSED, "load", 1, value=3).later(S)
    assert not list(stuck(past.seen()))
    past.later(UNKNOWN_SLOWER * FLOOR_US)
    assert [it.steps for it in stuck(past.seen())] == [("load",)]

    retried = Past()
    until_us = retried.now_us + 90_000 * S
    error = {"type": "E", "message": ""}
    retried.add(
        Kind.STEP_FAILED, "load", 1, started_us=START_US, error=error, final=False,
        retry_at_us=until_us,
    )  # fmt: skip
    retried.now_us = until_us + UNKNOWN_SLOWER * FLOOR_US
    assert not list(stuck(retried.seen()))
    assert list(stuck(retried.later(1).seen()))


@given(st.integers(0, 10**6), st.integers(-3, 3))
def test_a_run_that_waits_is_not_stuck_before_its_time_is_over(seconds, more_us):
    past = Past()
    until_us = past.now_us + seconds * S
    past.add(Kind.SIGNAL_AWAITED, "wait:go", name="go", until_us=until_us)
    past.now_us = until_us + FLOOR_US + more_us
    assert bool(list(stuck(past.seen()))) == (more_us > 0)


@pytest.mark.parametrize("kind", [Kind.SIGNAL_AWAITED, Kind.QUESTION_ASKED, Kind.CHILD_STARTED])
def test_a_run_that_waits_without_an_end_is_never_stuck(kind):
    past = Past().add(kind, "wait:go", name="go").later(10**9 * S)
    assert not list(stuck(past.seen()))
    nothing: dict[str, Any] = {"for": []}
    past.add(Kind.RUN_WAITING, **nothing)
    assert not list(stuck(past.seen(at_work=False, served=False)))


@given(st.booleans(), st.integers(-2, 2), st.sampled_from([None, -5, 10]))
def test_a_run_that_nobody_takes_is_stuck_if_no_worker_executes_it(served, more_us, wake_s):
    past = Past().did("search").add(Kind.RUN_RELEASED, why="interrupted")
    base_us = past.now_us
    if wake_s is not None:
        wake_us: int = base_us + wake_s * S
        past.row.wake_us = wake_us
        base_us = max(base_us, wake_us)
    past.now_us = base_us + FLOOR_US + more_us
    found = list(stuck(past.seen(at_work=False, served=served)))
    assert bool(found) == (not served and more_us > 0)


def test_what_is_held_or_has_ended_is_not_stuck():
    held = Past().add(Kind.RUN_HELD, reason="paused").later(10**9 * S)
    ended = Past().add(Kind.RUN_COMPLETED, result=1).later(10**9 * S)
    for past in (held, ended):
        assert not list(stuck(past.seen(at_work=False, served=False)))


def test_what_the_watchdog_wrote_is_no_sign_of_life_and_no_new_finding():
    past = Past().did("search").add(Kind.RUN_RELEASED, why="interrupted").later(2 * FLOOR_US)
    [first] = stuck(past.seen(at_work=False, served=False))
    past.add(Kind.FINDING_NOTED, **msgspec.to_builtins(decided(first, "note")))
    [again] = stuck(past.later(FLOOR_US).seen(at_work=False, served=False))
    assert again.id == first.id
    assert list(noted_in(past.entries)) == [first.id]


# -- looping -----------------------------------------------------------------------------------


def keys(name: str, count: int) -> list[str]:
    return [name if number == 0 else f"{name}#{number + 1}" for number in range(count)]


@given(st.integers(2, 12), st.integers(0, 30), st.booleans())
def test_the_same_call_again_and_again_is_a_loop(limit, count, polls):
    past = Past(loops=limit)
    for key in keys("search", count):
        facts: dict[str, Any] = {"polls": True} if polls else {}
        past.did(key, **facts)
    assert bool(list(looping(past.seen()))) == (count >= limit and not polls)


@given(st.lists(st.integers(0, 3), max_size=40))
def test_only_calls_with_the_same_arguments_count(arguments):
    past = Past(loops=5)
    for key, number in zip(keys("search", len(arguments)), arguments, strict=True):
        past.did(key, bytes([number]) * 16)
    looped = {number for number in arguments if arguments.count(number) >= 5}
    assert bool(list(looping(past.seen()))) == bool(looped)


def test_turns_are_one_line_and_branches_are_not():
    past = Past(loops=4)
    for turn in range(4):
        past.did(f"turns[{turn}]/search")
    assert len(list(looping(past.seen()))) == 1

    fanned = Past(loops=4)
    for branch in range(9):
        fanned.did(f"each[{branch}]/search")
    assert not list(looping(fanned.seen()))


def test_a_cycle_of_steps_is_one_finding_however_far_it_has_come():
    past = Past(loops=3)
    ids: set[str] = set()
    found = []
    for turn in range(9):
        for step in ("think", "search", "read"):
            past.did(f"turns[{turn}]/{step}", step.encode().ljust(16))
            found = list(looping(past.seen()))
            ids |= {it.id for it in found}
    assert len(ids) == 1
    assert [it.text for it in found] == [
        "think and search and read were called 9 times with the same arguments"
    ]


def test_what_a_person_let_go_on_counts_from_nought():
    past = Past(loops=3)
    for key in keys("search", 5):
        past.did(key)
    [first] = looping(past.seen())
    past.add(Kind.RUN_HELD, reason="paused").add(
        Kind.RUN_RESUMED, generation=1, superseded=[], actor="ana"
    )
    past.add(Kind.RUN_CLAIMED, why="free")
    assert not list(looping(past.seen()))
    for key in keys("search", 8)[5:]:
        past.did(key)
    [again] = looping(past.seen())
    assert again.id != first.id


# -- duplicate action --------------------------------------------------------------------------


def test_an_effect_with_the_same_arguments_twice():
    past = Past().effect("mail").effect("mail#2")
    [found] = duplicate_action(past.seen())
    assert found.steps == ("mail", "mail#2")
    assert [past.entries[seq - 1].kind for seq in found.entries] == [Kind.STEP_COMPLETED] * 2


@pytest.mark.parametrize(
    "past",
    [
        Past().effect("mail").effect("mail#2", b"b" * 16),
        Past().effect("mail").effect("post"),
        Past().effect("mail").effect("mail#2", business_key="mail:2"),
        Past().did("mail").did("mail#2"),
        Past().effect("mail").begins("mail#2", effect=True, key="k"),
        Past().effect("mail").effect("mail#2").effect("undo/mail#2"),
    ],
    ids=["other arguments", "other effect", "business key", "steps", "not done", "undone"],
)
def test_what_is_no_duplicate(past):
    assert not list(duplicate_action(past.seen()))


@given(st.integers(1, 10**6), st.integers(-3, 3), st.booleans())
def test_effects_of_other_runs_count_within_a_time_if_that_is_asked_for(within_s, more_us, asked):
    past = Past(duplicates_us=within_s * S if asked else None, growth=9.0).effect("mail")
    deed = Deed("other", "mail", b"a" * 16, past.now_us - within_s * S - more_us)
    later = Deed("later", "mail", b"a" * 16, past.now_us + S)
    found = list(duplicate_action(past.seen(deeds=[deed, later])))
    assert bool(found) == (asked and more_us <= 0)


# -- partial failure ---------------------------------------------------------------------------


def failed(past: Past) -> Past:
    return past.add(Kind.RUN_FAILED, error={"type": "E", "message": ""}, steps=[])


def test_a_failure_that_leaves_effects_behind():
    [found] = partial_failure(failed(Past().effect("pay").did("search")).seen())
    assert (found.steps, found.severity) == (("pay",), "error")
    [held] = partial_failure(Past().effect("pay").add(Kind.RUN_HELD, reason="diverged").seen())
    assert held.severity == "info"


@pytest.mark.parametrize(
    "past",
    [
        failed(Past().did("search")),
        failed(Past().effect("pay").effect("undo/pay")),
        Past().effect("pay").add(Kind.RUN_HELD, reason="paused"),
        Past().effect("pay"),
        Past().effect("pay").add(Kind.RUN_COMPLETED, result=1),
    ],
    ids=["no effect", "undone", "paused", "goes on", "completed"],
)
def test_what_is_no_partial_failure(past):
    assert not list(partial_failure(past.seen()))


@given(st.lists(st.sampled_from(["done", "failed", "open"]), min_size=1, max_size=8))
def test_branches_of_which_some_failed(branches):
    past = Past()
    for number, became in enumerate(branches):
        key = f"turns[1]/each[{number}]/fetch"
        if became == "failed":
            past.add(
                Kind.STEP_FAILED, key, 1, started_us=past.now_us, final=True,
                error={"type": "E", "message": ""},
            )  # fmt: skip
        elif became == "done":
            past.did(key)
        else:
            past.begins(key)
    expected = "failed" in branches and "done" in branches
    assert bool(list(partial_failure(past.seen()))) == expected


# -- runaway cost ------------------------------------------------------------------------------


def spending(amounts: list[float], apart_s: int = 60, **limits: Any) -> Past:
    past = Past(**{"growth": 10.0, "loops": 999, **limits})
    for key, cost in zip(keys("think", len(amounts)), amounts, strict=True):
        past.later(apart_s * S).did(key, usage={"cost": cost, "input_tokens": round(cost * 1000)})
    return past


@given(st.integers(1, 50), st.integers(2, 30))
def test_a_run_that_spends_faster_than_it_may(cents, calls):
    limit = 10**9 // 4  # $0.25 a minute
    past = spending([cents / 100] * calls, usd_nanos_per_minute=limit)
    assert bool(list(runaway_cost(past.seen()))) == (cents > 25)


@given(st.integers(2, 40), st.integers(1, 100))
def test_a_limit_is_seen_coming_a_quarter_of_an_hour_ahead(calls, dollars):
    past = spending([0.1] * calls, usd_nanos=dollars * 10**9)
    left_min = (dollars - calls / 10) / 0.1
    assert bool(list(runaway_cost(past.seen()))) == (left_min < 15)


def test_the_budget_of_the_family_is_a_limit_too():
    past = spending([0.1] * 3)
    account = Account("r", START_US, usd_nanos=10**9, spent_usd_nanos=900_000_000)
    [found] = runaway_cost(past.seen(account=account))
    assert "$0.90 of $1.00" in found.text
    assert found.severity == "info"  # The budget stops it by itself.
    account.usd_nanos = 100 * 10**9
    assert not list(runaway_cost(past.seen(account=account)))


@given(st.integers(1, 79), st.integers(2, 20))
def test_a_short_run_within_its_budget_is_healthy(percent, calls):
    """At its pace the rest would be gone in minutes; but so will the run."""
    past = spending([0.1] * calls)
    account = Account("r", START_US, usd_nanos=10**9, spent_usd_nanos=percent * 10**7)
    assert not list(runaway_cost(past.seen(account=account)))


@given(st.integers(1, 30), st.integers(3, 20))
def test_calls_that_cost_more_and_more(factor, third):
    past = spending([1.0] * third * 2 + [float(factor)] * third)
    grows = factor >= 10 and third * 3 >= 12
    assert bool(list(runaway_cost(past.seen()))) == grows


def test_what_costs_little_may_grow_and_bursts_are_no_pace():
    assert not list(runaway_cost(spending([0.0001] * 8 + [0.01] * 8).seen()))
    burst = spending([0.1] * 3, apart_s=0, usd_nanos_per_minute=10**9 // 4)
    assert not list(runaway_cost(burst.seen()))


# -- what is declared, and what is written -----------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"stuck": "kill"},
        {"loop_after": 1},
        {"loop_after": True},
        {"tokens": 0},
        {"usd": -1},
        {"stuck_after": "soon"},
        {"cost_growth": 1},
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_written(wrong):
    with pytest.raises(UsageError):
        Watchdog(**wrong)


def test_limits_are_recorded_with_the_run():
    watch = Watchdog(stuck_after="2h", loop_after=7, usd=3, duplicates_within="1d")
    written = msgspec.json.encode(watch.limits())
    assert msgspec.json.decode(written, type=Limits) == watch.limits()
    assert msgspec.json.decode(msgspec.json.encode(Watchdog().limits()), type=Limits) == Limits()


def test_a_decision_is_written_once_and_a_hold_only_where_it_goes_on():
    past = failed(Past().effect("pay"))
    [found] = partial_failure(past.seen())
    decision = read(finding_message(decided(found, "hold"), past.now_us))
    history = History.fold("r", past.entries)
    past.row.owner = None
    write = finding_write(
        Lease(past.row, acting=True), history, past.entries, [], decision, past.now_us
    )
    assert [draft.kind for draft in write.drafts] == [Kind.FINDING_NOTED]
    past.entries += apply(past.row, write, 0).entries
    again = finding_write(
        Lease(past.row, acting=True), history, past.entries, [], decision, past.now_us
    )
    assert again.drafts == []
