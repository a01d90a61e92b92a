"""Names and keys: which ids are refused at the door, and how keys are given out."""

import pytest
from hypothesis import given, strategies as st

from holdfast._engine.journal.step_keys import (
    CHILD_SEPARATOR,
    RUN_ID_MAX_CHARS,
    STEP_KEY_MAX_CHARS,
    Scope,
    are_parallel,
    check_name,
    check_run_id,
    checked_business_key,
    derived_key,
    is_within,
    name_of,
    quoted,
    rendered_key,
    scope_of,
)
from holdfast.errors import UsageError


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "run_id", ["a", "order-42", "Ä 7", "../up", "a/b#2[3]", "日本", "x" * 200, "%00"]
)
def test_a_run_id_of_users_is_taken(run_id):
    assert check_run_id(run_id) == run_id


@pytest.mark.parametrize(
    ("run_id", "said"),
    [
        ("", "empty"),
        (" a", "white space"),
        ("a\n", "white space"),
        ("a\x00b", "U\\+0000"),
        ("a\x1b[31m", "U\\+001B"),
        ("a\u202eb", "U\\+202E"),
        ("a\u200bb", "U\\+200B"),
        ("a\ud800", "U\\+D800"),
        ("a\ue000b", "U\\+E000"),
        ("a\u2028b", "U\\+2028"),
        ("x" * (RUN_ID_MAX_CHARS + 1), "at most 200"),
        ("x" * 1_000_000, "has 1000000"),
        ("parent" + CHILD_SEPARATOR + "child", "derived"),
        (7, "not int"),
        (None, "not NoneType"),
        (b"a", "not bytes"),
        (Text("a"), "not Text"),
    ],
)
def test_an_odd_run_id_is_refused_at_the_door(run_id, said):
    """Fault 70."""
    with pytest.raises(UsageError, match=said):
        check_run_id(run_id)


@pytest.mark.parametrize("name", ["load", "Agent.think", "Ä"])
def test_a_name_is_taken(name):
    assert check_name("step", name) == name


@pytest.mark.parametrize(
    ("name", "said"), [("a/b", "/"), ("a#2", "#"), ("a[1]", "\\[ \\]"), (3, "int"), ("", "empty")]
)
def test_a_name_that_could_be_a_path_is_refused(name, said):
    with pytest.raises(UsageError, match=said):
        check_name("step", name)


@given(st.text(min_size=1, max_size=STEP_KEY_MAX_CHARS))
def test_an_explicit_step_key_cannot_be_mistaken_for_a_path(text):
    shown = quoted(text)
    assert not set(shown) & set("/#[]:")
    assert shown.isprintable()


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_two_explicit_step_keys_stay_two(one, other):
    assert (quoted(one) == quoted(other)) == (one == other)


@pytest.mark.parametrize("bad", ["", None, 3])
def test_a_bad_step_key_is_refused(bad):
    with pytest.raises(UsageError, match="step_key="):
        quoted(bad)


def test_keys_are_given_out_in_the_order_of_the_calls():
    scope = Scope()
    assert [scope.take(name) for name in ("a", "b", "a", "a")] == [
        ("a", 0),
        ("b", 1),
        ("a#2", 2),
        ("a#3", 3),
    ]
    assert scope.take_key("b") == "b#2"
    assert scope.position == 4
    inner = Scope("turns[3]")
    assert inner.take("a") == ("turns[3]/a", 0)


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=30), st.sampled_from(["", "each[1]"]))
def test_no_key_is_given_out_twice(names, path):
    scope = Scope(path)
    keys = [scope.take(name) for name in names]
    assert len({key for key, _ in keys}) == len(keys)
    assert [position for _, position in keys] == list(range(len(keys)))
    assert [name_of(key) for key, _ in keys] == names
    assert {scope_of(key) for key, _ in keys} <= {path}


@pytest.mark.parametrize(
    ("key", "scope", "name"),
    [
        ("load", "", "load"),
        ("load#2", "", "load"),
        ("turns[3]/gather[0]/load#12", "turns[3]/gather[0]", "load"),
        ("tool:call-7", "", "tool"),
        ("tool:call-7#2", "", "tool"),
    ],
)
def test_a_key_is_taken_apart(key, scope, name):
    assert scope_of(key) == scope
    assert name_of(key) == name


@pytest.mark.parametrize(
    ("scope", "ancestor", "within"),
    [
        ("turns[1]", "", True),
        ("turns[1]", "turns[1]", True),
        ("turns[1]/each[0]", "turns[1]", True),
        ("turns[12]", "turns[1]", False),
        ("", "turns[1]", False),
    ],
)
def test_scopes_lie_within_each_other(scope, ancestor, within):
    assert is_within(scope, ancestor) is within


@pytest.mark.parametrize(
    ("one", "other", "parallel"),
    [
        ("gather[0]", "gather[1]", True),
        ("gather[0]/each[1]", "gather[1]", True),
        ("each[a]/turns[1]", "each[b]/turns[1]", True),
        ("gather[0]", "gather[0]", False),
        ("gather[0]", "", False),
        ("gather[0]", "gather#2[0]", False),
        ("turns[0]", "turns[1]", False),
        ("turns[0]/gather[0]", "turns[1]/gather[1]", False),
        ("turns#2[0]", "turns#2[1]", False),
    ],
)
def test_branches_of_one_fan_out_are_parallel(one, other, parallel):
    assert are_parallel(one, other) is parallel
    assert are_parallel(other, one) is parallel


def test_a_derived_key_is_stable_and_of_one_step_alone():
    key = derived_key("store/default", "r", 1, "pay")
    assert key == derived_key("store/default", "r", 1, "pay")
    assert key.startswith("hf_")
    assert len(key) == 43
    others = [
        derived_key("store/other", "r", 1, "pay"),
        derived_key("store/default", "r2", 1, "pay"),
        derived_key("store/default", "r", 2, "pay"),
        derived_key("store/default", "r", 1, "pay#2"),
        derived_key("store/defaultr", "", 1, "pay"),
    ]
    assert len({key, *others}) == 6


def test_a_template_is_filled_from_the_arguments():
    arguments = {"order": "42", "item": {"id": 7}}
    assert rendered_key("order:{order}", arguments, "pay") == "order:42"
    assert rendered_key("{item[id]}", arguments, "pay") == "7"


@pytest.mark.parametrize(
    "template", ["{missing}", "{0}", "{order.nothing}", "{order", "{}", "{order!z}"]
)
def test_a_template_that_cannot_be_filled_is_refused(template):
    with pytest.raises(UsageError, match="cannot be filled from its arguments"):
        rendered_key(template, {"order": "42"}, "pay")


@pytest.mark.parametrize(
    "template",
    [
        "{order:d}",
        "{items[x]}",
    ],
)
def test_a_template_that_does_not_fit_its_values_is_refused(template):
    with pytest.raises(UsageError):
        rendered_key(template, {"order": "42", "items": [1]}, "pay")


@pytest.mark.parametrize("key", ["", None, 7, " a", "a\x00", "x" * 201])
def test_a_business_key_that_cannot_be_sent_is_refused(key):
    with pytest.raises(UsageError, match="the key of pay"):
        checked_business_key(key, "pay")
