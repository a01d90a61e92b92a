"""What changed between two values: applied to the first, it gives the second."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from holdfast._operator.read.snapshots import LIMIT, Difference, differences

_PART = re.compile(r'\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\.?([A-Za-z_][A-Za-z0-9_-]*)')

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=25,
)


def parts(path: str) -> list[Any]:
    """Read a path again; all of it."""
    found: list[Any] = []
    at = 0
    while at < len(path):
        match = _PART.match(path, at)
        assert match is not None, path
        number, quoted, name = match.groups()
        if number is not None:
            found.append(int(number))
        else:
            found.append(name if quoted is None else json.loads(f'"{quoted}"'))
        at = match.end()
    return found


def applied(before: Any, changes: list[Difference]) -> Any:
    """Do to a value what was done to it: changes, then removals from behind, then what was added."""
    whole = {"": copy.deepcopy(before)}
    order = [it for it in changes if it.kind == "changed"]
    order += reversed([it for it in changes if it.kind == "removed"])
    order += [it for it in changes if it.kind == "added"]
    for change in order:
        *path, last = ["", *parts(change.path)]
        inside: Any = whole
        for part in path:
            inside = inside[part]
        if change.kind == "removed":
            assert exactly(inside[last]) == exactly(change.before)
            del inside[last]
        elif change.kind == "added" and isinstance(inside, list):
            inside.insert(last, copy.deepcopy(change.after))
        else:
            assert change.kind == "changed" or last not in inside
            inside[last] = copy.deepcopy(change.after)
    return whole[""]


def exactly(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(values, values)
def test_applied_to_the_first_value_they_give_the_second(before: Any, after: Any) -> None:
    changes = differences(before, after)
    assert exactly(applied(before, changes)) == exactly(after)
    assert (changes == []) == (exactly(before) == exactly(after)) or "-0.0" in exactly(
        [before, after]
    )


@given(st.lists(values, max_size=6), st.lists(values, max_size=3))
def test_a_list_that_grew_has_only_what_was_added(before: list[Any], more: list[Any]) -> None:
    changes = differences(before, [*before, *more])
    assert [it.kind for it in changes] == ["added"] * len(more)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({"a": 1}, {"a": 1}, []),
        (1, 2, [("", "changed", 1, 2)]),
        (1, True, [("", "changed", 1, True)]),
        (1, 1.0, [("", "changed", 1, 1.0)]),
        ({"a": [1]}, {"a": {"0": 1}}, [("a", "changed", [1], {"0": 1})]),
        (
            {"messages": [{"text": "a"}, {"text": "b"}]},
            {"messages": [{"text": "a"}, {"text": "B"}, {"text": "c"}]},
            [
                ("messages[1].text", "changed", "b", "B"),
                ("messages[2]", "added", None, {"text": "c"}),
            ],
        ),
        ([1, 2, 3, 4], [3, 4], [("[0]", "removed", 1, None), ("[1]", "removed", 2, None)]),
        ({"x": None}, {}, [("x", "removed", None, None)]),
        (
            {"a b": 1, "c.d": 1, "": 1, "0": 1},
            {"a b": 2, "c.d": 2, "": 2, "0": 2},
            [
                ('["a b"]', "changed", 1, 2),
                ('["c.d"]', "changed", 1, 2),
                ('[""]', "changed", 1, 2),
                ('["0"]', "changed", 1, 2),
            ],
        ),
    ],
)
def test_how_they_are_told(before: Any, after: Any, told: list[tuple[Any, ...]]) -> None:
    assert [(it.path, it.kind, it.before, it.after) for it in differences(before, after)] == told


def test_there_is_a_limit() -> None:
    before, after = list(range(5000)), [-n - 1 for n in range(5000)]
    assert len(differences(before, after)) == LIMIT
    assert len(differences(before, after, LIMIT + 1)) == LIMIT + 1


def test_what_is_nested_deeply_is_compared_as_a_whole() -> None:
    def nested(leaf: int) -> Any:
        value: Any = leaf
        for _ in range(300):
            value = [value]
        return value

    [change] = differences(nested(1), nested(2))
    assert change.kind == "changed"
    assert differences(nested(1), nested(1)) == []
