"""`memory(namespace)`: small durable values that outlive runs and are shared by them.

outside any run     written and read at once
inside a step       read at once; written with the step's outcome, or not at all
inside a flow       what was read is recorded; a write is an entry; replay repeats neither
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

import msgspec

from holdfast._engine.journal.rows import Memo
from holdfast._engine.scripts.requests import Script, Spec, StepCall
from holdfast._engine.values import durations, moments
from holdfast._engine.values.durations import Duration
from holdfast._features.memory.model import (
    Recall,
    Told,
    checked_key,
    checked_own_space,
    encoded,
    kept_back,
    recall_script,
    recorded_value,
    remember_script,
    remove_script,
)
from holdfast._features.memory.reads import read_memory
from holdfast._features.retention.store import remove_memo
from holdfast._runtime import engine as engines
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution.attempt import Body
from holdfast._runtime.execution.blocking_driver import drive
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.frames import Frame, check_owner, current, current_task
from holdfast._stores.contract import Store
from holdfast.errors import UsageError


class MemoryItem(msgspec.Struct, frozen=True):
    """One value of a memory, with what is known of it."""

    key: str
    value: Any
    version: int
    """Grows with every write, from 1 on; 0 for what this step has written and not committed yet."""
    updated_at: dt.datetime
    expires_at: dt.datetime | None
    run_id: str | None
    """The run that wrote it; None if it was written outside any."""


class Asking:
    """The common part of the sync and the awaited memory: everything but how they wait."""

    _awaits = False

    def __init__(
        self, namespace: str, engine: Engine | None = None, *, recorded: bool = True
    ) -> None:
        self.namespace = checked_own_space(namespace)
        self._engine = engine
        self._recorded = recorded

    def __repr__(self) -> str:
        return f"<memory {self.namespace!r}>"

    # -- where it is asked ---------------------------------------------------------------------

    def _frame(self) -> Frame | None:
        """Return where this call stands, if this is the right colour there."""
        frame = current.get() if self._recorded else None
        if frame is None:
            if not self._awaits and current_task() is not None:
                raise UsageError(f"{self!r} blocks, and this is an event loop; {self._other()}")
            return None
        if frame.awaits != self._awaits:
            colour = "an async" if frame.awaits else "a sync"
            what = "flow" if frame.call is None else f"step ({frame.call.key})"
            raise UsageError(f"{self!r} is called in {colour} {what}; {self._other()}")
        if self._engine is not None and self._engine is not frame.execution.engine:
            raise UsageError(
                f"{self!r} is kept in {self._engine.backend.url}, and run "
                f"{frame.execution.run_id!r} in {frame.execution.engine.backend.url}: what a run writes "
                f"commits with it, in its own store; write holdfast.memory({self.namespace!r})"
            )
        return frame

    def _other(self) -> str:
        if self._awaits:
            return f"write holdfast.memory({self.namespace!r})"
        return f"write `await holdfast.aio.memory({self.namespace!r}).…`"

    def _outside(self) -> Engine:
        return self._engine or engines.default_engine()

    def _kept_outside(self, name: str) -> Store:
        """Return the store, for what is no call that a flow could repeat."""
        frame = self._frame()
        if frame is not None:
            raise UsageError(
                f"{self!r}: {name} is for outside runs, or for store.memory(…, recorded=False); in "
                f"run {frame.execution.run_id!r} write set and delete"
            )
        return self._outside().backend

    # -- reading -------------------------------------------------------------------------------

    def _asked(self, key: object) -> Recall:
        return Recall(self.namespace, checked_key(self.namespace, key))

    def _listed(self, prefix: str, after: str, limit: int | None) -> Recall:
        if limit is not None and (type(limit) is not int or limit < 1):
            raise UsageError(f"memory.items(limit={limit!r}): a whole number above 0")
        for name, text in (("prefix", prefix), ("after", after)):
            if text:
                checked_key(self.namespace, text)
            elif not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"memory.items({name}={text!r}): a str")
        return Recall(self.namespace, None, prefix, after, limit)

    def _read_directly(self, frame: Frame | None, asked: Recall) -> list[Told]:
        """Read outside a flow: nothing is recorded."""
        if frame is None:
            return [recorded_value(memo) for memo in read_memory(self._outside().backend, asked)]
        execution = frame.execution
        execution.check()
        return [
            recorded_value(memo)
            for memo in read_memory(execution.engine.backend, asked, execution, frame.call)
        ]

    def _recalling(self, frame: Frame, name: str, asked: Recall) -> Operation:
        given = {
            "namespace": self.namespace,
            "key": asked.key,
            "prefix": asked.prefix,
            "after": asked.after,
            "limit": asked.limit,
        }
        execution = frame.execution
        call = self._called(frame, name, {name: it for name, it in given.items() if it})
        script = recall_script(call, asked, execution.history, execution.decode)
        return Operation(execution, call, script)

    def _encoded(self, frame: Frame | None, key: str, value: object) -> bytes:
        engine = self._outside() if frame is None else frame.execution.engine
        return encoded(self.namespace, checked_key(self.namespace, key), value, engine.redact)

    # -- writing -------------------------------------------------------------------------------

    def _memo(
        self,
        engine: Engine,
        frame: Frame | None,
        key: object,
        node: bytes | None,
        ttl: Duration | None,
        if_version: int | None,
    ) -> Memo:
        if if_version is not None and (type(if_version) is not int or if_version < 0):
            raise UsageError(
                f"memory.set(if_version={if_version!r}): the version that was read; 0 if there "
                "must be none"
            )
        expires_us = None
        if ttl is not None:
            length_us = durations.micros(ttl, "memory.set(ttl=…)")
            expires_us = engine.now_us() + length_us
        run_id = None if frame is None else frame.execution.run_id
        checked = checked_key(self.namespace, key)
        return Memo(self.namespace, checked, node, expires_us, run_id=run_id, expected=if_version)

    def _write_directly(self, frame: Frame | None, memo: Memo) -> bool:
        """Write outside a flow: at once, or with the outcome of the step."""
        if frame is None:
            kept = self._outside().backend
            if memo.value is None:
                return remove_memo(kept, memo)
            return kept.put_memo(memo, memo.expected) is not None
        frame.execution.check()
        call = frame.call
        assert call is not None
        if memo.expected is not None:
            raise UsageError(
                f"{call.key}: what a step writes to {self!r} waits for the step's outcome, so it "
                "is not known yet whether a version is still the newest; write with if_version= "
                "in the flow"
            )
        is_there = memo.value is not None or bool(
            read_memory(
                frame.execution.engine.backend, Recall(memo.space, memo.key), frame.execution, call
            )
        )
        with frame.execution.lock:
            if not frame.attempt_has_ended():
                kept_back(call, memo)
        return is_there

    def _update(
        self, values: Mapping[str, Any], delete: Iterable[str], ttl: Duration | None
    ) -> list[Memo]:
        """Return what an update writes."""
        self._kept_outside("update")
        engine = self._outside()
        nodes: dict[str, bytes | None] = dict.fromkeys(delete)
        nodes |= {key: self._encoded(None, key, value) for key, value in values.items()}
        return [
            self._memo(engine, None, key, node, None if node is None else ttl, None)
            for key, node in nodes.items()
        ]

    def _expected(self, if_version: Mapping[str, int] | None) -> list[Memo]:
        """Return which versions an update expects, as values that are only looked at."""
        engine = self._outside()
        return [
            self._memo(engine, None, key, None, None, version)
            for key, version in (if_version or {}).items()
        ]

    def _remembering(self, frame: Frame, name: str, memo: Memo, given: dict[str, Any]) -> Operation:
        execution = frame.execution
        named = {"namespace": self.namespace, "key": memo.key}
        call = self._called(frame, name, named | given)
        writes = remove_script if memo.value is None else remember_script
        script = writes(call, memo, execution.history, execution.decode)
        return Operation(execution, call, script)

    # -- a flow's own calls --------------------------------------------------------------------

    def _called(self, frame: Frame, name: str, given: dict[str, Any]) -> StepCall:
        """Take the key and the position of a flow's call, and what it was given."""
        execution = frame.execution
        execution.check()
        name = f"memory.{name}"
        check_owner(frame, name)
        key, position = frame.scope.take(name)
        with execution.lock:
            digest = execution.digest_of(key, given)
            record = execution.history.match_quietly(key, position)
            node = b""
            if record is not None:
                execution.replay.replayed(key)
            else:
                node = execution.values.encode(given, f"{key}: argument")
        return StepCall(Spec(name), key, position, digest, "", None, args_node=node)


