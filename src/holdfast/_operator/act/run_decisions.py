"""Settle an effect in doubt, and resume a run. Each decision is an entry with its actor, written in
one transaction.

An actor owns a run for that transaction only (`Lease.acting`): the write succeeds if no live process
owns the run and the run is unchanged since it was read. If a live process owns it, the decision goes
into the run's inbox, and that process writes the entry. Nothing is executed here: a process that has the
flow executes the run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast._engine.decisions import control
from holdfast._engine.decisions.action_result import TRIES, Answer, check_actor
from holdfast._engine.decisions.resume import (
    doubts_of_the_dead,
    draft,
    facts_of,
    find_doubt,
    held_facts,
    held_reason,
    refuse_moved,
    resume_drafts,
    settle_drafts,
)
from holdfast._engine.journal.changes import SetKey, TakeMessage
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History, Record
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import OPEN_KEYS, KeyState, Lease, Message, RunRow, Write
from holdfast._engine.scripts.doubt import key_token
from holdfast._engine.scripts.doubt_policies import NOT_DONE, Done, Failed, NotDone
from holdfast._engine.scripts.stops import CLASS
from holdfast._engine.values import codec
from holdfast._engine.values.node_writer import is_plain
from holdfast._engine.values.secrets import masked_value
from holdfast._operator.act import cancellation
from holdfast._operator.read.answer_schema import misfit, type_in_words
from holdfast._operator.read.run_views import fold, may_be_taken
from holdfast._stores.contract import Committed, Fenced, Posted, Store
from holdfast._stores.expected_version import checked_etag
from holdfast._stores.lookups import existing_row
from holdfast._stores.readable_values import Reader
from holdfast.errors import RunBusy, StaleView, UsageError

Decision = Done[Any] | NotDone | Failed


# -- settling ----------------------------------------------------------------------------------


def settle(
    store: Store,
    run_id: str,
    step: str,
    decision: Decision,
    *,
    actor: str,
    expected_version: str | None = None,
) -> Answer:
    """Settle an effect that is in doubt: it happened, it did not, or it is given up."""
    check_actor(actor)
    kind, _ = _kind_and_reason(decision)
    for _ in range(TRIES):
        row = existing_row(store, run_id)
        etag = checked_etag(store, row, expected_version)
        past = fold(store, row)
        key = _key_it_waits_for(store, row, past, step)
        if key is not None:
            return _settle_at_the_other(store, row, key, decision, actor)
        write = _settling(store, row, past, step, decision, actor)
        if isinstance(store.append([write])[0], Committed):
            return _cancelled_now(store, past, _settled(store, write, step, kind, actor))
        if _is_at_work(store, row):
            return _post_settle(store, row, past, step, decision, actor, etag)
    raise StaleView(run_id)


def _cancelled_now(store: Store, past: History, answer: Answer) -> Answer:
    """Cancel a run for which a cancel waits until its doubts are settled."""
    who = control.requested(past)
    if who is None or not answer.goes_on:
        return answer
    stopped = cancellation.cancel(store, answer.run_id, actor=who[0], reason=who[1])
    did = f"{answer.did}, and the run is {stopped.status}, as {who[0]} had asked"
    return msgspec.structs.replace(answer, status=stopped.status, did=did, goes_on=False)


def _settling(
    store: Store, row: RunRow, past: History, step: str, decision: Decision, actor: str
) -> Write:
    """Return the write that settles a doubt of a run without a live owner."""
    kind, reason = _kind_and_reason(decision)
    _check_fits(past, step, decision)
    at_us = store.now_us()
    values = Reader(store, row).values
    node = (
        values.encode(masked_value(decision.result, step), "result")
        if isinstance(decision, Done)
        else None
    )
    drafts, keys = settle_drafts(past, step, kind, node, reason, actor, at_us)
    if row.owner is not None:
        left, doubted = doubts_of_the_dead(past, at_us)
        drafts, keys = left + drafts, doubted + keys
    write = Write(Lease(row, acting=True), drafts, values.take_fresh(), changes=keys)
    if any(draft.kind is Kind.RUN_RELEASED for draft in drafts):
        write.row = {"waiting_on": None}
    return write


def _check_fits(past: History, step: str, decision: Decision) -> None:
    """Refuse a result that does not fit the effect's return type, if the entry of the doubt has its
    schema. The process that has the flow checks values of classes."""
    record = past.records.get(step)
    if not isinstance(decision, Done) or record is None or record.doubt is None:
        return
    schema = facts_of(record.doubt).get("returns")
    result: Any = decision.result
    why = None if schema is None or not is_plain(result) else misfit(result, None, schema)
    if why is not None:
        returns = f"; {step} returns {kind}" if (kind := type_in_words(schema)) else ""
        raise UsageError(
            f"this is not what {step} of run {past.run_id!r} returns: {why}{returns}. Nothing was "
            "settled"
        )


def _kind_and_reason(decision: Decision) -> tuple[str, str | None]:
    if isinstance(decision, Done):
        return "done", None
    if isinstance(decision, Failed):
        return "failed", decision.reason
    if decision is NOT_DONE:  # pyright: ignore[reportUnnecessaryComparison]
        return "not_done", None
    raise UsageError(f"settle with Done(result), NOT_DONE or Failed(reason), not {decision!r:.80}")


def _settled(store: Store, write: Write, step: str, kind: str, actor: str) -> Answer:
    row = write.lease.row
    freed: list[str] = []
    for change in write.of(SetKey):
        # A key that was given up is still in doubt: each run that waits for it is settled by itself.
        if change.state != "in_doubt":
            freed += _free_waiting(store, change.effect, change.key, actor)
    said = {"done": "done", "not_done": "not done", "failed": "given up"}[kind]
    return Answer(
        run_id=row.run_id,
        flow=row.flow,
        status=str(row.status),
        did=f"{step} of run {row.run_id!r} is settled as {said}",
        recorded=True,
        goes_on=row.status in (Status.QUEUED, Status.RUNNING, Status.WAITING),
        freed=tuple(freed),
    )


def _post_settle(
    store: Store,
    row: RunRow,
    past: History,
    step: str,
    decision: Decision,
    actor: str,
    etag: str | None,
) -> Answer:
    """Leave the decision to the live owner of the run."""
    record = find_doubt(past, step, alive=True)
    kind, reason = _kind_and_reason(decision)
    _check_fits(past, step, decision)
    facts: dict[str, Any] = {"step": step, "outcome": kind, "reason": reason}
    if isinstance(decision, Done):
        facts["result"] = msgspec.Raw(codec.encode(masked_value(decision.result, step), "result"))
    message = Message(
        # One decision per doubt: the same one again is acknowledged, not repeated.
        f"settle:{step}:{record.last_seq}",
        "settle",
        actor,
        store.now_us(),
        msgspec.json.encode(facts),
    )
    owner = store.owner_name(row.owner)
    did = f"the decision on {step} is handed to {owner}, which has run {row.run_id!r}"
    if store.post(row.run_id, message, etag) is Posted.DUPLICATE:
        did = f"{owner}, which has run {row.run_id!r}, has a decision on {step} already"
    return Answer(row.run_id, row.flow, str(row.status), did, recorded=False, goes_on=False)


# -- keys that two runs share ------------------------------------------------------------------


def _key_it_waits_for(store: Store, row: RunRow, past: History, step: str) -> KeyState | None:
    """Return the key of another run on which this step of a held run waits."""
    if row.status is not Status.HELD or not (row.waiting_on or "").startswith("key:"):
        return None
    if step in past.records or step != held_facts(past).get("step"):
        return None
    _, effect, key = str(row.waiting_on).split(":", 2)
    return store.key(effect, key)


def _settle_at_the_other(
    store: Store, row: RunRow, key: KeyState, decision: Decision, actor: str
) -> Answer:
    """Settle the run that has a key which two runs share, and release both."""
    if key.state in OPEN_KEYS and not _gave_up(store, key):
        return settle(store, key.run_id, key.step, decision, actor=actor)
    if key.state in OPEN_KEYS:
        return _take_given_up_key(store, row, key, decision, actor)
    freed = _free_waiting(store, key.effect, key.key, actor)
    did = f"the key {key.key!r} was settled in run {key.run_id!r} before ({key.state})"
    return Answer(
        row.run_id,
        row.flow,
        str(Status.QUEUED),
        did,
        recorded=True,
        goes_on=True,
        freed=tuple(freed),
    )


def _gave_up(store: Store, key: KeyState) -> bool:
    """Return whether the run that has the key gave the step up with an unknown outcome."""
    other = existing_row(store, key.run_id)
    record = fold(store, other).records.get(key.step)
    return record is None or record.has_outcome


def _take_given_up_key(
    store: Store, row: RunRow, key: KeyState, decision: Decision, actor: str
) -> Answer:
    """Give a waiting run a key whose first run gave it up. That step's outcome is final, so the entry is
    written to the run that goes on."""
    if decision is not NOT_DONE:
        raise UsageError(
            f"run {key.run_id!r} gave {key.step} up, and that is final; its key {key.key!r} can only "
            "be settled as not done, which executes it here"
        )
    facts = {
        "why": "settled",
        "outcome": "not_done",
        "actor": actor,
        "key": key.key,
        "of": key.run_id,
    }
    release = draft(Kind.RUN_RELEASED, store.now_us(), facts)
    change = SetKey(key.effect, key.key, "not_done")
    other = existing_row(store, key.run_id)
    refuse_moved(fold(store, other))
    writes = [
        Write(Lease(other, acting=True), [], changes=[change]),
        Write(Lease(row, acting=True), [release], row={"waiting_on": None}),
    ]
    first, second = store.append(writes)
    if isinstance(first, Fenced):
        raise RunBusy(key.run_id, "a live process; settle again when it has ended")
    if not isinstance(second, Committed):
        raise StaleView(row.run_id)
    did = f"the key {key.key!r} is settled as not done; run {row.run_id!r} may use it"
    return Answer(row.run_id, row.flow, str(Status.QUEUED), did, recorded=True, goes_on=True)


def _free_waiting(store: Store, effect: str, key: str, actor: str) -> list[str]:
    """Release every run that is held on this key and has no doubt of its own."""
    release = functools.partial(_released, store, actor)
    held = store.waiting_on(key_token(effect, key))
    return [waiting.run_id for waiting in held if _act(store, waiting, release)]


def _released(store: Store, actor: str, past: History) -> list[Draft]:
    if past.status is not Status.HELD or held_reason(past) != HeldReason.IN_DOUBT:
        return []
    facts = {"why": "key_settled", "actor": actor}
    return [] if past.open_doubts() else [draft(Kind.RUN_RELEASED, store.now_us(), facts)]


def _act(store: Store, row: RunRow, decide: Callable[[History], list[Draft]]) -> bool:
    """Write the drafts that `decide` returns for the run as it is now; False if there are none."""
    for _ in range(TRIES):
        drafts = decide(fold(store, row))
        if not drafts:
            return False
        write = Write(Lease(row, acting=True), drafts, row={"waiting_on": None})
        if isinstance(store.append([write])[0], Committed):
            return True
        row = existing_row(store, row.run_id)
    return False  # The run goes on by itself: its owner looks at the key again.


# -- resuming ----------------------------------------------------------------------------------


def resume(
    store: Store,
    run_id: str,
    *,
    actor: str,
    accept_change: bool = False,
    confirm: bool = False,
    drift: str | None = None,
    again: bool = False,
    expected_version: str | None = None,
) -> Answer:
    """Resume a run that failed or is held; `drift` is "keep" or "redo", for a run that is held for
    drift; `again` is only for a run that is held as diverged, see `resume_drafts`."""
    check_actor(actor)
    for _ in range(TRIES):
        row = existing_row(store, run_id)
        checked_etag(store, row, expected_version)
        past = fold(store, row)
        drafts, changes = resume_drafts(
            past,
            actor=actor,
            at_us=store.now_us(),
            accept_change=accept_change,
            confirm=confirm,
            drift=drift,
            again=again,
        )
        if not drafts:
            return _goes_on_already(store, row)
        pauses = _pauses(store, row)
        took = [pause.message_id for pause in pauses]
        write = Write(
            Lease(row, acting=True), drafts, row=changes, changes=[*map(TakeMessage, took)]
        )
        if isinstance(store.append([write])[0], Committed):
            answer = _resumed(write.lease.row, past, accepted=accept_change)
            return _without_pauses(answer, pauses)
    raise StaleView(run_id)


def _pauses(store: Store, row: RunRow) -> list[Message]:
    """Return the requests to pause that were not carried out before the run failed or was held. A resume
    is a later decision, and overrides them."""
    return [it for it in store.inbox(row.run_no) if it.kind == control.PAUSE]


def _without_pauses(answer: Answer, pauses: list[Message]) -> Answer:
    if not pauses:
        return answer
    who = ", ".join(sorted({pause.actor for pause in pauses}))
    did = f"{answer.did}; the earlier pause by {who}, which had not been carried out, is void"
    return msgspec.structs.replace(answer, did=did)


def _resumed(row: RunRow, past: History, *, accepted: bool) -> Answer:
    did = f"run {row.run_id!r} is taken up again"
    effects: list[str] = []
    if past.status is Status.FAILED:
        did += f" in generation {row.generation}"
    elif held_reason(past) == HeldReason.DRIFT and row.generation > past.generation:
        did += f" in generation {row.generation}, and what the change concerns is done again"
    elif accepted and (
        (past.unfit and past.status is not Status.HELD)
        or (held_reason(past) == HeldReason.DIVERGED and held_facts(past).get("differs") != CLASS)
    ):
        did = f"the change is accepted: run {row.run_id!r} goes on with the code as it is now"
        effects = [record.key for record in past.records.values() if _happened(record)]
    return Answer(
        run_id=row.run_id,
        flow=row.flow,
        status=str(row.status),
        did=did,
        recorded=True,
        goes_on=True,
        effects=tuple(effects),
    )


def _happened(record: Record) -> bool:
    return record.effect and record.outcome is not None


def _goes_on_already(store: Store, row: RunRow) -> Answer:
    did = f"run {row.run_id!r} is {row.status} already"
    if row.owner is not None:
        did += f", at {store.owner_name(row.owner)}"
    for pause in _pauses(store, row)[:1]:
        did += f"; a pause by {pause.actor} is still to be carried out: resume it after that"
    return Answer(
        row.run_id,
        row.flow,
        str(row.status),
        did,
        recorded=False,
        goes_on=row.owner is None or may_be_taken(store, row),
    )


# -- pieces ------------------------------------------------------------------------------------


def _is_at_work(store: Store, row: RunRow) -> bool:
    """Return whether the owner that was read still owns the run. (A write of ours was refused: the store
    could not prove the owner dead.)"""
    now = existing_row(store, row.run_id)
    return row.owner is not None and now.owner == row.owner
