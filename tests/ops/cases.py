"""Runs in every state that `explain` speaks of, written straight through the store contract.

Each case is named like its text in `explained/`. More of them: what runs wait for in
`cases_waiting.py`, what the watchdog finds in `cases_found.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Account, Lease, Write
from holdfast._operator.act import cancellation, run_decisions, run_rollback
from holdfast.types import Failed
from tests.model.memory_store import MemoryStore
from tests.ops.journals import Journal

CASES: dict[str, Callable[[MemoryStore], object]] = {}


def case(build: Callable[[MemoryStore], object]) -> Callable[[MemoryStore], object]:
    CASES[build.__name__] = build
    return build


@case
def queued(store: MemoryStore):
    Journal(store, "r").step("search").released()


@case
def running(store: MemoryStore):
    Journal(store, "r").step("search").failing("think", 2, final=False)


@case
def running_owner_died(store: MemoryStore):
    journal = Journal(store, "r").step("search").intent("mail", {"to": "kim"}, on_doubt="function")
    store.world.kill(journal.owner)


@case
def running_owner_died_after_it_was_submitted(store: MemoryStore):
    store.world.kill(Journal(store, "r", submitted=True).step("search").owner)


@case
def queued_since_its_worker_gave_it_back(store: MemoryStore):
    Journal(store, "r", submitted=True).step("search").released()


@case
def queued_since_newer_code_does_not_fit(store: MemoryStore):
    detail = "at think: the journal has search at call 0, the flow now calls think."
    Journal(store, "r").step("search").effect("mail").unfit("2/0a1b", detail, "think")


@case
def queued_since_newer_code_leaves_out_an_effect(store: MemoryStore):
    detail = "the flow ended without calling what the journal has: mail."
    Journal(store, "r").step("search").effect("mail").unfit(
        "2/0a1b", detail, "mail", actions=("holdfast resume r --accept-change --confirm",)
    )


@case
def running_lease_expired(store: MemoryStore):
    Journal(store, "r").step("search").intent("mail", {"to": "kim"})
    store.world.clock.advance(95)  # type: ignore[attr-defined]


@case
def waiting_on_a_key(store: MemoryStore):
    Journal(store, "first").intent("charge", business_key="order:1")
    journal = Journal(store, "r").step("search")
    journal.write(journal.draft(Kind.RUN_WAITING), waiting_on="key:charge:order:1")


@case
def held_in_doubt(store: MemoryStore):
    Journal(store, "r", input={"order": "42"}).step("quote").held_in_doubt(
        "charge", args={"order": "42", "amount": 10}
    )


@case
def held_in_doubt_after_a_timeout(store: MemoryStore):
    journal = Journal(store, "r").intent("charge", {"order": "42"}, on_doubt="retry", attempt=3)
    error = {"type": "TimeoutError", "message": "no answer within 5 s"}
    journal.doubt("charge", "timeout", ended=False, error=error)
    journal.held(
        "in_doubt",
        "charge may or may not have happened: it ran out of time, and the request may still have "
        "been carried out; on_doubt='retry', but all attempts are used",
        "charge",
    )


@case
def held_in_doubt_value_lost(store: MemoryStore):
    journal = Journal(store, "r").intent("charge", {"order": "42"})
    error = {"type": "NotSerializable", "message": "result.client: a Client cannot be stored"}
    journal.doubt("charge", "value_lost", error=error).held("in_doubt", "", "charge")


@case
def held_in_doubt_after_an_error(store: MemoryStore):
    error = {"type": "ConnectionResetError", "message": "the other side hung up"}
    journal = Journal(store, "r").intent("charge", {"order": "42"})
    journal.doubt("charge", "error", error=error).held("in_doubt", "", "charge")


@case
def held_in_doubt_after_an_interrupt(store: MemoryStore):
    journal = Journal(store, "r").intent("charge", {"order": "42"})
    journal.doubt("charge", "interrupted").held("in_doubt", "", "charge")


@case
def held_in_doubt_in_an_adopted_store(store: MemoryStore):
    journal = Journal(store, "r").step("quote")
    journal.write(journal.first_doubt("charge", why="data_loss", ended=True))
    journal.held("in_doubt", "", "charge")


@case
def held_in_doubt_it_may_repeat_another(store: MemoryStore):
    journal = Journal(store, "r").effect("charge:call_1", "paid")
    other = {"why": "repeated", "ended": True, "other": "charge:call_1"}
    journal.write(journal.first_doubt("charge:call_2", **other))
    journal.held("in_doubt", "", "charge:call_2")


@case
def held_in_doubt_its_key_expired(store: MemoryStore):
    journal = Journal(store, "r").intent("charge", {"order": "42"}, on_doubt="retry")
    store.world.clock.advance(24 * 3600)  # type: ignore[attr-defined]
    journal.doubt("charge", "key_expired")
    detail = (
        "charge may or may not have happened: its key is older than key_ttl=, and is not shown to "
        "the other side again; give it up (--fail) and run it again: under a new key"
    )
    journal.held("in_doubt", detail, "charge")


@case
def held_in_doubt_its_function_does_not_know(store: MemoryStore):
    journal = Journal(store, "r").intent("charge", {"order": "42"}, on_doubt="function")
    detail = (
        "charge may or may not have happened: its process died after it was started and before its "
        "outcome was recorded; on_doubt answered UNKNOWN"
    )
    journal.doubt("charge").held("in_doubt", detail, "charge")


@case
def held_two_doubts(store: MemoryStore):
    journal = Journal(store, "r").intent("gather[0]/charge").intent("gather[1]/charge")
    journal.doubt("gather[0]/charge").doubt("gather[1]/charge")
    journal.held("in_doubt", "…", "gather[0]/charge")


@case
def held_on_the_key_of_another(store: MemoryStore):
    first = Journal(store, "first").held_in_doubt("charge", args={"n": 1}, business_key="order:1")
    Journal(store, "r").step("search").held_on_key("charge", first, "order:1")


@case
def held_on_a_key_that_was_given_up(store: MemoryStore):
    first = Journal(store, "first").held_in_doubt("charge", business_key="order:1")
    Journal(store, "r").held_on_key("charge", first, "order:1")
    run_decisions.settle(store, "first", "charge", Failed("nobody knows"), actor="kim")


@case
def held_diverged(store: MemoryStore):
    detail = "at think: the journal has search at call 0, the flow now calls think."
    Journal(store, "r").step("search").effect("mail").held("diverged", detail, "think")


@case
def held_diverged_leaving_out_an_effect(store: MemoryStore):
    detail = "the flow ended without calling what the journal has: mail."
    journal = Journal(store, "r").step("search").effect("mail")
    journal.held(
        "diverged", detail, "mail", actions=("holdfast resume r --accept-change --confirm",)
    )


@case
def held_for_drift(store: MemoryStore):
    actions = ("holdfast resume r --keep", "holdfast resume r --redo --confirm")
    Journal(store, "r").step("search").effect("mail").held(
        "drift",
        "the fact prices was 1f, and is 2e now. Behind it, mail has happened, or may have",
        "watch:prices",
        actions=actions,
    )


@case
def held_for_drift_in_a_block(store: MemoryStore):
    actions = ("holdfast resume r --keep",)
    journal = Journal(store, "r", flow="block", block=True).step("search")
    journal.held("drift", "the fact prices was 1f, and is 2e now", "watch:prices", actions=actions)


@case
def held_quarantined(store: MemoryStore):
    Journal(store, "r").step("search").intent("charge").held("quarantined")


@case
def held_corrupt(store: MemoryStore):
    Journal(store, "r").step("search").held("corrupt", "entry 4 is damaged")


@case
def held_paused(store: MemoryStore):
    Journal(store, "r").step("search").held("paused")


@case
def held_because_it_was_moved(store: MemoryStore):
    gone = {"url": "postgresql://db/runs", "namespace": "default", "actor": "kim"}
    journal = Journal(store, "r").step("search")
    draft = journal.draft(Kind.RUN_HELD, reason="moved", detail="moved", moved_to=gone)
    journal.write(draft, held_reason="moved")


@case
def held_for_its_budget(store: MemoryStore):
    limits = {"usd_nanos": 10**9, "wall_us": 3_600_000_000}
    spent = {"spent_usd_nanos": 900_000_000, "spent_tokens": 1200, "spent_steps": 3}
    store.put_account(Account("r", store.now_us(), **limits, **spent))
    detail = "think#4 was not executed: $0.90 of $1.00 is spent, and it may cost $0.30"
    action = "holdfast set-budget r --usd 2.00"
    Journal(store, "r").step("search").held("budget", detail, "think#4", actions=(action,))


@case
def failed(store: MemoryStore):
    Journal(store, "r").step("search").failing("think", 3).step("apologise").failed(
        "think", error=("StepFailed", "think gave up after 3 attempts")
    )


@case
def failed_in_the_flow_itself(store: MemoryStore):
    Journal(store, "r").step("search").failed(error=("KeyError", "'title'"))


@case
def failed_beside_a_step_that_was_cancelled(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.write(journal._call(journal.draft(Kind.STEP_CANCELLED, "http:GET", 1)))
    journal.failed(error=("TimeoutError", ""))


@case
def failed_with_an_unknown_outcome(store: MemoryStore):
    journal = Journal(store, "r").step("search").intent("charge", {"n": 1}, on_doubt="fail")
    journal.doubt("charge", "timeout").failing("charge", unknown=True).failed("charge")


@case
def completed(store: MemoryStore):
    Journal(store, "r").step("search").effect("mail").completed({"ok": True})


@case
def completed_degraded(store: MemoryStore):
    degraded = {"type": "TimeoutError", "message": "no answer"}
    Journal(store, "r").step("search", degraded=degraded).completed()


@case
def cancelled(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.write(journal.draft(Kind.RUN_CANCELLED, actor="kim"))


@case
def held_and_to_be_cancelled(store: MemoryStore):
    Journal(store, "r").held_in_doubt("charge", args={"order": "42"})
    cancellation.cancel(store, "r", actor="kim", reason="the customer left")


@case
def held_paused_by_somebody(store: MemoryStore):
    Journal(store, "r").step("search").released()
    cancellation.pause(store, "r", actor="kim", reason="the model is being changed")


@case
def running_with_a_deadline(store: MemoryStore):
    journal = Journal(store, "r", until_us=store.now_us() + 3_600_000_000)
    journal.step("search")


@case
def waiting_for_a_child(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.child_called("write", "r::write")
    Journal(store, "r::write", flow="write", parent="r").step("draft")


@case
def waiting_for_a_child_that_is_held(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.child_called("write", "r::write")
    Journal(store, "r::write", flow="write", parent="r").held_in_doubt("mail", args={"to": "kim"})


@case
def queued_child(store: MemoryStore):
    Journal(store, "parent").child_called("pay", "r")
    Journal(store, "r", parent="parent").step("search").released()


def _to_be_rolled_back(store: MemoryStore) -> Journal:
    journal = Journal(store, "r").effect("book", undo=True).effect("mail")
    journal.effect("charge", undo=True).completed("done")
    run_rollback.rollback(store, "r", actor="kim", reason="wrong order", confirm=True)
    return journal


@case
def queued_to_be_rolled_back(store: MemoryStore):
    _to_be_rolled_back(store)


@case
def held_in_doubt_in_a_rollback(store: MemoryStore):
    Journal(store, "r").effect("book", undo=True).held_in_doubt("charge", undo=True)
    run_rollback.rollback(store, "r", actor="kim")
    held = Draft(Kind.RUN_HELD, store.now_us(), body=b'{"reason":"in_doubt","step":"charge"}')
    row = store.get("r")
    assert row is not None
    store.append([Write(Lease(row, acting=True), [held], row={"held_reason": "in_doubt"})])


@case
def rolled_back(store: MemoryStore):
    _to_be_rolled_back(store)
    row = store.get("r")
    assert row is not None
    lease = store.claim("r", store.register_owner(), store.now_us())
    assert isinstance(lease, Lease)
    facts = {"actor": "kim", "reason": "wrong order", "undone": ["undo/charge", "undo/book"]}
    body = msgspec.json.encode({**facts, "stays": ["mail"]})
    store.append([Write(lease, [Draft(Kind.RUN_ROLLED_BACK, store.now_us(), body=body)])])


@case
def store_that_lost_commits(store: MemoryStore):
    Journal(store, "r").step("search").released()
    store.world.lost = "the witness has seen commit 7, the database ends at commit 5"


@case
def damaged(store: MemoryStore):
    Journal(store, "r").step("search").released()
    del store.world.journals[1][1]
