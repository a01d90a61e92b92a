"""List, read, set and remove memories, without importing the user's classes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
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
from holdfast._operator.read.readable_values import readable
from holdfast._stores.contract import Store


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
