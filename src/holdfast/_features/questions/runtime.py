"""`ask`, the human in the loop: a flow asks a person a question and waits for the answer.

The function is sync; its awaited twin has the prefix aio_.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar, overload

import msgspec

from holdfast._engine.journal.step_keys import APPROVE, check_label, quoted
from holdfast._engine.scripts.requests import Script, StepCall
from holdfast._engine.values.class_registry import KNOWN
from holdfast._engine.values.codec import same
from holdfast._engine.values.durations import Duration, micros
from holdfast._features.questions.lookup import one_line
from holdfast._features.questions.model import NO_DEFAULT, Asking, ask_script
from holdfast._runtime.execution.frames import Frame
from holdfast._runtime.execution.operations import called, perform, perform_async, place
from holdfast._runtime.execution.return_types import converted, payload_reader, schema_of
from holdfast.errors import UsageError

T = TypeVar("T")
D = TypeVar("D")
TEXT_MAX_CHARS = 100_000


@overload
def ask(
    question: str,
    *,
    name: str,
    type: type[T],
    choices: Sequence[T] | None = None,
    timeout: Duration | None = None,
    to: str | None = None,
) -> T: ...
@overload
def ask(
    question: str,
    *,
    name: str,
    type: type[T],
    choices: Sequence[T] | None = None,
    timeout: Duration | None = None,
    default: D,
    to: str | None = None,
) -> T | D: ...
@overload
def ask(
    question: str,
    *,
    name: str,
    type: None = None,
    choices: Sequence[T],
    timeout: Duration | None = None,
    to: str | None = None,
) -> T: ...
@overload
def ask(
    question: str,
    *,
    name: str,
    type: None = None,
    choices: Sequence[T],
    timeout: Duration | None = None,
    default: D,
    to: str | None = None,
) -> T | D: ...
@overload
def ask(
    question: str,
    *,
    name: str,
    type: None = None,
    choices: None = None,
    timeout: Duration | None = None,
    default: Any = ...,
    to: str | None = None,
) -> Any: ...
def ask(
    question: str,
    *,
    name: str,
    type: Any = None,
    choices: Sequence[Any] | None = None,
    timeout: Duration | None = None,
    default: Any = NO_DEFAULT,
    to: str | None = None,
) -> Any:
    """Ask a person, and return the answer: of `type`, or one of `choices`.

    It is found by the run id and `name`, and may be answered before it is asked. After `timeout` the
    flow gets `default` if there is one, else WaitTimedOut; the question stays open, and asking again
    by this name goes on with it. If the person refuses, the flow gets Rejected.
    """
    frame = called("ask(…)", "ask", awaits=False)
    options = _Options(question, name, type, choices, timeout, default, to)
    call, script = _asking(frame, options)
    return perform(frame.execution, call, script)


@overload
def aio_ask(
    question: str,
    *,
    name: str,
    type: type[T],
    choices: Sequence[T] | None = None,
    timeout: Duration | None = None,
    to: str | None = None,
) -> Coroutine[Any, Any, T]: ...
@overload
def aio_ask(
    question: str,
    *,
    name: str,
    type: type[T],
    choices: Sequence[T] | None = None,
    timeout: Duration | None = None,
    default: D,
    to: str | None = None,
) -> Coroutine[Any, Any, T | D]: ...
@overload
def aio_ask(
    question: str,
    *,
    name: str,
    type: None = None,
    choices: Sequence[T],
    timeout: Duration | None = None,
    to: str | None = None,
) -> Coroutine[Any, Any, T]: ...
@overload
def aio_ask(
    question: str,
    *,
    name: str,
    type: None = None,
    choices: Sequence[T],
    timeout: Duration | None = None,
    default: D,
    to: str | None = None,
) -> Coroutine[Any, Any, T | D]: ...
@overload
def aio_ask(
    question: str,
    *,
    name: str,
    type: None = None,
    choices: None = None,
    timeout: Duration | None = None,
    default: Any = ...,
    to: str | None = None,
) -> Coroutine[Any, Any, Any]: ...
def aio_ask(
    question: str,
    *,
    name: str,
    type: Any = None,
    choices: Sequence[Any] | None = None,
    timeout: Duration | None = None,
    default: Any = NO_DEFAULT,
    to: str | None = None,
) -> Coroutine[Any, Any, Any]:
    """Ask a person in an async flow; the awaited twin of `ask`."""
    frame = called("ask(…)", "ask", awaits=True)
    options = _Options(question, name, type, choices, timeout, default, to)
    return perform_async(frame.execution, *_asking(frame, options))


class _Options(msgspec.Struct):
    """The arguments of `ask`."""

    question: str
    name: str
    wanted: Any
    choices: Sequence[Any] | None
    timeout: Duration | None
    default: Any
    to: str | None


def _asking(frame: Frame, asked: _Options) -> tuple[StepCall, Script]:
    asking = _checked(asked)
    timeout_us = None
    if asked.timeout is not None:
        timeout_us = micros(asked.timeout, f"ask(…, name={asked.name!r}, timeout=…)")
    execution = frame.execution
    call = place(frame, f"ask:{quoted(asked.name)}")
    script = ask_script(
        call,
        execution.history,
        asking,
        timeout_us,
        asked.default,
        _reads(asked.wanted, asked.choices),
        execution.decode,
    )
    return call, one_line(execution, call, asked.name, script)


def _checked(asked: _Options) -> Asking:
    name = check_label("the name of a question", asked.name)
    if name.startswith(APPROVE):
        raise UsageError(f"ask(…, name={name!r}): names with {APPROVE!r} are those of approvals")
    text: Any = asked.question
    if not isinstance(text, str) or not 0 < len(text) <= TEXT_MAX_CHARS:
        raise UsageError(
            f"ask({text!r:.80}): must be a string of 1 to {TEXT_MAX_CHARS:,} characters"
        )
    if asked.to is not None:
        check_label(f"ask(…, name={name!r}, to=…)", asked.to)
    choices = _plain(asked.choices, name)
    if asked.wanted is not None and asked.choices is not None:
        _check_choices(name, asked.wanted, asked.choices)
    return Asking(
        name, text, asked.to, choices, None if asked.wanted is None else schema_of(asked.wanted)
    )


def _plain(choices: Sequence[Any] | None, name: str) -> list[Any] | None:
    """Return choices as JSON has them."""
    if choices is None:
        return None
    if isinstance(choices, str) or not choices:
        raise UsageError(f"ask(…, name={name!r}, choices=…): a list of values to choose from")
    try:
        plain: list[Any] = msgspec.to_builtins(list(choices))
    except TypeError as error:
        raise UsageError(f"ask(…, name={name!r}, choices=…): {error}") from None
    return plain


def _check_choices(name: str, wanted: Any, choices: Sequence[Any]) -> None:
    """Nobody can answer with a choice that is not of the type which the flow asks for."""
    for choice in choices:
        if isinstance(wanted, type) and isinstance(choice, wanted):
            continue
        try:
            converted(msgspec.to_builtins(choice), wanted)
        except ValueError as error:
            kind = getattr(wanted, "__name__", wanted)
            raise UsageError(
                f"ask(…, name={name!r}, type={kind}, choices=…): {choice!r:.80} is no {kind} "
                f"({error})"
            ) from None
        except TypeError:
            return  # A type that says nothing of data.


def _reads(wanted: Any, choices: Sequence[Any] | None) -> Callable[[bytes], Any]:
    read = payload_reader(wanted)
    if choices is None:
        return read
    kinds: set[type[Any]] = set(map(type, choices))
    for kind in kinds:
        KNOWN.learn(kind)

    def chosen(body: bytes) -> Any:
        value = read(body)
        for choice in choices:
            # One that came as plain data (from a command line) stands for the choice itself.
            if same(choice, value) or same(msgspec.to_builtins(choice), value):
                return choice
        raise ValueError(f"{value!r:.80} is none of the choices")

    return chosen
