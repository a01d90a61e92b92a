"""The identity of branches: for which item, or for which call, each branch of an `each` or `gather` is.

The record of the branches (`scope_opened`) holds a mark per branch: a digest of its item or of the
arguments that its function is bound to. A replay compares the marks place by place, so that no branch
gets the records and snapshots of another one. Branches behind the recorded ones are new: they run live,
and a further record, `each:2`, holds the marks from that number on. Where somebody has accepted a change,
branches are found by their marks instead of by their places.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import inspect
import itertools
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from types import CoroutineType, FunctionType
from typing import Any, cast

import msgspec

from holdfast._engine.journal.step_record import Record
from holdfast._engine.scripts.requests import Spec, StepCall
from holdfast._engine.scripts.step_script import diverged
from holdfast._engine.scripts.stops import Unwind
from holdfast._engine.values.class_registry import KNOWN
from holdfast._engine.values.node_writer import is_plain
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.fingerprints import is_durable, rebinds
from holdfast._runtime.execution.frames import Frame
from holdfast._runtime.execution.operations import take_place

MARK_BYTES = 6
_SCALARS = (str, bytes, int, float, complex, Enum)


class Marks(msgspec.Struct, omit_defaults=True):
    """The marks that distinguish the branches of one `each` or `gather`, in their order."""

    marks: list[str] = []
    """A short digest of each; empty where there is none: the value cannot be stored."""
    names: list[str] = []
    """Of a `gather`: the functions; empty for a step, whose key says it, and for a lambda."""
    shapes: str = ""
    """The classes of the items: if they changed, the digests say nothing any more."""
    keyed: bool = False
    """Whether `key=` names the branches; then nothing else tells them apart."""

    def token(self, number: int) -> tuple[str, str]:
        """Return what a branch is known by, apart from its place."""
        return self.marks[number], self.names[number] if self.names else ""

    def extend(self, more: Marks) -> None:
        """Take in the marks of branches that were added later."""
        self.marks += more.marks
        self.names += more.names


def of_items(execution: Execution, key: str, fn: Any, items: Sequence[Any]) -> Marks:
    """Return the marks of an `each` without `key=`."""
    bound = _bound_to(fn)
    given = [[item, *bound] for item in items] if bound else items
    marks = [_mark(execution, key, value) for value in given]
    if bound and not all(marks):  # What the function is bound to cannot be stored.
        marks = [_mark(execution, key, item) for item in items]
    classes: set[type[Any]] = {type(item) for item in items if not is_plain(item)}
    return Marks(marks, shapes=" ".join(sorted(map(_shape, classes))))


def of_calls(execution: Execution, key: str, calls: Sequence[Callable[[], Any]]) -> Marks:
    """Return the marks of a `gather` over functions."""
    marks = [_mark_of_all(execution, key, _bound_to(call)) for call in calls]
    return Marks(marks, [_name(call) for call in calls])


def of_awaitables(execution: Execution, key: str, given: Sequence[Awaitable[Any]]) -> Marks:
    """Return the marks of an `aio.gather`: of coroutines that have not one."""
    told = [_coroutine(one) for one in given]
    marks = [_mark_of_all(execution, key, arguments) for _, arguments in told]
    return Marks(marks, [name for name, _ in told])


def placed(frame: Frame, name: str, place: tuple[str, int | None], now: Marks) -> list[int]:
    """Take the place of branches, and return the number of each. A branch that is recorded for
    another item or call holds the run as diverged."""
    key, position = place
    execution = frame.execution
    call = StepCall(Spec(name), key, position, None, "", None)
    record = take_place(frame, call, msgspec.json.encode(now))
    in_order = list(range(len(now.marks)))
    was = None if record is None else _recorded(record)
    if record is None or was is None:
        return in_order
    is_accepted = record.borrowed or key in execution.history.old
    if was.keyed or now.keyed:
        if was.keyed != now.keyed and not is_accepted:
            ways = ("by key=", "by their places")
            found = f"the journal has the branches of {key} {ways[not was.keyed]}, the flow now has them"
            raise _stop(execution, key, f"{found} {ways[was.keyed]}")
        return in_order
    _with_later_ones(frame, name, key, was)
    numbers = in_order if was.shapes != now.shapes else _numbers(was, now, is_accepted)
    if numbers is None:
        raise _stop(execution, key, _difference(key, was, now))
    new = sorted((number, at) for at, number in enumerate(numbers) if number >= len(was.marks))
    if new:
        more = Marks(
            [now.marks[at] for _, at in new],
            [now.names[at] for _, at in new] if now.names else [],
            now.shapes,
        )
        later = StepCall(Spec(name), f"{key}:{len(was.marks)}", None, None, "", None)
        take_place(frame, later, msgspec.json.encode(more))
    return numbers


def _recorded(record: Record) -> Marks | None:
    """Return the recorded marks; None if a release wrote the record that knew of none."""
    body = None if record.outcome is None else record.outcome.body
    if body is None or (b'"marks"' not in body and b'"keyed"' not in body):
        return None
    return msgspec.json.decode(body, type=Marks)


def _with_later_ones(frame: Frame, name: str, key: str, was: Marks) -> None:
    """Add the marks of the branches that came later to those of the first record."""
    while was.marks:
        later = f"{key}:{len(was.marks)}"
        if later not in frame.execution.history.records:
            return
        record = take_place(frame, StepCall(Spec(name), later, None, None, "", None))
        more = None if record is None else _recorded(record)
        if more is None or not more.marks:
            return
        was.extend(more)


def _numbers(was: Marks, now: Marks, is_accepted: bool) -> list[int] | None:
    """Return the number of each of today's branches; None if one differs from its record."""
    if not is_accepted:
        return None if _differs_at(was, now) is not None else list(range(len(now.marks)))
    left: dict[tuple[str, str], list[int]] = {}
    for number in reversed(range(len(was.marks))):
        left.setdefault(was.token(number), []).append(number)
    found: list[int | None] = []
    for at in range(len(now.marks)):
        same = left.get(now.token(at))
        found.append(same.pop() if same else None)
    free = set(itertools.chain.from_iterable(left.values()))
    fresh = itertools.count(len(was.marks))
    return [
        number if number is not None else at if at in free else next(fresh)
        for at, number in enumerate(found)
    ]


