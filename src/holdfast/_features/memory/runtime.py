"""`memory(namespace)`: small durable values that outlive runs and are shared by them.

outside any run     written and read at once
inside a step       read at once; written with the step's outcome, or not at all
inside a flow       what was read is recorded; a write is an entry; replay repeats neither
"""

from __future__ import annotations

import builtins
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

from holdfast._engine.values.durations import Duration
from holdfast._features.memory.access import (
    Asking,
    MemoryItem,
    entry_of,
    given_beside,
    in_thread,
    then,
)
from holdfast._features.memory.model import Recall, Told
from holdfast._features.retention import store as sweeping
from holdfast._runtime.execution.frames import Frame


class Memory(Asking):
    """A memory: durable values by key, shared by all runs and programs of a store."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value, or the default if there is none."""
        entry = self.item(key)
        return default if entry is None else entry.value

    def item(self, key: str) -> MemoryItem | None:
        """Return the value with its version, times and origin; None if there is none."""
        found = self._read("get", self._asked(key))
        return entry_of(found[0]) if found else None

    def version(self, key: str) -> int:
        """Return the version, for `if_version=`; 0 if there is no value."""
        entry = self.item(key)
        return 0 if entry is None else entry.version

    def items(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> builtins.list[MemoryItem]:
        """Return the values whose keys begin so, by key; from the key behind `after` on."""
        return [entry_of(it) for it in self._read("list", self._listed(prefix, after, limit))]

    def set(
        self,
        key: str,
        value: Any,
        *,
        ttl: Duration | None = None,
        if_version: int | None = None,
    ) -> bool:
        """Write a value, which is gone after `ttl`. With `if_version`, only if that is its version
        now (0: there is none); returns whether it was written."""
        frame = self._frame()
        node = self._encoded(frame, key, value)
        given = {"value": value} | given_beside(ttl, if_version)
        return self._write(frame, "set", key, node, ttl, if_version, given)

    def delete(self, key: str, *, if_version: int | None = None) -> bool:
        """Remove a value. With `if_version`, only if that is its version now; returns whether there
        was one that was removed."""
        return self._write(
            self._frame(), "delete", key, None, None, if_version, given_beside(None, if_version)
        )

    def update(
        self,
        values: Mapping[str, Any],
        *,
        delete: Iterable[str] = (),
        ttl: Duration | None = None,
        if_version: Mapping[str, int] | None = None,
    ) -> bool:
        """Write and remove several values, all or none. With `if_version`, only if each key that it
        names, written here or not, has that version now (0: there is none); returns whether it was
        written. Outside runs only."""
        memos, expected = self._update(values, delete, ttl), self._expected(if_version)
        return self._outside().backend.put_memos(memos, expected)

    def remove_expired(self) -> int:
        """Remove the values whose `ttl` is over, which nobody can read any more; returns how many.
        Outside runs only. `holdfast store prune` and workers do it now and then, for all memories."""
        kept = self._kept_outside("remove_expired")
        return sweeping.end_memos(kept, self.namespace)

    def _read(self, name: str, asked: Recall) -> builtins.list[Told]:
        frame = self._frame()
        if frame is None or frame.call is not None:
            return self._read_directly(frame, asked)
        found: builtins.list[Told] = self._recalling(frame, name, asked).perform()
        return found

    def _write(
        self,
        frame: Frame | None,
        name: str,
        key: str,
        node: bytes | None,
        ttl: Duration | None,
        if_version: int | None,
        given: dict[str, Any],
    ) -> bool:
        engine = self._outside() if frame is None else frame.execution.engine
        memo = self._memo(engine, frame, key, node, ttl, if_version)
        if frame is None or frame.call is not None:
            return self._write_directly(frame, memo)
        return bool(self._remembering(frame, name, memo, given).perform())


class AsyncMemory(Asking):
    """The awaited twin of `Memory`."""

    _awaits = True

    def get(self, key: str, default: Any = None) -> Coroutine[Any, Any, Any]:
        """Return the value, or the default if there is none."""
        return then(self.item(key), lambda entry: default if entry is None else entry.value)

    def item(self, key: str) -> Coroutine[Any, Any, MemoryItem | None]:
        """Return the value with its version, times and origin; None if there is none."""
        read = self._read("get", self._asked(key))
        return then(read, lambda found: entry_of(found[0]) if found else None)

    def version(self, key: str) -> Coroutine[Any, Any, int]:
        """Return the version, for `if_version=`; 0 if there is no value."""
        return then(self.item(key), lambda entry: 0 if entry is None else entry.version)

    def items(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> Coroutine[Any, Any, builtins.list[MemoryItem]]:
        """Return the values whose keys begin so, by key; from the key behind `after` on."""
        read = self._read("list", self._listed(prefix, after, limit))
        return then(read, lambda found: [entry_of(it) for it in found])

    def set(
        self,
        key: str,
        value: Any,
        *,
        ttl: Duration | None = None,
        if_version: int | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Write a value, which is gone after `ttl`. With `if_version`, only if that is its version
        now (0: there is none); returns whether it was written."""
        frame = self._frame()
        node = self._encoded(frame, key, value)
        given = {"value": value} | given_beside(ttl, if_version)
        return self._write(frame, "set", key, node, ttl, if_version, given)

    def delete(self, key: str, *, if_version: int | None = None) -> Coroutine[Any, Any, bool]:
        """Remove a value. With `if_version`, only if that is its version now; returns whether there
        was one that was removed."""
        return self._write(
            self._frame(), "delete", key, None, None, if_version, given_beside(None, if_version)
        )

    def update(
        self,
        values: Mapping[str, Any],
        *,
        delete: Iterable[str] = (),
        ttl: Duration | None = None,
        if_version: Mapping[str, int] | None = None,
    ) -> Coroutine[Any, Any, bool]:
        """Write and remove several values, all or none. With `if_version`, only if each key that it
        names, written here or not, has that version now (0: there is none); returns whether it was
        written. Outside runs only."""
        memos, expected = self._update(values, delete, ttl), self._expected(if_version)
        kept = self._outside().backend
        return in_thread(lambda: kept.put_memos(memos, expected))

    def remove_expired(self) -> Coroutine[Any, Any, int]:
        """Remove the values whose `ttl` is over, which nobody can read any more; returns how many.
        Outside runs only. `holdfast store prune` and workers do it now and then, for all memories."""
        kept = self._kept_outside("remove_expired")
        return in_thread(lambda: sweeping.end_memos(kept, self.namespace))

    def _read(self, name: str, asked: Recall) -> Coroutine[Any, Any, builtins.list[Told]]:
        """The place of a flow's call is taken now, the reading is done when it is awaited."""
        frame = self._frame()
        if frame is None or frame.call is not None:
            return in_thread(lambda: self._read_directly(frame, asked))
        return self._recalling(frame, name, asked).awaited()

    def _write(
        self,
        frame: Frame | None,
        name: str,
        key: str,
        node: bytes | None,
        ttl: Duration | None,
        if_version: int | None,
        given: dict[str, Any],
    ) -> Coroutine[Any, Any, bool]:
        engine = self._outside() if frame is None else frame.execution.engine
        memo = self._memo(engine, frame, key, node, ttl, if_version)
        if frame is None or frame.call is not None:
            return in_thread(lambda: self._write_directly(frame, memo))
        return self._remembering(frame, name, memo, given).awaited()


def memory(name: str) -> Memory:
    """Return a memory of the run's store, or of the default one outside any run."""
    return Memory(name)


def aio_memory(name: str) -> AsyncMemory:
    """Return a memory of the run's store, or of the default one outside any run."""
    return AsyncMemory(name)
