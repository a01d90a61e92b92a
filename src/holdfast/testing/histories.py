"""Recorded histories as files: one run with its entries and chunks, to be kept beside the tests.

The file is JSON, one entry per line, so that a change of it can be read in a review. The digests of
the journal are in it and are checked when it is read: a history that somebody edited is refused.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast._core.entries import FORMAT, Entry, Kind
from holdfast._core.rows import GENESIS, RunRow, entry_digest
from holdfast._opened import Store
from holdfast._store.contract import Store as Kept
from holdfast.errors import Corrupt, RunNotFound, UsageError


class _Line(msgspec.Struct):
    """One entry in a file; its body stands there as it was stored."""

    seq: int
    kind: str
    at_us: int
    step: str | None
    attempt: int
    position: int | None
    args_digest: bytes | None
    started_us: int | None
    body: msgspec.Raw
    digest: bytes


class _File(msgspec.Struct):
    """The whole file."""

    holdfast_export: int
    run: RunRow
    entries: list[_Line]
    chunks: dict[int, bytes]


class Exported(msgspec.Struct):
    """One run, as it was exported."""

    run: RunRow
    entries: list[Entry]
    chunks: dict[int, bytes]


def export_run(store: Store, run_id: str, path: str | Path) -> Path:
    """Write the history of a run to a file, for `replay`. What it holds, the file holds: secrets
    that were arguments or results too."""
    kept = store.kept
    row = kept.get(run_id)
    if row is None:
        raise RunNotFound(run_id, store.url)
    if row.origin is not None:
        raise UsageError(
            f"run {run_id!r} is a fork, and a file has one run only: export the run that it came from"
        )
    lines = [
        msgspec.json.encode(
            _Line(
                entry.seq,
                entry.kind.value,
                entry.at_us,
                entry.step,
                entry.attempt,
                entry.position,
                entry.args_digest,
                entry.started_us,
                msgspec.Raw(entry.body),
                entry.digest,
            )
        )
        for entry in kept.load(row)
    ]
    path = Path(path)
    path.write_bytes(
        b'{"holdfast_export":%d,\n"run":%b,\n"entries":[\n%b\n],\n"chunks":%b}\n'
        % (
            FORMAT,
            msgspec.json.encode(row),
            b",\n".join(lines),
            msgspec.json.encode(_chunks(kept, row)),
        )
    )
    return path


def _chunks(kept: Kept, row: RunRow) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for number in range(row.next_chunk - 1, 0, -1):
        if number not in found:
            try:
                found.update(kept.chunks(row.run_no, number))
            except Corrupt:
                continue  # A number that was given out and never stored: its write was refused.
    return dict(sorted(found.items()))


def read_export(path: str | Path) -> Exported:
    """Read a file that `export_run` wrote, and check that nobody changed it."""
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not an exported run: {error}") from None
    if file.holdfast_export != FORMAT:
        raise UsageError(f"{path} has format {file.holdfast_export}; this version reads {FORMAT}")
    file.run.check()
    entries = [
        Entry(
            line.seq,
            Kind(line.kind),
            line.at_us,
            line.step,
            line.attempt,
            line.position,
            line.args_digest,
            line.started_us,
            bytes(line.body),
            line.digest,
        )
        for line in file.entries
    ]
    head = GENESIS
    for entry in entries:
        head = entry_digest(head, file.run.run_id, entry.seq, entry)
        if head != entry.digest:
            raise Corrupt(f"entry {entry.seq} in {path}", run_id=file.run.run_id)
    if head != file.run.head:
        raise Corrupt(f"the end of {path}", run_id=file.run.run_id, why="entries are missing")
    return Exported(file.run, entries, file.chunks)
