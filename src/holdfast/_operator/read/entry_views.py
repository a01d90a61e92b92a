"""The view of one journal entry."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from holdfast._engine.journal.entries import VALUES, Entry, Kind
from holdfast._engine.journal.fork_history import Facts
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.values.moments import at
from holdfast._stores.contract import Store
from holdfast._stores.readable_values import Reader


class EntryView:
    """One entry of a journal. Its body is read when it is asked for: the inputs of all steps of a
    long conversation, written out, are far larger than the conversation."""

    def __init__(self, entry: Entry, reader: Reader, *, plain: bool) -> None:
        self.seq = entry.seq
        self.kind = str(entry.kind)
        self.step = entry.step
        self.attempt = entry.attempt
        self.at = at(entry.at_us)
        self._entry = entry
        self._reader = reader
        self._plain = plain

    @functools.cached_property
    def body(self) -> dict[str, Any]:
        """What the entry says, values included."""
        if self._entry.kind is Kind.RUN_FORKED:
            return shown_facts(self._entry, self._reader, plain=self._plain)
        body = {
            name: self._reader.value(bytes(raw), plain=self._plain)
            if name in VALUES
            else msgspec.json.decode(raw)
            for name, raw in self._entry.data().items()
        }
        if self._entry.kind is Kind.STEP_COMPLETED:
            # The start shows the arguments, an outcome its result.
            body.pop("args", None)
        return body

    def __repr__(self) -> str:
        step = f" {self.step}" if self.step else ""
        return f"<{self.seq} {self.kind}{step}>"


def outside(store: Store, row: RunRow, after: int, limit: int | None) -> list[tuple[int, int]]:
    """Return the ranges of a journal that are not asked for. A number in the middle of a joined row
    has no row of its own, so the range begins or ends beside it."""
    after = min(max(after, 0), row.last_seq)
    until = row.last_seq if limit is None else min(after + limit, row.last_seq)
    if 0 < after < row.last_seq:
        here = store.entry(row.run_no, after)
        after = after if here is None or here.seq == after else here.first_seq - 1
    if after < until < row.last_seq:
        here = store.entry(row.run_no, until)
        until = until if here is None else here.seq
    return [(1, after), (until + 1, row.last_seq)]


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
