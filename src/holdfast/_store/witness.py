"""The witness: a small file beside the database that remembers the last acknowledged commit.

Two slots are written in turn, each after its commit and before anybody is told. The one with the
larger counter and a right check sum counts. The database may be ahead of it (a crash came between
the two writes), never behind: that is a lost tail, or an old copy that was put back.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib

import msgspec

from holdfast._store import filesystem
from holdfast._store.records import StoreRow
from holdfast.errors import StoreFailed

SLOT_BYTES = 128
_MAGIC = b"HFwitns1"
_LOST = b"HFlost-1"
"""Stands in the place of the magic word while commits are missing and nobody has adopted the store:
later commits must not make that forgotten."""
_FORM = struct.Struct("<8s16sQQ16s")
_CRC = struct.Struct("<I")
_PAD = bytes(SLOT_BYTES - _FORM.size - _CRC.size)


class Slot(msgspec.Struct, frozen=True):
    """What one slot says."""

    store_id: str
    incarnation: int
    commits: int
    head: bytes
    lost: bool = False
    """Whether commits were missing when it was written."""


class Witness:
    """The file, kept open by one handle of a store."""

    def __init__(self, path: str, *, read_only: bool) -> None:
        self.path = path
        self._read_only = read_only
        self._handle = filesystem.open_companion(path, create=False, read_only=read_only)

    def create(self, row: StoreRow) -> None:
        """Make the file for a store that has none, or make it say what the store says."""
        if self._handle is None:
            self._handle = filesystem.open_companion(self.path, create=True)
        assert self._handle is not None
        with contextlib.suppress(OSError):
            os.ftruncate(self._handle, 2 * SLOT_BYTES)
        self.write(row)
        with contextlib.suppress(OSError):
            os.pwrite(self._handle, bytes(SLOT_BYTES), _offset(row.commits + 1))

    def read(self) -> Slot | None:
        """Return the newest valid slot, or None if there is none."""
        if self._handle is None:
            return None
        raw = os.pread(self._handle, 2 * SLOT_BYTES, 0)
        slots = [_decode(raw[:SLOT_BYTES]), _decode(raw[SLOT_BYTES:])]
        found = [slot for slot in slots if slot is not None]
        return max(found, key=lambda slot: (slot.incarnation, slot.commits), default=None)

    def write(self, row: StoreRow, *, lost: bool = False) -> None:
        """Remember a commit; `lost` says that earlier ones are missing."""
        if self._handle is None:
            self._handle = filesystem.open_companion(self.path, create=True)
        form = _FORM.pack(
            _LOST if lost else _MAGIC,
            bytes.fromhex(row.store_id),
            row.incarnation,
            row.commits,
            row.head,
        )
        assert self._handle is not None
        try:
            if self._is_newer(row):
                return  # Another process committed after us and was quicker to say so.
            os.pwrite(self._handle, form + _CRC.pack(zlib.crc32(form)) + _PAD, _offset(row.commits))
        except OSError as error:
            raise StoreFailed(f"{self.path} cannot be written: {error.strerror}") from error

    def _is_newer(self, row: StoreRow) -> bool:
        assert self._handle is not None
        there = _decode(os.pread(self._handle, SLOT_BYTES, _offset(row.commits)))
        return (
            there is not None
            and there.store_id == row.store_id
            and there.incarnation == row.incarnation
            and there.commits > row.commits
            and not there.lost
        )

    def close(self) -> None:
        """Release the file; safe to call twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def _offset(commits: int) -> int:
    return (commits & 1) * SLOT_BYTES


def _decode(raw: bytes) -> Slot | None:
    if len(raw) < SLOT_BYTES:
        return None
    form = raw[: _FORM.size]
    magic, store_id, incarnation, commits, head = _FORM.unpack(form)
    (crc,) = _CRC.unpack_from(raw, _FORM.size)
    if magic not in (_MAGIC, _LOST) or crc != zlib.crc32(form):
        return None
    return Slot(store_id.hex(), incarnation, commits, head, magic == _LOST)


def regression(row: StoreRow, slot: Slot | None, path: str) -> str | None:
    """Say which acknowledged commits are missing in a store, or None."""
    if slot is None:
        if row.commits == 0:
            return None
        return f"{path} is missing or damaged, so nothing tells whether commits were lost"
    if slot.store_id != row.store_id:
        return f"{path} belongs to another store ({slot.store_id}); this one is {row.store_id}"
    if slot.lost:
        return "commits were found missing earlier, and nobody has adopted the store since"
    if slot.incarnation > row.incarnation:
        return (
            f"the database is of incarnation {row.incarnation}, but incarnation "
            f"{slot.incarnation} was opened before: an old copy was put back"
        )
    if slot.commits > row.commits:
        lost = slot.commits - row.commits
        return (
            f"the last {lost} of {slot.commits} acknowledged commits are missing: "
            "a lost tail, or an old copy was put back"
        )
    if slot.commits == row.commits and slot.head != row.head:
        return f"commit {row.commits} is not the one that was acknowledged: another copy"
    return None
