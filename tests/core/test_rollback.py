"""What a rollback takes back: read from a journal, whatever stands in it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from holdfast._engine.decisions.resume import key_changes, settle_drafts
from holdfast._engine.journal.changes import SetKey
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History, Record
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.step_keys import is_undo
from holdfast._engine.scripts.stops import Unwind
from holdfast._features.rollback.model import (
    Fate,
    Wanted,
    effects_to_undo,
    ended,
    left_as_they_are,
    requested,
    to_be_undone,
    wanted,
)
from holdfast.errors import RunHeld, UsageError
from tests.core.test_history import ERROR, Journal

UNDO: dict[str, Any] = {"effect": True, "undo": True}
BY_HAND: dict[str, Any] = {"outcome": "done", "result": 1}


def intent(journal: Journal, key: str, position: int | None = 0, **facts: Any) -> Journal:
    return journal.step(Kind.STEP_STARTED, key, position, **{**UNDO, **facts})


def has_undo(record: Record) -> bool:
    return record.intent is not None and b'"undo":true' in record.intent.body


def did(journal: Journal, key: str, position: int | None = 0, **facts: Any) -> Journal:
    intent(journal, key, position, **facts)
    return journal.step(Kind.STEP_COMPLETED, key, position, result=1)


def ask(journal: Journal, **facts: object) -> Journal:
    asked = {"actor": "kim", "reason": "", "to": None, "stays": [], **facts}
    return journal.run(Kind.ROLLBACK_REQUESTED, **asked).run(Kind.RUN_CLAIMED, why="free")


def fates(history: History, to: str | None = None) -> list[tuple[str, str]]:
    return [(it.record.key, it.fate.value) for it in effects_to_undo(history, to)]


def test_the_last_effect_comes_first():
    journal = did(did(did(Journal(), "a", 0), "b", 1), "c", 2).done("plain", 3)
    assert fates(journal.fold()) == [("c", "undo"), ("b", "undo"), ("a", "undo")]


def test_what_each_record_comes_to():
    journal = Journal()
    did(journal, "no_undo", 0, undo=False)
    did(journal, "skipped", 1)
    journal.entries.pop()
    journal.step(Kind.SKIPPED_DUPLICATE, "skipped", 1, result=1)
    intent(journal, "refused", 2)
    journal.step(Kind.STEP_FAILED, "refused", 2, final=True, error=ERROR)
    intent(journal, "given_up", 3)
    journal.step(Kind.STEP_FAILED, "given_up", 3, final=True, error=ERROR, unknown=True)
    intent(journal, "degraded", 4)
    journal.step(Kind.STEP_COMPLETED, "degraded", 4, result=1, degraded=ERROR)
    intent(journal, "not_done", 5)
    settled: dict[str, Any] = {"outcome": "not_done"}
    journal.step(Kind.STEP_SETTLED, "not_done", 5, **settled)
    intent(journal, "settled", 6)
    journal.step(Kind.STEP_SETTLED, "settled", 6, **BY_HAND)
    intent(journal, "open", 7)
    # One whose intent was lost with the tail of a store.
    journal.step(Kind.STEP_IN_DOUBT, "data_loss", 8, why="data_loss", ended=True, args={})
    journal.step(Kind.STEP_SETTLED, "data_loss", 8, **BY_HAND)
    assert fates(journal.fold()) == [
        ("data_loss", "stays"),
        ("open", "in_doubt"),
        ("settled", "undo"),
        ("given_up", "unknown"),
        ("no_undo", "stays"),
    ]


def test_what_a_fork_borrowed_is_not_undone():
    history = did(did(Journal(), "a", 0), "b", 1).fold()
    history.records["a"].borrowed = True
    assert fates(history) == [("b", "undo")]


def test_what_was_undone_is_seen():
    journal = ask(did(did(Journal(), "a", 0), "b", 1))
    did(journal, "undo/b", None)
    assert fates(journal.fold()) == [("b", "undone"), ("a", "undo")]
    calls, _ = to_be_undone(journal.fold(), lambda _record: True)
    assert [call.undo_step for call in calls] == ["undo/a"]


def test_a_superseded_effect_happened_and_is_undone_under_a_key_of_its_generation():
    journal = did(Journal(), "a", 0).run(Kind.RUN_FAILED, steps=[], error=ERROR)
    journal.run(Kind.RUN_RESUMED, generation=2, superseded=["a"]).run(Kind.RUN_CLAIMED, why="free")
    did(journal, "a", 0)
    undos = [it.undo_step for it in effects_to_undo(journal.fold())]
    assert undos == ["undo[2]/a", "undo/a"]


def test_a_doubt_stands_against_it_before_anything_is_undone():
    journal = ask(intent(did(Journal(), "a", 0), "b", 1))
    with pytest.raises(Unwind) as held:
        to_be_undone(journal.fold(), lambda _record: True)
    error = held.value.error
    assert isinstance(error, RunHeld)
    assert (error.reason, error.step) == ("in_doubt", "b")
    assert "holdfast settle r b --not-done" in error.actions[1]


@pytest.mark.parametrize(
    ("facts", "knows", "said"),
    [
        ({"undo": True}, False, "has an undo, but the process that took the run up does not know"),
        ({"undo": False}, False, "a has no undo"),
    ],
)
def test_what_nobody_has_seen_to_stay_holds_it(facts, knows, said):
    history = ask(did(Journal(), "a", 0, **facts)).fold()
    with pytest.raises(Unwind) as held:
        to_be_undone(history, lambda _record: knows)
    assert said in str(held.value.error)
    confirmed = ask(did(Journal(), "a", 0, **facts), stays=["undo/a"]).fold()
    assert to_be_undone(confirmed, lambda _record: knows)[0] == []


def test_an_undo_is_lost_only_where_the_hold_says_so():
    journal = did(did(Journal(), "a", 0), "a#2", 1)
    intent(journal, "b", 2)
    journal.step(Kind.STEP_FAILED, "b", 2, final=True, error=ERROR, unknown=True)
    did(journal, "b#2", 3)
    ask(journal)
    held = {"reason": "paused", "detail": "", "actions": []}
    before = journal.fold()
    assert fates(before) == [("b#2", "undo"), ("b", "unknown"), ("a#2", "undo"), ("a", "undo")]
    for step, facts, lost in (
        ("a", {}, ["a#2", "a"]),
        ("a", {"actor": "kim"}, []),
        ("b", {}, []),
        ("a", {"reason": "in_doubt"}, []),
    ):
        past = list(journal.entries)
        journal.run(Kind.RUN_HELD, **{**held, "step": step, **facts})
        found = fates(journal.fold())
        assert [key for key, fate in found if fate == "lost"] == lost
        journal.entries[:] = past


def test_what_is_kept_was_not_undone():
    journal = did(did(Journal(), "a", 0), "b", 1)
    ask(journal)
    did(journal, "undo/b", None, undo=False)
    assert fates(journal.fold(), to="a") == [("b", "undone")]
    with pytest.raises(UsageError, match="b would be kept, and its undo was begun already"):
        effects_to_undo(journal.fold(), "b")


def test_to_a_step_keeps_that_step_and_what_ran_beside_it():
    journal = did(did(did(Journal(), "a", 0), "b", 1), "c", 2)
    did(journal, "gather[0]/d", 0)
    did(journal, "gather[1]/e", 0)
    assert fates(journal.fold(), "b") == [
        ("gather[1]/e", "undo"),
        ("gather[0]/d", "undo"),
        ("c", "undo"),
    ]
    assert fates(journal.fold(), "gather[0]/d") == []
    with pytest.raises(UsageError, match="has no step 'x'; its last ones: a, b, c"):
        effects_to_undo(journal.fold(), "x")
    with pytest.raises(UsageError, match="has no outcome"):
        effects_to_undo(intent(journal, "f", 3).fold(), "f")


def test_to_a_step_opens_the_next_generation_and_pauses():
    journal = did(did(Journal(), "a", 0), "b", 1).done("c", 2)
    journal.step(Kind.STATE_SAVED, "turns", None, turn=1)
    ask(journal, to="a")
    did(journal, "undo/b", None)
    history = journal.fold()
    end = ended(history, effects_to_undo(history, "a"), [], 0)
    assert [draft.kind for draft in end.drafts] == [Kind.RUN_RESUMED, Kind.RUN_HELD]
    resumed = msgspec.json.decode(end.drafts[0].body)
    assert (resumed["generation"], resumed["superseded"], resumed["loops"]) == (
        2,
        ["b", "c"],
        ["turns"],
    )
    assert end.changes["skips"] == "[]"
    journal.run(Kind.RUN_RESUMED, **resumed).run(Kind.RUN_HELD, reason="paused")
    after = journal.fold()
    assert (after.status, after.rollback, set(after.records)) == (
        Status.HELD,
        None,
        {"a", "undo/b"},
    )


def test_the_request_says_what_is_wanted_and_in_which_order():
    history = did(did(Journal(), "a", 0), "b", 1, undo=False).fold()
    want = Wanted("kim", "why", stays=left_as_they_are(effects_to_undo(history)))
    draft = requested(history, want, 5)
    assert msgspec.json.decode(draft.body)["order"] == ["undo/a"]
    asked = ask(did(Journal(), "a", 0), reason="why").fold().rollback
    assert asked is not None
    assert wanted(asked) == Wanted("kim", "why")
    assert want.stays == ("undo/b",)


def test_a_cancel_that_waits_gives_way_to_a_rollback():
    journal = Journal().run(Kind.CANCEL_REQUESTED, actor="kim", reason="")
    assert ask(journal).fold().cancel is None


def test_settling_an_undo_as_done_makes_the_key_undone():
    undoes = {"step": "a", "effect": "a", "key": "order:1"}
    journal = ask(did(Journal(), "a", 0))
    intent(journal, "undo/a", None, undoes=undoes, undo=False)
    record = journal.fold().records["undo/a"]
    assert key_changes(record, "completed", result=True) == [SetKey("a", "order:1", "undone")]
    assert key_changes(record, "in_doubt") == []
    _, keys = settle_drafts(journal.fold(), "undo/a", "done", b"null", None, "kim", 9)
    assert keys == [SetKey("a", "order:1", "undone")]


KINDS = st.sampled_from(["done", "plain", "no_undo", "refused", "new_generation"])


@given(st.lists(KINDS, max_size=12), st.integers(0, 12))
def test_each_effect_is_undone_once_and_in_reverse(life: list[str], already: int):
    """Whatever a run did, and however far a rollback had got."""
    journal, generation = Journal(), 1
    expected: list[tuple[str, int]] = []
    for number, what in enumerate(life):
        key = f"s{number}"
        if what == "done":
            did(journal, key, number)
            expected.insert(0, (key, generation))
        elif what == "plain":
            journal.done(key, number)
        elif what == "no_undo":
            did(journal, key, number, undo=False)
        elif what == "refused":
            intent(journal, key, number)
            journal.step(Kind.STEP_FAILED, key, number, final=True, error=ERROR)
        else:
            generation += 1
            past = list(journal.fold().records)
            journal.run(Kind.RUN_FAILED, steps=[], error=ERROR)
            journal.run(Kind.RUN_RESUMED, generation=generation, superseded=past)
            journal.run(Kind.RUN_CLAIMED, why="free")
    effects = effects_to_undo(journal.fold())
    order = [it.undo_step for it in effects if it.fate is Fate.UNDO]
    assert [(it.record.key, it.record.generation) for it in effects if it.fate is Fate.UNDO] == (
        expected
    )
    assert len(set(order)) == len(order)
    ask(journal, stays=list(left_as_they_are(effects)))
    for undo in order[:already]:
        did(journal, undo, None)
    calls, _ = to_be_undone(journal.fold(), has_undo)
    assert [call.undo_step for call in calls] == order[already:]
    assert not any(is_undo(call.record.key) for call in calls)
