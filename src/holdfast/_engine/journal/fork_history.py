"""The history of a fork: the entries that it borrows from its origin, and those that it leaves. Pure.

A fork is a run of its own: its own id, input, keys and journal. Nothing of the other run is copied.
Its second entry, `run_forked`, says what it *borrows*:

    parts     which entries of which runs: of its origin, and of the runs from which its origin
              borrows. Each part ends at an entry and names its digest, so that the
              fork's chain stands on the other run's
    results   outcomes that replace recorded ones
    states    given states of loops, each with the turn that begins with it

Borrowed entries have numbers below 0, and given results and states have 0, so that all of them come
before the fork's own entries. From there on they are folded like any others, and the records are marked as
`borrowed`: matched by key alone, returned, never executed and never undone.

A fork borrows every step that had its outcome when the first entry of `before` was written. A step that
was under way at that moment (in another branch, say) has no outcome, and is called anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.step_keys import is_undo, is_within, scope_of, undo_key
from holdfast._engine.journal.step_record import facts, outcome_is_unknown
from holdfast.errors import Corrupt, UsageError

NAMES_SHOWN = 5
NOT_GIVEN: Any = object()
"""No state was given; None is a state too."""

_BESIDE_STEPS = frozenset(
    {
        Kind.RUN_STARTED,
        Kind.RUN_CLAIMED,
        Kind.RUN_RESUMED,
        Kind.RUN_RELEASED,
        Kind.RUN_WAITING,
        Kind.RUN_HELD,
        Kind.RUN_COMPLETED,
        Kind.RUN_FAILED,
        Kind.RUN_CANCELLED,
        Kind.RUN_ROLLED_BACK,
        Kind.RUN_FORKED,
        Kind.CANCEL_REQUESTED,
        Kind.ROLLBACK_REQUESTED,
        Kind.BUDGET_SET,
        Kind.DRIFT_FOUND,
        Kind.FINDING_NOTED,
        Kind.CHANGE_ACCEPTED,
    }
)
"""Entries about the other run's life, not about a call."""
_GIVEN = frozenset(
    {
        Kind.STEP_COMPLETED,
        Kind.STEP_FAILED,
        Kind.STEP_SETTLED,
        Kind.SKIPPED_DUPLICATE,
        Kind.VALUE_RECORDED,
    }
)
"""Outcomes that a person can replace by another value."""


class Part(msgspec.Struct, frozen=True):
    """Entries of one run that a fork borrows: up to a number, without the skipped ones."""

    run: str
    seq: int
    head: str
    """The digest of the entry with that number, in hex."""
    skips: list[tuple[int, int]] = []


class Facts(msgspec.Struct):
    """The facts of `run_forked`."""

    origin: str = msgspec.field(name="from")
    from_seq: int
    before: str
    actor: str
    parts: list[Part]
    differences: list[str]
    """Values that the fork got in place of recorded ones: its input, results, the state of a loop."""
    repeats: list[str]
    """Effects of the other run that somebody confirmed to execute again."""
    given: str
    """A digest of the changed values, to recognize the same fork."""
    results: list[tuple[str, msgspec.Raw]] = []
    states: list[tuple[str, int, msgspec.Raw]] = []
    """Pairs and triples, and not objects: a step may be called `list`, and such a name marks a reference
    to a chunk."""


class Borrowed(msgspec.Struct):
    """The loaded entries that a fork borrows, numbered as the fork sees them."""

    facts: Facts
    at_us: int
    parts: list[tuple[Part, int, list[Entry]]]
    """Each with the offset of its numbers."""


def read(run_id: str, entry: Entry | None) -> Facts:
    """Return the body of a fork's second entry."""
    if entry is None or entry.kind is not Kind.RUN_FORKED:
        raise Corrupt("entry 2", run_id=run_id, why="a fork has run_forked there")
    return msgspec.json.decode(entry.body, type=Facts)


# -- folding -------------------------------------------------------------------------------------


def borrow(told: Facts, at_us: int, loaded: Sequence[list[Entry]]) -> Borrowed:
    """Number the entries of each part, so that the last of all is -1."""
    parts: list[tuple[Part, int, list[Entry]]] = []
    offset = -sum(part.seq for part in told.parts) - 1
    for part, entries in zip(told.parts, loaded, strict=True):
        moved = [msgspec.structs.replace(entry, seq=entry.seq + offset) for entry in entries]
        parts.append((part, offset, moved))
        offset += part.seq
    return Borrowed(told, at_us, parts)


def fold(
    run_id: str,
    entries: Iterable[Entry],
    borrowed: Borrowed | None = None,
    *,
    gaps: bool = False,
    empty: History | None = None,
) -> History:
    """Fold a run's entries, after what it borrows if it is a fork; into `empty`, if given."""
    history = empty or History(run_id)
    if borrowed is not None:
        _begin(history, borrowed)
    return History.fold(run_id, entries, gaps=gaps, onto=history)