def _differs_at(was: Marks, now: Marks) -> int | None:
    """Return the first branch that is recorded for something else. A function may be renamed, but it
    may not change its place with another one."""
    for at, (before, today) in enumerate(zip(was.marks, now.marks, strict=False)):
        if before and today and before != today:
            return at
    for at, (before, today) in enumerate(zip(was.names, now.names, strict=False)):
        has_moved = (before and before in now.names) or (today and today in was.names)
        if before != today and has_moved:
            return at
    return None


def _difference(key: str, was: Marks, now: Marks) -> str:
    """Describe the branch that differs: what is recorded for it, and what the flow calls there."""
    at = _differs_at(was, now)
    assert at is not None
    if now.names:
        before, today = was.names[at] or "a function", now.names[at] or "a function"
        other = " with other arguments" if before == today else ""
        return f"the journal has {before} as {key}[{at}], the flow now calls {today}{other}"
    before, today = was.marks[at], now.marks[at]
    gone = "which is not among the items now"
    then = f"which is now item {now.marks.index(before)}" if before in now.marks else gone
    since = f"which was item {was.marks.index(today)}" if today in was.marks else "which is new"
    return (
        f"the journal has {key}[{at}] for another item, {then}; the flow now has an item there, {since}. "
        "Items can be appended; with key= they can be inserted and reordered as well"
    )


def _stop(execution: Execution, key: str, found: str) -> Unwind:
    return execution.stop(Unwind(diverged(execution.run_id, key, found)))


# -- what a function is bound to ----------------------------------------------------------------


def _mark_of_all(execution: Execution, key: str, values: list[Any]) -> str:
    return _mark(execution, key, values) if values else ""


def _mark(execution: Execution, key: str, value: object) -> str:
    try:
        with execution.lock:
            digest = execution.values.digest(value, key)
    except Exception:  # An item need not be one that can be stored.
        return ""
    return base64.b64encode(digest[:MARK_BYTES]).decode()


def _bound_to(fn: Any) -> list[Any]:
    """Return the values that a function takes with it: the arguments of a partial, the defaults of a
    local function (`lambda k=k: …`), and the texts and numbers that it finds around itself. A step
    compares its arguments by itself."""
    partial: Any = fn
    if isinstance(fn, functools.partial):
        if is_durable(partial.func):
            return []
        named = [part for item in sorted(partial.keywords.items()) for part in item]
        return [*_bound_to(partial.func), *partial.args, *named]
    if not isinstance(fn, FunctionType) or "<" not in fn.__qualname__:
        return []
    values: list[Any] = [*(fn.__defaults__ or ())]
    values += [part for item in sorted((fn.__kwdefaults__ or {}).items()) for part in item]
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            around = cell.cell_contents
        except ValueError:  # It is empty yet.
            continue
        if isinstance(around, _SCALARS) and not rebinds(fn.__code__, name):
            values.append(around)
    return values


def _name(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = cast("Any", fn).func
    name = "" if is_durable(fn) else str(getattr(fn, "__qualname__", ""))
    return "" if "<" in name else name


def _coroutine(given: object) -> tuple[str, list[Any]]:
    """Return the function of a coroutine and its arguments; of one of ours, its step says it."""
    one: Any = given
    if not isinstance(given, CoroutineType):
        return "", []
    frame, code = one.cr_frame, one.cr_code
    if frame is None or inspect.getcoroutinestate(one) != inspect.CORO_CREATED:
        return "", []
    if str(frame.f_globals.get("__name__")).partition(".")[0] == "holdfast":
        return "", []
    flags = (bool(code.co_flags & flag) for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS))
    count = code.co_argcount + code.co_kwonlyargcount + sum(flags)
    known = frame.f_locals
    arguments = [known[name] for name in code.co_varnames[:count] if name in known]
    return "" if "<" in code.co_qualname else code.co_qualname, arguments


def _shape(cls: type[Any]) -> str:
    """Return the name of a class and a digest of its fields."""
    fields = [name for base in cls.__mro__ for name in getattr(base, "__annotations__", ())]
    upgrade = KNOWN.upgrade(cls)
    told = msgspec.json.encode([cls.__qualname__, fields, upgrade is not None])
    return hashlib.blake2b(told, digest_size=MARK_BYTES).hexdigest()
