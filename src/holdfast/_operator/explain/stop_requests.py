"""Explain a request to stop a run: cancel, pause, a deadline, a rollback."""

from __future__ import annotations

from typing import Any

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.control import requested
from holdfast._engine.decisions.moved_runs import where_else
from holdfast._engine.decisions.resume import facts_of, held_facts
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import ENDED, HeldReason, Status
from holdfast._engine.text import clipped, moment
from holdfast._features.operator_side import ALL_IS_WELL, Action, Wait
from holdfast._features.rollback.model import Effect, Fate, effects_to_undo, wanted
from holdfast._operator.explain.run_case import RunCase
from holdfast._operator.read.relatives import deadline_us
from holdfast._operator.read.run_views import pending_stop, us


def about_control(case: RunCase) -> None:
    """Name the actor that wants the run stopped, and the time limit."""
    asked = requested(case.past)
    if asked is not None:
        who, why = asked
        because = f": {why}" if why else ""
        case.said.known.append(
            f"{who} wants it cancelled{because}. It is cancelled when every doubt is settled, and "
            "nothing more is executed."
        )
    _about_request(case)
    until_us = deadline_us(case.past)
    if until_us is not None and case.row.status not in ENDED:
        case.waits_for(Wait.DEADLINE)
        passed = (
            "that has passed, and" if until_us <= case.now_us else "if it has not ended by then"
        )
        case.said.known.append(f"Its deadline is {moment(until_us)}: {passed} it is cancelled.")


def _about_request(case: RunCase) -> None:
    """Explain what was asked of the run's owner, and is not carried out yet."""
    asked = pending_stop(case.store, case.row)
    if asked is None:
        return
    told = f"It is to be {asked.what}, as {asked.actor} asked {case.since(us(asked.at))}"
    case.said.case = f"{case.said.case.removesuffix(ALL_IS_WELL).rstrip()} {told}."
    if asked.reason:
        case.said.known.append(f"{asked.actor} said why: {asked.reason}")
    case.said.known.append(
        "That is done when what is executing now has ended, unless that was the last thing the run "
        "had to do."
    )


def rolled_back(case: RunCase) -> None:
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


def about_rollback(case: RunCase) -> None:
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


def _cannot_be_undone(case: RunCase, to: str | None) -> None:
    """The rollback was held because something cannot be undone that nobody has confirmed."""
    held = held_facts(case.past)
    case.said.case = f"{case.name} is paused: {held.get('detail', '')}."
    more = () if to is None else ("--to", to)
    if any("--confirm" in action for action in held.get("actions", ())):
        sure = command("rollback", case.row.run_id, *more, "--confirm")
        case.said.actions.insert(0, Action("Leave it as it is, and undo the rest:", sure))


def _was_rolled_back_to_a_step(case: RunCase) -> None:
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


def _ended(case: RunCase) -> str:
    return case.since(case.row.updated_us)
