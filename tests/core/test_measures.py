"""Measures can be added up in any order, and percentiles of what was added up are those of all."""

from __future__ import annotations

import copy
import math
from typing import Any, cast

import msgspec
from hypothesis import given, strategies as st

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.measures.model import (
    LAST,
    MINUTE_US,
    WIDTH,
    bounds,
    bucket_of,
    merged,
    minute_of,
    note,
    percentile,
)
from holdfast._features.measures.tally import Tally

lengths = st.integers(0, 10**13)
histograms = st.dictionaries(st.integers(0, LAST), st.integers(1, 50), max_size=8)
amounts = st.integers(0, 10**12)
counts = st.builds(
    Counts,
    steps=amounts,
    attempts=amounts,
    errors=amounts,
    doubts=amounts,
    retries=amounts,
    traced=amounts,
    held=amounts,
    cost_nanos=amounts,
    tokens=amounts,
    ended=st.dictionaries(st.sampled_from(["completed", "failed"]), st.integers(1, 9)),
    attempt_us=histograms,
    run_us=histograms,
    span_us=amounts,
    places_us=amounts,
    busy_us=amounts,
    ready=amounts,
    samples=amounts,
)


def histogram(values: list[int]) -> dict[int, int]:
    made: dict[int, int] = {}
    for value in values:
        note(made, value)
    return made


def added(*parts: Counts) -> Counts:
    return merged(Measure(0, "p", "f", copy.deepcopy(part)) for part in parts)


# -- adding up ---------------------------------------------------------------------------------


@given(counts, counts, counts)
def test_the_order_in_which_measures_are_added_does_not_matter(one, two, three):
    assert added(one, two, three) == added(three, one, two) == added(added(one, two), three)


@given(counts)
def test_nothing_is_lost_or_made_up_by_adding(one):
    assert added(one) == one
    assert added(one, Counts()) == one
    twice = added(one, one)
    for name in Counts.__struct_fields__:
        before, after = getattr(one, name), getattr(twice, name)
        if isinstance(before, dict):
            assert after == {key: 2 * count for key, count in before.items()}
        else:
            assert after == 2 * before


@given(counts, counts)
def test_what_is_added_stays_as_it_is(one, two):
    before = copy.deepcopy(two)
    added(one, two)
    one.add(two)
    assert two == before


@given(counts)
def test_counts_are_written_and_read_again(one):
    assert msgspec.json.decode(msgspec.json.encode(one), type=Counts) == one


def test_what_is_nothing_is_not_written():
    assert msgspec.json.encode(Counts()) == b"{}"


def test_counts_of_a_later_version_can_be_read():
    later = b'{"steps":3,"weather":{"sun":1}}'
    assert msgspec.json.decode(later, type=Counts) == Counts(steps=3)


# -- histograms --------------------------------------------------------------------------------


@given(lengths)
def test_a_length_is_inside_its_bucket(us):
    low, high = bounds(bucket_of(us))
    # To within what a float can tell apart.
    assert low * (1 - 1e-9) <= us <= high * (1 + 1e-9)


@given(lengths, lengths)
def test_a_longer_time_is_never_in_an_earlier_bucket(one, other):
    assert bucket_of(min(one, other)) <= bucket_of(max(one, other))


def test_what_is_longer_than_all_buckets_is_in_the_last():
    assert bucket_of(10**30) == LAST
    assert bucket_of(-5) == 0


@given(st.lists(lengths, min_size=1, max_size=60), st.floats(0.01, 1))
def test_a_percentile_is_right_to_within_its_bucket(values, share):
    found = percentile(histogram(values), share)
    true = sorted(values)[math.ceil(share * len(values) - 1e-9) - 1]
    assert found is not None
    low, high = bounds(bucket_of(true))
    assert low - 1e-9 <= found <= high * (1 + 1e-9)
    assert true <= 1 or true / WIDTH * (1 - 1e-9) <= found <= true * WIDTH * (1 + 1e-9)


@given(histograms.filter(bool), st.floats(0, 1), st.floats(0, 1))
def test_percentiles_grow_with_their_share(found, one, other):
    lower, upper = percentile(found, min(one, other)), percentile(found, max(one, other))
    assert lower is not None
    assert upper is not None
    assert lower <= upper


@given(st.lists(lengths, min_size=1), st.lists(lengths, min_size=1), st.floats(0.01, 1))
def test_percentiles_of_two_together_lie_between_those_of_each(one, other, share):
    apart = [percentile(histogram(values), share) for values in (one, other)]
    together = percentile(histogram([*one, *other]), share)
    assert together is not None
    known = [value for value in apart if value is not None]
    # Each is known to within its bucket.
    assert min(known) / WIDTH**2 - 1 <= together <= max(known) * WIDTH**2 + 1


def test_of_nothing_there_is_no_percentile():
    assert percentile({}, 0.5) is None
    assert percentile({3: 0}, 0.5) is None


# -- the tally ---------------------------------------------------------------------------------

HOUR_US = 60 * MINUTE_US


def row(flow: str = "f", run_no: int = 1, created_us: int = HOUR_US) -> RunRow:
    values = cast("dict[str, Any]", dict.fromkeys(RunRow.__struct_fields__, 0))
    values.update(status=Status.RUNNING, flow=flow, run_no=run_no, created_us=created_us)
    return RunRow(**values)


def outcome(
    kind: Kind, at_us: int = 0, attempt: int = 1, took_us: int | None = 1000, body: bytes = b"{}"
) -> Draft:
    at_us += HOUR_US
    began = None if took_us is None else at_us - took_us
    return Draft(kind, at_us, "s", attempt, 0, None, began, body)


