"""What is known of an effect: policies, lifetimes of keys, and when NOT_DONE is believed."""

import pytest
from hypothesis import given, strategies as st

from holdfast._engine.scripts.doubt_policies import (
    ENDED_MARGIN_S,
    KEY_TTL_S,
    NOT_DONE,
    TTL_MARGIN_S,
    UNKNOWN,
    Done,
    Failed,
    check_on_doubt,
    may_send,
    not_done_is_believed,
    policy_name,
)
from holdfast.errors import UsageError

SECOND = 1_000_000


def ask(order: str) -> None:
    """Any function is a policy."""


@pytest.mark.parametrize(
    ("policy", "name"), [("hold", "hold"), ("retry", "retry"), ("fail", "fail"), (ask, "function")]
)
def test_a_policy_is_one_of_three_or_a_function(policy, name):
    assert policy_name(check_on_doubt(policy, "pay")) == name


@pytest.mark.parametrize("policy", ["never", "", None, 3, ["hold"]])
def test_another_policy_is_refused_with_the_choices(policy):
    with pytest.raises(UsageError, match='pay: use "hold", "retry", "fail" or a function'):
        check_on_doubt(policy, "pay")


def test_answers_are_told_apart_and_read_well():
    assert Done(3) == Done(3) != Done(4)
    assert Failed("no").reason == "no"
    assert repr(NOT_DONE) == "NOT_DONE"
    assert repr(UNKNOWN) == "UNKNOWN"
    assert NOT_DONE is not UNKNOWN  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("age_s", "ttl_s", "young"),
    [
        (0, KEY_TTL_S, True),
        (KEY_TTL_S - TTL_MARGIN_S - 1, KEY_TTL_S, True),
        (KEY_TTL_S - TTL_MARGIN_S, KEY_TTL_S, False),
        (KEY_TTL_S, KEY_TTL_S, False),
        (8.9, 10, True),
        (9.1, 10, False),
    ],
)
def test_a_key_is_sent_while_it_is_surely_remembered(age_s, ttl_s, young):
    assert may_send(5 * SECOND, 5 * SECOND + int(age_s * SECOND), ttl_s) is young


@given(
    age_us=st.integers(-(10**12), 10**15),
    ttl_s=st.floats(0.001, 1e7),
    more_us=st.integers(0, 10**15),
)
def test_an_old_key_never_becomes_young(age_us, ttl_s, more_us):
    if not may_send(0, age_us, ttl_s):
        assert not may_send(0, age_us + more_us, ttl_s)
    if age_us / 1e6 >= ttl_s:
        assert not may_send(0, age_us, ttl_s)


@pytest.mark.parametrize(
    ("ended", "lost_us", "timeout_s", "now_us", "believed"),
    [
        (True, None, None, 0, True),
        (True, 1, 10.0, 1, True),
        (False, None, 10.0, 10**12, False),
        (False, 0, None, 10**12, False),
        (False, 0, 10.0, int((10 + ENDED_MARGIN_S) * SECOND) - 1, False),
        (False, 0, 10.0, int((10 + ENDED_MARGIN_S) * SECOND), True),
    ],
)
def test_not_done_is_believed_once_the_attempt_cannot_act(
    ended, lost_us, timeout_s, now_us, believed
):
    found = not_done_is_believed(ended=ended, lost_us=lost_us, timeout_s=timeout_s, now_us=now_us)
    assert found is believed
