"""What the crash matrix holds against the promises: calls that the world saw, and what the journal
says of them."""

from __future__ import annotations

from holdfast._engine.journal.entries import Entry, Kind
from holdfast.testing.lives import Executed, Ledger

_OUTCOMES = frozenset(
    {Kind.STEP_COMPLETED, Kind.STEP_FAILED, Kind.STEP_SETTLED, Kind.SKIPPED_DUPLICATE}
)


def repeated(ledger: Ledger, known: set[tuple[int, str]]) -> list[str]:
    """Say which steps were executed again in this life, though their outcome was known."""
    return [
        f"{call.step} was executed again, although its outcome was recorded"
        for call in ledger.bodies(ledger.life)
        if (call.generation, call.step) in known
    ]


def wrong_calls(
    ledger: Ledger, undisturbed: dict[str, int], journal: list[Entry], deaths: int = 0
) -> list[str]:
    """Say what the world saw that was not promised."""
    groups: dict[tuple[int, str], list[Executed]] = {}
    for call in ledger.bodies():
        groups.setdefault((call.generation, call.step), []).append(call)
    wrong: list[str] = []
    for (_, step), calls in groups.items():
        if not all(call.intended for call in calls):
            wrong.append(f"{step} was called before its intent was recorded")
        keys = {call.key for call in calls}
        if calls[0].effect and len(keys) > 1:
            wrong.append(f"{step} showed {len(keys)} different keys: {', '.join(sorted(keys))}")
        allowed = undisturbed.get(step, len(calls)) + _more(calls[0], journal, deaths)
        if len(calls) > allowed:
            policy = f' (on_doubt="{calls[0].policy}")' if calls[0].effect else ""
            wrong.append(
                f"{step}{policy} was executed {len(calls)}×; at most {allowed}× is promised"
            )
    return wrong


def unrecorded(ledger: Ledger, journal: list[Entry]) -> list[str]:
    """In a run that has completed, what was executed has an outcome."""
    recorded = {entry.step for entry in journal if entry.kind in _OUTCOMES}
    return [
        f"{step} was executed, and its outcome is not recorded"
        for step in ledger.counts()
        if step not in recorded
    ]


def _more(call: Executed, journal: list[Entry], deaths: int) -> int:
    """Return how often more than undisturbed a body may be called after so many deaths."""
    if not call.effect or call.policy in ("retry", "transaction"):
        return deaths
    return sum(
        1
        for entry in journal
        if entry.step == call.step
        and entry.kind is Kind.STEP_SETTLED
        and b'"as":"not_done"' in entry.body
    )


def given_up(journal: list[Entry]) -> list[str]:
    """Return the effects that were given up, their outcome unknown."""
    return [
        str(entry.step)
        for entry in journal
        if entry.kind is Kind.STEP_FAILED and b'"unknown":true' in entry.body
    ]
