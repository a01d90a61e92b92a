"""Conversations of the SDK in the store of Holdfast.

Each item is one value of a memory, so that only new items are written, whatever the length of the
conversation. Inside a run every call is a step: reads are recorded, and writes commit together with
the record of the call. So a replay returns the recorded items, and adds nothing twice.

No two calls write the same key: a key has the number of the call's first item, and the call. Calls
on one event loop run one after the other; calls elsewhere may overlap, and then the items of both
are kept.
"""

from __future__ import annotations

import asyncio
import uuid
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from agents import SessionSettings
from agents.items import TResponseInputItem
from pydantic_core import to_jsonable_python

import holdfast
from holdfast.integrations._names import fitting
from holdfast.integrations.openai_agents._lines import line

_NEXT = "next"
_ITEMS = "item."


class DurableSession:
    """A conversation that outlives runs and programs, identified by its id.

    It implements the SDK's `Session` protocol. Inside a run it uses the run's store, outside the
    default store.
    """

    def __init__(
        self, session_id: str, *, session_settings: SessionSettings | dict[str, Any] | None = None
    ) -> None:
        self.session_id = session_id
        if not isinstance(session_settings, SessionSettings):
            session_settings = SessionSettings().resolve(session_settings)
        self.session_settings: SessionSettings | None = session_settings

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, or the last `limit` of them, oldest first."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        found: list[TResponseInputItem] = await self._do(_get, limit)
        return found

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end."""
        if items:
            await self._do(_add, to_jsonable_python(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item, and return it."""
        taken: TResponseInputItem | None = await self._do(_pop)
        return taken

    async def clear_session(self) -> None:
        """Remove all items."""
        await self._do(_clear)

    async def _do(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        known = fitting(self.session_id)
        space = f"openai_agents.session.{known}"
        async with _turn(space):
            if holdfast.context.current_run() is None:
                return await work(space, *args)
            with holdfast.adapters.step_key(line(known)):
                return await _STEPS[work](space, *args)


_turns: weakref.WeakValueDictionary[tuple[object, str], asyncio.Lock] = (
    weakref.WeakValueDictionary()
)


def _turn(space: str) -> asyncio.Lock:
    """Return the lock that serializes the calls on a conversation, in their order."""
    place = (asyncio.get_running_loop(), space)
    lock = asyncio.Lock()
    return _turns.setdefault(place, lock)


async def _get(space: str, limit: int | None) -> list[Any]:
    memory = holdfast.aio.memory(space)
    if limit is None:
        return [entry.value for entry in await memory.items(_ITEMS)]
    return [entry.value for entry in await _last(memory, limit)] if limit > 0 else []


async def _last(memory: Any, many: int) -> list[Any]:
    """Return the last items. Their first key is unknown, so the search goes further back until it
    has them."""
    end: int = await memory.get(_NEXT, 0)
    back = many
    while True:
        first = max(0, end - back)
        found: list[Any] = await memory.items(_ITEMS, after=_number(first))
        if first == 0 or len(found) >= many:
            return found[-many:]
        back *= 4


async def _add(space: str, items: list[Any]) -> None:
    memory = holdfast.aio.memory(space)
    while True:
        said = await memory.item(_NEXT)
        first = 0 if said is None else said.value
        # Others may have added items, and then recorded a smaller number.
        if behind := await memory.items(_ITEMS, after=_number(first)):
            first = _place(behind[-1].key) + 1
        start = f"{_number(first)}.{_call()}"
        values = {f"{start}.{at:06d}": item for at, item in enumerate(items)}
        values[_NEXT] = first + len(items)
        if await _write(space, values, {_NEXT: 0 if said is None else said.version}):
            return


async def _pop(space: str) -> Any:
    memory = holdfast.aio.memory(space)
    while found := await _last(memory, 1):
        last = found[0]
        values = {_NEXT: _place(last.key)}
        if await _write(space, values, {last.key: last.version}, [last.key]):
            return last.value
    return None


async def _clear(space: str) -> None:
    found = await holdfast.aio.memory(space).items(_ITEMS)
    await _write(space, {_NEXT: 0}, {}, [entry.key for entry in found])


async def _write(
    space: str, values: dict[str, Any], seen: dict[str, int], delete: Sequence[str] = ()
) -> bool:
    """Write all or nothing: in a step, with its outcome; outside runs, in one transaction, and only
    if the versions that were read are still current."""
    memory = holdfast.aio.memory(space)
    if holdfast.context.current_run() is None:
        return await memory.update(values, delete=delete, if_version=seen)
    for key in delete:
        await memory.delete(key)
    for key, value in values.items():
        await memory.set(key, value)
    return True


def _call() -> str:
    """Return a unique text for a call. Two runs may add at the same moment and take the same
    number: the items of both are kept, and those of one call stay together."""
    return (
        uuid.uuid4().hex if holdfast.context.current_run() is None else holdfast.idempotency_key()
    )


def _number(number: int) -> str:
    """Return the prefix of the keys of this number; all of them sort after it."""
    return f"{_ITEMS}{number:012d}"


def _place(key: str) -> int:
    """Return the number in the key of an item, at which the items of its call begin."""
    _, first, _, at = key.split(".")
    return int(first) + int(at)


_STEPS: dict[Callable[..., Any], Any] = {
    _get: holdfast.adapters.as_step(_get, name="session_get"),
    _add: holdfast.adapters.as_step(_add, name="session_add", unrecorded=("items",)),
    _pop: holdfast.adapters.as_step(_pop, name="session_pop"),
    _clear: holdfast.adapters.as_step(_clear, name="session_clear"),
}
