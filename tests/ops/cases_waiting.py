"""Runs that wait, one or more for each kind of waiting."""

from __future__ import annotations

import msgspec

from holdfast._engine.journal.entries import Kind
from holdfast._operator.act import cancellation, message_actions
from holdfast._stores.contract import Limits
from tests.model.memory_store import MemoryStore
from tests.ops.cases import case
from tests.ops.journals import Journal

HOUR_S = 3600


def _worker(store: MemoryStore, **facts: object) -> None:
    told = {"worker": "w", "pid": 1, "host": "h", "queues": None, "flows": {"pay": ["1"]}}
    told |= {"concurrency": 1, "working": 0, "saturation": 0.0, "draining": False, **facts}
    store.pulse(store.register_owner(), msgspec.json.encode(told).decode(), [])


@case
def waiting_for_a_time(store: MemoryStore):
    until_us = store.now_us() + HOUR_S * 1_000_000
    Journal(store, "r").step("search").sleeps("sleep", HOUR_S).unloaded("timer", until_us)


@case
def waiting_for_a_time_in_a_process(store: MemoryStore):
    journal = Journal(store, "r").step("search").sleeps("sleep", HOUR_S)
    journal.write(journal.draft(Kind.RUN_WAITING), waiting_on="timer")


@case
def waiting_for_the_next_attempt(store: MemoryStore):
    journal = Journal(store, "r").step("search").failing("think", 2, final=False)
    journal.unloaded("timer", store.now_us() + 5_000_000)


@case
def waiting_for_a_signal(store: MemoryStore):
    Journal(store, "r").step("search").waits("wait", "paid").unloaded("signal:paid")
    _worker(store)


@case
def waiting_for_a_signal_until_a_time(store: MemoryStore):
    journal = Journal(store, "r").step("search").waits("wait", "paid", HOUR_S)
    journal.unloaded("signal:paid", store.now_us() + HOUR_S * 1_000_000)


@case
def waiting_for_an_answer(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks("ask", "amount", "How much may it cost?", to="kim", schema={"type": "integer"})
    journal.unloaded("answer:amount")
    _worker(store)


@case
def waiting_for_a_choice_until_a_time(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks("ask", "go", "Shall it be sent?", choices=["yes", "no"], seconds=HOUR_S)
    journal.unloaded("answer:go", store.now_us() + HOUR_S * 1_000_000)
    _worker(store)


@case
def running_while_one_line_asks(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks("gather[0]/ask", "go", "Shall it be sent?", choices=["yes", "no"])
    journal.step("gather[1]/think")


@case
def waiting_for_an_approval(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks_approval("charge", {"order": "42", "amount": 10}, "kim", HOUR_S * 1_000_000)
    journal.unloaded("answer:approve:charge")
    _worker(store)


@case
def waiting_for_an_approval_that_was_given(store: MemoryStore):
    waiting_for_an_approval(store)
    message_actions.approve(store, "r", "charge", actor="kim")


@case
def waiting_for_an_approval_that_was_refused(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks_approval("charge", {"order": "42", "amount": 10})
    journal.unloaded("answer:approve:charge")
    message_actions.reject(store, "r", "charge", actor="kim", reason="too much")


@case
def held_in_doubt_after_its_approval_was_used(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks_approval("charge", {"order": "42", "amount": 10})
    grant = {"id": "answer:approve:charge:1", "actor": "kim", "sent_us": store.now_us()}
    draft = journal.draft(
        Kind.STEP_STARTED, "charge", 1, effect=True, key="k", on_doubt="hold", approved=grant
    )
    journal.write(draft, closes=["approve:charge"]).doubt("charge", "error")
    journal.held("in_doubt", "charge may or may not have happened", "charge")


@case
def queued_since_its_process_ended_before_an_approval(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks_approval("charge", {"order": "42", "amount": 10})
    journal.released("closed")


@case
def queued_since_its_process_ended_and_with_an_approval(store: MemoryStore):
    queued_since_its_process_ended_before_an_approval(store)
    message_actions.approve(store, "r", "charge", actor="kim")


@case
def running_owner_died_while_one_line_asks(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks("gather[0]/ask", "go", "Shall it be sent?", choices=["yes", "no"])
    store.world.kill(journal.step("gather[1]/think").owner)


@case
def waiting_for_an_answer_that_was_given(store: MemoryStore):
    waiting_for_an_answer(store)
    message_actions.answer(store, "r", "amount", 5, actor="kim")


@case
def waiting_for_a_signal_that_came(store: MemoryStore):
    waiting_for_a_signal(store)
    message_actions.signal(store, "r", "paid", 5, signal_id="1", actor="kim")


@case
def waiting_for_a_signal_until_a_time_that_came(store: MemoryStore):
    waiting_for_a_signal_until_a_time(store)
    message_actions.signal(store, "r", "paid", 5, signal_id="1", actor="kim")


@case
def waiting_until_its_deadline(store: MemoryStore):
    until_us = store.now_us() + HOUR_S * 1_000_000
    journal = Journal(store, "r", until_us=until_us).step("search").waits("wait", "paid")
    journal.unloaded("signal:paid", until_us)
    _worker(store)


@case
def waiting_for_a_key_in_doubt(store: MemoryStore):
    Journal(store, "first").held_in_doubt("charge", business_key="order:1")
    journal = Journal(store, "r").step("search")
    journal.unloaded("key:charge:order:1", store.now_us() + 1_000_000)
    _worker(store)


@case
def queued_while_the_queue_is_full(store: MemoryStore):
    store.set_limits(Limits("default", concurrency=1))
    Journal(store, "other").step("search")
    Journal(store, "r").step("search").released()
    _worker(store)


@case
def queued_while_the_queue_is_paused(store: MemoryStore):
    store.set_limits(Limits("default", paused=True))
    Journal(store, "r").step("search").released()
    _worker(store)


@case
def queued_behind_others(store: MemoryStore):
    store.set_limits(Limits("default", rate=10, concurrency_per_key=1))
    for name in ("one", "two", "r"):
        Journal(store, name).step("search").released()
    _worker(store, working=1)


@case
def queued_and_nobody_has_its_flow(store: MemoryStore):
    Journal(store, "r").step("search").released()
    _worker(store, flows={"mail": ["1"]})


@case
def queued_until_a_time(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.write(journal.draft(Kind.RUN_RELEASED), wake_us=store.now_us() + 60_000_000)
    _worker(store)


@case
def queued_while_its_worker_executes_another_alone(store: MemoryStore):
    Journal(store, "r").step("search").released()
    why = "2 times in a row its process ended before anything new was recorded"
    _worker(store, concurrency=4, working=1, alone={"run_id": "nightly-1", "why": why})


@case
def held_paused_with_an_open_question(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    journal.asks("ask", "amount", "How much may it cost?", to="kim", schema={"type": "integer"})
    journal.unloaded("answer:amount")
    cancellation.pause(store, "r", actor="kim", reason="not before Monday")


@case
def running_and_to_be_cancelled(store: MemoryStore):
    Journal(store, "r").step("search").failing("think", 2, final=False)
    cancellation.cancel(store, "r", actor="kim", reason="nobody wants it", wait_s=0)


@case
def failed_since_an_approval_was_refused(store: MemoryStore):
    journal = Journal(store, "r").step("search").asks_approval("refund", {"amount": 3})
    error = {"type": "Rejected", "message": "refund was refused by kim: too much"}
    draft = journal.draft(Kind.QUESTION_ANSWERED, "refund", error=error, refused="too much")
    journal.write(draft).failed("refund", error=("Rejected", "refund was refused by kim: too much"))
