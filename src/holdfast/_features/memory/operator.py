"""List, read, set, remove and copy memories, without importing the user's classes.

A memory is not held in the source, so nothing in the target is overwritten: an equal or newer value
stays, and a value that is newer in the source is reported. Values of workers (alerts, the audit log,
limits that flows declare) are not copied.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from holdfast._engine.journal.rows import Memo
from holdfast._engine.values import codec, durations
from holdfast._engine.values.chunks import Values
from holdfast._engine.values.moments import at
from holdfast._features.memory.model import (
    PAGE,
    RESERVED,
    checked_key,
    checked_own_space,
    checked_space,
    encoded,
)
from holdfast._features.retention.store import remove_memo
from holdfast._stores.contract import Store
from holdfast._stores.readable_values import readable
from holdfast.errors import StoreError


class MemoView(msgspec.Struct, frozen=True):
    """One value of a memory."""

    key: str
    value: Any
    version: int
    updated_at: dt.datetime
    expires_at: dt.datetime | None
    run_id: str | None


def memories(store: Store) -> list[str]:
    """Return the names of the memories of users that have a value."""
    return [space for space in store.spaces() if not space.startswith(RESERVED)]


def get(store: Store, space: str, key: str) -> MemoView | None:
    """Return a value, or None."""
    memo = store.memo(checked_space(space), checked_key(space, key))
    return None if memo is None else _view(memo)


def list_values(store: Store, space: str, prefix: str, limit: int) -> list[MemoView]:
    """Return values by key."""
    checked_space(space)
    found: list[MemoView] = []
    after = ""
    while len(found) < limit:
        page = store.memos(space, prefix, after, min(PAGE, limit - len(found)))
        found += map(_view, page)
        if len(page) < PAGE:
            break
        after = page[-1].key
    return found


def put(
    store: Store, space: str, key: str, value: Any, ttl: float | str | None, if_version: int | None
) -> MemoView | None:
    """Write a value; None if it has another version by now."""
    node = encoded(checked_own_space(space), checked_key(space, key), value)
    expires_us = None
    if ttl is not None:
        expires_us = store.now_us() + durations.micros(ttl, "--ttl")
    memo = store.put_memo(Memo(space, key, node, expires_us), if_version)
    return None if memo is None else _view(memo)


def remove(store: Store, space: str, key: str, if_version: int | None) -> bool:
    """Remove a value; False if there is none, or if it has another version by now."""
    memo = Memo(checked_own_space(space), checked_key(space, key), None, expected=if_version)
    return remove_memo(store, memo)


def _view(memo: Memo) -> MemoView:
    node = memo.value if memo.value is not None else codec.encode(None)
    expires_at = None if memo.expires_us is None else at(memo.expires_us)
    value = readable(node, Values(_no_chunks))
    return MemoView(memo.key, value, memo.version, at(memo.updated_us), expires_at, memo.run_id)


def _no_chunks(_number: int) -> Mapping[int, bytes]:
    return {}


# -- copying to another store ------------------------------------------------------------------


MEMOS_PAGE = 50


class Remembered(msgspec.Struct):
    """The outcome of copying one memory."""

    space: str
    copied: int = 0
    there: int = 0
    """The same there, or written there later."""
    left: list[str] = []
    """Keys that the target has with other values, though they were written later in the source."""


def copy_memories(source: Store, target: Store, *, dry_run: bool = False) -> Iterator[Remembered]:
    """Copy the values of all memories of users, and say of each memory what became of it."""
    for space in memories(source):
        yield _copied(source, target, space, dry_run=dry_run)


def _copied(source: Store, target: Store, space: str, *, dry_run: bool) -> Remembered:
    result, after = Remembered(space), ""
    while page := source.memos(space, "", after, MEMOS_PAGE):
        after = page[-1].key
        missing = _missing(target, page, result)
        result.copied += len(missing)
        if missing and not dry_run:
            _write(target, missing)
    return result


def _missing(target: Store, page: list[Memo], result: Remembered) -> list[Memo]:
    """Return the values that the target does not have; counts the others."""
    missing: list[Memo] = []
    for memo in page:
        there = target.memo(memo.space, memo.key)
        if there is None:
            missing.append(memo)
        elif _same(memo, there) or there.updated_us >= memo.updated_us:
            result.there += 1
        else:
            result.left.append(memo.key)
    return missing


def _write(target: Store, missing: list[Memo]) -> None:
    """Write values where there are none, and read them again."""
    new = [msgspec.structs.replace(memo, expected=0) for memo in missing]
    if not target.put_memos(new, new):
        raise StoreError(
            f"{target.url}: memory {missing[0].space!r} was written to meanwhile; stop what writes "
            "there, and give the same command again"
        )
    for memo in missing:
        there = target.memo(memo.space, memo.key)
        over = memo.expires_us is not None and memo.expires_us <= target.now_us()
        if not over and (there is None or not _same(memo, there)):
            raise StoreError(
                f"{target.url}: {memo.key!r} of memory {memo.space!r} was written and has another value"
            )


def _same(here: Memo, there: Memo) -> bool:
    return (here.value, here.expires_us) == (there.value, there.expires_us)
