"""`@step` and `@effect`, for sync and async functions and methods, fully typed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from holdfast._api.flows import AsyncFlow, Flow
from holdfast._api.steps import AsyncStep, Commit, Recorded, Settings, Step
from holdfast._engine.journal.step_keys import check_name
from holdfast._engine.scripts import doubt_policies
from holdfast._engine.scripts.doubt_policies import OnDoubt
from holdfast._engine.scripts.retry import Retry
from holdfast._engine.values.durations import Duration
from holdfast._features.approvals.model import ApproveOption
from holdfast._features.budgets.runtime import Cost
from holdfast._features.drift.model import Policy
from holdfast._features.drift.runtime import Versions, taken_from
from holdfast._features.rollback import undo
from holdfast._runtime import registry
from holdfast.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Errors = tuple[type[BaseException], ...]


class _Declares:
    """Declarations beside an effect, sync or async."""

    _settings: Settings

    def on_doubt(self, fn: F) -> F:
        """Declare the function that finds out whether it happened (decorator)."""
        _set_on_doubt(self._settings, fn)
        return fn

    @overload
    def undo(self, fn: F, /) -> F: ...
    @overload
    def undo(
        self,
        *,
        on_doubt: OnDoubt = "hold",
        retry: Retry | None = None,
        timeout: Duration | None = None,
        not_done_on: Errors = (),
        key_ttl: Duration = ...,
    ) -> Callable[[F], F]: ...
    def undo(self, fn: Any = None, **options: Any) -> Any:
        """Declare the function that takes it back: the result, then the arguments (decorator)."""
        return undo.declared(self._settings, fn, options)


class Effect(_Declares, Step[P, R]):
    """A recorded sync function that changes the outside world."""


class AsyncEffect(_Declares, AsyncStep[P, R]):
    """A recorded async function that changes the outside world."""


def _set_on_doubt(settings: Settings, fn: Callable[..., Any]) -> None:
    if settings.spec.transaction:
        raise UsageError(f"{settings.name}.on_doubt: {_NOT_WITH_TRANSACTION['on_doubt']}")
    policy = doubt_policies.check_on_doubt(fn, settings.name)
    settings.spec = msgspec.structs.replace(settings.spec, on_doubt=policy)
    registry.learn_types(fn)


class _StepDecorator(Protocol):
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...


class _EffectDecorator(Protocol):
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncEffect[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Effect[P, R]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncStep[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    aliases: Sequence[str] = (),
    retry: Retry | None = None,
    timeout: Duration | None = None,
    fallback: Any = ...,
    raises: Errors = (),
    commit: Commit = "each",
    unrecorded: Sequence[str] = (),
    reserve_usd: Cost = None,
    valid_for: Duration | None = None,
    on_expired: Policy | None = None,
    versions: Versions | None = None,
    polls: bool = False,
) -> _StepDecorator: ...
def step(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a step: its outcome is recorded, and never computed again once it is.

    `retry=Retry(…)` tries again; `timeout=` ("30s") for each attempt; `fallback=` a function or value
    when it gives up; `raises=` exceptions that the flow gets as themselves; `commit="grouped"`
    does not wait for the disk; `unrecorded=` names of parameters that are only handed through.
    `reserve_usd=` dollars that an attempt may cost, or a function of the arguments: what a run with a
    budget sets aside before it begins.

    When a run goes on after a gap: a result older than `valid_for=` ("6h") is treated by
    `on_expired=`; `versions={"model": MODEL}` is recorded with each outcome and compared.

    `polls=True` says that it is meant to be called with the same arguments again and again, so the
    watchdog does not take it for a loop.
    """
    return _decorated(fn, options, Step, AsyncStep, effect=False)


