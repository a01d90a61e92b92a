"""The witness: a small file beside the database that reveals data loss.

It records the last acknowledged commit. Two slots are written alternately, each after its commit
and before any waiter is notified; the slot with the larger counter and a valid checksum counts. The
database may be ahead of it (a crash between the two writes), but never behind: that means a lost
tail, or a restored old copy.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib

import msgspec

from holdfast._stores.row_codec import StoreRow
from holdfast._stores.sqlite import filesystem
from holdfast._stores.store_clock import BOOT_BYTES, Anchor
from holdfast.errors import StoreFailed

SLOT_BYTES = 128
_MAGIC = b"HFwitns2"
_LOST = b"HFlost-2"
"""Replaces the magic word while commits are missing and the loss is not accepted: later commits
must not hide the loss."""
_FORM = struct.Struct(f"<8s16sQQ16sQQ{BOOT_BYTES}s")
_FIRST_FORM = struct.Struct("<8s16sQQ16s")
"""The form of a slot without the clock, as earlier versions wrote it."""
_FORMS = {
    _MAGIC: (_FORM, False),
    _LOST: (_FORM, True),
    b"HFwitns1": (_FIRST_FORM, False),
    b"HFlost-1": (_FIRST_FORM, True),
}
_CRC = struct.Struct("<I")
_PAD = bytes(SLOT_BYTES - _FORM.size - _CRC.size)
_NO_ANCHOR = Anchor(0, 0, b"")


class Slot(msgspec.Struct, frozen=True):
    """The content of one slot."""

    store_id: str
    incarnation: int
    commits: int
    head: bytes
    lost: bool = False
    """Whether commits were missing at the time of the write."""
    anchor: Anchor | None = None
    """The store's clock at the time of the write."""

    def is_newer_than(self, row: StoreRow) -> bool:
        """Return whether it is ahead of a row of the same store."""
        return (
            self.store_id == row.store_id
            and self.incarnation == row.incarnation
            and self.commits > row.commits
            and not self.lost
        )


class Witness:
    """The witness file, kept open by one handle of a store."""

    def __init__(self, path: str, *, read_only: bool, durable: bool = True) -> None:
        self.path = path
        self._durable = durable
        self._read_only = read_only
        self._handle = filesystem.open_companion(path, create=False, read_only=read_only)

    def create(self, row: StoreRow) -> None:
        """Create the file for a store without one, or write the store's state into it."""
        if self._handle is None:
            self._handle = filesystem.open_companion(self.path, create=True)
        assert self._handle is not None
        with contextlib.suppress(OSError):
            os.ftruncate(self._handle, 2 * SLOT_BYTES)
        self.write(row)
        with contextlib.suppress(OSError):
            os.pwrite(self._handle, bytes(SLOT_BYTES), _offset(row.commits + 1))
        if self._durable:
            # Later slots need no sync: with an older one, the database is only ahead. But a file
            # that is empty after a power loss would report possible data loss.
            filesystem.sync(self.path)
            filesystem.sync(os.path.dirname(self.path))

    def read(self) -> Slot | None:
        """Return the newest valid slot, or None if there is none."""
        if self._handle is None:  # Another process may have created it since.
            self._handle = filesystem.open_companion(
                self.path, create=False, read_only=self._read_only
            )
        if self._handle is None:
            return None
        raw = os.pread(self._handle, 2 * SLOT_BYTES, 0)
        slots = [_decode(raw[:SLOT_BYTES]), _decode(raw[SLOT_BYTES:])]
        found = [slot for slot in slots if slot is not None]
        return max(found, key=lambda slot: (slot.incarnation, slot.commits), default=None)

    def write(self, row: StoreRow, anchor: Anchor = _NO_ANCHOR, *, lost: bool = False) -> None:
        """Record a commit and the clock; `lost` means that earlier commits are missing."""
        if self._handle is None:
            self._handle = filesystem.open_companion(self.path, create=True)
        form = _FORM.pack(
            _LOST if lost else _MAGIC,
            bytes.fromhex(row.store_id),
            row.incarnation,
            row.commits,
            row.head,
            *anchor,
        )
        assert self._handle is not None
        try:
            there = _decode(os.pread(self._handle, SLOT_BYTES, _offset(row.commits)))
            if there is not None and there.is_newer_than(row):
                return  # Another process has committed later and already written its slot.
            os.pwrite(self._handle, form + _CRC.pack(zlib.crc32(form)) + _PAD, _offset(row.commits))
        except OSError as error:
            # The commit is durable, but not acknowledged. Not StoreFull, after which the caller
            # continues.
            raise StoreFailed(
                f"{self.path} cannot be written: {error.strerror}; what was acknowledged stands: "
                "free some space if there is none, then open the store again"
            ) from error

    def close(self) -> None:
        """Release the file; safe to call twice."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def __del__(self) -> None:
        """Close the file of a store that was collected without `close`."""
        with contextlib.suppress(AttributeError, OSError):  # The constructor may have failed.
            self.close()


def _offset(commits: int) -> int:
    return (commits & 1) * SLOT_BYTES


def _decode(raw: bytes) -> Slot | None:
    if len(raw) < SLOT_BYTES:
        return None
    form, is_lost = _FORMS.get(raw[: len(_MAGIC)], (_FORM, False))
    (crc,) = _CRC.unpack_from(raw, form.size)
    if raw[: len(_MAGIC)] not in _FORMS or crc != zlib.crc32(raw[: form.size]):
        return None
    _, store_id, incarnation, commits, head, *clock = form.unpack(raw[: form.size])
    anchor = Anchor(*clock) if clock else None
    return Slot(store_id.hex(), incarnation, commits, head, is_lost, anchor)


def regression(row: StoreRow, slot: Slot | None, path: str) -> str | None:
    """Return a text about the missing acknowledged commits of a store, or None."""
    if slot is None:
        if row.commits == 0:
            return None
        return f"{path} is missing or damaged, so nothing tells whether commits were lost"
    if slot.store_id != row.store_id:
        return f"{path} belongs to another store ({slot.store_id}); this one is {row.store_id}"
    if slot.lost:
        return "commits were found missing earlier, and nobody has accepted the loss since"
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
