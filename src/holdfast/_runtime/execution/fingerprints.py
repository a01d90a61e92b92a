"""Fingerprints: of values, of files, and of code. Two are equal if what they stand for is the same."""

from __future__ import annotations

import contextlib
import dis
import functools
import hashlib
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import CodeType, FrameType, FunctionType
from typing import Any, cast
from weakref import WeakKeyDictionary

import msgspec

from holdfast._engine.values.digest import digest

SHOWN_MAX_CHARS = 80
"""A version that is a short text is recorded as it is, so that people can read it."""
BLOCK_BYTES = 1 << 20


def fingerprint(value: object) -> str:
    """Return a short digest of any value that could be stored: a prompt, tool schemas, a row."""
    return digest(value, path="fingerprint").hex()[:16]


class File:
    """A file to be watched: by its contents, not by its times."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __repr__(self) -> str:
        return f"Path({self.path!r})"

    def __call__(self) -> str:
        """Return the fingerprint of what stands in it now, or "absent"."""
        found = hashlib.blake2b(digest_size=8)
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123 - a path of the user's, as given
                while block := file.read(BLOCK_BYTES):
                    found.update(block)
        except FileNotFoundError:
            return "absent"
        return found.hexdigest()


def version_text(value: object) -> str:
    """Return a declared version as it is recorded: a short text as it is, else a fingerprint."""
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, str) and len(value) <= SHOWN_MAX_CHARS and value.isprintable():
        return value
    return fingerprint(value)


def of_code(fn: Callable[..., Any]) -> str:
    """Return a digest of a function as it was compiled, with the version of Python before it.

    Not of its source: a file may be edited while a process goes on with what it loaded from it.
    Comments, names of files and the docstring are no part of it.
    """
    code = getattr(inspect.unwrap(fn), "__code__", None)
    return _of_code(code, getattr(fn, "__doc__", None)) if isinstance(code, CodeType) else ""


def of_flow(fn: Callable[..., Any]) -> str:
    """Return a digest of a flow's function and of the plain functions of its module that it names,
    and so on, with their defaults, the names and aliases of the steps in them and the plain data that
    they name: what decides which steps are called. What steps do themselves is no part of it.

    The data is that of the first call in this process: a cache or a counter that changes while the
    process works is no other code."""
    found: dict[str, str] = {}
    data: dict[str, str] = {}
    whole = inspect.unwrap(fn)
    left = [whole]
    while left:
        one = left.pop()
        code = getattr(one, "__code__", None)
        if not isinstance(code, CodeType) or code.co_qualname in found:
            continue
        named = _named(one, code)
        steps = [_step_names(it) for it in named.values() if is_durable(it) and hasattr(it, "name")]
        parts = [_of_code(code, getattr(one, "__doc__", None)), *_defaults(one), *steps]
        found[code.co_qualname] = "\0".join(parts)
        if whole not in _DATA:
            told = {name: _data_text(it) for name, it in named.items() if _is_data(it)}
            data[code.co_qualname] = "\0".join(f"{name}={told[name]}" for name in sorted(told))
        left += [
            it
            for value in named.values()
            for it in _functions(value)
            if it.__module__ == fn.__module__
        ]
    if whole not in _DATA:
        _DATA[whole] = "\0".join(f"{name} {data[name]}" for name in sorted(data))
    text = "\0".join(f"{name} {found[name]}" for name in sorted(found)) + _DATA[whole]
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


_DATA: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()
"""The plain data that flows name, as text, by the function of the flow."""
DATA_MAX_ITEMS = 10_000
"""Of a longer list or dict, its length counts."""
DATA_MAX_LEVELS = 8


def _named(fn: Callable[..., Any], code: CodeType) -> dict[str, Any]:
    """Return the globals and the variables of functions around it that a function names, also in
    the comprehensions and functions inside it."""
    space: dict[str, Any] = getattr(fn, "__globals__", {})
    named = {name: space[name] for name in _names(code) if name in space}
    for name, cell in zip(code.co_freevars, getattr(fn, "__closure__", None) or (), strict=False):
        with contextlib.suppress(ValueError):  # It is empty yet.
            named[name] = cell.cell_contents
    return named


@functools.lru_cache(maxsize=1024)
def _names(code: CodeType) -> tuple[str, ...]:
    inside = [it for it in code.co_consts if isinstance(it, CodeType)]
    every = [*code.co_names, *itertools.chain.from_iterable(map(_names, inside))]
    return tuple(dict.fromkeys(name for name in every if not name.startswith("__")))


def _step_names(durable: Any) -> str:
    """Return the names under which a step, effect or flow finds its records."""
    settings = getattr(durable, "_settings", durable)
    return "\1".join([str(durable.name), *map(str, getattr(settings, "aliases", ()))])


def _is_data(value: object) -> bool:
    return value is None or isinstance(value, _DATA_TYPES)


_DATA_TYPES = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset, Enum)


def _data_text(value: Any, level: int = 0) -> str:
    """Return plain data as text, with the steps in it; of other objects, the class."""
    if isinstance(value, Enum):
        return f"{type(value).__qualname__}.{value.name}"
    if is_durable(value) and hasattr(value, "name"):
        return _step_names(value)
    if isinstance(value, FunctionType):
        return value.__qualname__
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if not _is_data(value) or level > DATA_MAX_LEVELS:
        return type(value).__qualname__
    parts = cast("Sequence[Any]", value)
    pairs = cast("Mapping[Any, Any]", value)
    if len(parts) > DATA_MAX_ITEMS:
        return f"{type(value).__qualname__} {len(parts)}"
    if isinstance(value, dict):
        told = [
            f"{_data_text(k, level + 1)}:{_data_text(it, level + 1)}" for k, it in pairs.items()
        ]
    else:
        told = [_data_text(it, level + 1) for it in parts]
    kind = type(parts).__qualname__
    return f"{kind}({','.join(sorted(told) if 'set' in kind else told)})"


def _functions(value: Any, level: int = 0) -> Iterator[FunctionType]:
    """Yield the plain functions that a value is, or holds."""
    held: Any = value
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, list | tuple | dict) and level < 2:
        parts: list[Any] = [*(held.values() if isinstance(value, dict) else held)]
        if len(parts) <= DATA_MAX_ITEMS:
            for it in parts:
                yield from _functions(it, level + 1)


def _defaults(fn: Callable[..., Any]) -> list[str]:
    """Return the defaults of a function as text. Objects are left out: their text may be another one
    in each process."""
    by_place: tuple[object, ...] = getattr(fn, "__defaults__", None) or ()
    by_name: dict[str, object] = getattr(fn, "__kwdefaults__", None) or {}
    given = [*by_place, *itertools.chain.from_iterable(sorted(by_name.items()))]
    return [_constant_text(value) for value in given if _is_plain(value)]


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, cast("Iterable[object]", value)))
    return value is None or type(value) in (bool, int, float, complex, str, bytes)


@functools.lru_cache(maxsize=4096)
def _of_code(code: CodeType, doc: str | None) -> str:
    # By code, not by function: what closures hold on to is not kept alive here.
    found = hashlib.blake2b(digest_size=6)
    _feed(found, code, skips=doc)
    return f"{sys.version_info[0]}.{sys.version_info[1]}:{found.hexdigest()}"


def _feed(found: Any, code: CodeType, skips: object = None) -> None:
    for part in (code.co_code, code.co_names, code.co_varnames, code.co_argcount):
        found.update(repr(part).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _feed(found, constant)
        elif constant is None or constant is not skips:
            found.update(_constant_text(constant).encode())


def _constant_text(constant: object) -> str:
    """Return a constant as text; sets have no order of their own."""
    if isinstance(constant, frozenset):
        return f"{{{','.join(sorted(map(repr, constant)))}}}"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return repr(constant)


# -- the code of a loop -------------------------------------------------------------------------


class LoopCode(msgspec.Struct, frozen=True):
    """Which loop of the code one is, apart from what it begins with. No line numbers, no names of
    local variables: an edit elsewhere in the file changes nothing."""

    home: str
    """The function that it stands in; empty for the flow's own, which may be renamed."""
    via: str
    """The calls through which the flow comes to the loop, each with the names and constants in it;
    `UNKNOWN` if Python was started so that it keeps no columns (PYTHONNODEBUGRANGES)."""
    by: str
    """The whole functions of these calls, likewise: what is compared where `via` is unknown."""
    at: int
    """Which of the loops in `of` it is."""
    of: list[str]
    """The bodies of the loops of its function, but for those in it and around it: the names and
    constants in each. Plain loops are among them: what a loop is over, only a call would tell."""
    near: list[str]
    """The bodies of the loops in it and around it."""
    calls: list[str]
    """The steps and flows that its body names, as far as they are global."""
    uses: list[str]
    """The plain functions that it names, likewise."""

    def is_edited(self, now: LoopCode) -> bool | None:
        """Compare the recorded loop with one of today's code: False if its body is the same, True if
        it was edited in its place, None if it is another loop, or if nobody can tell."""
        body, today = self.of[self.at], now.of[now.at]
        if today == body:
            was = (self.of[: self.at].count(body), self.of.count(body))
            return None if was != (now.of[: now.at].count(body), now.of.count(body)) else False
        has_moved = body in (*now.of, *now.near) or today in (*self.of, *self.near)
        in_place = self.at == now.at and _others(now) == _others(self) and not has_moved
        return True if in_place and self._is_like(now) else None

    def is_reached(self, now: LoopCode) -> bool:
        """Return whether the flow comes to a loop of today's code as it came to the recorded one."""
        if self.home != now.home:
            return False
        if UNKNOWN in (self.via, now.via):
            return self.by == now.by
        return self.via == now.via

    def _is_like(self, now: LoopCode) -> bool:
        """Return whether an edit may have made one body of the other: by the steps in both, or else by
        the functions, or else by where they stand."""
        for were, are in ((self.calls, now.calls), (self.uses, now.uses)):
            if were and are:
                return not set(were).isdisjoint(are)
        return self.home == now.home


