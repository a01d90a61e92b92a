"""Redoing a run from some of its steps: what is executed again, and the obstacles. Pure.

A redo supersedes these steps and everything that their branches recorded after them. The records
stay and are never replayed; the run enters its next generation, so new idempotency keys are
derived. Effects and child runs are redone only after a confirmation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.drift_record import Change, changes_of
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import HeldReason
from holdfast._engine.journal.step_keys import are_parallel, is_undo, scope_of
from holdfast._engine.journal.superseded import came_after, starting_over, turns_lost
from holdfast.errors import RunHeld, UsageError

GO_ON, REDO = "keep", "redo"


def behind(history: History, steps: Iterable[str]) -> list[Record]:
    """Return these steps and the later records of their branches, in the order of the journal."""
    first = _there(history, steps)
    gone = {record.key: record for record in first}
    for record in history.records.values():
        if not is_undo(record.key) and any(_is_behind(history, record, one) for one in first):
            gone[record.key] = record
    return sorted(gone.values(), key=lambda record: record.first_seq)


def _there(history: History, steps: Iterable[str]) -> list[Record]:
    return [history.records[step] for step in steps if step in history.records]


def _is_behind(history: History, record: Record, other: Record) -> bool:
    scope = scope_of(other.key)
    if scope_of(record.key) == scope and _placed(history, record) and _placed(history, other):
        # Concurrent calls may be written in any order; their positions decide.
        return (record.position or 0) > (other.position or 0)
    return came_after(record, other)


def _placed(history: History, record: Record) -> bool:
    return record.position is not None and record.key not in history.old


def loops_behind(history: History, steps: Sequence[str]) -> list[str]:
    """Return the loops that began after these steps: they start over."""
    first = _there(history, steps)
    return [
        path
        for path, saved in history.saved.items()
        if any(
            saved.seq > record.last_seq
            and not record.key.startswith(path + "[")
            and not are_parallel(scope_of(record.key), scope_of(path))
            for record in first
        )
    ]


def may_have_happened(record: Record) -> bool:
    """Return whether doing a step again would change the world a second time."""
    if record.begun is not None and record.begun.kind is Kind.CHILD_STARTED:
        return True
    if not record.effect:
        return False
    if record.state in (State.COMPLETED, State.RUNNING, State.IN_DOUBT):
        return True
    if record.state is not State.FAILED or record.outcome is None:
        return False
    return record.outcome.kind is Kind.STEP_SETTLED or b'"unknown":true' in record.outcome.body


def effects_behind(history: History, steps: Iterable[str]) -> tuple[str, ...]:
    """Return the effects that a redo from these steps would execute again; for a fork, also the
    turns of the other run that it would execute."""
    again = list(steps)
    lost = turns_lost(history, loops_behind(history, again), _there(history, again))
    known = [record.key for record in behind(history, again) if may_have_happened(record)]
    return (*lost, *known)


def redo_facts(history: History, steps: Sequence[str]) -> dict[str, Any]:
    """Return the body of the entry that redoes these steps and their later records."""
    facts: dict[str, Any] = {
        "generation": history.generation + 1,
        "superseded": [record.key for record in behind(history, steps)],
    }
    return facts | starting_over(history, loops_behind(history, steps), _there(history, steps))


# -- held for it -------------------------------------------------------------------------------


def held_for(run_id: str, changes: Sequence[Change], detail: str = "") -> RunHeld:
    """Return the error that holds a run until somebody decides about a change."""
    waiting = [change for change in changes if change.did == "hold"]
    effects = tuple(dict.fromkeys(key for change in waiting for key in change.effects))
    steps = [key for change in waiting for key in change.steps]
    said = detail or "; ".join(str(change) for change in waiting)
    if effects:
        said += f". Behind it, {', '.join(effects)} has happened, or may have"
    actions = [f"{command('resume', run_id, '--keep')}    (keep what is recorded, and go on)"]
    if steps:
        redo = command("resume", run_id, "--redo", *(["--confirm"] if effects else []))
        again = f"; executes {', '.join(effects)} again" if effects else ""
        actions.append(f"{redo}    (do it again from {steps[0]} on{again})")
        fork = command("fork", run_id, f"{run_id}-2", "--before", steps[0])
        actions.append(f"{fork}    (leave it as it is, and begin a new run there)")
    actions.append(f"{command('resume', run_id, '--dry-run')}    (what else has changed)")
    return RunHeld(run_id, HeldReason.DRIFT, said, actions, step=steps[0] if steps else "")


def decided_drafts(
    history: History, actor: str, at_us: int, decision: str | None, *, confirm: bool
) -> tuple[list[Draft], dict[str, Any]]:
    """Return the entries that free a run which is held for what has changed."""
    found = changes_of(history.drift.found_last)
    waiting = [change for change in found if change.did == "hold"]
    if decision is None:
        raise held_for(history.run_id, found, _held_detail(history))
    free: dict[str, Any] = {"waiting_on": None, "wake_us": None}
    facts: dict[str, Any] = {"generation": history.generation, "superseded": []}
    if decision == REDO:
        steps = [key for change in waiting for key in change.steps]
        if not steps:
            raise UsageError(
                f"run {history.run_id!r} is not held because of a step; continue it with "
                f"{command('resume', history.run_id, '--keep')}"
            )
        effects = effects_behind(history, steps)
        if effects and not confirm:
            raise held_for(history.run_id, found, _held_detail(history))
        facts = redo_facts(history, steps)
        free["generation"] = facts["generation"]
    accepted = {
        change.token: str(at_us) if change.kind == "expired" else change.now for change in waiting
    }
    facts |= {"actor": actor, "confirmed": confirm, "drift": decision, "accepted": accepted}
    return [Draft(Kind.RUN_RESUMED, at_us, body=msgspec.json.encode(facts))], free


def check_repeated(history: History, gone: Sequence[Record]) -> None:
    """Refuse to take a failed run up again, unconfirmed, if it failed because a watched fact changed
    and effects that happened are recorded behind that."""
    facts = [record.key for record in gone if record.key in history.drift.broken]
    effects = [record.key for record in gone if may_have_happened(record)] if facts else []
    effects[:0] = turns_lost(history, loops_behind(history, facts), _there(history, facts))
    if effects:
        raise RunHeld(
            history.run_id,
            HeldReason.DRIFT,
            f"it failed because {', '.join(facts)} is not as it was; taking it up again would "
            f"execute {', '.join(effects)} once more",
            (
                f"{command('explain', history.run_id)}    (shows what is known)",
                f"{command('resume', history.run_id, '--confirm')}    (execute it again)",
            ),
            step=facts[0],
            failed=True,
        )


def _held_detail(history: History) -> str:
    if history.held is None:
        return ""
    detail = msgspec.json.decode(history.held.body).get("detail", "")
    return str(detail).partition(". Behind it, ")[0]
