"""Branches that are known by their places alone are noticed."""

from __future__ import annotations

import pytest

from holdfast import testing
from holdfast._runtime.execution import branch_marks
from tests.runtime import test_branch_marks


def by_place(was: branch_marks.Marks, now: branch_marks.Marks) -> None:
    return None


def not_kept(*_: object) -> None:
    """What is known of branches that were added later is lost."""


@pytest.mark.parametrize("change", ["an item at the front", "partials in another order"])
def test_branches_without_an_identity(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    test_branch_marks.sent.clear()
    monkeypatch.setattr(branch_marks, "_differs_at", by_place)
    with testing.store() as store, pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_branch_marks.test_a_branch_for_something_else_is_noticed(store, change)


def test_later_branches_without_an_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    test_branch_marks.sent.clear()
    monkeypatch.setattr(branch_marks, "_with_later_ones", not_kept)
    with testing.store() as store, pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_branch_marks.test_items_can_be_appended_and_have_an_identity_from_then_on(store)
