"""One cause may hold many runs: it is told once, with one command that helps all of them."""

from __future__ import annotations

import pytest

from holdfast._engine.journal.rows import Account
from holdfast._operator.act import cancellation
from holdfast._operator.explain.causes import causes, held_in
from holdfast._operator.explain.status_report import explain
from holdfast._operator.read import run_views
from holdfast._stores.contract import Store
from tests.ops.journals import Journal

CHILDREN = [f"r::write#{number}" for number in range(1, 13)]


def parent(store: Store, children: list[str]) -> None:
    """A run that waits for several children."""
    journal = Journal(store, "r", flow="report")
    for number, run_id in enumerate(children):
        journal.child_called(f"write#{number}", run_id)


def child(store: Store, run_id: str, above: str = "r") -> Journal:
    return Journal(store, run_id, flow="write", parent=above).step("draft")


def diverged(store: Store, run_id: str) -> None:
    actions = (f"holdfast resume {run_id} --accept-change",)
    child(store, run_id).held("diverged", f"{run_id} calls other steps", "mail", actions=actions)


def quarantined(store: Store, run_id: str) -> None:
    child(store, run_id).held("quarantined", "taken up five times", "mail")


def for_its_budget(store: Store, run_id: str) -> None:
    store.put_account(Account("r", store.now_us(), usd_nanos=10**9, spent_usd_nanos=3 * 10**9))
    actions = (f"holdfast set-budget {run_id} --usd 2.00",)
    detail = "mail was not executed: $1.00 of $1.00 is spent; the budget is that of run 'r'"
    child(store, run_id).held("budget", detail, "mail", actions=actions)


def on_a_key(store: Store, run_id: str) -> None:
    if run_id == CHILDREN[0]:
        child(store, run_id).held_in_doubt("mail", business_key="order-1")
        return
    detail = f"mail uses the key 'order-1', which is in doubt in run {CHILDREN[0]!r}"
    child(store, run_id).held("in_doubt", detail, "mail", waiting_on="key:mail:order-1")


ONCE = {
    diverged: (
        "the code of flow write no longer fits",
        [
            "holdfast resume --diverged --flow write",
            "holdfast resume --diverged --flow write --accept-change",
        ],
    ),
    quarantined: (
        "each process that took a run of flow write died",
        ["holdfast resume --quarantined --flow write"],
    ),
    for_its_budget: ("$3.00 of $1.00 is spent", ["holdfast set-budget r --usd 4.00"]),
    on_a_key: (
        f"mail of run {CHILDREN[0]} may or may not have happened",
        [
            f"holdfast settle '{CHILDREN[0]}' mail --done JSON",
            f"holdfast settle '{CHILDREN[0]}' mail --not-done",
            f"holdfast settle '{CHILDREN[0]}' mail --fail REASON",
        ],
    ),
}
LIST = "holdfast runs --parent r --status held"


@pytest.mark.parametrize("held", ONCE, ids=lambda held: held.__name__)
def test_what_holds_twelve_children_is_told_once(store: Store, held):
    parent(store, CHILDREN)
    for run_id in CHILDREN:
        held(store, run_id)
    what, commands = ONCE[held]
    said = explain(store, "r")
    assert said.case == "Run r of flow report waits for 12 children."
    facts = "\n".join(said.known)
    assert facts.count(what) == 1, facts
    assert "12 runs that it started are held" in facts
    assert "It waits for 12 children" in facts
    assert ": 12 held." in facts
    told = [action.command for action in said.actions]
    assert [it for it in told if it != LIST and " show " not in it] == commands
    assert told.count(LIST) == 1
    (cause,) = causes(store, held_in(store))
    assert (cause.total, len(cause.runs)) == (12, 3)
    assert [action.command for action in cause.actions] == commands
    view = run_views.view(store, "r")
    assert sum(view.children_by_status.values()) == len(view.children) == 12
    assert list(view.children_by_status.values()) == [12]


def test_who_paused_them_is_told_once_and_each_is_resumed_by_itself(store: Store):
    parent(store, CHILDREN[:3])
    for run_id in CHILDREN[:3]:
        child(store, run_id).released()
        cancellation.pause(store, run_id, actor="kim", reason="a test")
    said = explain(store, "r")
    assert sum("paused by kim: a test" in fact for fact in said.known) == 1
    (cause,) = causes(store, held_in(store))
    assert cause.total == 3
    assert not cause.frees_all


def test_doubts_of_their_own_are_told_one_by_one_up_to_a_limit(store: Store):
    parent(store, CHILDREN)
    for number, run_id in enumerate(CHILDREN):
        child(store, run_id).held_in_doubt("mail", args={"number": number})
    said = explain(store, "r")
    assert sum("is held (in_doubt)" in fact for fact in said.known) == 5
    assert "7 more runs that it started are held." in said.known
    assert LIST in [action.command for action in said.actions]


def test_a_cause_below_a_child_that_waits_is_found(store: Store):
    parent(store, ["r::write"])
    below = Journal(store, "r::write", flow="write", parent="r")
    below.child_called("pay", "r::write::pay")
    child(store, "r::write::pay", "r::write").held_in_doubt("charge")
    said = explain(store, "r")
    assert "holdfast settle r::write::pay charge --not-done" in {it.command for it in said.actions}


def test_a_budget_whose_root_has_ended_is_raised_by_the_run_that_is_held(store: Store):
    Journal(store, "r", flow="report").completed()
    store.put_account(Account("r", store.now_us(), usd_nanos=10**9, spent_usd_nanos=10**9))
    for_its_budget(store, "r::write")
    commands = [it.command for it in explain(store, "r::write").actions]
    assert "holdfast set-budget r::write --usd 2.00" in commands


def test_children_are_the_newest_and_all_are_counted(store: Store):
    Journal(store, "r", flow="report")
    for number in range(103):
        child(store, f"r::write#{number}").completed()
    view = run_views.view(store, "r")
    assert [view.children[0].run_id, view.children[-1].run_id] == ["r::write#3", "r::write#102"]
    assert view.children_by_status == {"completed": 103}
