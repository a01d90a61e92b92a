"""Conversations of the SDK in the store of Holdfast.

Each item is one value of a memory, so that a conversation of any length grows by what is new. Inside
a run every call is a step: what was read is recorded, and what is written commits together with the
record of the call. So a replay reads what was read before, and adds nothing twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

from agents import SessionSettings
from agents.items import TResponseInputItem
from pydantic_core import to_jsonable_python

import holdfast
from holdfast.integrations.openai_agents._lines import line

_NEXT = "next"
_ITEMS = "item."


class DurableSession:
    """A conversation, known by its id, that outlives runs and programs.

    It fills the SDK's `Session` protocol. In a run it is kept in the run's store, outside in the
    default one.
    """

    def __init__(self, session_id: str, *, session_settings: SessionSettings | None = None) -> None:
        self.session_id = session_id
        self.session_settings = session_settings

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
        """Take the last item away, and return it."""
        taken: TResponseInputItem | None = await self._do(_pop)
        return taken

    async def clear_session(self) -> None:
        """Take all items away."""
        await self._do(_clear)

    async def _do(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        space = f"openai_agents.session.{self.session_id}"
        if holdfast.current_run() is None:
            return await work(space, *args)
        with holdfast.keyed(line(self.session_id)):
            return await _STEPS[work](space, *args)


async def _get(space: str, limit: int | None) -> list[Any]:
    memory = holdfast.aio.memory(space)
    if limit is None:
        return [entry.value for entry in await memory.list(_ITEMS)]
    if limit <= 0:
        return []
    first = max(0, await memory.get(_NEXT, 0) - limit)
    return [it.value for it in await memory.list(_ITEMS, after=_number(first))][-limit:]


async def _add(space: str, items: list[Any]) -> None:
    memory = holdfast.aio.memory(space)
    first = await memory.get(_NEXT, 0)
    tail = _tail()
    values = {f"{_number(first + at)}{tail}": item for at, item in enumerate(items)}
    await _write(space, {**values, _NEXT: first + len(items)})


async def _pop(space: str) -> Any:
    memory = holdfast.aio.memory(space)
    after = await memory.get(_NEXT, 0)
    found = await memory.list(_ITEMS, after=_number(max(0, after - 1)))
    if not found:
        return None
    await _write(space, {_NEXT: max(0, after - 1)}, [found[-1].key])
    return found[-1].value


async def _clear(space: str) -> None:
    found = await holdfast.aio.memory(space).list(_ITEMS)
    await _write(space, {_NEXT: 0}, [entry.key for entry in found])


async def _write(space: str, values: dict[str, Any], delete: list[str] | None = None) -> None:
    """Write all or nothing: in a step with its outcome, outside runs in one transaction."""
    memory = holdfast.aio.memory(space)
    if holdfast.current_run() is None:
        await memory.update(values, delete=delete or [])
        return
    for key in delete or []:
        await memory.delete(key)
    for key, value in values.items():
        await memory.set(key, value)


def _tail() -> str:
    """Two runs that add at the same moment take the same numbers; this keeps the items of both."""
    run = holdfast.current_run()
    if run is None:
        return ".0"
    return "." + hashlib.blake2b(run.run_id.encode(), digest_size=8).hexdigest()


def _number(number: int) -> str:
    """Return how the keys of this number begin; all of them stand behind it."""
    return f"{_ITEMS}{number:012d}"


_STEPS: dict[Callable[..., Any], Any] = {
    _get: holdfast.recorded(_get, name="session_get"),
    _add: holdfast.recorded(_add, name="session_add", unrecorded=("items",)),
    _pop: holdfast.recorded(_pop, name="session_pop"),
    _clear: holdfast.recorded(_clear, name="session_clear"),
}
