"""Copying memories: values that belong to no run, and that programs of the target go on with.

A memory is not held in the source. So nothing in the target is written over: a value that is the same
there, or was written there later, stays, and one that was written later in the source is said. What
workers note for themselves (alerts, the record of acts, limits that flows declare) stays behind.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast._core.rows import Memo
from holdfast._store.contract import Store
from holdfast.errors import StoreError

OURS = ("holdfast.", "holdfast:")
"""How names of memories begin that Holdfast keeps for itself."""
PAGE = 50


class Remembered(msgspec.Struct):
    """What became of the values of one memory."""

    space: str
    copied: int = 0
    there: int = 0
    """The same there, or written there later."""
    left: list[str] = []
    """Keys that the target has with other values, though they were written later in the source."""


def copy_memories(source: Store, target: Store, *, dry_run: bool = False) -> Iterator[Remembered]:
    """Copy the values of all memories of users, and say of each memory what became of it."""
    for space in source.spaces():
        if not space.startswith(OURS):
            yield _copied(source, target, space, dry_run=dry_run)


def _copied(source: Store, target: Store, space: str, *, dry_run: bool) -> Remembered:
    result, after = Remembered(space), ""
    while page := source.memos(space, "", after, PAGE):
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