@overload
def effect(fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncEffect[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
@overload
def effect(fn: Callable[P, R], /) -> Effect[P, R]: ...
@overload
def effect(
    *,
    name: str | None = None,
    aliases: Sequence[str] = (),
    key: str | Callable[..., str] | None = None,
    key_ttl: Duration = ...,
    on_doubt: OnDoubt = "hold",
    undo: Callable[..., Any] | None = None,
    not_done_on: Errors = (),
    raises: Errors = (),
    retry: Retry | None = None,
    timeout: Duration | None = None,
    fallback: Any = ...,
    unrecorded: Sequence[str] = (),
    reserve_usd: Cost = None,
    versions: Versions | None = None,
    transaction: bool = False,
    needs_approval: ApproveOption = False,
) -> _EffectDecorator: ...
def effect(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function an effect: a step that changes the world, never repeated on a guess.

    The intent is on disk before the function is called. A crash, an error or a time-out leaves it
    in doubt, and `on_doubt=` says what then: "hold" for a person, "retry" with the same key, "fail", or
    a function that finds out. Only errors in `not_done_on=` mean that it did not happen.

    `on_doubt="retry"` makes at most three attempts if there is no `retry=`, else `Retry.attempts`, with
    its waits; and only while the key is younger than `key_ttl=` ("24h"). After that the run is held.

    `transaction=True` is for what it writes to the store's own database, by the connection that
    `holdfast.context.sql_connection()` gives: it commits together with the outcome, so no doubt is possible.

    `needs_approval=True` asks a person first: `Approval(to=…, valid_for="1h")` says whom, and a function of
    the arguments says whether. The approval is good for exactly these arguments, once.
    """
    return _decorated(fn, options, Effect, AsyncEffect, effect=True)


def _decorated(
    fn: Callable[..., Any] | None,
    options: dict[str, Any],
    blocking: type[Any],
    awaiting: type[Any],
    *,
    effect: bool,
) -> Any:
    _check_options("effect" if effect else "step", options)

    def decorate(fn: Callable[..., Any]) -> Any:
        if options.get("transaction"):
            _check_transaction(fn, options)
        kind = awaiting if inspect.iscoroutinefunction(fn) else blocking
        drift = taken_from(
            given := dict(options), str(options.get("name") or getattr(fn, "__qualname__", fn))
        )
        return kind(Settings(fn, effect=effect, drift=drift, **given))

    return decorate if fn is None else decorate(fn)


_OF_STEPS = {
    "name",
    "aliases",
    "retry",
    "timeout",
    "fallback",
    "raises",
    "commit",
    "unrecorded",
    "reserve_usd",
    "valid_for",
    "on_expired",
    "versions",
    "polls",
}
_ONLY_STEPS = {"commit", "valid_for", "on_expired", "polls"}
_OF_EFFECTS = {"key", "key_ttl", "on_doubt", "undo", "not_done_on", "transaction", "needs_approval"}
_NOT_WITH_TRANSACTION = {
    "on_doubt": "with transaction=True it has happened or it has not, and no doubt is possible",
    "not_done_on": "with transaction=True every error means that it did not happen",
    "key_ttl": "with transaction=True no key is shown to another side that could forget it",
    "timeout": "with transaction=True a body that runs out of time could not be stopped, and would "
    "go on writing; set a time limit in the database (statement_timeout)",
}
"""Options that make no sense for a transaction."""


def _check_transaction(fn: Callable[..., Any], options: dict[str, Any]) -> None:
    for name, why in _NOT_WITH_TRANSACTION.items():
        if name in options:
            raise UsageError(f"{name}= of {fn.__qualname__}: {why}")
    if inspect.iscoroutinefunction(fn):
        raise UsageError(
            f"{fn.__qualname__} has transaction=True and is async, but the connection of a "
            f"transaction is a sync one; write it as a plain function, and in an async flow "
            f"`await {fn.__name__}.aio(…)`"
        )


def _check_options(what: str, options: dict[str, Any]) -> None:
    allowed = _OF_STEPS if what == "step" else (_OF_STEPS - _ONLY_STEPS) | _OF_EFFECTS
    for name in options:
        if name in allowed:
            continue
        if name in _OF_EFFECTS:
            raise UsageError(f"{name}= is for what changes the world: write @effect({name}=…)")
        raise UsageError(f"@{what} has no option {name}=; it has {', '.join(sorted(allowed))}")
    for name in ("raises", "not_done_on"):
        kinds = options.get(name, ())
        if isinstance(kinds, type):
            options[name] = kinds = (kinds,)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds):
            raise UsageError(f"{name}={kinds!r}: a tuple of exception classes")
    for name in ("transaction", "polls"):
        value = options.get(name, False)
        if not isinstance(value, bool):
            raise UsageError(f"{name}={value!r}: True or False")


@overload
def as_step(  # pyright: ignore[reportOverlappingOverload]
    fn: Callable[P, Coroutine[Any, Any, R]], /, *, name: str, **options: Any
) -> AsyncStep[P, R]: ...
@overload
def as_step(fn: Callable[P, R], /, *, name: str, **options: Any) -> Step[P, R]: ...
def as_step(fn: Callable[..., Any], /, *, name: str, **options: Any) -> Any:
    """Return a step made of a function for a few calls, as adapters need it.

    It takes the options of `@step`. Unlike the decorator it does not take the name: any number of
    functions may be recorded under one, which is how the tool of a framework gets its own name.
    """
    return _unregistered(fn, name, options, Step, AsyncStep, effect=False)


@overload
def as_effect(  # pyright: ignore[reportOverlappingOverload]
    fn: Callable[P, Coroutine[Any, Any, R]], /, *, name: str, **options: Any
) -> AsyncEffect[P, R]: ...
@overload
def as_effect(fn: Callable[P, R], /, *, name: str, **options: Any) -> Effect[P, R]: ...
def as_effect(fn: Callable[..., Any], /, *, name: str, **options: Any) -> Any:
    """Return an effect made of a function for a few calls, as `as_step` returns a step.

    It takes the options of `@effect`.
    """
    return _unregistered(fn, name, options, Effect, AsyncEffect, effect=True)


def _unregistered(
    fn: Callable[..., Any],
    name: str,
    options: dict[str, Any],
    blocking: type[Any],
    awaiting: type[Any],
    *,
    effect: bool,
) -> Any:
    what = "effect" if effect else "step"
    _check_options(what, options)
    drift = taken_from(given := dict(options), name)
    named = check_name(what, name)
    settings = Settings(fn, effect=effect, name=named, drift=drift, registered=False, **given)
    return (awaiting if inspect.iscoroutinefunction(fn) else blocking)(settings)


def inline_step(
    name: str, fn: Callable[..., Any], *, awaits: bool
) -> Step[..., Any] | AsyncStep[..., Any]:
    """Return an unregistered step for one inline call."""
    settings = Settings(fn, effect=False, name=name, registered=False)
    return AsyncStep(settings) if awaits else Step(settings)


# -- plans -------------------------------------------------------------------------------------


StateDict = dict[str, Any]


def plan(name: str, steps: Sequence[Callable[[StateDict], Any]]) -> Flow[[StateDict], StateDict]:
    """Make a flow of functions that each take and return the state.

    Plain functions become steps under their own names. If one of them is async, the plan is an
    async flow.
    """
    if not steps:
        raise UsageError(f"plan({name!r}, []): at least one step")
    recorded: list[Any] = [
        fn if isinstance(fn, Recorded) else step(name=fn.__name__)(fn) for fn in steps
    ]
    if any(isinstance(fn, AsyncStep) for fn in recorded):
        return cast("Flow[[StateDict], StateDict]", _async_plan(name, recorded))

    def body(state: StateDict) -> StateDict:
        for fn in recorded:
            state = _checked(name, fn, fn(state))
        return state

    return Flow(_named(body, name), name=name)


def _async_plan(name: str, recorded: Sequence[Any]) -> AsyncFlow[[StateDict], StateDict]:
    async def body(state: StateDict) -> StateDict:
        for fn in recorded:
            called = fn.aio if hasattr(fn, "aio") else fn
            result: Any = await called(state)
            state = _checked(name, fn, result)
        return state

    return AsyncFlow(_named(body, name), name=name)


def _checked(name: str, fn: Any, state: Any) -> StateDict:
    if not isinstance(state, dict):
        raise UsageError(
            f"step {fn.name} of plan {name!r} returned {type(state).__name__}; "
            "each step returns the state dict"
        )
    return cast("StateDict", state)


def _named(body: Callable[..., Any], name: str) -> Callable[..., Any]:
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    body.__name__ = name
    body.__qualname__ = f"plan {name}"
    body.__module__ = caller.f_globals.get("__name__", "") if caller is not None else ""
    return body
