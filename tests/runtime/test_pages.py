"""Lists that may be long come in pages, and a page says whether more follows."""

from __future__ import annotations

import pytest

from holdfast import ask, flow
from holdfast.errors import UsageError


@flow(name="page-one", queue="pages")
def one(number: int) -> int:
    return number


@flow(name="page-asks")
def asks(number: int) -> None:
    ask("First?", name=f"first-{number}")


def ids(page) -> list[str]:
    return [run.run_id for run in page]


def test_a_page_of_runs_says_where_the_next_begins(store):
    for number in range(5):
        one.submit(f"r{number}", number)
    first = store.runs(limit=2)
    assert ids(first) == ["r4", "r3"]
    assert first[0].run_id == "r4"
    assert len(first) == 2
    second = store.runs(limit=2, after=first.next)
    assert ids(second) == ["r2", "r1"]
    one.submit("new", 9)  # What is new comes before the first page, and moves no other.
    third = store.runs(limit=2, after=second.next)
    assert (ids(third), third.next) == (["r0"], None)
    assert store.runs().next is None


def test_a_page_that_is_just_full_is_the_last(store):
    for number in range(4):
        one.submit(f"r{number}", number)
    assert store.runs(limit=4).next is None
    page = store.runs(limit=3)
    assert page.next is not None
    assert store.runs(limit=1, after=page.next).next is None
    assert (store.runs(status="held"), store.runs(status="held").next) == ([], None)


def test_filters_hold_for_the_page_that_follows(store):
    for number in range(6):
        (one if number % 2 else asks).submit(f"r{number}", number)
    page = store.runs(flow="page-one", limit=1)
    seen = ids(page)
    while page.next is not None:
        page = store.runs(flow="page-one", limit=1, after=page.next)
        seen += ids(page)
    assert seen == ["r5", "r3", "r1"]


def test_a_page_of_questions_says_where_the_next_begins(store):
    for number in range(5):
        asks.submit(f"r{number}", number)
    with store.worker(flows=[asks]):
        for number in range(5):
            store.wait(f"r{number}", until="waiting", timeout="10s")
        everything = [question.name for question in store.questions()]
        assert sorted(everything) == [f"first-{number}" for number in range(5)]
        page = store.questions(limit=2)
        seen = [question.name for question in page]
        store.answer(page[1].run_id, page[1].name, "yes", actor="ana")
        store.wait(page[1].run_id, until="completed", timeout="10s")
        while page.next is not None:  # The last question of the page is gone; the cursor holds.
            page = store.questions(limit=2, after=page.next)
            seen += [question.name for question in page]
    assert seen == everything
    assert store.questions().next is None


def test_runs_are_found_by_all_their_tags(store):
    for number in range(6):
        tags = {"team": "a" if number % 2 else "b", "day": str(number // 3)}
        one.with_options(tags=tags).submit(f"r{number}", number)
    assert ids(store.runs(tags={"team": "a"})) == ["r5", "r3", "r1"]
    assert ids(store.runs(tags={"team": "a", "day": "1"})) == ["r5", "r3"]
    page = store.runs(tags={"team": "a", "day": "1"}, limit=1)
    assert (ids(page), page.next is None) == (["r5"], False)
    page = store.runs(tags={"team": "a", "day": "1"}, limit=1, after=page.next)
    assert (ids(page), page.next) == (["r3"], None)
    assert ids(store.runs(tags={"team": "a", "day": "2"})) == []
    with pytest.raises(UsageError):
        store.runs(tags={"team": 1})


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, None, 2**63])
def test_a_page_has_a_size(holdfast_store, limit):
    with pytest.raises(UsageError, match="a whole number above 0"):
        holdfast_store.runs(limit=limit)
    with pytest.raises(UsageError, match="a whole number above 0"):
        holdfast_store.questions(limit=limit)


@pytest.mark.parametrize("after", ["x", "-1", 3, "", "[1]", "²", "٣", "9" * 19, "9" * 30])
def test_only_a_cursor_of_a_page_is_taken(holdfast_store, after):
    with pytest.raises(UsageError, match="give the `next` of the page before"):
        holdfast_store.runs(after=after)
    with pytest.raises(UsageError, match="give the `next` of the page before"):
        holdfast_store.questions(after=after)


def test_a_filter_that_cannot_be_is_said_by_its_name(holdfast_store):
    with pytest.raises(UsageError, match="held_reason='broken'"):
        holdfast_store.runs(held_reason="broken")
    with pytest.raises(UsageError, match="status=5"):
        holdfast_store.runs(status=5)