def _begin(history: History, borrowed: Borrowed) -> None:
    """Fold what a fork has before its own first entry."""
    history.status = Status.RUNNING
    for _, _, entries in borrowed.parts:
        for entry in entries:
            history.add(entry)
    for key, node in borrowed.facts.results:
        _give(history, key, bytes(node), borrowed.at_us)
    for loop, turn, node in borrowed.facts.states:
        body = b'{"turn":%d,"state":%b}' % (turn, bytes(node))
        history.saved[loop] = _made(Kind.STATE_SAVED, loop, body, borrowed.at_us)
    history.records = {key: record for key, record in history.records.items() if record.has_outcome}
    for record in history.records.values():
        record.borrowed = True
    history.old = dict(history.records)
    history.placed.clear()
    history.lent, history.origin = dict(history.saved), borrowed.facts.origin
    history.status, history.last_seq = None, 0


def _give(history: History, key: str, node: bytes, at_us: int) -> None:
    """Replace a recorded result by a given one."""
    record = history.records.get(key)
    if record is None:
        record = history.records[key] = Record(key, None, None, 0, at_us, ended_us=at_us)
    was = record.outcome
    if was is not None and was.kind is Kind.VALUE_RECORDED:
        record.outcome = _made(Kind.VALUE_RECORDED, key, b'{"value":%b}' % node, at_us)
    else:
        record.outcome = _made(Kind.STEP_COMPLETED, key, b'{"result":%b}' % node, at_us)
    record.state = State.COMPLETED
    record.degraded = False


def _made(kind: Kind, step: str, body: bytes, at_us: int) -> Entry:
    return Entry(0, kind, at_us, step, 0, None, None, None, body, b"")


# -- cutting -------------------------------------------------------------------------------------


class Cut(msgspec.Struct):
    """Where a fork leaves the other run: the history before that place, and after it."""

    step: str
    seq: int
    """The number of the first entry that is left behind."""
    past: History
    """The other run's history before that entry."""
    kept: dict[str, Record]
    """Calls whose outcomes the fork borrows."""
    whole: History
    """The other run's history now."""
    lent: Borrowed | None
    """The entries before that one that the origin has borrowed itself."""

    @property
    def loop(self) -> tuple[str, int] | None:
        """The innermost loop around the place, and its turn."""
        parts = scope_of(self.step).split("/")
        for at in range(len(parts), 0, -1):
            name, bracket, turn = parts[at - 1].rpartition("[")
            if bracket and name.startswith("turns"):
                return "/".join([*parts[: at - 1], name]), int(turn.rstrip("]"))
        return None


def cut_before(
    run_id: str, before: str, entries: Sequence[Entry], borrowed: Borrowed | None
) -> Cut:
    """Cut a run's history before the first entry of a step, or of a scope such as `turns[3]`."""
    whole = fold(run_id, entries, borrowed)
    first = _first_of(whole, before, borrowed)
    own = [entry for entry in entries if entry.seq < first.first_seq]
    lent = None if borrowed is None else _cut(borrowed, first)
    past = fold(run_id, own, lent)
    kept = {
        key: record
        for key, record in past.records.items()
        if record.has_outcome
        and not is_undo(key)
        and not is_taken_back(record, whole)
        and not is_replaced(key, past)
    }
    return Cut(first.key, first.first_seq, past, kept, whole, lent)


def is_taken_back(record: Record, whole: History) -> bool:
    """Return whether the other run undid an effect, or began to: then it is not what it was."""
    return undo_key(record.key, record.generation) in whole.records


def _first_of(whole: History, before: str, borrowed: Borrowed | None) -> Record:
    every = [*whole.records.values(), *reversed(whole.superseded)]
    found = next((record for record in every if record.key == before), None)
    if found is None:
        inside = [record for record in every if is_within(scope_of(record.key), before or "/")]
        found = min(inside, key=lambda record: record.first_seq, default=None)
    if found is None:
        raise _unknown(whole, before, "has no step", borrowed)
    return found


def _unknown(whole: History, key: str, what: str, borrowed: Borrowed | None) -> UsageError:
    import difflib  # Only to say what is wrong.

    near = difflib.get_close_matches(key, list(whole.records), NAMES_SHOWN, 0.3)
    told = f"run {whole.run_id!r} {what} {key!r}"
    if near:
        told += f"; the nearest are {', '.join(near)}"
    if borrowed is not None:
        told += f". It was forked from run {borrowed.facts.origin!r}; what stands earlier is there"
    return UsageError(f"{told}. All that it has: {command('show', whole.run_id, '--all')}")