class Operation:
    """A call of a flow that has its key and position, and is still to be performed."""

    def __init__(self, execution: Execution, call: StepCall, script: Script) -> None:
        self._execution = execution
        self._body = Body(call, _nothing, lambda: ((), {}), None, None)
        self._script = script

    def perform(self) -> Any:
        """Perform it in this thread."""
        return drive(self._script, self._execution, self._body)

    def awaited(self) -> Coroutine[Any, Any, Any]:
        """Return an awaitable; a flow that ends without awaiting it gets an error."""
        self._execution.waits.unawaited.add(self._body.call.key)
        return self._perform_async()

    async def _perform_async(self) -> Any:
        from holdfast._runtime.execution.awaiting_driver import drive_async

        self._execution.waits.unawaited.discard(self._body.call.key)
        self._execution.check()
        return await drive_async(self._script, self._execution, self._body)


def _nothing() -> None:
    """The operation is all in its script."""


def given_beside(ttl: Duration | None, if_version: int | None) -> dict[str, Any]:
    """Return what a flow's call was given beside key and value, as it is recorded."""
    given: dict[str, Any] = {}
    if ttl is not None:
        given["ttl_us"] = durations.micros(ttl, "memory.set(ttl=…)")
    if if_version is not None:
        given["if_version"] = if_version
    return given


def entry_of(found: Told) -> MemoryItem:
    key, value, version, updated_us, expires_us, run_id = found
    expires_at = None if expires_us is None else moments.at(expires_us)
    return MemoryItem(key, value, version, moments.at(updated_us), expires_at, run_id)


async def then(work: Coroutine[Any, Any, Any], make: Callable[[Any], Any]) -> Any:
    return make(await work)


async def in_thread(work: Callable[[], Any]) -> Any:
    import asyncio

    return await asyncio.to_thread(work)
