"""Export and import of runs as one file: lines of JSON with the digest chain, which reveals
changes.

    {"holdfast_export": 2, "run": "refund-41", "runs": 1}
    {"row": {…}}                        one run: its row,
    {"entry": {"seq": 1, …}}            its journal, one entry per line,
    {"chunk": 1, "node": …, "digest": …}    its large values,
    {"key": {…}}  {"message": […]}  {"question": {…}}  {"account": {…}}
    …                                   the runs that belong to it
    {"end": "…"}                        a digest of all bytes above

A file whose name ends in `.gz` is compressed. Everything is verified on reading, before it is used:
an entry against the chain, a chunk and a key against their digests, the file against its end. An
unkeyed digest detects accidents and careless edits, not an attacker who computes it again.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import itertools
import os
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.rows import (
    GENESIS,
    Account,
    KeyState,
    Message,
    Question,
    RunRow,
    entry_digest,
)
from holdfast._stores.addresses import full
from holdfast._stores.contract import Progress, WholeRun, no_progress
from holdfast._stores.sqlite import filesystem
from holdfast.errors import Corrupt, StoreError, UsageError

VERSION = 2
LINE_MAX_BYTES = 96 * 1024 * 1024
"""The maximum length of a line; a value has at most 64 MiB."""

_encode = msgspec.json.encode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Head(msgspec.Struct):
    """The first line."""

    holdfast_export: int
    run: str
    runs: int


class _EntryLine(msgspec.Struct):
    """One entry in a file, with its stored body."""

    seq: int
    kind: Kind
    at_us: int
    step: str | None
    attempt: int
    position: int | None
    args_digest: bytes | None
    started_us: int | None
    body: msgspec.Raw
    digest: bytes


class _Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Any other line; it has one of these fields."""

    row: RunRow | None = None
    entry: _EntryLine | None = None
    chunk: int | None = None
    node: msgspec.Raw = msgspec.Raw()
    digest: bytes | None = None
    key: KeyState | None = None
    message: tuple[Message, int | None] | None = None
    question: Question | None = None
    account: Account | None = None
    end: str | None = None


_read_line = msgspec.json.Decoder(_Line).decode


class Exported(msgspec.Struct, frozen=True):
    """The content of a file: the requested run and the runs that belong to it."""

    run_id: str
    runs: list[WholeRun]

    @property
    def run(self) -> WholeRun:
        """The requested run."""
        return next(run for run in self.runs if run.row.run_id == self.run_id)


# -- writing ----------------------------------------------------------------------------------


