"""Rollback: the compensation of a saga. Which effects a run undoes, in which order, and what forbids it.

    rollback_requested ──► to_be_undone ─┬─ something is in doubt, or cannot be undone: held
                                         ├─ undos, the last effect first  (each a step: `undo/…`)
                                         └─ ended: all of it, or down to a step

The journal alone says what a run did: effects that completed or were settled as done, in every
generation, superseded ones included. A duplicate that was skipped belongs to another run, and so does
an effect that a fork borrowed. An undo is an effect with its own key; one that has an outcome is not
called again, so an interrupted rollback continues where it stopped. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.resume import draft, facts_of, held_reason
from holdfast._engine.journal.entries import Draft, Entry, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.step_keys import is_undo, name_of, undo_key
from holdfast._engine.journal.step_record import outcome_is_unknown
from holdfast._engine.journal.superseded import came_after, starting_over
from holdfast._engine.scripts.business_keys import claimed_key
from holdfast._engine.scripts.requests import Undoes
from holdfast._engine.scripts.stops import Unwind
from holdfast.errors import RunHeld, UsageError


class Fate(StrEnum):
    """The treatment of one effect by a rollback."""

    UNDO = "undo"
    """Its undo is called."""
    STAYS = "stays"
    """It has no undo: it stays as it is."""
    IN_DOUBT = "in_doubt"
    """Whether it happened must be settled before anything is undone."""
    UNKNOWN = "unknown"
    """It was given up, and nobody knows whether it happened: it stays as it is."""
    UNDONE = "undone"
    """It was taken back before."""
    GIVEN_UP = "given_up"
    """A person gave its undo up."""
    LOST = "lost"
    """It has an undo, which the process that took the run up did not know."""


CALLS_UNDO = frozenset({Fate.UNDO, Fate.STAYS, Fate.LOST})
"""Fates of effects that a process with their undo takes back, even if it was declared later."""


class Effect(msgspec.Struct, frozen=True):
    """One effect of a run, and what a rollback makes of it."""

    record: Record
    fate: Fate

    @property
    def undo_step(self) -> str:
        """The step key of its undo."""
        return undo_key(self.record.key, self.record.generation)


class Wanted(msgspec.Struct, frozen=True):
    """The requested rollback."""

    actor: str
    reason: str = ""
    to: str | None = None
    stays: tuple[str, ...] = ()
    """Effects that were seen to stay as they are, by the step key of their undo."""


def wanted(entry: Entry) -> Wanted:
    """Return what a `rollback_requested` asks for."""
    return msgspec.json.decode(entry.body, type=Wanted)


# -- what there is to do -----------------------------------------------------------------------


def effects_to_undo(history: History, to: str | None = None) -> list[Effect]:
    """Return the effects that a rollback concerns, the last one first; `to` is a step that stays,
    with everything that was there before it had ended."""
    after = None if to is None else step_to_keep(history, to)
    if after is not None:
        _check_kept(history, after)
    found = [
        Effect(record, fate)
        for superseded, records in (
            (True, history.superseded),
            (False, history.records.values()),
        )
        for record in records
        if (after is None or came_after(record, after))
        and (fate := _fate(history, record, superseded=superseded)) is not None
    ]
    return sorted(found, key=lambda effect: _happened_at(effect.record), reverse=True)


def _happened_at(record: Record) -> int:
    return record.last_seq if record.outcome is None else record.outcome.seq


def _fate(history: History, record: Record, *, superseded: bool) -> Fate | None:
    """Return what becomes of a record; None if this run did nothing there."""
    # An effect of a store that lost records may have no intent; only effects are ever in doubt.
    effect = record.effect or record.doubt is not None
    if not effect or is_undo(record.key) or record.borrowed:
        return None
    if record.state is State.COMPLETED and not record.degraded:
        return _fate_of_undo(history, record)
    if not outcome_is_unknown(record):
        return None
    settles = not superseded and record.state in (State.IN_DOUBT, State.RUNNING)
    return Fate.IN_DOUBT if settles else Fate.UNKNOWN


def _fate_of_undo(history: History, record: Record) -> Fate:
    undo = history.records.get(undo_key(record.key, record.generation))
    if undo is not None and undo.state is State.COMPLETED:
        return Fate.UNDONE
    if undo is not None and undo.outcome is not None and undo.outcome.kind is Kind.STEP_SETTLED:
        return Fate.GIVEN_UP
    declared = record.intent is not None and b'"undo":true' in record.intent.body
    if not declared:
        return Fate.STAYS
    return Fate.LOST if name_of(record.key) == _undo_not_known(history) else Fate.UNDO


def _undo_not_known(history: History) -> str | None:
    """Return the effect for whose undo a rollback is held, because the process did not have it."""
    asked, held = history.rollback, history.held
    if asked is None or held is None or held.seq < asked.seq:
        return None
    if history.status is not Status.HELD or held_reason(history) != HeldReason.PAUSED:
        return None
    facts = facts_of(held)
    step = str(facts.get("step") or "")
    record = history.records.get(step)
    if record is not None and record.state is not State.COMPLETED:
        return None  # It was given up, and whether it happened is what stands against it.
    # Who pauses a run is named in the entry; here it was the process itself.
    return None if "actor" in facts else name_of(step)


def step_to_keep(history: History, to: str) -> Record:
    """Return the record of the step that a run is to be rolled back to."""
    record = history.records.get(to)
    if record is None or is_undo(to) or record.keeps_place:
        steps = [key for key, it in history.records.items() if it.has_outcome and not is_undo(key)]
        known = ", ".join(steps[-10:]) or "none"
        raise UsageError(f"run {history.run_id!r} has no step {to!r}; its last ones: {known}")
    if not record.has_outcome:
        raise UsageError(
            f"{to} of run {history.run_id!r} has no outcome, so the run cannot be rolled back to it"
        )
    if record.borrowed:
        raise _not_its_own(history, to)
    return record


def _not_its_own(history: History, to: str) -> UsageError:
    """A fork has not executed borrowed steps: it can neither undo nor repeat them."""
    origin = history.origin or ""
    return UsageError(
        f"{to} came along from run {origin!r}, which run {history.run_id!r} was forked from; a fork "
        "is rolled back to a step of its own, or as a whole: "
        f"{command('rollback', history.run_id)}. To begin anew from an earlier step, fork that run "
        f"once more: {command('fork', origin, history.run_id + '-2', '--before', to)}"
    )


def _check_kept(history: History, kept: Record) -> None:
    """Refuse to keep what was taken back already: replayed as done, it would not be so."""
    undone = [
        record.key
        for record in history.records.values()
        if undo_key(record.key, record.generation) in history.records
        and not came_after(record, kept)
    ]
    if undone:
        raise UsageError(
            f"run {history.run_id!r} cannot be rolled back to {kept.key}, because "
            f"{', '.join(undone[:5])} would be kept, and its undo was begun already; "
            f"see {command('explain', history.run_id)}"
        )


def effect_undone(record: Record) -> Undoes:
    """Return what the undo of an effect takes back."""
    claimed = None if record.intent is None else claimed_key(record.intent)
    effect, key = claimed or (name_of(record.key), None)
    return Undoes(record.key, effect, key)


def requested(history: History, wanted: Wanted, at_us: int) -> Draft:
    """Return the entry that asks for a rollback, with its order."""
    effects = effects_to_undo(history, wanted.to)
    order = [effect.undo_step for effect in effects if effect.fate is Fate.UNDO]
    facts = {**msgspec.to_builtins(wanted), "order": order}
    return draft(Kind.ROLLBACK_REQUESTED, at_us, facts)


def left_as_they_are(effects: list[Effect]) -> tuple[str, ...]:
    """Return what a rollback cannot take back, by the step keys that their undos would have."""
    stays = (Fate.STAYS, Fate.UNKNOWN, Fate.LOST)
    return tuple(effect.undo_step for effect in effects if effect.fate in stays)


# -- doing it ----------------------------------------------------------------------------------


def to_be_undone(
    history: History, has_undo: Callable[[Record], bool]
) -> tuple[list[Effect], list[Effect]]:
    """Return the effects whose undo is to be called, in order, and all that are concerned. An
    obstacle is reported here, before the first undo."""
    assert history.rollback is not None
    want = wanted(history.rollback)
    effects = effects_to_undo(history, want.to)
    _check_doubts(history.run_id, effects)
    calls: list[Effect] = []
    for effect in effects:
        if effect.fate in CALLS_UNDO and has_undo(effect.record):
            calls.append(effect)
        elif effect.fate in CALLS_UNDO or effect.fate is Fate.UNKNOWN:
            _check_stays(history.run_id, effect, want)
    return calls, effects


def _check_doubts(run_id: str, effects: list[Effect]) -> None:
    doubts = [effect.record.key for effect in effects if effect.fate is Fate.IN_DOUBT]
    if not doubts:
        return
    detail = (
        f"it is to be rolled back, and whether {' and '.join(doubts)} happened is not known; "
        "settle that first"
    )
    actions = (
        command("settle", run_id, doubts[0], "--done", "JSON")
        + "    (it happened; this is its result, and it will be undone)",
        command("settle", run_id, doubts[0], "--not-done")
        + "     (it did not happen: there is nothing to undo)",
    )
    raise Unwind(RunHeld(run_id, HeldReason.IN_DOUBT, detail, actions, step=doubts[0]))


def _check_stays(run_id: str, effect: Effect, want: Wanted) -> None:
    """Refuse to leave an effect that cannot be undone, unless a person has confirmed it."""
    if effect.undo_step in want.stays:
        return
    step = effect.record.key
    more = () if want.to is None else ("--to", want.to)
    again = f"{command('rollback', run_id, *more, '--confirm')}    (leave it as it is)"
    actions: tuple[str, ...] = (again,)
    if effect.fate in (Fate.UNDO, Fate.LOST):
        detail = f"{step} has an undo, but the process that took the run up does not know it"
        actions = (
            f"{command('resume', run_id)}    (when a process has the code with its undo again)",
            again,
        )
    elif effect.fate is Fate.UNKNOWN:
        detail = f"{step} was given up, and whether it happened is not known"
    else:
        detail = f"{step} has no undo"
    raise Unwind(
        RunHeld(run_id, HeldReason.PAUSED, f"it is to be rolled back, but {detail}", actions, step)
    )


# -- how it ends -------------------------------------------------------------------------------


class RolledBack(msgspec.Struct):
    """The last entries of a rollback, and what changes in the row with them."""

    drafts: list[Draft]
    changes: dict[str, Any]
    held: dict[str, Any] | None = None
    """Why the run is held, where it was rolled back to a step."""


def ended(history: History, effects: list[Effect], undone: list[str], at_us: int) -> RolledBack:
    """Return the entries that end a rollback."""
    assert history.rollback is not None
    want = wanted(history.rollback)
    before = [it.undo_step for it in reversed(effects) if it.fate is Fate.UNDONE]
    facts: dict[str, Any] = {
        "reason": want.reason,
        "actor": want.actor,
        "undone": [*before, *undone],
        "stays": [
            it.record.key
            for it in effects
            if it.fate is not Fate.UNDONE and it.undo_step not in undone
        ],
    }
    if want.to is None:
        return RolledBack([draft(Kind.RUN_ROLLED_BACK, at_us, facts)], {})
    return _to_a_step(history, want.to, facts, at_us)


def _to_a_step(history: History, to: str, facts: dict[str, Any], at_us: int) -> RolledBack:
    """Everything that came after the step is superseded, and the run waits for somebody to let it
    go on: in the next generation, under new keys."""
    kept = step_to_keep(history, to)
    gone = [
        record.key
        for record in history.records.values()
        if came_after(record, kept) and not is_undo(record.key) and not record.borrowed
    ]
    generation = history.generation + 1
    loops = [path for path, saved in history.saved.items() if saved.seq > kept.last_seq]
    resumed = {
        "generation": generation,
        "superseded": gone,
        **starting_over(history, loops),
        "confirmed": False,
        "rolled_back_to": to,
        **facts,
    }
    actions = (command("resume", history.run_id),)
    held = {
        "reason": HeldReason.PAUSED.value,
        "detail": f"it was rolled back to {to}; what came after that is executed anew",
        "step": to,
        "actions": list(actions),
    }
    drafts = [draft(Kind.RUN_RESUMED, at_us, resumed), draft(Kind.RUN_HELD, at_us, held)]
    # Snapshots that were saved after the step are void: the turns before it are read again.
    changes = {"generation": generation, "held_reason": HeldReason.PAUSED.value, "skips": "[]"}
    return RolledBack(drafts, changes, held)
