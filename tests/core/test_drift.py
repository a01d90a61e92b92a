"""What is redone when something changed, and how a change is told once. Rules, driven by chance."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from holdfast._engine.decisions.redo import behind, decided_drafts, effects_behind, redo_facts
from holdfast._engine.journal.drift_record import Change
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.step_keys import are_parallel, scope_of
from holdfast._engine.scripts.doubt_policies import may_send
from holdfast._features.drift.comparison import CodeNow, StepNow, code_changes
from holdfast.errors import RunHeld, UsageError
from tests.core.test_history import Journal as Plain

HOUR_US = 3_600_000_000
NAMES = ["search", "think", "mail"]


class Journal(Plain):
    """A journal with effects in it."""

    def intent(self, key: str, position: int) -> Journal:
        facts = {"effect": True, "key": f"k{position}", "on_doubt": "retry"}
        self._add(Kind.STEP_STARTED, key, 1, position, b"args", None, facts)
        return self


def line(names: list[str]) -> tuple[Journal, list[str]]:
    """A flow of these calls, one after another; mail is an effect."""
    journal, keys = Journal(), []
    for position, name in enumerate(names):
        count = names[: position + 1].count(name)
        key = name if count == 1 else f"{name}#{count}"
        keys.append(key)
        if name == "mail":
            journal.intent(key, position).step(Kind.STEP_COMPLETED, key, position, result=1)
        else:
            journal.done(key, position)
    return journal, keys


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8), st.data())
def test_a_redo_is_the_rest_of_the_line(names: list[str], data: st.DataObject):
    journal, keys = line(names)
    at = data.draw(st.integers(0, len(keys) - 1))
    history = journal.fold()
    assert [record.key for record in behind(history, [keys[at]])] == keys[at:]
    assert effects_behind(history, [keys[at]]) == tuple(k for k in keys[at:] if "mail" in k)


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8), st.data())
def test_what_was_redone_is_gone_from_replay_and_kept_in_the_history(
    names: list[str], data: st.DataObject
):
    journal, keys = line(names)
    at = data.draw(st.integers(0, len(keys) - 1))
    journal.run(Kind.DRIFT_FOUND, changes=[], **redo_facts(journal.fold(), [keys[at]]))
    history = journal.fold()
    assert list(history.records) == keys[:at]
    assert [record.key for record in history.superseded] == keys[at:]
    assert history.generation == 2
    assert all(history.match(key, at + n, b"args") is None for n, key in enumerate(keys[at:]))


def branches() -> History:
    journal = Journal().done("load", 0).step(Kind.SCOPE_OPENED, "gather", 1)
    journal.done("gather[0]/a", 0).done("gather[1]/a", 0).done("gather[0]/b", 1)
    return journal.done("gather[1]/b", 1).done("end", 2).fold()


@pytest.mark.parametrize("first", ["gather[0]/a", "gather[1]/a", "gather[0]/b"])
def test_branches_beside_it_are_left_alone(first: str):
    gone = [record.key for record in behind(branches(), [first])]
    assert not any(are_parallel(scope_of(first), scope_of(key)) for key in gone)
    assert gone[0] == first
    assert gone[-1] == "end"
    assert "load" not in gone


def test_calls_made_side_by_side_are_ordered_by_their_places():
    # The first call was slow: it was written last, and belongs before the second all the same.
    history = Journal().done("second", 1).done("first", 0).done("third", 2).fold()
    assert [record.key for record in behind(history, ["second"])] == ["second", "third"]


def held(change: Change, journal: Journal) -> History:
    """A run that is held for a change."""
    journal.run(Kind.DRIFT_FOUND, changes=[msgspec.to_builtins(change)])
    return journal.run(Kind.RUN_HELD, reason="drift", detail="it changed").fold()


def fact(effects: tuple[str, ...] = ()) -> Change:
    return Change("fact", "prices", "a", "b", "hold", ("search",), effects, "hold")


@pytest.mark.parametrize(
    ("names", "decision", "confirm", "refused"),
    [
        (["search", "think"], None, False, RunHeld),
        (["search", "think"], "keep", False, None),
        (["search", "think"], "redo", False, None),
        (["search", "mail"], "keep", False, None),
        (["search", "mail"], "redo", False, RunHeld),
        (["search", "mail"], "redo", True, None),
    ],
)
def test_who_may_free_a_held_run(names: list[str], decision: Any, confirm: bool, refused: Any):
    history = held(fact(), line(names)[0])
    if refused is not None:
        with pytest.raises(refused):
            decided_drafts(history, "ann", 1, decision, confirm=confirm)
        return
    (draft,), changes = decided_drafts(history, "ann", 1, decision, confirm=confirm)
    told = msgspec.json.decode(draft.body)
    assert (told["drift"], told["actor"]) == (decision, "ann")
    assert told["accepted"] == {"fact:search": "b"}
    assert told["superseded"] == ([] if decision == "keep" else line(names)[1])
    assert changes.get("generation", 1) == told["generation"]


def test_a_change_that_no_step_stands_for_cannot_be_redone():
    history = held(Change("flow", "f", "a", "b", "hold", did="hold"), line(["search"])[0])
    with pytest.raises(UsageError, match="--keep"):
        decided_drafts(history, "ann", 1, "redo", confirm=True)


def now(**steps: StepNow) -> CodeNow:
    return CodeNow(steps=steps)


def test_a_change_is_told_until_it_was_gone_on_with():
    journal = Journal().done("think", 0, versions={"model": "m-1"})
    code = now(think=StepNow(versions={"model": "m-2"}))
    (change,) = code_changes(journal.fold(), "f", code, 0)
    assert (change.kind, change.name, change.policy) == ("model", "think", "keep")
    told = msgspec.to_builtins(msgspec.structs.replace(change, did="keep"))
    journal.run(Kind.DRIFT_FOUND, changes=[told])
    assert code_changes(journal.fold(), "f", code, 0) == []
    (again,) = code_changes(journal.fold(), "f", now(think=StepNow(versions={"model": "m-3"})), 0)
    assert again.now == "m-3"


def test_only_what_is_known_on_both_sides_is_compared():
    journal = Journal().done("think", 0).done("search", 1, code="3.11:aa", versions={"model": "m"})
    assert code_changes(journal.fold(), "f", now(), 0) == []
    assert code_changes(journal.fold(), "f", now(think=StepNow("3.11:bb", {"model": "m"})), 0) == []
    assert (
        code_changes(journal.fold(), "f", now(search=StepNow("3.12:bb", {"other": "x"})), 0) == []
    )
    (change,) = code_changes(journal.fold(), "f", now(search=StepNow("3.11:bb")), 0)
    assert (change.kind, change.steps) == ("step", ("search",))


@given(st.integers(0, 48 * 60))
def test_a_result_expires_when_it_is_older_than_it_is_good_for(minutes: int):
    journal = Journal().done("search", 0).done("think", 1)
    history = journal.fold()
    ended_us = history.records["search"].ended_us
    assert ended_us is not None
    code = now(search=StepNow(valid_for_us=6 * HOUR_US))
    changes = code_changes(history, "f", code, ended_us + minutes * 60_000_000)
    assert bool(changes) == (minutes > 6 * 60)
    assert all(change.policy == "hold" for change in changes), "think was made of it"


@given(st.floats(0, 48))
def test_a_key_is_told_as_expired_exactly_when_it_is_not_sent(hours: float):
    history = Journal().intent("pay", 0).fold()
    age_us = int(hours * HOUR_US)
    at_us = history.records["pay"].first_started_us + age_us
    kinds = [change.kind for change in code_changes(history, "f", now(), at_us)]
    assert kinds == ([] if may_send(0, age_us, 24 * 3600) else ["key"])
