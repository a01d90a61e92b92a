"""Changes that tools make to the context of an agent's run, recorded with the call's outcome.

Frameworks pass one object of the program to all tools: the `context` of the OpenAI Agents SDK, the
`deps` of Pydantic AI. A replayed tool is not called, so its changes are recorded and applied again.

    watched = Watched(context)         # before the call
    recorded = watched.recorded(result)    # after it: the result, with what has changed
    result = watched.replayed(recorded)   # live as it is; on replay the changes are done again

Compared are the context itself, and in it dictionaries, lists, deques, sets, dataclasses and
Pydantic models. Any other object (a client, a connection) is compared by identity only: it may be
in a context, and a tool cannot put one there. Objects keep their identity: shared objects stay
shared. Parallel tools see each other's changes; a number identifies the later one of each place.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime as dt
import decimal
import enum
import inspect
import re
import uuid
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import Any, cast

import holdfast
from holdfast.errors import NotSerializable, StepFailed, UsageError
from holdfast.integrations._names import fitting

MARK = "context"
"""The first element of the record of a call that changed the context; other records never have
it."""

_CHANGES = 2
"""Their place in it."""

_Path = tuple[tuple[str, Any], ...]
_LEAVES = (
    *(str, bytes, int, float, complex, type(None), enum.Enum, decimal.Decimal, uuid.UUID),
    *(dt.date, dt.time, dt.timedelta),
)
_LISTS = (list, collections.deque)
_FIELD, _KEY, _ITEM = "field", "key", "item"
_SET, _SAME, _FILL, _DELETE = "set", "same", "fill", "delete"


@dataclasses.dataclass(frozen=True)
class _Part:
    """A value at one moment: `known` is compared, `parts` are its contents."""

    value: Any
    known: Any
    parts: dict[tuple[str, Any], _Part] | None = None


class Watched:
    """A context before the call of a tool."""

    def __init__(self, tool: str, context: Any) -> None:
        self._tool = tool
        self._context = context
        self._before: _Part | None = None
        self._changes: list[Any] = []

    def begin(self) -> None:
        """Look at the context; the tool is called now."""
        self._before = _described(self._context)

    def recorded(self, result: Any) -> Any:
        """Return what is recorded of the call: its result, and what it changed if it did."""
        assert self._before is not None
        found: list[Any] = []
        _compare(self._before, _described(self._context), (), found)
        if not found:
            return result
        self._changes = [_clock(self._context).tick(found), *found]
        return (MARK, result, self._changes)

    def replayed(self, recorded: Any) -> Any:
        """Return the result in a record. If the tool was not called, do what it did to the context."""
        if not isinstance(recorded, tuple) or recorded[:1] != (MARK,):
            return recorded
        _, result, (number, *found) = cast("tuple[Any, Any, list[Any]]", recorded)
        if self._before is None:
            clock = _clock(self._context)
            for how, path, value in found:
                if clock.is_later(number, path):
                    _do(self._context, how, path, value)
        return result

    @contextlib.contextmanager
    def refusals(self) -> Generator[None]:
        """Name the tool and the field in the error about a value of a context that is refused."""
        try:
            yield
        except StepFailed as failed:
            if failed.type_name != NotSerializable.__name__ or f"result[{_CHANGES}]" not in str(
                failed
            ):
                raise
            fields = ", ".join(_path_text(path) for _, path, _ in self._changes[1:])
            raise UsageError(
                f"the tool {self._tool} changed {fields or 'something'} of the run's context, and "
                f"that cannot be kept for a resume: {failed}. Put plain data there, register the "
                "class, or make the object before the run and leave it alone in tools"
            ) from failed


async def restoring(tool: str, context: Any, call: Callable[[], Awaitable[Any]]) -> Any:
    """Call a tool that records itself. Its changes to the context are a separate step."""
    called, restored = Watched(tool, context), Watched(tool, context)
    called.begin()
    result = await call()

    async def changes() -> Any:
        restored.begin()
        return called.recorded(None)

    with called.refusals():
        step = holdfast.adapters.as_step(changes, name=fitting(f"context {tool}"))
        restored.replayed(await step())
    return result


def takes_context(function: Any) -> bool:
    """Whether a step or an effect takes the context of its framework."""
    kinds = [str(it.annotation) for it in inspect.signature(function.fn).parameters.values()]
    return any("RunContext" in kind or "ToolContext" in kind for kind in kinds[:1])


def advised(refused: NotSerializable) -> str:
    """Return the remedy if an argument of a tool is refused: it may be the framework's context."""
    found = re.search(r"argument\['(\w+)'\]", str(refused))
    if found is None:
        return str(refused)
    name, (why, *_) = found[1], str(refused).split("; add: ")
    return (
        f"{why}. If {name} is the context that the framework hands to the tool, leave it out of the "
        f"record: @effect(…, unrecorded=({name!r},)). If it is data of your own: "
        "holdfast.versioning.register_type its class"
    )


# --- description of a context
# ---------------------------------------------------------------------------


def _described(context: Any) -> _Part:
    return _describe(context, (), {}, is_root=True)