UNKNOWN = "?"


def _others(loop: LoopCode) -> list[str]:
    return loop.of[: loop.at] + loop.of[loop.at + 1 :]


def loop_code(frame: FrameType, *, in_branch: bool = False) -> LoopCode:
    """Return the code of the loop that asks for its first turn in a frame, or through generators."""
    inner: list[str] = []
    while (above := frame.f_back) is not None and _is_fed_by(above, frame):
        inner.append(frame.f_code.co_qualname)
        frame = above
    code, last = frame.f_code, frame.f_lasti
    mine = _loop_at(code, last)
    apart = [
        it for it in _loops(code) if it.has_calls and (it.end <= mine.head or mine.end <= it.head)
    ]
    near = [it for it in _loops(code) if it.has_calls and it not in apart and it.head != mine.head]
    at = sum(it.head < mine.head for it in apart)
    bodies = [_short(it.words) for it in (*apart[:at], mine, *apart[at:])]
    callers = list(_callers(frame))
    home = [*([code.co_qualname] if callers or in_branch else []), *inner]
    calls_to = [_call_in(it.f_code, it.f_lasti) for it in callers]
    named = {word: frame.f_globals.get(word) for word in sorted(set(mine.words))}
    return LoopCode(
        home=" < ".join(home),
        via=UNKNOWN if None in calls_to else _short([it for it in calls_to if it is not None]),
        by=_short([_all_in(it.f_code) for it in callers]),
        at=at,
        of=bodies,
        near=[_short(it.words) for it in near],
        calls=[word for word, value in named.items() if is_durable(value)],
        uses=[word for word, value in named.items() if isinstance(value, FunctionType)],
    )


