"""What is known of forks: where a run came from, and what it cannot be read without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._core import forking
from holdfast._core.commands import command
from holdfast._core.entries import Entry
from holdfast._core.forking import Facts
from holdfast._core.lifecycle import Status
from holdfast._core.rows import RunRow
from holdfast._ops.readable import Reader
from holdfast._ops.text import count
from holdfast._store import lineage
from holdfast._store.contract import Store
from holdfast.errors import RunDeleted

if TYPE_CHECKING:
    from holdfast._ops.explanation import Case


def origin(row: RunRow) -> str | None:
    """Return the id of the run that a fork came from."""
    of = lineage.origin_of(row)
    return None if of is None else of.run


def lacking(source: Store, target: Store, row: RunRow) -> str | None:
    """Return the run that a fork borrows from and that another store has not got, or not as it was
    when the fork was made; None if there is no such run."""
    of = lineage.origin_of(row)
    if of is None:
        return None
    there = target.get(of.run)
    if there is None or there.next_chunk < of.base:
        return of.run
    for part in lineage.told_of(source, row).parts:
        other = target.get(part.run)
        entry = None
        if other is not None and other.deleted_us is None and other.last_seq >= part.seq:
            entry = target.entry(other.run_no, part.seq)
        if entry is None or entry.digest.hex() != part.head:
            return part.run
    return None


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


def about(case: Case) -> None:
    """Say of a fork where it came from."""
    if case.row.origin is None:
        return
    told = lineage.told_of(case.store, case.row)
    lent = sum(record.borrowed and not record.keeps_place for record in case.past.records.values())
    said = f"It was forked from run {told.origin}, before {told.before}, by {told.actor}"
    if lent:
        came = "came along and is" if lent == 1 else "came along and are"
        said += f"; {count(lent, 'outcome')} of that run {came} not executed again"
    states = [f"the state of {turn}" for turn in forking.states_at(case.past)]
    if states:
        said += f"; {' and '.join(states)} came along"
    case.said.known.append(said + ".")
    if told.differences:
        case.said.known.append(f"It differs from that run in: {', '.join(told.differences)}.")
    inputs = [it.removeprefix("input ") for it in told.differences if it.startswith("input ")]
    if inputs and case.row.status is Status.FAILED:
        anew = command("fork", told.origin, "NEW_RUN_ID", "--before", told.before)
        case.do(
            f"The input of a run cannot be changed. If {', '.join(inputs)} is wrong, resume fails "
            "again: fork with another input:",
            f"{anew} --input JSON",
        )
    if told.repeats:
        case.said.known.append(
            f"Effects of that run that it may execute again, which {told.actor} confirmed: "
            f"{', '.join(told.repeats)}."
        )


def shown_facts(entry: Entry, reader: Reader, *, plain: bool) -> dict[str, Any]:
    """Return what `run_forked` says, for people: the values as values."""
    told = msgspec.json.decode(entry.body, type=Facts)
    facts: dict[str, Any] = {
        "from": told.origin,
        "from_seq": told.from_seq,
        "before": told.before,
        "actor": told.actor,
        "differences": told.differences,
        "repeats": told.repeats,
    }
    if told.results:
        facts["results"] = {
            key: reader.value(bytes(node), plain=plain) for key, node in told.results
        }
    if told.states:
        facts["states"] = {
            f"{loop}[{turn}]": reader.value(bytes(node), plain=plain)
            for loop, turn, node in told.states
        }
    return facts
