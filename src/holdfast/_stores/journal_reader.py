"""Read the journal of a run: every entry and chunk is verified against the chain before it is
used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.rows import GENESIS, SEQ_BITS, SEQ_MASK, RunRow
from holdfast._stores import row_codec
from holdfast._stores.claim_rules import READ_AHEAD
from holdfast._stores.lookups import Fetch
from holdfast.errors import Corrupt


def load(fetch: Fetch, row: RunRow, skips: Sequence[tuple[int, int]]) -> list[Entry]:
    """Return the entries of a run without the skipped ranges, verified; none for a removed run."""
    row.check()
    if row.deleted_us is not None:
        return []
    entries: list[Entry] = []
    head = GENESIS
    for first, last in _kept(row.last_seq, skips):
        head, at = _digest_at(fetch, row, first - 1), first
        for values in _entries(fetch, row, first, last):
            entry = row_codec.entry(values, head, row.run_id)
            if entry.first_seq != at:
                raise Corrupt(f"entry {at}", run_id=row.run_id, why="it is not there")
            entries.append(entry)
            head, at = entry.digest, entry.seq + 1
        if at != last + 1:
            raise Corrupt(f"entry {at}", run_id=row.run_id, why="it is not there")
    if not entries or entries[-1].seq != row.last_seq:
        head = _digest_at(fetch, row, row.last_seq)
    if head != row.head:
        raise Corrupt("the end of its journal", run_id=row.run_id, why="runs has another head")
    return entries


def _kept(last_seq: int, skips: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges between the skipped ones."""
    first = 1
    for start, end in sorted(skips):
        if first < start:
            yield first, min(start - 1, last_seq)
        first = max(first, end + 1)
    if first <= last_seq:
        yield first, last_seq


def _entries(fetch: Fetch, row: RunRow, first: int, last: int) -> list[list[object]]:
    base = row.run_no << SEQ_BITS
    try:
        return fetch("entries", (base | first, base | last))
    except Corrupt as error:
        raise Corrupt("its journal", run_id=row.run_id, why=error.why or str(error)) from error


def _digest_at(fetch: Fetch, row: RunRow, seq: int) -> bytes:
    """Return the stored digest at a number, to which the next entry is chained."""
    if seq == 0:
        return GENESIS
    at = row.run_no << SEQ_BITS | seq
    found = fetch("entry_before", (at + 1,))
    if not found or found[0][0] != at or not isinstance(found[0][1], bytes):
        raise Corrupt(f"entry {seq}", run_id=row.run_id, why="it is not there")
    return found[0][1]


def entry(fetch: Fetch, row: RunRow, seq: int) -> Entry | None:
    """Return the journal row with this number, verified; None beyond the end."""
    if row.deleted_us is not None or not 1 <= seq <= row.last_seq:
        return None
    base = row.run_no << SEQ_BITS
    for values in fetch("entries", (base | seq, base | seq + 1)):
        before = fetch("entry_before", (values[0],))
        inside = bool(before) and before[0][0] > base
        prev, prev_seq = (before[0][1], before[0][0] & SEQ_MASK) if inside else (GENESIS, 0)
        made = row_codec.entry(values, prev, row.run_id)
        if made.first_seq == prev_seq + 1 and made.first_seq <= seq <= made.seq:
            return made
        break
    raise Corrupt(f"entry {seq}", run_id=row.run_id, why="it is not there")


def chunks(fetch: Fetch, run_no: int, number: int) -> Mapping[int, bytes]:
    """Return a chunk, verified, with some chunks before it."""
    base = run_no << SEQ_BITS
    found: dict[int, bytes] = {}
    for row_id, digest, body in fetch(
        "chunk_range", (base | max(0, number - READ_AHEAD), base | number)
    ):
        at = row_id & SEQ_MASK
        whole = isinstance(body, bytes) and digest == row_codec.chunk_digest(run_no, at, body)
        if whole:
            found[at] = body
        elif at == number:
            raise _chunk(run_no, number, "the digest does not match")
    if number not in found:
        raise _chunk(run_no, number, "it is not there")
    return found


def all_chunks(fetch: Fetch, run_no: int) -> dict[int, bytes]:
    """Return every chunk of a run, verified."""
    base = run_no << SEQ_BITS
    found: dict[int, bytes] = {}
    for row_id, digest, body in fetch("chunk_range", (base, base | SEQ_MASK)):
        number = row_id & SEQ_MASK
        if not isinstance(body, bytes) or digest != row_codec.chunk_digest(run_no, number, body):
            raise _chunk(run_no, number, "the digest does not match")
        found[number] = body
    return found


def _chunk(run_no: int, number: int, why: str) -> Corrupt:
    return Corrupt(f"chunk {number} of run number {run_no}", why=why)
