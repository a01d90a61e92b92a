"""Snapshots of loops: the list, one state, and the differences between two.

Differences work on any two JSON values. Elements of lists are addressed by position: the common
beginning and end of two lists are left out, elements between them are compared in pairs, and the rest
was added or removed. So a path in a list means the same position in both, except for `added` (a
position in the new list) and `removed` (a position in the old one).
"""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, cast

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_record import facts
from holdfast._engine.values.moments import at
from holdfast._stores import lineage
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row
from holdfast._stores.readable_values import Reader
from holdfast.errors import UsageError

# -- what changed between two values ------------------------------------------------------------


LIMIT = 1_000
"""How many differences are listed at most."""
DEPTH_MAX = 60
"""Deeper than this, a value is compared as a whole."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_encode = msgspec.json.Encoder(order="deterministic").encode


class Difference(msgspec.Struct, frozen=True):
    """One place where two values differ; the path of the whole value is empty."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


def differences(before: Any, after: Any, limit: int = LIMIT) -> list[Difference]:
    """Return where two values differ, in the order of their parts; not more than `limit`. Who must
    know whether there are more asks for one more than they show."""
    return list(itertools.islice(_between(before, after, "", 0), limit))


def _between(before: Any, after: Any, path: str, depth: int) -> Iterator[Difference]:
    if before is after:
        return
    kind, other = _kind(before), _kind(after)
    if depth < DEPTH_MAX and kind == other:
        if kind == "dict":
            yield from _of_objects(before, after, path, depth + 1)
            return
        if kind == "list":
            yield from _of_lists(before, after, path, depth + 1)
            return
    if not _same(before, after):
        yield Difference(path, "changed", before, after)


def _kind(value: object) -> str:
    return type(value).__name__


def _of_objects(
    before: dict[str, Any], after: dict[str, Any], path: str, depth: int
) -> Iterator[Difference]:
    for name, was in before.items():
        inside = _named(path, name)
        if name in after:
            yield from _between(was, after[name], inside, depth)
        else:
            yield Difference(inside, "removed", before=was)
    for name, now in after.items():
        if name not in before:
            yield Difference(_named(path, name), "added", after=now)


def _of_lists(before: list[Any], after: list[Any], path: str, depth: int) -> Iterator[Difference]:
    shorter = min(len(before), len(after))
    begin = 0
    while begin < shorter and _same(before[begin], after[begin]):
        begin += 1
    end = 0
    while end < shorter - begin and _same(before[-1 - end], after[-1 - end]):
        end += 1
    paired = shorter - end
    for place in range(begin, paired):
        yield from _between(before[place], after[place], f"{path}[{place}]", depth)
    for place in range(paired, len(before) - end):
        yield Difference(f"{path}[{place}]", "removed", before=before[place])
    for place in range(paired, len(after) - end):
        yield Difference(f"{path}[{place}]", "added", after=after[place])


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON: 1, 1.0 and true are three."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (dict, list)):
        size = cast("dict[str, Any] | list[Any]", one)
        return len(size) == len(other) and _encode(one) == _encode(other)
    return bool(one == other)


def _named(path: str, name: Any) -> str:
    """Return the path of a field; a name that would be misread stands in brackets, as JSON."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{msgspec.json.encode(str(name)).decode()}]"


# -- snapshots ----------------------------------------------------------------------------------


_VOIDS = frozenset({Kind.RUN_RESUMED, Kind.DRIFT_FOUND})
"""Entries that may let loops start over."""


class SnapshotView(msgspec.Struct, frozen=True):
    """One snapshot of a loop, without its state."""

    seq: int
    """The number of its entry; below 1 if it is another run's, or was given to a fork."""
    at: dt.datetime
    path: str
    """The step key of the loop: `turns`, `turns[3]/turns#2`."""
    turn: int
    """The turn that begins with it."""
    bytes: int
    """What its entry takes in the journal; what was stored before is not stored, nor counted, again."""
    generation: int
    superseded: bool
    """Whether the loop has started over since: no resume begins with it."""
    borrowed: bool = False
    """Whether the run that this one was forked from saved it, or somebody gave it to the fork."""


class StateView(msgspec.Struct, frozen=True):
    """The state of a loop as a snapshot has it."""

    seq: int
    at: dt.datetime
    path: str
    turn: int
    state: Any


class Comparison(msgspec.Struct, frozen=True):
    """What changed from one snapshot to another."""

    before: SnapshotView
    after: SnapshotView
    differences: list[Difference]
    cut: bool
    """Whether there are more differences than are listed."""


