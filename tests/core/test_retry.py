"""Retry decisions: how often, how long, and when to give up. No time passes here."""

import datetime as dt
import email.utils
from typing import Any

import pytest
from hypothesis import given, strategies as st

from holdfast._engine.scripts.retry import MAX_RETRY_AFTER_S, ONCE, Retry, pause_s, retry_after_s
from holdfast.errors import UsageError

NOW_S = 1_767_225_600.0


def pause(policy: Retry, attempt: int = 1, error: BaseException | None = None, **more: Any) -> Any:
    given_: dict[str, Any] = {"elapsed_s": 0.0, "now_s": NOW_S, "chance": 0.0, **more}
    return pause_s(policy, attempt=attempt, error=error or OSError(), **given_)


def asks(headers: Any) -> Exception:
    error: Any = OSError()
    error.response = type("Response", (), {"headers": headers})()
    return error


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": 2.5},
        {"initial_wait_s": -1},
        {"max_wait_s": -1},
        {"backoff": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"max_elapsed_s": 0},
        {"retry_on": OSError},
        {"retry_on": (int,)},
    ],
)
def test_what_cannot_work_is_refused(options):
    with pytest.raises(UsageError, match="Retry"):
        Retry(**options)


def test_attempts_count_all_tries():
    assert pause(ONCE) is None
    policy = Retry(attempts=3)
    assert pause(policy, 1) is not None
    assert pause(policy, 2) is not None
    assert pause(policy, 3) is None


def test_pauses_grow_to_a_limit():
    policy = Retry(attempts=99, initial_wait_s=1, backoff=3, max_wait_s=20, jitter=0)
    assert [pause(policy, attempt) for attempt in (1, 2, 3, 4, 5)] == [1, 3, 9, 20, 20]


def test_jitter_takes_off_up_to_its_share():
    policy = Retry(initial_wait_s=10, jitter=0.5)
    assert pause(policy, chance=0.0) == 10
    assert pause(policy, chance=0.5) == 7.5
    assert pause(policy, chance=0.999) == pytest.approx(5.0, abs=0.01)


def test_some_errors_are_never_retried():
    policy = Retry(give_up_on=(PermissionError,))
    assert pause(policy, error=PermissionError()) is None
    assert pause(policy, error=OSError()) is not None


def test_only_named_errors_are_retried():
    policy = Retry(retry_on=(OSError,), give_up_on=(PermissionError,))
    assert pause(policy, error=ConnectionError()) is not None
    assert pause(policy, error=PermissionError()) is None
    assert pause(policy, error=TypeError()) is None
    assert pause(Retry(), error=TypeError()) is not None


def test_the_deadline_counts_from_the_first_start():
    policy = Retry(attempts=99, initial_wait_s=10, jitter=0, max_elapsed_s=60)
    assert pause(policy, elapsed_s=49.9) == 10
    assert pause(policy, elapsed_s=50) is None
    assert pause(policy, elapsed_s=0, error=asks({"retry-after": "70"})) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("-4", 0.0),
        ("1.5", 1.5),
        (email.utils.format_datetime(dt.datetime.fromtimestamp(NOW_S + 90, dt.UTC)), 90.0),
        (email.utils.format_datetime(dt.datetime.fromtimestamp(NOW_S - 90, dt.UTC)), 0.0),
        ("Thu, 01 Jan 2026 00:00:30 -0000", 30.0),
        ("soon", None),
        ("", None),
    ],
)
def test_a_header_is_read(text, seconds):
    assert retry_after_s(asks({"retry-after": text}), NOW_S) == seconds


def test_an_attribute_is_read():
    error: Any = OSError()
    error.retry_after = 12
    assert retry_after_s(error, NOW_S) == 12.0
    error.retry_after = -1
    assert retry_after_s(error, NOW_S) is None
    error.retry_after = "12"
    assert retry_after_s(error, NOW_S) is None


def test_foreign_objects_tell_nothing():
    class Angry:
        def get(self, name: str) -> str:
            raise RuntimeError(name)

    assert retry_after_s(asks(Angry()), NOW_S) is None
    assert retry_after_s(asks(None), NOW_S) is None
    assert retry_after_s(asks({"retry-after": 5}), NOW_S) is None
    assert retry_after_s(asks({}), NOW_S) is None
    assert retry_after_s(OSError(), NOW_S) is None


@pytest.mark.parametrize("text", ["nan", "inf", "1e400"])
def test_numbers_that_are_none_do_no_harm(text):
    found = pause(Retry(initial_wait_s=1, jitter=0), error=asks({"retry-after": text}))
    assert found is not None
    assert 1 <= found <= MAX_RETRY_AFTER_S


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True])
def test_odd_attributes_do_no_harm(value):
    error: Any = OSError()
    error.retry_after = value
    found = pause(Retry(initial_wait_s=1, jitter=0), error=error)
    assert found is not None
    assert 1 <= found <= MAX_RETRY_AFTER_S


def test_what_the_other_side_asks_is_kept_but_not_for_ever():
    policy = Retry(initial_wait_s=5, jitter=0, max_wait_s=10)
    assert pause(policy, error=asks({"retry-after": "2"})) == 5
    assert pause(policy, error=asks({"retry-after": "50"})) == 50
    assert pause(policy, error=asks({"retry-after": "999999"})) == MAX_RETRY_AFTER_S


@given(
    attempts=st.integers(1, 50),
    attempt=st.integers(1, 60),
    initial_wait_s=st.floats(0, 100),
    backoff=st.floats(1, 10),
    jitter=st.floats(0, 1),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_never_negative_and_never_beyond_its_limit(
    attempts, attempt, initial_wait_s, backoff, jitter, chance
):
    policy = Retry(attempts=attempts, initial_wait_s=initial_wait_s, backoff=backoff, jitter=jitter)
    found = pause(policy, attempt, chance=chance)
    assert (found is None) == (attempt >= attempts)
    if found is not None:
        assert 0 <= found <= policy.max_wait_s


def test_many_attempts_do_not_overflow():
    policy = Retry(attempts=10_000, jitter=0)
    assert pause(policy, 5_000) == policy.max_wait_s
