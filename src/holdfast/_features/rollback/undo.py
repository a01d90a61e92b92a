"""`@publish.undo`: the function that takes an effect back, and what it was declared with.

It gets the result of the effect, then the arguments as they were recorded, by name. It is an effect
of its own: an error that is not in `not_done_on=`, a time-out or a crash leaves it in doubt.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.scripts import doubt_policies
from holdfast._engine.scripts.doubt_policies import OnDoubt
from holdfast._engine.scripts.requests import Spec
from holdfast._engine.scripts.retry import Retry
from holdfast._engine.values.durations import Duration, seconds
from holdfast._runtime import registry
from holdfast._runtime.signatures import Signature
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.registry import RegisteredStep

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Undo:
    """How one effect is taken back."""

    def __init__(self, settings: RegisteredStep, fn: Callable[..., Any], spec: Spec) -> None:
        self.fn = fn
        self.spec = spec
        self.method = settings.method and _takes_self(fn)
        self._effect = settings.signature
        self._signature = Signature(fn, skip_self=self.method)
        _check_parameters(settings.name, fn, self._effect, self._signature)

    def arguments(
        self, engine: Engine, result: Any, recorded: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs for the call: the result, then what was recorded."""
        parameters = self._effect.shown.parameters
        if not _is_plain(self._effect.shown):
            known = {name: recorded[name] for name in parameters if name in recorded}
            bound = inspect.BoundArguments(self._effect.shown, known)
            return (result, *bound.args), bound.kwargs
        # A client that the effect uses is handed on to an undo that asks for it by its name.
        own = self._signature
        used = {
            name: use.factory
            for name, use in {**self._effect.resources, **own.resources}.items()
            if name in own.shown.parameters
        }
        clients = {name: engine.resource(factory) for name, factory in used.items()}
        return (result,), {**clients, **recorded}


def declared(settings: RegisteredStep, fn: Any, options: dict[str, Any]) -> Any:
    """Serve `@publish.undo` and `@publish.undo(on_doubt=…)`."""

    def decorate(fn: Any) -> Any:
        declare(settings, fn, **options)
        return fn

    return decorate if fn is None else decorate(fn)


def declare(
    settings: RegisteredStep,
    fn: Callable[..., Any],
    *,
    on_doubt: OnDoubt = "hold",
    retry: Retry | None = None,
    timeout: Duration | None = None,
    not_done_on: tuple[type[BaseException], ...] = (),
    key_ttl: Duration = doubt_policies.KEY_TTL_S,
) -> None:
    """Take note of how an effect is taken back."""
    name = f"the undo of {settings.name}"
    if not callable(fn):
        raise UsageError(f"{name} is a function, not {fn!r:.80}")
    transaction = settings.spec.transaction
    if transaction and (on_doubt != "hold" or not_done_on or timeout is not None):
        raise UsageError(
            f"{name} is a transaction as the effect is: it has happened or it has not, so on_doubt=, "
            "not_done_on= and timeout= have no effect"
        )
    if transaction and inspect.iscoroutinefunction(fn):
        raise UsageError(f"{name} is a transaction as the effect is: write it as a plain function")
    spec = Spec(
        name=settings.name,
        effect=True,
        retry=retry,
        timeout_s=None
        if timeout is None
        else seconds(timeout, f"timeout= of {name}", positive=True),
        not_done_on=tuple(not_done_on),
        on_doubt=doubt_policies.check_on_doubt(on_doubt, name),
        key_ttl_s=seconds(key_ttl, f"key_ttl= of {name}"),
        transaction=transaction,
    )
    settings.undo = Undo(settings, fn, spec)
    settings.spec = msgspec.structs.replace(settings.spec, has_undo=True)
    registry.learn_types(fn)


def _check_parameters(
    effect: str, fn: Callable[..., Any], of_effect: Signature, of_undo: Signature
) -> None:
    if not _is_plain(of_effect.shown):
        return
    recorded = [name for name in of_effect.shown.parameters if name not in of_effect.hidden]
    used = [name for name in of_effect.resources if name in of_undo.shown.parameters]
    try:
        of_undo.shown.bind(None, **dict.fromkeys([*recorded, *used]))
    except TypeError as error:
        arguments = ", ".join(["result", *recorded])
        raise UsageError(
            f"the undo of {effect} is called with the result, then the arguments by name: "
            f"{getattr(fn, '__name__', 'undo')}({arguments}); {error}"
        ) from None


def _is_plain(signature: inspect.Signature) -> bool:
    return all(parameter.kind in _PLAIN for parameter in signature.parameters.values())


def _takes_self(fn: Callable[..., Any]) -> bool:
    return next(iter(inspect.signature(fn).parameters), None) == "self"


def without_result(fn: Callable[..., Any], *, awaits: bool) -> Callable[..., Any]:
    """Return the function as it is called: what an undo returns is nobody's, and is not stored."""
    if awaits and inspect.iscoroutinefunction(fn):

        async def awaited(*args: Any, **kwargs: Any) -> None:
            await fn(*args, **kwargs)

        return awaited
    called = blocking(fn)

    def undone(*args: Any, **kwargs: Any) -> None:
        called(*args, **kwargs)

    return undone


def blocking(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that can be called where nothing is awaited."""
    if not inspect.iscoroutinefunction(fn):
        return fn

    @functools.wraps(fn)
    def in_a_loop(*args: Any, **kwargs: Any) -> Any:
        import asyncio

        return asyncio.run(fn(*args, **kwargs))

    return in_a_loop
