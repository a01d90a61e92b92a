"""What `explain` says of a run that was stopped on purpose, has a deadline, or has a family."""

from __future__ import annotations

from holdfast._core.commands import command
from holdfast._core.control import requested
from holdfast._core.entries import Entry
from holdfast._core.history import Record
from holdfast._core.lifecycle import ENDED, FINAL, Status
from holdfast._core.record import facts
from holdfast._core.resume import held_facts
from holdfast._ops.explanation import ALL_IS_WELL, Case, Wait
from holdfast._ops.families import deadline_us
from holdfast._ops.inspect import fold
from holdfast._ops.stopping import stopping, us
from holdfast._ops.text import moment
from holdfast.errors import Corrupt


def about_control(case: Case) -> None:
    """Say who wants the run stopped, and until when it may take."""
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


def _about_request(case: Case) -> None:
    """Say what was asked of the process that has the run, and is not carried out yet."""
    asked = stopping(case.store, case.row)
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


def about_parent(case: Case) -> None:
    """Say which run called this one."""
    parent = case.row.parent
    if parent is None:
        return
    row = case.store.get(parent)
    status = "is not in this store" if row is None else f"is {row.status}"
    case.said.known.append(f"It is a child of run {parent}, which {status}.")
    if case.row.status not in FINAL and row is not None:
        case.do("To see the run that called it:", command("explain", parent))


def about_child(case: Case, record: Record, begun: Entry) -> None:
    """Say what a run waits for that called another one, and what that one waits for."""
    run_id = str(facts(begun)["run"])
    row = case.store.get(run_id)
    since = case.since(begun.at_us)
    if row is None or row.deleted_us is not None:
        case.said.known.append(f"{record.key} is to call run {run_id}, which has not begun.")
        return
    held = f" ({row.held_reason})" if row.status is Status.HELD else ""
    case.said.known.append(
        f"{record.key} waits for its child, run {run_id}, since {since}; that is {row.status}{held}."
    )
    if row.status is not Status.HELD:
        case.do(f"To see what {record.key} is at:", command("explain", run_id))
        return
    try:
        told = held_facts(fold(case.store, row))
    except Corrupt as damage:
        told = {"detail": str(damage)}
    case.said.known.append(f"The child is held: {told.get('detail', '')}.")
    for action in told.get("actions", ()):
        cmd, _, meaning = str(action).partition("  ")
        what = meaning.strip(" ()")
        case.do(f"To free the child{f' ({what})' if what else ''}:", cmd)
    case.do("All about the child:", command("explain", run_id))
