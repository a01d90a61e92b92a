"""Group held runs by cause. One cause may hold many runs: an exhausted budget, a business key in doubt,
a flow whose code changed. It is reported once, with the command that frees all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.resume import facts_of
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.scripts.doubt import settle_actions
from holdfast._engine.text import count
from holdfast._engine.values.moments import at
from holdfast._features.operator_side import Action
from holdfast._operator.explain.doubts import key_waited_for
from holdfast._operator.read.feature_sides import HOLDS
from holdfast._stores.contract import Query, Store
from holdfast._stores.families import children
from holdfast.errors import Corrupt

NAMED = 3
"""How many of the runs that one cause holds are named."""
LOOKED_AT = 1000
"""How many runs are looked at for what holds them."""
BACK = 20
"""How far behind the last entry of a run is looked for the one that held it."""


class Cause(msgspec.Struct, frozen=True):
    """Something that holds one run or many."""

    reason: str
    what: str
    """The state, in a sentence without its full stop."""
    total: int
    """How many runs it holds, of those that were looked at."""
    runs: tuple[str, ...]
    """The ids of the first of them."""
    flow: str
    """The flow of the first of them."""
    since: dt.datetime
    """When the first of them was held."""
    actions: tuple[Action, ...]
    """What lets all of them go on; or the first of them, if each needs a decision of its own."""
    frees_all: bool = True
    """Whether one of these commands lets all of them go on."""

    @property
    def named(self) -> str:
        """The runs: the first few by id, and how many more there are."""
        more = self.total - len(self.runs)
        names = ", ".join(self.runs)
        return f"{names} and {more:,} more" if more else names


def causes(store: Store, rows: Iterable[RunRow]) -> list[Cause]:
    """Return what holds these runs, in the order in which they come."""
    gathered: dict[tuple[str, ...], list[_Held]] = {}
    for row in rows:
        held = _Held(store, row)
        gathered.setdefault(held.cause, []).append(held)
    return [_cause(store, together) for together in gathered.values()]


def held_in(store: Store, limit: int = LOOKED_AT) -> list[RunRow]:
    """Return the runs of a store that are held, but for those that went on elsewhere, newest first."""
    return store.list(Query(status=[Status.HELD], limit=limit))


def held_below(store: Store, run_id: str) -> list[RunRow]:
    """Return the runs that are held among those that a run started, oldest first; also below children
    that wait for children of their own."""
    found: list[RunRow] = []
    above, looked = [run_id], 0
    while above and looked < LOOKED_AT:
        for row in children(store, above.pop(0), [Status.HELD, Status.WAITING]):
            looked += 1
            if row.status is Status.HELD:
                found.append(row)
            elif (row.waiting_on or "").startswith("child:"):
                above.append(row.run_id)
            if looked >= LOOKED_AT:
                break
    return sorted(found, key=lambda row: row.run_no)


class _Held:
    """A run that is held, and what by."""

    def __init__(self, store: Store, row: RunRow) -> None:
        self.row = row
        self.facts: dict[str, Any] = {}
        self.shared: tuple[str, Any] | None = None
        """The cause of a feature that it shares with other runs."""
        self.reason = str(row.held_reason)
        self.since_us = row.updated_us
        try:
            self._read(store)
        except Corrupt as damage:
            self.reason = HeldReason.CORRUPT.value
            self.facts = {"detail": str(damage)}
        self.cause = self._cause(store)

    def _read(self, store: Store) -> None:
        row = self.row
        for seq in range(row.last_seq, max(0, row.last_seq - BACK), -1):
            entry = store.entry(row.run_no, seq)
            if entry is not None and entry.kind is Kind.RUN_HELD:
                self.facts, self.since_us = facts_of(entry), entry.at_us
                break
        if self.reason in HOLDS:
            self.shared = HOLDS[HeldReason(self.reason)].shared(store, row)

    def _cause(self, store: Store) -> tuple[str, ...]:
        row, detail = self.row, str(self.facts.get("detail", ""))
        if self.reason == HeldReason.IN_DOUBT:
            key = key_waited_for(store, row)
            if key is not None:
                return self.reason, key.run_id, key.step
            return self.reason, row.run_id, str(self.facts.get("step", ""))
        if self.shared is not None:
            return self.reason, self.shared[0]
        if self.reason in (HeldReason.DIVERGED, HeldReason.QUARANTINED):
            return self.reason, row.flow, row.version
        return self.reason, detail or row.run_id


def _cause(store: Store, together: list[_Held]) -> Cause:
    # Of an effect in doubt: its own run before those that need its key.
    together.sort(key=lambda held: held.row.run_id != held.cause[1])
    first = together[0]
    what, actions, frees_all = _text_and_actions(store, together)
    return Cause(
        reason=first.reason,
        what=what,
        total=len(together),
        runs=tuple(held.row.run_id for held in together[:NAMED]),
        flow=first.row.flow,
        since=at(min(held.since_us for held in together)),
        actions=tuple(actions),
        frees_all=frees_all,
    )


def _text_and_actions(store: Store, together: list[_Held]) -> tuple[str, list[Action], bool]:
    """Return the cause, the action against it, and whether that action frees all of them."""
    first, many = together[0], len(together) > 1
    detail = str(first.facts.get("detail", "")) or first.reason
    if first.shared is not None:
        holds = HOLDS[HeldReason(first.reason)]
        return *holds.cause(store, first.shared[1], together), True
    flow = first.row.flow
    if first.reason == HeldReason.IN_DOUBT and many:
        _, run_id, step = first.cause
        what = f"{step} of run {run_id} may or may not have happened, and others need its key"
        return what, recorded_actions(settle_actions(run_id, step)), True
    if first.reason == HeldReason.DIVERGED and many:
        actions = [
            Action(
                "Put the code back as it was, then replay all diverged runs of this flow:",
                command("resume", "--diverged", "--flow", flow, values=0),
            ),
            Action(
                "Keep the changed code for all of them:",
                command("resume", "--diverged", "--flow", flow, "--accept-change", values=0),
            ),
        ]
        return f"the code of flow {flow} no longer fits what is recorded", actions, True
    if first.reason == HeldReason.QUARANTINED and many:
        again = command("resume", "--quarantined", "--flow", flow, values=0)
        actions = [Action("Remove the cause, then let all of them be executed again:", again)]
        return f"each process that took a run of flow {flow} died or left it", actions, True
    return detail, recorded_actions(first.facts.get("actions", ())), not many


def recorded_actions(actions: Iterable[Any]) -> list[Action]:
    """Return the commands that an entry recorded, each with what is written behind it."""
    told: list[Action] = []
    for action in actions:
        cmd, _, meaning = str(action).partition("  ")
        what = meaning.strip(" ()")
        told.append(Action(what[:1].upper() + what[1:] + ":" if what else "It goes on with:", cmd))
    return told


def in_words(cause: Cause, whose: str) -> str:
    """Describe a cause and the runs that it holds."""
    if cause.total == 1:
        return f"Run {cause.runs[0]}, {whose}, is held ({cause.reason}): {cause.what}."
    runs = count(cause.total, "run")
    return f"{runs} {whose} are held ({cause.reason}): {cause.what}. They are {cause.named}."
