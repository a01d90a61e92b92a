"""Where arguments differ, in one short text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import holdfast
from holdfast._engine.journal.argument_diff import TEXT_MAX_CHARS, difference


@holdfast.versioning.register_type
@dataclass
class Place:
    town: str
    number: int


LONG = "a" * 500


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"q": "one"}, {"q": "two"}, "q was 'one', is 'two'"),
        ({"q": 1, "r": 2}, {"q": 1, "r": 3}, "r was 2, is 3"),
        ({"q": 1}, {"q": "1"}, "q was 1, is '1'"),
        ({"q": {"a": [1, 2]}}, {"q": {"a": [1, 5]}}, "q.a[1] was 2, is 5"),
        ({"q": [1]}, {"q": [1, 2]}, "q[1] was not there, is 2"),
        ({"q": (1,)}, {"q": [1]}, "q was (1,), is [1]"),
        ({"at": Place("Ulm", 1)}, {"at": Place("Ulm", 2)}, "at.number was 1, is 2"),
        ({"q": 1}, {}, "q was 1, is not there"),
        (
            {"q": [1, 2, 3, 4]},
            {"q": [5, 6, 7, 8]},
            "q[0] was 1, is 5; q[1] was 2, is 6; q[2] was 3, is 7; and more",
        ),
        ({"q": 1}, {"q": 1}, ""),
    ],
)
def test_paths_and_both_values_are_told(before: Any, after: Any, text: str) -> None:
    assert difference(before, after) == text


def test_of_long_texts_the_part_is_shown_where_they_differ() -> None:
    text = difference({"q": f"{LONG}X{LONG}"}, {"q": f"{LONG}Y{LONG}"})
    before, _, after = text.partition(", is ")
    assert "X" in before
    assert "Y" in after
    assert "…" in before
    assert len(text) < 2 * TEXT_MAX_CHARS + 40


def test_long_values_are_shortened() -> None:
    assert len(difference({"q": b"a" * 500}, {"q": b"b" * 500})) < 2 * TEXT_MAX_CHARS + 40
