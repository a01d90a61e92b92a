"""How long, and until when."""

import datetime as dt

import pytest
from hypothesis import given, strategies as st

from holdfast._engine.values.durations import LONGEST_US, as_text, ends, micros, seconds
from holdfast.errors import UsageError

S = 1_000_000


@pytest.mark.parametrize(
    ("duration", "us"),
    [
        (0, 0),
        (1.5, 1_500_000),
        (dt.timedelta(hours=2), 7200 * S),
        ("90s", 90 * S),
        ("2h", 7200 * S),
        ("1h30m", 5400 * S),
        ("1d 2h", 93_600 * S),
        ("1w", 604_800 * S),
        ("250ms", 250_000),
        ("1.5m", 90 * S),
        (" 3D ", 259_200 * S),
    ],
)
def test_what_it_may_be(duration: object, us: int) -> None:
    assert micros(duration, "sleep(…)") == us


@pytest.mark.parametrize(
    "duration",
    ["", "soon", "5", "h", "1x", "-5s", -1, float("nan"), float("inf"), True, None, [], "200y"],
)
def test_what_it_may_not_be(duration: object) -> None:
    with pytest.raises(UsageError, match=r"sleep\(…\)"):
        micros(duration, "sleep(…)")


def test_too_long_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="a hundred years"):
        micros(LONGEST_US / 1e6 + 1, "sleep(…)")


def test_seconds_are_checked_as_microseconds_are() -> None:
    assert seconds("1.5m", "delay=") == 90
    assert micros(0, "delay=") == 0
    with pytest.raises(UsageError, match="period=: more than 0 and at most a hundred years, not 0"):
        seconds(0, "period=", positive=True)


def test_a_moment_needs_its_time_zone() -> None:
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert ends(moment, "sleep(…)")(5) == round(moment.timestamp() * 1e6)
    zoned = moment.astimezone(dt.timezone(dt.timedelta(hours=5)))
    assert ends(zoned, "sleep(…)")(5) == ends(moment, "sleep(…)")(7)
    with pytest.raises(UsageError, match="has no time zone"):
        ends(dt.datetime(2026, 1, 1), "sleep(…)")  # noqa: DTZ001


@given(st.integers(0, LONGEST_US), st.integers(0, 2**52))
def test_the_end_follows_from_the_beginning(length_us: int, now_us: int) -> None:
    duration = dt.timedelta(microseconds=length_us)
    assert ends(duration, "sleep(…)")(now_us) == now_us + length_us


@given(st.integers(0, LONGEST_US))
def test_every_length_can_be_shown(length_us: int) -> None:
    text = as_text(length_us)
    assert text
    assert len(text.split()) <= 4