def _cut(borrowed: Borrowed, first: Record) -> Borrowed:
    """Return what a fork borrows from before a place."""
    if first.first_seq > 0:
        return borrowed
    parts = [
        (part, offset, [entry for entry in entries if entry.seq < first.first_seq])
        for part, offset, entries in borrowed.parts
    ]
    there = {entry.step for _, _, entries in parts for entry in entries}
    told = msgspec.structs.replace(
        borrowed.facts,
        results=[pair for pair in borrowed.facts.results if pair[0] in there],
        states=[
            given
            for given in borrowed.facts.states
            if given[0] in there or is_within(scope_of(first.key), f"{given[0]}[{given[1]}]")
        ],
    )
    return msgspec.structs.replace(borrowed, facts=told, parts=parts)


def is_replaced(key: str, past: History) -> bool:
    """Return whether a call (or an inner loop) lies in a turn that a snapshot stands for."""
    for loop, saved in past.saved.items():
        inside = f"{loop}["
        if key.startswith(inside):
            turn = int(key[len(inside) :].partition("]")[0])
            if turn < int(facts(saved).get("turn", 0)):
                return True
    return False


def check_replaceable(cut: Cut, key: str) -> None:
    """Refuse a result for what is no step of the other run."""
    if is_replaced(key, cut.past):
        raise UsageError(
            f"{key} of run {cut.whole.run_id!r} belongs to a turn that ended before {cut.step}; its "
            "result is in the state of its loop: fork before that turn, or give state="
        )
    record = cut.whole.records.get(key)
    if record is None:
        raise _unknown(cut.whole, key, "has no such step for results=:", cut.lent)
    waits = record.begun is not None and record.intent is None
    if waits or (record.outcome is not None and record.outcome.kind not in _GIVEN):
        raise UsageError(
            f"{key} of run {cut.whole.run_id!r} is no step; results= replaces results of steps, "
            "effects, now(), rng() and uuid4()"
        )


# -- what the fork says that it borrows ----------------------------------------------------------


def parts_of(cut: Cut, entries: Sequence[Entry]) -> list[Part]:
    """Return the parts of a fork of this run; only needed entries are ever loaded."""
    saved = {entry.seq for loop, entry in cut.past.saved.items() if not is_replaced(loop, cut.past)}
    parts: list[Part] = []
    for part, offset, lent in () if cut.lent is None else cut.lent.parts:
        kept = [entry for entry in lent if _is_needed(entry, cut, saved)]
        if kept:
            skips = _between(part.seq, [(e.first_seq - offset, e.seq - offset) for e in kept])
            parts.append(msgspec.structs.replace(part, skips=skips))
    before = [entry for entry in entries if entry.seq < cut.seq]
    if before:
        kept = [entry for entry in before if _is_needed(entry, cut, saved)]
        skips = _between(before[-1].seq, [(e.first_seq, e.seq) for e in kept])
        parts.append(Part(cut.whole.run_id, before[-1].seq, before[-1].digest.hex(), skips))
    return parts


def _is_needed(entry: Entry, cut: Cut, saved: set[int]) -> bool:
    if entry.seq >= cut.seq or entry.step is None or entry.kind in _BESIDE_STEPS:
        return False
    if entry.kind is Kind.STATE_SAVED:
        return entry.seq in saved
    record = cut.kept.get(entry.step)
    return record is not None and record.first_seq <= entry.first_seq <= record.last_seq


def _between(last: int, kept: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges up to a number that are not kept."""
    skips: list[tuple[int, int]] = []
    at = 1
    for low, high in kept:
        if low > at:
            skips.append((at, low - 1))
        at = high + 1
    if at <= last:
        skips.append((at, last))
    return skips


def states_at(past: History) -> list[str]:
    """Return the loops whose states the fork borrows, each with the turn that begins with it.
    Earlier turns are contained in the state and are not called again."""
    return [
        f"{loop}[{facts(saved).get('turn', 0)}]"
        for loop, saved in past.saved.items()
        if saved.seq <= 0 and not is_replaced(loop, past)
    ]


def inherited(cut: Cut) -> tuple[list[tuple[str, msgspec.Raw]], list[tuple[str, int, msgspec.Raw]]]:
    """Return the given results and states of the other run that still count."""
    if cut.lent is None:
        return [], []
    results = [
        (key, node)
        for key, node in cut.lent.facts.results
        if (record := cut.kept.get(key)) is not None and record.borrowed
    ]
    states = [
        (loop, turn, node)
        for loop, turn, node in cut.lent.facts.states
        if (saved := cut.past.saved.get(loop)) is not None
        and saved.seq == 0
        and not is_replaced(loop, cut.past)
    ]
    return results, states


# -- effects that a fork would execute again ------------------------------------------------------


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
    """Describe in a few words what an effect has done already; None if nothing, or if its business key
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
