"""Explain a request to stop a run: cancel, pause, a deadline."""

from __future__ import annotations

from holdfast._engine.decisions.control import requested
from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.text import moment
from holdfast._features.operator_side import ALL_IS_WELL, Wait
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