def counted(*drafts: Draft) -> Counts:
    tally = Tally()
    tally.wrote(row(), drafts)
    return merged(tally.peek("p"))


def test_a_step_that_needed_three_attempts():
    used = b'{"error":{},"final":false,"usage":{"input_tokens":3,"output_tokens":4,"cost":0.25}}'
    found = counted(
        outcome(Kind.STEP_FAILED, body=used),
        outcome(Kind.STEP_FAILED, attempt=2),
        outcome(Kind.STEP_COMPLETED, attempt=3, body=used),
    )
    assert (found.steps, found.attempts, found.errors, found.retries) == (1, 3, 2, 2)
    assert (found.tokens, found.cost_nanos) == (14, 500_000_000)
    assert found.attempt_us == {bucket_of(1000): 3}


def test_words_of_users_are_no_usage():
    body = b'{"result":{"usage":{"input_tokens":9}},"args":["\\"usage\\":"]}'
    found = counted(outcome(Kind.STEP_COMPLETED, body=body))
    assert (found.steps, found.tokens) == (1, 0)


def test_an_effect_takes_from_its_intent_to_its_outcome():
    begun = Draft(Kind.STEP_STARTED, HOUR_US, "s", 1, 0)
    found = counted(begun, outcome(Kind.STEP_COMPLETED, 5_000_000, took_us=None))
    assert found.attempt_us == {bucket_of(5_000_000): 1}


def test_an_effect_whose_process_died_has_no_length():
    found = counted(outcome(Kind.STEP_IN_DOUBT, took_us=None, body=b'{"why":"process_died"}'))
    assert (found.attempts, found.errors, found.doubts, found.attempt_us) == (1, 1, 1, {})


def test_an_attempt_is_counted_once():
    """With on_doubt="fail" the doubt is followed by a failure that says that nobody knows."""
    found = counted(
        outcome(Kind.STEP_IN_DOUBT, body=b'{"why":"timeout"}'),
        outcome(Kind.STEP_FAILED, body=b'{"error":{},"final":true,"unknown":true}'),
    )
    assert (found.attempts, found.errors, found.doubts) == (1, 1, 1)


def test_what_was_not_called_is_no_attempt():
    found = counted(
        outcome(Kind.STEP_IN_DOUBT, body=b'{"why":"data_loss"}'),
        outcome(Kind.STEP_IN_DOUBT, body=b'{"why":"key_expired"}'),
        outcome(Kind.SKIPPED_DUPLICATE),
        outcome(Kind.STEP_SETTLED, body=b'{"outcome":"done"}'),
        outcome(Kind.VALUE_RECORDED),
    )
    assert found == Counts()


def test_ends_of_runs():
    ends = [Kind.RUN_COMPLETED, Kind.RUN_COMPLETED, Kind.RUN_FAILED, Kind.RUN_CANCELLED]
    drafts = [Draft(kind, HOUR_US + 2_000_000) for kind in (*ends, Kind.RUN_HELD)]
    found = counted(*drafts)
    assert found.ended == {"completed": 2, "failed": 1, "cancelled": 1}
    assert found.run_us == {bucket_of(2_000_000): 2}
    assert found.held == 1


def test_minutes_and_flows_are_counted_apart():
    tally = Tally()
    tally.wrote(row("f"), [outcome(Kind.STEP_COMPLETED), outcome(Kind.STEP_COMPLETED, MINUTE_US)])
    tally.wrote(row("g"), [outcome(Kind.STEP_COMPLETED)])
    first = tally.take(HOUR_US + MINUTE_US, "p")
    assert [(it.at_us, it.flow) for it in first] == [(HOUR_US, "f"), (HOUR_US, "g")]
    assert [(it.at_us, it.flow) for it in tally.peek("p")] == [(HOUR_US + MINUTE_US, "f")]


def test_what_comes_late_goes_into_a_minute_that_was_not_told_yet():
    tally = Tally()
    now = HOUR_US + 5 * MINUTE_US
    assert tally.take(now, "p") == []
    tally.wrote(row(), [outcome(Kind.STEP_COMPLETED)])
    assert tally.take(now, "p") == []
    [late] = tally.take(now + MINUTE_US, "p")
    assert (late.at_us, late.counts.steps) == (now, 1)


def test_what_is_not_over_goes_on_being_counted():
    tally = Tally()
    tally.wrote(row(), [outcome(Kind.STEP_COMPLETED)])
    assert merged(tally.peek("p")).steps == 1
    tally.wrote(row(), [outcome(Kind.STEP_COMPLETED)])
    assert merged(tally.peek("p")).steps == 2
    assert merged(tally.take(HOUR_US + MINUTE_US, "p")).steps == 2
    assert tally.peek("p") == []


def test_what_a_run_began_is_forgotten_with_it():
    tally = Tally()
    tally.wrote(row(), [Draft(Kind.STEP_STARTED, HOUR_US, "s", 1, 0)])
    tally.left(1)
    tally.wrote(row(), [outcome(Kind.STEP_COMPLETED, 9_000_000, took_us=None)])
    assert merged(tally.peek("p")).attempt_us == {}


@given(st.integers(0, 10**16))
def test_a_minute_begins_when_it_begins(at_us):
    begin = minute_of(at_us)
    assert begin % MINUTE_US == 0
    assert begin <= at_us < begin + MINUTE_US
