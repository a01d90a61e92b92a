"""`step_key(step_key)`: recorded calls inside it are known by that key, wherever they are made.

A framework calls tools in tasks and threads of its own, in an order that no replay repeats. What it
does give is a name for each call (`tool_call_id`): under that name a call has no position, and is
found again by key and arguments.

A framework that goes on from checkpoints of its own does not repeat what lies before them, so a name
must not depend on how often it was used before. There the key is a function, which is asked at each
call where in the framework's work it is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from holdfast._engine.journal.step_keys import quoted
from holdfast._runtime.execution.branches import Line, place_of
from holdfast._runtime.execution.frames import (
    Frame,
    check_owner,
    current,
    current_task,
    without_places,
)

if TYPE_CHECKING:
    from holdfast._engine.scripts.requests import StepCall
    from holdfast._runtime.execution.execution import Execution

KeyFunction = Callable[[], str]


class Override(NamedTuple):
    """The arguments of `step_key`: of the adapter that asks where it is, and of the code inside it."""

    where: KeyFunction | None = None
    key: str | None = None
    unique: bool = False
    guest: Line | None = None
    """The guest of a line of the run that this task or thread is, or is part of."""


NO_OVERRIDE = Override()
override: ContextVar[Override] = ContextVar("holdfast_step_key", default=NO_OVERRIDE)
"""The override that is in force here."""


@contextlib.contextmanager
def step_key(
    step_key: str | KeyFunction, *, unique: bool = False, awaited: bool = False
) -> Generator[None]:
    """Give the steps, effects and questions inside it this step key: `refund:call_17`.

    They may then be called from any thread or task that carries the context, and take the colour of
    the place: blocking outside event loops, awaited inside them.

    A function is asked for the key at each call. Keys inside it stand behind what it says
    (`charge:pay-3.card`), except those that are `unique` in the whole run by themselves. What is
    known by its place in the flow alone (`turns`, `gather`) is refused inside it.

    `awaited` says that the code that opened this task or thread does nothing but await it, and others
    like it. Then a worker can unload the run while it waits here, for a person or a time.
    """
    outer = override.get()
    with _guest(outer.guest) if awaited else contextlib.nullcontext(outer.guest) as guest:
        if callable(step_key):
            inner, placeless = Override(step_key, guest=guest), True
        else:
            inner = Override(outer.where, quoted(step_key), unique, guest)
            placeless = without_places.get()
        token, other = override.set(inner), without_places.set(placeless)
        try:
            yield
        finally:
            without_places.reset(other)
            override.reset(token)


@contextlib.contextmanager
def _guest(outer: Line | None) -> Generator[Line | None]:
    """Be a guest of the line that awaits this task or thread, unless this is that line itself."""
    frame = current.get()
    place = place_of(current_task())
    is_guest = outer is not None and outer.place == place
    if is_guest or frame is None or frame.call is not None or frame.is_here():
        yield outer
    else:
        guest = Line(outer or frame.line, place)
        with frame.execution.waits.guest(guest):
            yield guest


def current_key(own: str | None = None) -> str | None:
    """Return the key that recorded calls get here, if there is one; `own` is that of a single call."""
    where, key, unique, _ = override.get()
    if own is not None:
        key, unique = own, False
    if where is None or (unique and key is not None):
        return key
    here = quoted(where())
    return here if key is None else f"{here}.{key}"


def line_here(frame: Frame) -> Line | None:
    """Return the line of the run that this task or thread is, if the run knows it."""
    return frame.line if frame.is_here() else override.get().guest


def awaits_here(frame: Frame, step_key: str | None) -> bool:
    """Return whether a call awaits: as its flow does, or with a key as the task or thread does."""
    return frame.awaits if step_key is None else current_task() is not None


class _CutShort(dict[tuple[str, bytes], list[str]]):
    """The keys of steps that were cut short, by what is called and the digest of its arguments."""


def take(
    frame: Frame, name: str, step_key: str | None, digest: Callable[[], bytes] | None = None
) -> tuple[str, int | None]:
    """Return the key and the position of a call; one that has a key of its own has no position.

    A step under a key of its own that was cut short, and is called with the same arguments again,
    gets the key that it had: a replay finds the outcome there, and needs no try that came to nothing.
    """
    if step_key is None:
        check_owner(frame, name)
        return frame.scope.take(name)
    execution = frame.execution
    with execution.lock:
        cut_short = execution.slots.get(_CutShort)
        if digest is not None and cut_short:
            before = cut_short.get((frame.scope.whole(f"{name}:{step_key}"), digest()))
            if before:
                return before.pop(0), None
        return frame.scope.take_key(f"{name}:{step_key}"), None


def give_back(execution: Execution, call: StepCall) -> None:
    """A step was cut short and left no outcome: the same call again gets its key."""
    if call.position is None and call.args_digest is not None and not call.spec.effect:
        scope, _, last = call.key.rpartition("/")
        name = last.partition("#")[0]
        with execution.lock:
            place = (f"{scope}/{name}" if scope else name, call.args_digest)
            execution.slot(_CutShort).setdefault(place, []).append(call.key)
