"""The entries of decisions: resuming a run, settling a doubt. Pure.

Operators' tools apply them to a run without an owner, the runtime to its own run (`flow.run` on a
failed run; a message in the inbox). Both write the same entries.

    resume_drafts   failed ► run_resumed, next generation     held ► run_resumed or run_released
    settle_drafts   in doubt ► step_settled (and run_released, when nothing else is in doubt)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.redo import check_repeated, decided_drafts
from holdfast._engine.journal.changes import SetKey
from holdfast._engine.journal.entries import Draft, Entry, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import FINAL, HeldReason, Status
from holdfast._engine.journal.step_record import outcome_is_unknown
from holdfast._engine.journal.superseded import (
    loops_begun_anew,
    starting_over,
    superseded_by_resume,
)
from holdfast._engine.scripts.business_keys import claimed_key
from holdfast._engine.scripts.stops import CLASS, VALUE
from holdfast.errors import RunCancelled, RunEnded, RunHeld, UsageError

Drafts = list[Draft]
DECISIONS = ("done", "not_done", "failed")
"""The outcomes that can settle a doubt."""

_GOES_ON = frozenset({Status.QUEUED, Status.RUNNING, Status.WAITING})


# -- taking a run up again ---------------------------------------------------------------------


def resume_drafts(
    history: History,
    *,
    actor: str,
    at_us: int,
    accept_change: bool = False,
    confirm: bool = False,
    drift: str | None = None,
    again: bool = False,
) -> tuple[Drafts, dict[str, Any]]:
    """Return the entries that resume a run, and the columns of its row that change.

    `drift` is the decision about external changes, "keep" or "redo". `again` applies only to a run
    that is held as diverged: unless the change is accepted, the run is replayed once more with
    today's code. A run that continues by itself needs no entry. A run that cannot be resumed
    raises, with the actions that are possible.
    """
    status = history.status
    if again and not (status is Status.HELD and held_reason(history) == HeldReason.DIVERGED):
        return [], {}
    if again and not accept_change and moved_to(history) is None:
        return _tried_again(actor, at_us)
    if drift is not None:
        _check_drift(history)
    if status is Status.FAILED:
        return _next_generation(history, actor, at_us, accept_change=accept_change, confirm=confirm)
    if status is Status.HELD and held_reason(history) == HeldReason.DRIFT:
        return decided_drafts(history, actor, at_us, drift, confirm=confirm)
    if status is Status.HELD:
        return _freed(history, actor, at_us, accept_change=accept_change, confirm=confirm)
    if status in _GOES_ON and accept_change and history.unfit:
        return _accepted(actor, at_us, next(reversed(history.unfit)), confirm=confirm)
    if status in _GOES_ON:
        return [], {}
    if status is Status.CANCELLED:
        raise RunCancelled(history.run_id)
    why = "that is final; start a new run under another id"
    raise RunEnded(history.run_id, status or "empty", "a resume", why)


def _check_drift(history: History) -> None:
    """Refuse a decision about external changes for a run that waits for none."""
    reason = held_reason(history) if history.status is Status.HELD else None
    if reason == HeldReason.DRIFT:
        return
    run_id = history.run_id
    if reason is not None:
        detail = held_facts(history).get("detail")
        said = f"is held as {reason}{f' ({detail})' if detail else ''}"
    else:
        said = f"is {history.status or 'empty'}, and not held"
    raise UsageError(
        f"`drift` is for a run that is held for drift; run {run_id!r} {said}. See the possible "
        f"actions: {command('explain', run_id)}"
    )


def _next_generation(
    history: History, actor: str, at_us: int, *, accept_change: bool, confirm: bool
) -> tuple[Drafts, dict[str, Any]]:
    gone = superseded_by_resume(history)
    unknown = [record for record in gone if outcome_is_unknown(record)]
    if unknown and not confirm:
        raise _unconfirmed(history.run_id, unknown)
    if not confirm:
        check_repeated(history, gone)
    generation = history.generation + 1
    facts = {
        "generation": generation,
        "superseded": [record.key for record in gone],
        "actor": actor,
        "confirmed": confirm,
    }
    broken = [record for record in gone if record.key in history.drift.broken]
    facts |= starting_over(history, loops_begun_anew(history, gone), broken)
    drafts = [draft(Kind.RUN_RESUMED, at_us, facts)]
    if accept_change:
        drafts.append(draft(Kind.CHANGE_ACCEPTED, at_us, {"actor": actor, "confirmed": confirm}))
    return drafts, {"generation": generation, "waiting_on": None, "wake_us": None}


def _freed(
    history: History, actor: str, at_us: int, *, accept_change: bool, confirm: bool
) -> tuple[Drafts, dict[str, Any]]:
    reason, held = held_reason(history), held_facts(history)
    free: dict[str, Any] = {"waiting_on": None, "wake_us": None}
    run_id, step = history.run_id, str(held.get("step") or "")
    if reason == HeldReason.IN_DOUBT:
        raise RunHeld(
            run_id, reason, str(held.get("detail", "")), held.get("actions", ()), step=step
        )
    if not confirm:
        refuse_moved(history)
    if reason != HeldReason.DIVERGED:
        facts: dict[str, Any] = {
            "generation": history.generation,
            "superseded": [],
            "actor": actor,
            "confirmed": False,
        }
        return [draft(Kind.RUN_RESUMED, at_us, facts)], free
    if held.get("differs") in (CLASS, VALUE) and not accept_change:  # Repaired, and not accepted.
        return [draft(Kind.RUN_RELEASED, at_us, {"why": "run again", "actor": actor})], free
    if not accept_change:
        # The code that held it knows more: it may require a confirmation too.
        actions = held.get("actions") or (
            "put the old code back and run it again, or",
            command("resume", run_id, "--accept-change"),
        )
        raise RunHeld(run_id, reason, str(held.get("detail", "")), actions, step=step)
    return _accepted(actor, at_us, str(held.get("code", "")), confirm=confirm)


def _tried_again(actor: str, at_us: int) -> tuple[Drafts, dict[str, Any]]:
    released = draft(Kind.RUN_RELEASED, at_us, {"why": "try_again", "actor": actor})
    return [released], {"waiting_on": None, "wake_us": None}


def _accepted(actor: str, at_us: int, code: str, *, confirm: bool) -> tuple[Drafts, dict[str, Any]]:
    """Accept the change of the code that did not fit. Other code is not accepted by that."""
    facts = {"actor": actor, "confirmed": confirm} | ({"code": code} if code else {})
    return [
        draft(Kind.CHANGE_ACCEPTED, at_us, facts),
        draft(Kind.RUN_RELEASED, at_us, {"why": "change_accepted", "actor": actor}),
    ], {"waiting_on": None, "wake_us": None}


def _unconfirmed(run_id: str, unknown: Sequence[Record]) -> RunHeld:
    names = ", ".join(record.key for record in unknown)
    detail = (
        f"taking it up again would execute {names} once more, and whether it has happened "
        "already is not known"
    )
    actions = (
        f"{command('explain', run_id)}    (shows what is known)",
        f"{command('resume', run_id, '--confirm')}    (execute it again, under a new key)",
    )
    return RunHeld(run_id, HeldReason.IN_DOUBT, detail, actions, step=unknown[0].key, failed=True)


# -- settling a doubt --------------------------------------------------------------------------


def settle_drafts(
    history: History,
    step: str,
    decision_kind: str,
    result_node: bytes | None,
    reason: str | None,
    actor: str,
    at_us: int,
    *,
    alive: bool = False,
) -> tuple[Drafts, list[SetKey]]:
    """Return the entries that settle a doubt, and the new state of its business key.

    `decision_kind` is one of `DECISIONS`. With `alive`, the run's owner is running: an effect that
    it executes at this moment is not in doubt.
    """
    assert decision_kind in DECISIONS, decision_kind
    record = find_doubt(history, step, alive=alive)
    if decision_kind == "not_done" and value_is_lost(record):
        raise UsageError(
            f"{step} of run {history.run_id!r} happened; only its result could not be stored. "
            "Settle it as done, with the result, or give it up"
        )
    facts: dict[str, Any] = {"outcome": decision_kind}
    if decision_kind == "done":
        facts["result"] = msgspec.Raw(b"null" if result_node is None else result_node)
    facts |= {"source": "actor", "actor": actor}
    if reason is not None:
        facts["reason"] = reason
    if decision_kind == "failed":
        facts["error"] = {"type": "Settled", "message": reason or "given up"}
    settled = draft(
        Kind.STEP_SETTLED,
        at_us,
        facts,
        step=record.key,
        attempt=record.attempts,
        position=record.position,
        args_digest=record.args_digest,
    )
    drafts = [settled]
    if frees(history, record):
        drafts.append(draft(Kind.RUN_RELEASED, at_us, {"why": "settled", "actor": actor}))
    # The key of a step that was given up stays in doubt: its effect may have happened, so no other
    # run may use it.
    state = {"done": "completed", "not_done": "not_done", "failed": "in_doubt"}[decision_kind]
    keys = key_changes(record, state, result=decision_kind == "done")
    if keys:
        drafts.reverse()  # A key finds its result in the last entry of the write.
    return drafts, keys


def doubts_of_the_dead(history: History, at_us: int) -> tuple[Drafts, list[SetKey]]:
    """Return the entries for the attempts that ended with a dead owner.

    Use them only in a write that succeeds if the owner is proven dead. Without them the next claim
    would find a run without an owner and could not tell that those attempts have ended.
    """
    return _doubts(
        [record for record in history.open_doubts() if not record.ended], at_us, ended=True
    )


def doubts_of_former_owners(history: History, at_us: int) -> tuple[Drafts, list[SetKey]]:
    """Return the entries for what earlier owners left open. A run's owner writes them if it stops
    the run before the flow comes to these effects; otherwise their keys would look as if a process
    were using them."""
    left = [it for it in history.open_doubts() if it.doubt is None and it.lost_us is not None]
    return _doubts(left, at_us)


def _doubts(left: list[Record], at_us: int, *, ended: bool = False) -> tuple[Drafts, list[SetKey]]:
    drafts = [
        draft(
            Kind.STEP_IN_DOUBT,
            at_us,
            {"why": "process_died", "ended": ended or record.ended},
            step=record.key,
            attempt=record.attempts,
            position=record.position,
            args_digest=record.args_digest,
        )
        for record in left
    ]
    return drafts, [change for record in left for change in key_changes(record, "in_doubt")]


def value_is_lost(record: Record) -> bool:
    """Return whether an effect is known to have happened, and only its result is missing."""
    return record.doubt is not None and facts_of(record.doubt).get("why") == "value_lost"


def frees(history: History, settled: Record) -> bool:
    """Return whether settling this doubt leaves a held run with none."""
    if history.status is not Status.HELD or held_reason(history) != HeldReason.IN_DOUBT:
        return False
    return all(record is settled for record in history.open_doubts())


def find_doubt(history: History, step: str, *, alive: bool = False) -> Record:
    """Return the step if it is in doubt. Otherwise raise an error with its state and the steps in
    doubt."""
    refuse_moved(history)
    record = history.records.get(step)
    if record is not None and (
        record.state is State.IN_DOUBT
        or (record.effect and record.state is State.RUNNING and not alive)
    ):
        status = history.status
        if status is not None and status in FINAL:
            why = f"that is final; {step} cannot be settled any more"
            raise RunEnded(history.run_id, status, "a decision", why)
        return record
    others = [found.key for found in history.open_doubts() if not alive or found.doubt is not None]
    tail = f"in doubt: {', '.join(others)}" if others else "nothing in this run is in doubt"
    if record is None:
        raise UsageError(f"run {history.run_id!r} has no step {step!r}; {tail}")
    raise UsageError(f"{step} of run {history.run_id!r} {_what_it_is(record)}; {tail}")


def _what_it_is(record: Record) -> str:
    if record.outcome is not None and record.outcome.kind is Kind.STEP_SETTLED:
        facts = facts_of(record.outcome)
        by = facts.get("actor") or facts.get("source")
        return f"was settled as {str(facts['outcome']).replace('_', ' ')} by {by} already"
    if record.state is State.NOT_DONE:
        return "was settled as not done already, and will be run"
    if record.state is State.RUNNING:
        return "is being executed, and not in doubt"
    return f"is {str(record.state).replace('_', ' ')}, and not in doubt"


def key_changes(record: Record, state: str, *, result: bool = False) -> list[SetKey]:
    """Return the change of the business key that a step claimed, or that an undo releases; None
    without one."""
    if record.intent is None:
        return []
    facts = facts_of(record.intent)
    undoes = facts.get("undoes")
    if undoes is not None:
        undone = undoes["key"] is not None and state == "completed"
        return [SetKey(undoes["effect"], undoes["key"], "undone")] if undone else []
    claimed = claimed_key(record.intent)
    return [] if claimed is None else [SetKey(*claimed, state, result)]


# -- small pieces ------------------------------------------------------------------------------


def held_facts(history: History) -> dict[str, Any]:
    """Return the body of the last `run_held`."""
    return {} if history.held is None else facts_of(history.held)


def moved_to(history: History) -> dict[str, Any] | None:
    """Return where a run was moved, if it must not continue here, or None."""
    if history.status is not Status.HELD:
        return None
    gone: dict[str, Any] | None = held_facts(history).get("moved_to")
    return gone


def refuse_moved(history: History) -> None:
    """Raise if a run was moved to another store: a decision about it is made there."""
    if moved_to(history) is not None:
        held = held_facts(history)
        detail, actions = str(held.get("detail", "")), held.get("actions", ())
        raise RunHeld(history.run_id, HeldReason.MOVED, detail, actions)


def held_reason(history: History) -> str:
    """Return why a held run is held."""
    return str(held_facts(history).get("reason", ""))


def draft(kind: Kind, at_us: int, facts: dict[str, Any], **fields: Any) -> Draft:
    """Return an entry to write."""
    return Draft(kind, at_us, body=msgspec.json.encode(facts), **fields)


def facts_of(entry: Entry) -> dict[str, Any]:
    """Return an entry's body as plain JSON data; values in it stay encoded."""
    facts: dict[str, Any] = _decoder.decode(entry.body)
    return facts


_decoder = msgspec.json.Decoder()