def is_durable(value: object) -> bool:
    """Return whether a value is a step, an effect, a flow or another object of this library."""
    return type(value).__module__.partition(".")[0] == "holdfast"


@functools.lru_cache(maxsize=1024)
def _rebound(code: CodeType) -> frozenset[str]:
    every = dis.get_instructions(code)
    return frozenset(str(it.argval) for it in every if it.opname == "STORE_DEREF")


def rebinds(code: CodeType, name: str) -> bool:
    """Return whether a function assigns to a variable of the one around it (`nonlocal`)."""
    return name in _rebound(code)


def _is_fed_by(above: FrameType, frame: FrameType) -> bool:
    """Return whether one frame loops over the generator that the other is in."""
    if not frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        return False
    return _opname_at(above.f_code, above.f_lasti) in _HEADS


_HEADS = ("FOR_ITER", "SEND")
"""Opcodes between two items of a loop: also an `await`, in which no step begins."""


def _callers(frame: FrameType) -> Iterator[FrameType]:
    """Yield the frames between a loop and the call of its flow, or of its branch."""
    below, above = frame, frame.f_back
    while above is not None:
        is_task = below.f_code.co_flags & inspect.CO_COROUTINE and not (
            above.f_code.co_flags & _AWAITING
        )
        if is_task or str(above.f_globals.get("__name__")).partition(".")[0] == "holdfast":
            return
        yield above
        below, above = above, above.f_back


