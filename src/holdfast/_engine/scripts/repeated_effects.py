"""What a fork would do a second time: effects of the run that it came from. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast._engine.decisions.resume import outcome_is_unknown
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.fork_history import Cut, is_replaced, is_taken_back
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.step_keys import is_undo
from holdfast._engine.journal.step_record import facts


class Repeated(msgspec.Struct, frozen=True):
    """An effect of the other run that the fork would execute again, under a new key."""

    step: str
    what: str


def repeated(cut: Cut, given: Iterable[str]) -> list[Repeated]:
    """Return the effects that the fork may execute although they have happened, or may have: those
    that it does not borrow and that have no business key. A child run that is started anew counts:
    what it does is done again. So does what the other run was to repeat itself and has not yet."""
    known = {*cut.kept, *given}
    found: dict[str, Repeated] = {}
    for record in (*cut.whole.records.values(), *cut.whole.superseded):
        if record.key in known or record.key in found or is_undo(record.key):
            continue
        if is_replaced(record.key, cut.past):
            # A state of a loop came along, and stands for it.
            if record.effect and is_taken_back(record, cut.whole):
                found[record.key] = Repeated(record.key, "was taken back, and is not done again")
            continue
        what = _what_happened(record, cut.whole)
        if what is not None:
            found[record.key] = Repeated(record.key, what)
    told = None if cut.lent is None else cut.lent.facts
    for step in () if told is None else told.repeats:
        if step not in known and step not in found and told is not None:
            found[step] = Repeated(step, f"happened in run {told.origin}")
    return list(found.values())


def _what_happened(record: Record, whole: History) -> str | None:
    """Say in a few words what an effect has done already; None if nothing, or if its business key
    keeps it from being done again."""
    if record.begun is not None and record.begun.kind is Kind.CHILD_STARTED:
        return "a child run"
    if not record.effect or _has_business_key(record):
        return None
    if is_taken_back(record, whole):
        return "happened, and was taken back"
    if record.state in (State.COMPLETED, State.SKIPPED):
        return "happened"
    return "may have happened" if outcome_is_unknown(record) else None


def _has_business_key(record: Record) -> bool:
    return record.intent is not None and facts(record.intent).get("business_key") is not None
