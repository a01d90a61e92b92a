"""Rollbacks as operators see them: the preview of one, and the explanation of one that is under way.

The preview is read from the journal alone. Whether an effect can be taken back stands in its intent;
what cannot be must be confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.moved_runs import where_else
from holdfast._engine.decisions.resume import facts_of, held_facts
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import ENDED, HeldReason, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.text import clipped
from holdfast._features.operator_side import Action, Case, OperatorSide
from holdfast._features.rollback.model import (
    Effect,
    Fate,
    effect_undone,
    effects_to_undo,
    left_as_they_are,
    wanted,
)
from holdfast._stores import lineage
from holdfast._stores.contract import Store
from holdfast._stores.families import children
from holdfast._stores.lookups import existing_row
from holdfast.errors import ConfirmationRequired, RunDeleted

# -- preview -----------------------------------------------------------------------------------


_MEANS = {
    Fate.UNDO: "is undone",
    Fate.STAYS: "has no undo, and stays as it is unless the code has one by now",
    Fate.IN_DOUBT: "may or may not have happened: settle it first",
    Fate.UNKNOWN: "was given up, and may have happened: it stays as it is",
    Fate.UNDONE: "was undone before",
    Fate.GIVEN_UP: "stays as it is: its undo was given up",
    Fate.LOST: "stays as it is, unless a process with the code of its undo takes the run up",
}


class PlannedUndo(msgspec.Struct, frozen=True):
    """One effect of a run, and what a rollback makes of it."""

    step: str
    fate: str
    """undo, stays, in_doubt, unknown, undone, given_up or lost"""
    means: str
    undo_step: str
    """The step key of its undo."""
    generation: int
    business_key: str | None


class RollbackPreview(msgspec.Struct, frozen=True):
    """The effects of a run, in the order in which a rollback would undo them or leave them as they are."""

    run_id: str
    flow: str
    status: str
    to: str | None
    effects: tuple[PlannedUndo, ...]
    children: tuple[str, ...]
    """Child runs: none of them is rolled back with this one."""
    confirm: bool
    """Whether something cannot be undone, so that it must be confirmed."""
    stopped: tuple[str, ...] = ()
    """Child runs that have not ended: they are cancelled."""
    forks: tuple[str, ...] = ()
    """Forks that stand on what is undone: none of them is rolled back with this one."""
    elsewhere: str = ""
    """Where else the run is, so that it could be undone twice."""

    def __str__(self) -> str:
        down_to = "" if self.to is None else f" to {self.to}"
        lines = [f"Rolling run {self.run_id} of flow {self.flow} back{down_to}:"]
        lines += [f"  {number}. {it.step} {it.means}" for number, it in enumerate(self.effects, 1)]
        if not self.effects:
            lines.append("  no effect is to be undone")
        if self.to is not None:
            resume = command("resume", self.run_id)
            lines.append(f"  then the run is held (paused) until somebody resumes it: {resume}")
        used_up = [it.business_key for it in self.effects if it.business_key and it.fate == "undo"]
        if used_up and self.to is not None:
            keys = ", ".join(used_up)
            lines.append(
                f"  its business keys stay used, so doing it again is a KeyConflict: {keys}"
            )
        lines += [
            f"  run {child} is not rolled back; roll it back by itself: {command('rollback', child)}"
            for child in self.children
        ]
        lines += [f"  run {child} has not ended: it is cancelled" for child in self.stopped]
        lines += [
            f"  run {fork} was forked from it, stands on what is undone and is left as it is; roll it "
            f"back by itself: {command('rollback', fork)}"
            for fork in self.forks
        ]
        if self.elsewhere:
            lines.append(f"  {self.elsewhere}; rolled back in both stores, it is undone twice")
        return "\n".join(lines)


def preview_rollback(store: Store, run_id: str, to: str | None = None) -> RollbackPreview:
    """Return what a rollback of this run would do now."""
    row = existing_row(store, run_id)
    return preview_of(store, row, effects_to_undo(lineage.fold(store, row), to), to)


def preview_of(store: Store, row: RunRow, effects: list[Effect], to: str | None) -> RollbackPreview:
    started = list(children(store, row.run_id))
    undone = [effect.record.last_seq for effect in effects if effect.fate is Fate.UNDO]
    return RollbackPreview(
        run_id=row.run_id,
        flow=row.flow,
        status=str(row.status),
        to=to,
        effects=tuple(_planned_undo(effect, to) for effect in effects),
        children=tuple(child.run_id for child in started if child.status != Status.ROLLED_BACK),
        stopped=tuple(child.run_id for child in started if child.status not in ENDED),
        forks=standing_on(store, row.run_id, undone),
        confirm=bool(left_as_they_are(effects) or where_else(row)),
        elsewhere=where_else(row),
    )


def _planned_undo(effect: Effect, to: str | None) -> PlannedUndo:
    record = effect.record
    means = _MEANS[effect.fate]
    if to is not None and effect.fate in (Fate.STAYS, Fate.UNKNOWN):
        means += ", and is done once more when the run goes on"
    return PlannedUndo(
        step=record.key,
        fate=effect.fate.value,
        means=means,
        undo_step=effect.undo_step,
        generation=record.generation,
        business_key=effect_undone(record).key,
    )


def standing_on(store: Store, run_id: str, seqs: Sequence[int]) -> tuple[str, ...]:
    """Return the forks of a run, and the forks of those, that borrow something with one of these
    numbers: as an outcome, or in the state of a loop. One that was rolled back stands on nothing."""
    if not seqs:
        return ()
    forks = lineage.forks(store)
    found: list[str] = []
    below = list(forks.get(run_id, ()))
    for fork in below:
        below += forks.get(fork, ())
        row = store.get(fork)
        if row is None or row.deleted_us is not None or row.status is Status.ROLLED_BACK:
            continue
        try:
            told = lineage.told_of(store, row)
        except RunDeleted:
            continue
        if any(part.run == run_id and min(seqs) <= part.seq for part in told.parts):
            found.append(fork)
    return tuple(found)


def unconfirmed(plan: RollbackPreview) -> ConfirmationRequired:
    """Return the error that shows what a rollback would leave as it is, and says how to confirm it."""
    more = () if plan.to is None else ("--to", plan.to)
    stays = [f"{it.step} ({it.means})" for it in plan.effects if it.fate != Fate.UNDO]
    return ConfirmationRequired(
        plan.run_id,
        f"{plan}\nwhat cannot be undone, or might be undone twice, has to be confirmed",
        stays or [plan.elsewhere],
        [
            command("rollback", plan.run_id, *more, "--confirm"),
            f"store.rollback({plan.run_id!r}, confirm=True)",
        ],
    )


# -- explanation -------------------------------------------------------------------------------


def rolled_back(case: Case) -> None:
    """Explain a run that was rolled back."""
    said = case.said
    said.case = f"{case.name} was rolled back, and that is final."
    facts: dict[str, Any] = {}
    last = case.store.entry(case.row.run_no, case.row.last_seq)
    if last is not None and last.kind is Kind.RUN_ROLLED_BACK:
        facts = facts_of(last)
        said.known.append(f"{_who(facts['actor'], facts['reason'])} It ended {_ended(case)}.")
    undone, stays = facts.get("undone", ()), facts.get("stays", ())
    if undone:
        said.known.append(f"Undone, in this order: {', '.join(undone)}.")
    if stays:
        said.known.append(f"Not undone, and as it was left: {', '.join(stays)}.")
    case.do("To do the work after all, start a new run under another id.")


def about_rollback(case: Case) -> None:
    """Add what there is to say of a rollback that was asked for and has not ended."""
    if case.row.status is Status.ROLLED_BACK:
        return
    elsewhere = where_else(case.row)
    if elsewhere:
        case.said.known.append(f"If it has to be undone: {elsewhere}, and only in one store.")
    if case.past.rollback is None:
        _was_rolled_back_to_a_step(case)
        return
    want = wanted(case.past.rollback)
    effects = effects_to_undo(case.past, want.to)
    down_to = "" if want.to is None else f" to {want.to}"
    said = case.said
    said.case = said.case.replace("waits to be executed", "waits to be rolled back")
    said.known.insert(0, f"It is being rolled back{down_to}. {_who(want.actor, want.reason)}")
    for fate, words in (
        (Fate.UNDONE, "Undone so far"),
        (Fate.UNDO, "Still to be undone, in this order"),
        (Fate.STAYS, "Without an undo"),
        (Fate.LOST, "With an undo that the process which took the run up does not know"),
    ):
        steps = _steps(effects, fate)
        if steps:
            said.known.append(f"{words}: {', '.join(steps)}.")
    said.actions = [_in_a_rollback(action) for action in said.actions]
    if case.row.held_reason == HeldReason.PAUSED:
        _cannot_be_undone(case, want.to)


def _steps(effects: list[Effect], fate: Fate) -> list[str]:
    return [effect.record.key for effect in effects if effect.fate is fate]


def _in_a_rollback(action: Action) -> Action:
    """Explain what settling a doubt means where the flow will not be executed."""
    meaning = action.meaning
    if " undo/" not in action.command and " 'undo" not in action.command:
        meaning = meaning.replace("(it will be executed)", "(there is nothing to undo)")
    meaning = meaning.replace("(the flow gets StepFailed)", "(it stays as it is)")
    return Action(meaning, action.command)


def _cannot_be_undone(case: Case, to: str | None) -> None:
    """The rollback was held because something cannot be undone that nobody has confirmed."""
    held = held_facts(case.past)
    case.said.case = f"{case.name} is paused: {held.get('detail', '')}."
    more = () if to is None else ("--to", to)
    if any("--confirm" in action for action in held.get("actions", ())):
        sure = command("rollback", case.row.run_id, *more, "--confirm")
        case.said.actions.insert(0, Action("Leave it as it is, and undo the rest:", sure))


def _was_rolled_back_to_a_step(case: Case) -> None:
    held = held_facts(case.past)
    if case.row.status is Status.HELD and "rolled back to" in str(held.get("detail", "")):
        case.said.case = f"{case.name} is paused: {held['detail']}."
        keeps = case.past.recorded()
        steps = "1 step keeps its" if keeps == 1 else f"{keeps:,} steps keep their"
        case.said.known[0] = f"{steps} recorded outcome when it goes on."


def _who(actor: str, reason: str) -> str:
    by = "Its flow" if actor == "flow" else clipped(actor)
    because = f": {clipped(reason)}" if reason else ""
    return f"{by} asked for it{because}."


def _ended(case: Case) -> str:
    return case.since(case.row.updated_us)


OPERATOR_SIDE = OperatorSide(
    name="rollback", explain=about_rollback, statuses={Status.ROLLED_BACK: rolled_back}
)