_AWAITING = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


class _Loop(msgspec.Struct, frozen=True):
    """A `for` in a function: from where to where, and the names and constants in its body."""

    head: int
    end: int
    words: list[str]
    has_calls: bool


@functools.lru_cache(maxsize=1024)
def _loops(code: CodeType) -> list[_Loop]:
    """Return the loops of a function, by where they begin."""
    every = list(dis.get_instructions(code))
    found: list[_Loop] = []
    for head in every:
        if head.opname not in ("FOR_ITER", "GET_ANEXT"):
            continue
        if head.opname == "FOR_ITER":
            end = head.argval
        else:
            jumps = [it.offset for it in every if "JUMP" in it.opname and it.argval == head.offset]
            end = max(jumps, default=every[-1].offset)
        inside = [it for it in every if head.offset <= it.offset < end]
        has_calls = any(it.opname.startswith("CALL") for it in inside)
        found.append(_Loop(head.offset, end, _words(inside), has_calls))
    return found


@functools.lru_cache(maxsize=1024)
def _opname_at(code: CodeType, last: int) -> str:
    return [it.opname for it in dis.get_instructions(code) if it.offset <= last][-1]


def _loop_at(code: CodeType, last: int) -> _Loop:
    """Return the loop whose head a function is at; for what is no `for` (`next(…)`, `list(…)`), all
    that is behind."""
    before = [it for it in _loops(code) if it.head <= last]
    if before and _opname_at(code, last) in _HEADS:
        return before[-1]
    behind = [it for it in dis.get_instructions(code) if it.offset > last]
    return _Loop(last, len(code.co_code), _words(behind), has_calls=True)


@functools.lru_cache(maxsize=1024)
def _call_in(code: CodeType, last: int) -> str | None:
    """Return the names and constants in the call that a function is at; None if nobody knows."""
    # By units of code and not by instructions: the place may be inside the cache of one.
    at = dis.Positions(*next(itertools.islice(code.co_positions(), last // 2, None)))
    if None in at:
        return None
    first, end = (at.lineno, at.col_offset), (at.end_lineno, at.end_col_offset)
    inside: list[dis.Instruction] = []
    for it in dis.get_instructions(code):
        where = it.positions
        if where is None or None in where:
            continue
        begins, ends = (where.lineno, where.col_offset), (where.end_lineno, where.end_col_offset)
        if first <= begins and ends <= end:
            inside.append(it)
    return _short(_words(inside))


@functools.lru_cache(maxsize=1024)
def _all_in(code: CodeType) -> str:
    return _short([code.co_qualname, *_words(dis.get_instructions(code))])


def _words(instructions: Iterable[dis.Instruction]) -> list[str]:
    """Return the names and constants that instructions refer to, in order; not how they do it,
    which is another matter in each version of Python."""
    words: list[str] = []
    for it in _without_asserts(list(instructions)):
        if it.opcode in dis.hasconst and it.argval is not None:
            words += _words_of(it.argval)
        elif it.opcode in dis.hasname or it.opcode in dis.hasfree:
            words.append(str(it.argval))
    return words


def _without_asserts(instructions: list[dis.Instruction]) -> list[dis.Instruction]:
    """Leave `assert` out, which `python -O` does not compile. By lines: columns may be missing."""
    kept: list[dis.Instruction] = []
    is_raised = False
    for it in instructions:
        if it.opname == "LOAD_ASSERTION_ERROR" or it.argval is AssertionError:
            line = _line(it)
            while kept and line <= _line(kept[-1]):
                kept.pop()
            is_raised = True
        if not is_raised:
            kept.append(it)
        elif it.opname == "RAISE_VARARGS":
            is_raised = False
    return kept


def _line(it: dis.Instruction) -> int:
    return (it.positions and it.positions.lineno) or 0


def _words_of(constant: object) -> list[str]:
    if not isinstance(constant, CodeType):
        return [_constant_text(constant)]
    inside = [word for it in constant.co_consts if it is not None for word in _words_of(it)]
    return [*constant.co_names, *inside]


def _short(words: Sequence[str]) -> str:
    """Return a digest of names and constants; of none, an empty text."""
    text = "\0".join(words).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=6).hexdigest() if any(words) else ""