def _describe(value: Any, path: _Path, seen: dict[int, _Path], *, is_root: bool = False) -> _Part:
    if isinstance(value, _LEAVES):
        return _Part(value, (type(value), repr(value) if isinstance(value, float) else value))
    inside = _inside(value, is_root=is_root)
    if inside is None:
        return _Part(value, (type(value), id(value)))
    if id(value) in seen:
        return _Part(value, (_SAME, seen[id(value)]))
    seen[id(value)] = path
    parts = {step: _describe(it, (*path, step), seen) for step, it in inside.items()}
    return _Part(value, (type(value), [(step, it.known) for step, it in parts.items()]), parts)


def _inside(value: Any, *, is_root: bool) -> dict[tuple[str, Any], Any] | None:
    """Return the contents of a value, or None if they are not compared."""
    if isinstance(value, dict):
        pairs: Any = value.items()
        return {(_KEY, key): it for key, it in pairs}
    if isinstance(value, (*_LISTS, tuple)):
        return {(_ITEM, at): it for at, it in enumerate(cast("list[Any]", value))}
    if isinstance(value, (set, frozenset)):
        members = cast("set[Any]", value)
        return {(_ITEM, at): it for at, it in enumerate(sorted(members, key=repr))}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {(_FIELD, name): it for name, it in _fields(value).items()}
    if hasattr(type(value), "model_fields") or is_root:
        return {(_FIELD, name): it for name, it in _fields(value).items()}
    return None


def _fields(value: Any) -> dict[str, Any]:
    """Return the attributes of an object that are neither private nor computed by its class."""
    names: list[str] = [*getattr(value, "__dict__", ())]
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        names += [slots] if isinstance(slots, str) else slots
    private = not dataclasses.is_dataclass(value)
    return {
        name: getattr(value, name)
        for name in dict.fromkeys(names)
        if hasattr(value, name)
        and not name.startswith("__")
        and not (private and (name.startswith("_") or _is_worked_out(type(value), name)))
    }


def _is_worked_out(kind: type, name: str) -> bool:
    described = getattr(kind, name, None)
    return hasattr(described, "__get__") and not hasattr(described, "__set__")


# --- comparison
# -----------------------------------------------------------------------------------------


def _compare(before: _Part, after: _Part, path: _Path, found: list[Any]) -> None:
    if before.known == after.known:
        return
    there, here = before.parts, after.parts
    if there is None or here is None or before.value is not after.value:
        if after.known[0] == _SAME:
            found.append([_SAME, _plain(path), _plain(after.known[1])])
        else:
            found.append([_SET, _plain(path), after.value])
        return
    if isinstance(after.value, (*_LISTS, set)) and (
        isinstance(after.value, set) or [*there] != [*here]
    ):
        found.append([_FILL, _plain(path), list(after.value)])
        return
    found += [[_DELETE, _plain((*path, step)), None] for step in there if step not in here]
    for step, part in here.items():
        _compare(there.get(step, _NOTHING), part, (*path, step), found)


_NOTHING = _Part(None, ("nothing", None))


def _plain(path: _Path) -> list[list[Any]]:
    return [list(step) for step in path]


def _path_text(path: list[list[Any]]) -> str:
    shown = "".join(f".{at}" if kind == _FIELD else f"[{at!r}]" for kind, at in path)
    return shown.removeprefix(".") or "all"


# --- repeated changes
# -----------------------------------------------------------------------------------


def _do(context: Any, how: str, path: list[Any], value: Any) -> None:
    if how == _FILL:
        held = _at(context, path)
        held.clear()
        held.update(value) if isinstance(held, set) else held.extend(value)
        return
    holder, (kind, name) = _at(context, path[:-1]), path[-1]
    if how == _SAME:
        value = _at(context, value)
    if how == _DELETE:
        if kind == _FIELD:
            object.__delattr__(holder, name)
        else:
            del holder[name]
    elif kind == _FIELD:
        object.__setattr__(holder, name, value)
    else:
        holder[name] = value


def _at(context: Any, path: list[Any]) -> Any:
    found = context
    for kind, name in path:
        found = getattr(found, name) if kind == _FIELD else found[name]
    return found


# --- the order of changes -------------------------------------------------------------------------------


class _Clock:
    """Numbers the changes of one context. Parallel calls may be replayed in another order."""

    def __init__(self) -> None:
        self._last = 0
        self._at: dict[str, int] = {}

    def tick(self, found: list[Any]) -> int:
        self._last += 1
        for _, path, _ in found:
            self._at[repr(path)] = self._last
        return self._last

    def is_later(self, number: int, path: list[Any]) -> bool:
        self._last = max(self._last, number)
        if number < self._at.get(repr(path), 0):
            return False
        self._at[repr(path)] = number
        return True


_KEPT = 64
"""How many contexts are kept that cannot report their end: dictionaries."""

_clocks: dict[tuple[str, int], tuple[Callable[[], Any], _Clock]] = {}
_kept: collections.deque[tuple[str, int]] = collections.deque()


def _clock(context: Any) -> _Clock:
    """Return the clock of a context in this run, as long as the context exists."""
    run = holdfast.context.current_run()
    place = ("" if run is None else run.run_id, id(context))
    found = _clocks.get(place)
    if found is None or found[0]() is not context:
        found = _clocks[place] = (_reference(context, place), _Clock())
    return found[1]


def _reference(context: Any, place: tuple[str, int]) -> Callable[[], Any]:
    try:
        return weakref.ref(context, lambda _: _clocks.pop(place, None))
    except TypeError:
        _kept.append(place)
        while len(_kept) > _KEPT:
            _clocks.pop(_kept.popleft(), None)
        return lambda: context
