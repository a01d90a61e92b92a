"""Recorded histories as files, to be kept beside the tests: what `store.export_run` writes.

The file is JSON, one entry per line, so that a change of it can be read in a review. The digests of
the journal are in it and are checked when it is read: a history that somebody edited is refused.
Files of the first format, which was one object, are read as well.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast._engine.journal.entries import FORMAT, Entry, Kind
from holdfast._engine.journal.rows import GENESIS, RunRow, entry_digest
from holdfast._stores.contract import WholeRun
from holdfast.errors import Corrupt, UsageError
from holdfast.testing.doors import exports


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
    others: list[WholeRun] = []
    """Its children, and the runs that it was forked from."""


def read_export(path: str | Path) -> Exported:
    """Read a file that was exported, and check that nobody changed it."""
    if not _is_old(Path(path)):
        read = exports.read(Path(path))
        others = [run for run in read.runs if run is not read.run]
        return Exported(read.run.row, read.run.entries, dict(read.run.chunks), others)
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


def _is_old(path: Path) -> bool:
    """Tell whether a file has the first format: one object, its head on a line of its own."""
    with path.open("rb") as file:
        return file.readline(100).rstrip() in (b'{"holdfast_export":1,', b'{"holdfast_export": 1,')
