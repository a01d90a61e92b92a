"""Explain a run's parent, and the children that it waits for."""

from __future__ import annotations

from collections import Counter
from typing import TypeGuard

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.history import Record
from holdfast._engine.journal.lifecycle import FINAL, HeldReason, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_record import facts
from holdfast._engine.text import count
from holdfast._features.operator_side import Wait
from holdfast._operator.explain.causes import Cause, causes, held_below, in_words
from holdfast._operator.explain.run_case import RunCase
from holdfast._operator.read.feature_sides import HOLDS

CAUSES = 5
"""How many causes are reported, with their commands."""


def about_parent(case: RunCase) -> None:
    """Report the parent of the run."""
    parent = case.row.parent
    if parent is None:
        return
    row = case.store.get(parent)
    status = "is not in this store"
    if row is not None:
        held = f" ({row.held_reason})" if row.status is Status.HELD else ""
        status = f"is {row.status}{held}"
    case.said.known.append(f"It is a child of run {parent}, which {status}.")
    if case.row.status not in FINAL and row is not None:
        case.do("To see the run that called it:", command("explain", parent))


def about_children(case: RunCase, awaited: list[tuple[Record, Entry]]) -> None:
    """Explain what a run waits for that called others, and what holds those that it started: each cause
    once, with the command that helps."""
    if awaited:
        case.waits_for(Wait.CHILD)
    rows = {str(facts(begun)["run"]): begun for _, begun in awaited}
    found = {run_id: case.store.get(run_id) for run_id in rows}
    if len(awaited) > 1:
        _several(case, [begun for _, begun in awaited], list(found.values()))
    else:
        for record, begun in awaited:
            _one(case, record, begun, found[str(facts(begun)["run"])])
    below = held_below(case.store, case.row.run_id)
    known = {row.run_id for row in below}
    below += [row for row in found.values() if _is_held(row) and row.run_id not in known]
    shown = causes(case.store, below)
    for cause in shown[:CAUSES]:
        _about_cause(case, cause, alone=len(awaited) <= 1 and cause.total == 1)
    left = sum(cause.total for cause in shown[CAUSES:])
    if left:
        runs = count(left, "more run")
        case.said.known.append(f"{runs} that it started {'is' if left == 1 else 'are'} held.")
    if len(below) > 1:
        case.do("To see all that are held:", _list(case, "--status", "held"))


def _is_held(row: RunRow | None) -> TypeGuard[RunRow]:
    return row is not None and row.deleted_us is None and row.status is Status.HELD


def _list(case: RunCase, *options: str) -> str:
    return command("runs", "--parent", case.row.run_id, *options)


def _several(case: RunCase, begun: list[Entry], rows: list[RunRow | None]) -> None:
    """Explain the state of the children that a run waits for."""
    there = Counter(
        "not begun" if row is None or row.deleted_us is not None else str(row.status)
        for row in rows
    )
    how = ", ".join(f"{number:,} {status}" for status, number in there.most_common())
    since = case.since(min(entry.at_us for entry in begun))
    case.said.known.append(f"It waits for {len(begun):,} children since {since}: {how}.")
    if set(there) - {str(Status.HELD)}:
        case.do("To see what its children are at:", _list(case))


def _one(case: RunCase, record: Record, begun: Entry, row: RunRow | None) -> None:
    """Explain the state of the one child that a run waits for."""
    run_id, since = str(facts(begun)["run"]), case.since(begun.at_us)
    if row is None or row.deleted_us is not None:
        case.said.known.append(f"{record.key} is to call run {run_id}, which has not begun.")
        return
    held = f" ({row.held_reason})" if row.status is Status.HELD else ""
    case.said.known.append(
        f"{record.key} waits for its child, run {run_id}, since {since}; that is {row.status}{held}."
    )
    if row.status is not Status.HELD:
        case.do(f"To see what {record.key} is at:", command("explain", run_id))


def _about_cause(case: RunCase, cause: Cause, *, alone: bool) -> None:
    """Explain what holds a run that this one started, or many of them; with what can be done."""
    first = cause.runs[0]
    if alone:
        case.said.known.append(f"The child is held: {cause.what}.")
    else:
        case.said.known.append(in_words(cause, "that it started"))
    for action in cause.actions:
        what = action.meaning.rstrip(":")
        if cause.reason in (*HOLDS, HeldReason.DIVERGED, HeldReason.QUARANTINED):
            case.do(action.meaning, action.command)
        elif alone:
            case.do(f"To free the child ({what[:1].lower()}{what[1:]}):", action.command)
        else:
            whom = "them" if cause.frees_all and cause.total > 1 else f"run {first}"
            case.do(f"To free {whom} ({what[:1].lower()}{what[1:]}):", action.command)
    if cause.total == 1:
        whom = "the child" if alone else f"run {first}"
        case.do(f"All about {whom}:", command("explain", first))
