"""Text of others is inert, and times read as people think."""

import unicodedata

import pytest

from holdfast._engine.text import ago, brief_json, clipped, length, moment, visible
from holdfast._features.budgets.operator import BudgetView, line

CORPUS = [
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://x.test\x1b\\link\x1b]8;;\x1b\\",
    "\x9b2J",
    "a\rb",
    "bell\x07\x08\x7f",
    "\u202eevil\u202c",
    "\u2066isolate\u2069",
    "zero\u200bwidth\ufeff",
    "line\u2028break\u2029",
    "tag\U000e0041",
    "lone \ud800 surrogate",
    "[bold red]markup[/] :warning:",
    "<script>alert(1)</script>",
    "no\u00a0break and \u3000wide",
    "fillers \u115f\u1160\u3164\uffa0\u2800, joiner \u034f, variant \ufe0f\U000e0100",
]
UNSEEN = (
    "\u034f\u115f\u1160\u17b4\u180b\u2800\u3164\ufe00\ufe0f\uffa0\U0001d159\U000e0100\U000e01ef"
)


@pytest.mark.parametrize("text", CORPUS)
def test_nothing_hidden_is_left(text: str):
    made = visible(text)
    assert all(unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in made)
    assert "\n" not in made
    made.encode("utf-8")


def test_what_can_be_seen_is_left_alone():
    assert visible("Zürich 東京 🙂 [x] <b>") == "Zürich 東京 🙂 [x] <b>"
    assert visible("a\nb\tc", lines=True) == "a\nb\\tc"
    for text in (
        "cafe\u0301",
        "\u0e17\u0e35\u0e48",
        "\u0928\u093f",
        "\u05e9\u05c1\u05b8",
        "x\u0301\u0302\u0303\u0304",
    ):
        assert visible(text) == text


@pytest.mark.parametrize("char", UNSEEN)
def test_blanks_that_count_as_letters_are_seen(char: str):
    assert visible(f"alice{char}") == f"alice{ascii(char)[1:-1]}"


def test_marks_that_stand_on_nothing_or_on_each_other_are_seen():
    assert visible("\u0301\u0302a") == "\\u0301\\u0302a"
    assert visible("a\u200b\u0301") == "a\\u200b\\u0301"
    assert visible("a\n\u0301", lines=True) == "a\n\\u0301"
    assert visible("a" + "\u0301" * 6) == "a" + "\u0301" * 4 + "\\u0301" * 2


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 ms"),
        (0.0424, "42 ms"),
        (0.31, "0.3 s"),
        (9.96, "10.0 s"),
        (59, "59 s"),
        (180, "3 min"),
        (7200, "2 h"),
        (3 * 86_400, "3 days"),
    ],
)
def test_lengths(seconds: float, said: str):
    assert length(seconds) == said


def test_moments():
    assert ago(1_000_000, 1_400_000) == "just now"
    assert ago(0, 180_000_000) == "3 min ago"
    assert moment(1_767_236_400_123_456) == "2026-01-01 03:00:00 UTC"


def test_long_values_say_how_much_is_left_out():
    assert clipped("abcdef", 3) == "abc… (3 more characters)"
    assert brief_json({"a": "\x1b"}) == '{"a":"\\u001b"}'


@pytest.mark.parametrize(
    ("steps", "spent", "told"),
    [
        (None, 1, "1 attempt,"),
        (None, 2, "2 attempts,"),
        (1, 0, "0 of 1 attempt,"),
        (5, 1, "1 of 5 attempts,"),
    ],
)
def test_a_budget_counts_as_people_do(steps: int | None, spent: int, told: str) -> None:
    left = None if steps is None else steps - spent
    dollars = (None, 0.0, None)
    view = BudgetView("r", *dollars, None, 0, None, steps, spent, left, None, 0.0, None)
    assert f", {told} " in line(view)
