"""What people decide: what is written, what is refused, and what they are told."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import NOT_DONE, Done
from holdfast._engine.journal.history import History, State
from holdfast._engine.journal.lifecycle import status_of
from holdfast._engine.journal.rows import Lease, RunRow
from holdfast._operator.act import run_decisions
from holdfast._operator.read import run_views
from holdfast._operator.read.step_views import ErrorView, error_of
from holdfast._stores.contract import Store
from holdfast.errors import (
    NotSerializable,
    RunCancelled,
    RunEnded,
    RunHeld,
    RunNotFound,
    StaleView,
    UsageError,
)
from holdfast.types import Failed
from tests.ops.journals import Journal


def row(store: Store, run_id: str) -> RunRow:
    found = store.get(run_id)
    assert found is not None
    return found


def kinds(store: Store, run_id: str, last: int) -> list[str]:
    return [entry.kind for entry in run_views.history(store, run_id)][-last:]


def past(store: Store, run_id: str) -> History:
    return run_views.fold(store, row(store, run_id))


@pytest.fixture(autouse=True)
def rows_and_journals_agree(store: Store):
    yield
    from holdfast._stores.contract import Query

    for found in store.list(Query()):
        entries = store.load(found)
        assert status_of(part.kind for e in entries for part in e.expand()) == found.status
    assert store.verify() == []


# -- settle ------------------------------------------------------------------------------------


def test_done_is_recorded_with_its_actor_and_frees_the_run(store: Store):
    Journal(store, "r").held_in_doubt("charge")
    answer = run_decisions.settle(store, "r", "charge", Done({"id": 7}), actor="kim")
    assert answer.recorded
    assert answer.goes_on
    assert row(store, "r").status == "queued"
    assert row(store, "r").owner is None
    assert kinds(store, "r", 2) == ["step_settled", "run_released"]
    settled, released = run_views.history(store, "r")[-2:]
    assert settled.body == {
        "outcome": "done",
        "result": {"id": 7},
        "source": "actor",
        "actor": "kim",
    }
    assert released.body == {"why": "settled", "actor": "kim"}
    assert past(store, "r").records["charge"].state is State.COMPLETED


def test_not_done_lets_it_be_executed(store: Store):
    Journal(store, "r").held_in_doubt("charge")
    run_decisions.settle(store, "r", "charge", NOT_DONE, actor="kim")
    assert past(store, "r").records["charge"].state is State.NOT_DONE
    assert row(store, "r").status == "queued"


def test_fail_gives_it_up_with_the_reason(store: Store):
    Journal(store, "r").held_in_doubt("charge")
    run_decisions.settle(store, "r", "charge", Failed("card is closed"), actor="kim")
    record = past(store, "r").records["charge"]
    assert record.state is State.FAILED
    assert error_of(record) == ErrorView("Settled", "card is closed")


def test_a_large_result_is_stored_apart_and_found_again(store: Store):
    Journal(store, "r").held_in_doubt("charge")
    large = {"text": "x" * 5_000, "more": ["y" * 600] * 20}
    run_decisions.settle(store, "r", "charge", Done(large), actor="kim")
    assert run_views.history(store, "r")[-2].body["result"] == large
    assert row(store, "r").next_chunk > 1


def test_another_doubt_keeps_it_held(store: Store):
    journal = Journal(store, "r").intent("charge").doubt("charge")
    journal.intent("mail").doubt("mail").held("in_doubt", "two", "charge")
    answer = run_decisions.settle(store, "r", "charge", NOT_DONE, actor="kim")
    assert answer.status == "held"
    assert not answer.goes_on
    assert run_decisions.settle(store, "r", "mail", NOT_DONE, actor="kim").status == "queued"


def test_a_run_that_is_held_for_another_reason_stays_held(store: Store):
    Journal(store, "r").intent("charge").doubt("charge").held("diverged")
    assert run_decisions.settle(store, "r", "charge", NOT_DONE, actor="kim").status == "held"
    assert row(store, "r").held_reason == "diverged"


def test_what_cannot_be_settled_says_what_it_is(store: Store):
    Journal(store, "r").step("search").held_in_doubt("charge")
    with pytest.raises(RunNotFound):
        run_decisions.settle(store, "nope", "charge", NOT_DONE, actor="kim")
    with pytest.raises(UsageError, match="no step 'chrge'; in doubt: charge"):
        run_decisions.settle(store, "r", "chrge", NOT_DONE, actor="kim")
    with pytest.raises(
        UsageError, match="search .* is completed, and not in doubt; in doubt: charge"
    ):
        run_decisions.settle(store, "r", "search", NOT_DONE, actor="kim")
    with pytest.raises(UsageError, match="Done"):
        run_decisions.settle(store, "r", "charge", "done", actor="kim")  # type: ignore[arg-type]
    with pytest.raises(NotSerializable):
        run_decisions.settle(store, "r", "charge", Done(object()), actor="kim")
    with pytest.raises(UsageError, match="actor"):
        run_decisions.settle(store, "r", "charge", NOT_DONE, actor=" ")
    assert row(store, "r").status == "held"


@pytest.mark.parametrize(
    ("first", "said"),
    [
        (Done(1), "was settled as done by kim already"),
        (NOT_DONE, "was settled as not done already"),
        (Failed("no"), "was settled as failed by kim already"),
    ],
)
def test_settling_twice_is_refused(store: Store, first: run_decisions.Decision, said: str):
    Journal(store, "r").held_in_doubt("charge")
    run_decisions.settle(store, "r", "charge", first, actor="kim")
    with pytest.raises(UsageError, match=said):
        run_decisions.settle(store, "r", "charge", Done(2), actor="lee")


def test_a_completed_run_is_final(store: Store):
    Journal(store, "r").intent("charge").doubt("charge").completed()
    with pytest.raises(RunEnded, match="final"):
        run_decisions.settle(store, "r", "charge", NOT_DONE, actor="kim")


# -- who owns it -------------------------------------------------------------------------------


def test_a_live_owner_gets_a_message(store: Store):
    journal = Journal(store, "r").intent("charge").doubt("charge").intent("mail")
    before = row(store, "r")
    answer = run_decisions.settle(store, "r", "charge", Done({"id": 1}), actor="kim")
    assert not answer.recorded
    assert row(store, "r") == before
    [message] = store.inbox(journal.lease.row.run_no)
    assert (message.kind, message.actor) == ("settle", "kim")
    body = msgspec.json.decode(message.body)
    assert (body["step"], body["outcome"], body["result"]) == (
        "charge",
        "done",
        {"plain": {"id": 1}},
    )
    again = run_decisions.settle(store, "r", "charge", NOT_DONE, actor="lee")
    assert "already" in again.did
    assert len(store.inbox(journal.lease.row.run_no)) == 1


def test_what_a_live_owner_is_executing_is_not_in_doubt(store: Store):
    Journal(store, "r").intent("charge")
    with pytest.raises(UsageError, match="being executed"):
        run_decisions.settle(store, "r", "charge", NOT_DONE, actor="kim")


def test_what_a_dead_owner_was_executing_can_be_settled(sqlite, in_a_process_that_dies):
    in_a_process_that_dies("Journal(store, 'r').step('search').intent('charge')")
    answer = run_decisions.settle(sqlite, "r", "charge", Done(1), actor="kim")
    assert answer.recorded
    assert answer.goes_on
    assert row(sqlite, "r").owner is None
    assert past(sqlite, "r").records["charge"].state is State.COMPLETED


def test_what_else_a_dead_owner_left_open_is_known_to_have_ended(sqlite, in_a_process_that_dies):
    in_a_process_that_dies(
        "Journal(store, 'r').intent('charge', business_key='order:1')"
        ".intent('mail', business_key='mail:1')"
    )
    run_decisions.settle(sqlite, "r", "charge", Done(1), actor="kim")
    mail = past(sqlite, "r").records["mail"]
    assert mail.state is State.IN_DOUBT
    assert mail.ended
    keys = [sqlite.key("charge", "order:1"), sqlite.key("mail", "mail:1")]
    assert [key.state for key in keys] == ["completed", "in_doubt"]
    entry = sqlite.entry(keys[0].run_no, keys[0].result_seq)
    assert bytes(entry.data()["result"]) == b"1"
    assert sqlite.verify() == []


def test_a_run_that_changes_all_the_time_asks_to_look_again(store: Store, monkeypatch):
    Journal(store, "r").held_in_doubt("charge")
    append = store.append

    def somebody_was_faster(writes):
        actions_row = row(store, "r")
        from holdfast._engine.journal.rows import Write

        append([Write(Lease(actions_row, acting=True), [])])
        return append(writes)

    monkeypatch.setattr(store, "append", somebody_was_faster)
    with pytest.raises(StaleView):
        run_decisions.settle(store, "r", "charge", NOT_DONE, actor="kim")


# -- business keys -----------------------------------------------------------------------------


@pytest.fixture
def two(store: Store) -> tuple[Journal, Journal]:
    first = Journal(store, "first").held_in_doubt("charge", business_key="order:1")
    second = Journal(store, "second").step("search").held_on_key("charge", first, "order:1")
    return first, second


@pytest.mark.parametrize("at", ["first", "second"])
@pytest.mark.parametrize(("decision", "state"), [(Done(5), "completed"), (NOT_DONE, "not_done")])
def test_settling_one_frees_both(store: Store, two, at, decision, state):
    answer = run_decisions.settle(store, at, "charge", decision, actor="kim")
    assert answer.run_id == "first"
    assert answer.freed == ("second",)
    assert row(store, "first").status == row(store, "second").status == "queued"
    assert row(store, "second").waiting_on is None
    key = store.key("charge", "order:1")
    assert key is not None
    assert key.state == state
    if state == "completed":
        assert key.result_seq is not None
        entry = store.entry(key.run_no, key.result_seq)
        assert entry is not None
        assert bytes(entry.data()["result"]) == b"5"


def test_a_key_that_was_given_up_stays_in_doubt_until_it_is_known(store: Store, two):
    run_decisions.settle(store, "first", "charge", Failed("nobody knows"), actor="kim")
    key = store.key("charge", "order:1")
    assert key is not None
    assert key.state == "in_doubt"
    assert row(store, "second").status == "held"
    with pytest.raises(UsageError, match="gave charge up"):
        run_decisions.settle(store, "second", "charge", Done(1), actor="lee")
    answer = run_decisions.settle(store, "second", "charge", NOT_DONE, actor="lee")
    assert answer.run_id == "second"
    assert row(store, "second").status == "queued"
    after = store.key("charge", "order:1")
    assert after is not None
    assert after.state == "not_done"
    assert run_views.history(store, "second")[-1].body["actor"] == "lee"


def test_a_run_with_a_doubt_of_its_own_is_not_freed_by_the_key(store: Store):
    first = Journal(store, "first").held_in_doubt("charge", business_key="order:1")
    second = Journal(store, "second").intent("mail").doubt("mail")
    second.held_on_key("charge", first, "order:1")
    assert run_decisions.settle(store, "first", "charge", Done(5), actor="kim").freed == ()
    assert row(store, "second").status == "held"


# -- resume ------------------------------------------------------------------------------------


def test_a_failed_run_opens_its_next_generation(store: Store):
    Journal(store, "r").step("search").failing("think", 3).step("sorry").failed("think")
    answer = run_decisions.resume(store, "r", actor="kim")
    assert answer.goes_on
    assert (row(store, "r").status, row(store, "r").generation) == ("queued", 2)
    last = run_views.history(store, "r")[-1]
    assert last.kind == "run_resumed"
    assert last.body == {
        "generation": 2,
        "superseded": ["think", "sorry"],
        "actor": "kim",
        "confirmed": False,
    }
    assert list(past(store, "r").records) == ["search"]


def unknown_outcome(store: Store, how: str) -> None:
    journal = Journal(store, "r").step("search").intent("charge", on_doubt="fail").doubt("charge")
    if how == "policy":
        journal.failing("charge", unknown=True, error={"type": "TimeoutError", "message": "late"})
        journal.failed("charge")
    else:
        journal.held("in_doubt", "…", "charge")
        run_decisions.settle(store, "r", "charge", Failed("given up"), actor="kim")
        lease = store.claim("r", journal.owner, store.now_us())
        assert isinstance(lease, Lease)
        journal.lease = lease
        journal.failed("charge")


@pytest.mark.parametrize("how", ["policy", "person"])
def test_an_effect_of_unknown_outcome_needs_a_confirmation(store: Store, how):
    unknown_outcome(store, how)
    before = row(store, "r")
    with pytest.raises(RunHeld, match="charge once more.*\n.*explain.*\n.*--confirm") as held:
        run_decisions.resume(store, "r", actor="kim")
    assert held.value.step == "charge"
    assert str(held.value).startswith("run 'r' failed, and is not taken up again (in_doubt): ")
    assert row(store, "r") == before
    run_decisions.resume(store, "r", actor="kim", confirm=True)
    assert run_views.history(store, "r")[-1].body["confirmed"] is True
    assert "charge" not in past(store, "r").records


def test_a_diverged_run_needs_the_change_accepted(store: Store):
    Journal(store, "r").step("search").effect("mail").held("diverged", "at think: …", "think")
    with pytest.raises(RunHeld, match="--accept-change"):
        run_decisions.resume(store, "r", actor="kim")
    answer = run_decisions.resume(store, "r", actor="kim", accept_change=True)
    assert answer.effects == ("mail",)
    assert kinds(store, "r", 2) == ["change_accepted", "run_released"]
    assert row(store, "r").status == "queued"


def test_a_failed_run_may_accept_a_change_at_once(store: Store):
    Journal(store, "r").step("search").failing("think").failed("think")
    run_decisions.resume(store, "r", actor="kim", accept_change=True)
    assert kinds(store, "r", 2) == ["run_resumed", "change_accepted"]


@pytest.mark.parametrize("reason", ["quarantined", "paused", "corrupt"])
def test_other_held_runs_go_on_in_their_generation(store: Store, reason):
    Journal(store, "r").step("search").held(reason)
    run_decisions.resume(store, "r", actor="kim")
    assert (row(store, "r").status, row(store, "r").generation) == ("queued", 1)
    assert row(store, "r").held_reason is None
    assert list(past(store, "r").records) == ["search"]


def test_a_doubt_is_settled_and_not_resumed(store: Store):
    Journal(store, "r").held_in_doubt("charge")
    with pytest.raises(RunHeld, match="holdfast settle r charge --not-done"):
        run_decisions.resume(store, "r", actor="kim", confirm=True, accept_change=True)


def test_what_goes_on_by_itself_says_so(store: Store):
    journal = Journal(store, "r").step("search")
    assert "running already, at" in run_decisions.resume(store, "r", actor="kim").did
    journal.released()
    answer = run_decisions.resume(store, "r", actor="kim")
    assert not answer.recorded
    assert answer.goes_on
    assert "queued already" in answer.did


def test_what_is_final_is_final(store: Store):
    from holdfast._engine.journal.entries import Kind

    Journal(store, "done").completed(1)
    journal = Journal(store, "gone")
    journal.write(journal.draft(Kind.RUN_CANCELLED, actor="kim"))
    with pytest.raises(RunEnded, match="is completed: that is final"):
        run_decisions.resume(store, "done", actor="kim")
    with pytest.raises(RunCancelled):
        run_decisions.resume(store, "gone", actor="kim")
    with pytest.raises(RunNotFound):
        run_decisions.resume(store, "nope", actor="kim")


@pytest.mark.parametrize("decision", ["redo", "keep"])
def test_a_decision_about_drift_is_refused_where_there_is_none(store, decision):
    Journal(store, "paused").held("paused", "paused by kim")
    Journal(store, "failed").failing("think").failed("think")
    Journal(store, "queued").released()
    told = {
        "paused": "run 'paused' is held as paused (paused by kim)",
        "failed": "run 'failed' is failed, and not held",
        "queued": "run 'queued' is queued, and not held",
    }
    for run_id, said in told.items():
        before = store.get(run_id).last_seq
        with pytest.raises(UsageError) as refused:
            run_decisions.resume(store, run_id, actor="kim", drift=decision)
        assert str(refused.value).startswith("`drift` is for")
        assert said in str(refused.value)
        assert f"holdfast explain {run_id}" in str(refused.value)
        assert store.get(run_id).last_seq == before