class _Saved(msgspec.Struct):
    """A snapshot with its entry."""

    entry: Entry
    generation: int
    borrowed: bool = False
    superseded: bool = False

    def view(self) -> SnapshotView:
        entry = self.entry
        return SnapshotView(
            seq=entry.seq,
            at=at(entry.at_us),
            path=entry.step or "",
            turn=int(msgspec.json.decode(entry.data().get("turn", b"0"))),
            bytes=len(entry.body),
            generation=self.generation,
            superseded=self.superseded,
            borrowed=self.borrowed,
        )


def snapshots(store: Store, run_id: str) -> list[SnapshotView]:
    """Return the snapshots of all loops of a run, oldest first; none if it has no loop."""
    return [saved.view() for saved in _saved(store, existing_row(store, run_id))]


def state(
    store: Store,
    run_id: str,
    seq: int | None = None,
    *,
    path: str | None = None,
    plain: bool = True,
) -> StateView:
    """Return the state that was saved last when entry `seq` was written: without it, the newest.
    With `path` only that loop counts. With `plain`, in the form that needs no classes."""
    row = existing_row(store, run_id)
    saved = _select(run_id, _saved(store, row), seq, path)
    seen = saved.view()
    value = Reader(store, row).value(bytes(saved.entry.data()["state"]), plain=plain)
    return StateView(seen.seq, seen.at, seen.path, seen.turn, value)


def compared(
    store: Store, run_id: str, before: int, after: int, *, path: str | None = None
) -> Comparison:
    """Return what changed between the states that were saved last at two entries."""
    row = existing_row(store, run_id)
    kept = _saved(store, row)
    first, second = (_select(run_id, kept, seq, path) for seq in (before, after))
    reader = Reader(store, row)  # One for both: what is stored once is read once, and not compared.
    was, now = (
        reader.value(bytes(saved.entry.data()["state"]), plain=True) for saved in (first, second)
    )
    changes = differences(was, now, LIMIT + 1)
    return Comparison(first.view(), second.view(), changes[:LIMIT], len(changes) > LIMIT)


def _select(run_id: str, kept: list[_Saved], seq: int | None, path: str | None) -> _Saved:
    if path is not None:
        kept = [saved for saved in kept if saved.entry.step == path]
    if not kept:
        whose = f"no loop {path!r} with a snapshot" if path is not None else "no snapshots"
        raise UsageError(
            f"run {run_id!r} has {whose}: only loops over turns(…) save a state, at the end of each "
            f"turn. What it has: {command('show', run_id)}"
        )
    if seq is None:
        return kept[-1]
    until = [saved for saved in kept if saved.entry.seq <= seq]
    if not until:
        first = kept[0].entry.seq
        raise UsageError(
            f"run {run_id!r} had no snapshot yet at entry {seq}; the first is entry {first}"
        )
    return until[-1]


def _saved(store: Store, row: RunRow) -> list[_Saved]:
    """Return the snapshots in order, what is borrowed first."""
    kept = list(_borrowed(store, row))
    generation = 1
    for entry in store.load(row):
        if entry.kind is Kind.STATE_SAVED:
            kept.append(_Saved(entry, generation))
        elif entry.kind in _VOIDS:
            told = facts(entry)
            generation = int(told.get("generation", generation))
            _start_over(kept, told.get("loops", ()), frozenset(told.get("lent", ())))
    return kept


def _borrowed(store: Store, row: RunRow) -> Iterator[_Saved]:
    lent = lineage.borrowed(store, row)
    if lent is None:
        return
    for _, _, entries in lent.parts:
        for entry in entries:
            if entry.kind is Kind.STATE_SAVED:
                yield _Saved(entry, 1, borrowed=True)
    for loop, turn, node in lent.facts.states:
        body = b'{"turn":%d,"state":%b}' % (turn, bytes(node))
        given = Entry(0, Kind.STATE_SAVED, lent.at_us, loop, 0, None, None, None, body, b"")
        yield _Saved(given, 1, borrowed=True)


def _start_over(kept: list[_Saved], loops: Iterable[str], lent: frozenset[str]) -> None:
    """Mark what is void; a loop of a fork may go back to the state that was borrowed."""
    for loop in loops:
        for saved in kept:
            path = saved.entry.step or ""
            inside = path == loop or path.startswith(f"{loop}[")
            if inside and not (saved.borrowed and loop in lent):
                saved.superseded = True