def write(path: Path, run_id: str, runs: Iterable[WholeRun], count: int) -> int:
    """Write runs to a new file that only this user can read; return its size."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists already; a run is exported to a new file") from None
    except OSError as error:
        if error.errno in filesystem.NO_SPACE:
            raise full(str(path)) from error
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    try:
        with open(number, "wb") as plain:
            if path.suffix == ".gz":
                with gzip.GzipFile("", "wb", fileobj=plain, mtime=0) as packed:
                    _write(cast("BinaryIO", packed), run_id, runs, count)
            else:
                _write(plain, run_id, runs, count)
            plain.flush()
            os.fsync(plain.fileno())
        filesystem.sync(str(path.parent))  # Sync the name too.
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in filesystem.NO_SPACE:
            raise full(str(path)) from error
        if isinstance(error, OSError):
            raise StoreError(f"{path} cannot be written: {error.strerror}") from error
        raise
    return path.stat().st_size


def replace(fresh: Path, path: Path) -> Path:
    """Replace a file with a complete new one, durably."""
    fresh.replace(path)
    filesystem.sync(str(path.parent))
    return path


def _write(file: BinaryIO, run_id: str, runs: Iterable[WholeRun], count: int) -> None:
    total = hashlib.blake2b(digest_size=16)
    for line in itertools.chain([_encode(Head(VERSION, run_id, count))], _lines(runs)):
        total.update(line + b"\n")
        file.write(line + b"\n")
    file.write(_end(total.hexdigest()))


def _end(total: str) -> bytes:
    return b'{"end":"%b"}\n' % total.encode()


def _lines(runs: Iterable[WholeRun]) -> Iterator[bytes]:
    for run in runs:
        yield _encode({"row": run.row})
        for entry in run.entries:
            yield _encode({"entry": _entry_line(entry)})
        for number, raw in sorted(run.chunks.items()):
            told = {"chunk": number, "node": msgspec.Raw(raw), "digest": _digest(number, raw)}
            yield _encode(told)
        yield from (_encode({"key": key}) for key in run.keys)
        yield from (_encode({"message": message}) for message in run.messages)
        yield from (_encode({"question": question}) for question in run.questions)
        if run.account is not None:
            yield _encode({"account": run.account})


def _entry_line(entry: Entry) -> dict[str, Any]:
    told = {name: getattr(entry, name) for name in _EntryLine.__struct_fields__}
    return {**told, "kind": entry.kind.value, "body": msgspec.Raw(entry.body)}


def _digest(number: int, raw: bytes) -> bytes:
    return hashlib.blake2b(b"%d:" % number + raw, digest_size=16).digest()


# -- reading ----------------------------------------------------------------------------------


@contextlib.contextmanager
def damage_in(path: Path) -> Generator[None]:
    """Mark damage found inside as damage of a file, not of the store."""
    try:
        yield
    except Corrupt as error:
        where = str(path)
        raise Corrupt(error.what, run_id=error.run_id, why=error.why, file=where) from None


def read(path: Path, progress: Progress = no_progress) -> Exported:
    """Read a file and verify it; refuse changed data, and name it."""
    try:
        with damage_in(path), open(path, "rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
            plain.seek(0)
            file = cast("BinaryIO", gzip.GzipFile(fileobj=plain)) if packed else plain
            return _Reading(path, progress).read(file)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None


class _Reading:
    """One file that is being read, line by line."""

    def __init__(self, path: Path, progress: Progress) -> None:
        self._path = path
        self._progress = progress
        self._total = hashlib.blake2b(digest_size=16)
        self._number = 0
        self._count = 0
        self._runs: list[WholeRun] = []

    def read(self, file: BinaryIO) -> Exported:
        head = self._head(file.readline(LINE_MAX_BYTES))
        self._count = head.runs
        while raw := file.readline(LINE_MAX_BYTES):
            self._number += 1
            line = self._line(raw)
            if line.end is not None:
                return self._ended(head, raw + file.read(1))
            self._take(line)
            self._total.update(raw)
        raise Corrupt(f"the end of {self._path}", why="the file was cut off")

    def _head(self, raw: bytes) -> Head:
        self._total.update(raw)
        self._number += 1
        try:
            head = msgspec.json.decode(raw, type=Head)
        except _UNREADABLE as error:
            raise UsageError(f"{self._path} is not an exported run: {error}") from None
        if head.holdfast_export != VERSION:
            raise UsageError(
                f"{self._path} has format {head.holdfast_export}; this version reads {VERSION}"
            )
        return head

    def _line(self, raw: bytes) -> _Line:
        try:
            return _read_line(raw)
        except _UNREADABLE as error:
            raise Corrupt(f"line {self._number} of {self._path}", why=str(error)) from None

    def _take(self, line: _Line) -> None:
        if line.row is not None:
            self._check_run()
            self._runs.append(WholeRun(line.row.check(), [], {}, [], []))
            self._progress("runs read", len(self._runs), self._count)
            return
        if not self._runs:
            raise Corrupt(f"line {self._number} of {self._path}", why="it belongs to no run")
        run = self._runs[-1]
        if line.entry is not None:
            run.entries.append(self._entry(run, line.entry))
        elif line.chunk is not None:
            raw = bytes(line.node)
            if line.digest != _digest(line.chunk, raw):
                raise self._changed(run, f"chunk {line.chunk}")
            cast("dict[int, bytes]", run.chunks)[line.chunk] = raw
        elif line.key is not None:
            run.keys.append(line.key.check())
        elif line.message is not None:
            run.messages.append(line.message)
        elif line.question is not None:
            run.questions = [*run.questions, line.question]
        elif line.account is not None:
            run.account = line.account

    def _entry(self, run: WholeRun, line: _EntryLine) -> Entry:
        told: dict[str, Any] = {name: getattr(line, name) for name in _EntryLine.__struct_fields__}
        told["body"] = bytes(line.body)
        entry = Entry(**told)
        before = run.entries[-1] if run.entries else None
        head, last = (GENESIS, 0) if before is None else (before.digest, before.seq)
        whole = entry.first_seq == last + 1
        if not whole or entry_digest(head, run.row.run_id, entry.seq, entry) != entry.digest:
            raise self._changed(run, f"entry {entry.seq}")
        return entry

    def _check_run(self) -> None:
        """Check that the last run is complete: its chain ends at the head in its row."""
        if not self._runs:
            return
        run = self._runs[-1]
        head = run.entries[-1].digest if run.entries else GENESIS
        if head != run.row.head:
            raise Corrupt(
                f"the journal in {self._path}", run_id=run.row.run_id, why="entries are missing"
            )

    def _ended(self, head: Head, end: bytes) -> Exported:
        self._check_run()
        if end != _end(self._total.hexdigest()):
            raise Corrupt(f"{self._path}", why="it is not as it was written")
        if len(self._runs) != head.runs or head.run not in [it.row.run_id for it in self._runs]:
            raise Corrupt(f"{self._path}", why="a run is missing")
        return Exported(head.run, self._runs)

    def _changed(self, run: WholeRun, what: str) -> Corrupt:
        why = "it is not as it was written"
        return Corrupt(f"{what} in {self._path}", run_id=run.row.run_id, why=why)


def run_ids(runs: Sequence[WholeRun]) -> list[str]:
    """Return the ids of runs."""
    return [run.row.run_id for run in runs]
