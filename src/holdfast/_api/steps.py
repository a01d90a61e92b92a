"""Steps and effects: functions whose calls are recorded, what other workflow engines call an activity.

A call inside a flow takes its key at once (so that a plain `asyncio.gather` replays), then hands a
script to a driver. Outside a run a step is an ordinary function, and an effect is refused.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
    overload,
)

from holdfast._api.callables import check_function, is_method
from holdfast._engine.journal import argument_diff
from holdfast._engine.journal.history import Divergence
from holdfast._engine.journal.step_keys import (
    check_name,
    checked_business_key,
    quoted,
    rendered_key,
)
from holdfast._engine.journal.step_record import Record
from holdfast._engine.scripts import doubt_policies
from holdfast._engine.scripts.doubt_policies import OnDoubt
from holdfast._engine.scripts.requests import Gate, Spec, StepCall
from holdfast._engine.scripts.retry import Retry
from holdfast._engine.scripts.step_script import step_script
from holdfast._engine.values.durations import Duration, seconds
from holdfast._features.approvals import model as approvals
from holdfast._features.budgets.runtime import Cost, checked_cost
from holdfast._features.drift.runtime import StepDrift
from holdfast._features.rollback.undo import Undo, declare as declare_undo
from holdfast._runtime import engine as engines, registry
from holdfast._runtime.execution import key_override
from holdfast._runtime.execution.attempt import Body
from holdfast._runtime.execution.blocking_driver import drive
from holdfast._runtime.execution.frames import Frame, check_owner, current
from holdfast._runtime.execution.return_types import Returns
from holdfast._runtime.signatures import Signature
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")

Commit = Literal["each", "grouped"]

NO_FALLBACK: Any = object()


class Settings(registry.RegisteredStep):
    """The declaration of a step or effect; one object, shared by its bound forms."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        effect: bool,
        name: str | None = None,
        aliases: Sequence[str] = (),
        retry: Retry | None = None,
        timeout: Duration | None = None,
        fallback: Any = NO_FALLBACK,
        raises: tuple[type[BaseException], ...] = (),
        not_done_on: tuple[type[BaseException], ...] = (),
        commit: Commit = "each",
        unrecorded: Sequence[str] = (),
        key: str | Callable[..., str] | None = None,
        key_ttl: Duration = doubt_policies.KEY_TTL_S,
        on_doubt: OnDoubt = "hold",
        undo: Callable[..., Any] | None = None,
        transaction: bool = False,
        polls: bool = False,
        reserve_usd: Cost = None,
        drift: StepDrift | None = None,
        needs_approval: approvals.ApproveOption = False,
        registered: bool = True,
    ) -> None:
        what = "effect" if effect else "step"
        check_function(what, fn)
        if commit not in ("each", "grouped"):
            raise UsageError(f'commit={commit!r} of {fn.__qualname__}: "each" or "grouped"')
        if retry is not None and not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"retry={retry!r} of {fn.__qualname__}: use Retry(attempts=…)")
        self.fn = fn
        self.what = what
        self.name = registry.name_for(what, fn, name) if registered else str(name)
        self.aliases = tuple(check_name(what, alias) for alias in aliases)
        self.key = key
        self.undo: Undo | None = None
        self.fallback = fallback
        self.cost = checked_cost(reserve_usd, self.name)
        self.drift = drift or StepDrift(self.name)
        self.needs_approval = approvals.checked(needs_approval, self.name)
        self.method = is_method(fn)
        self.signature = Signature(fn, skip_self=self.method, unrecorded=unrecorded)
        self.spec = Spec(
            name=self.name,
            effect=effect,
            retry=retry,
            timeout_s=None
            if timeout is None
            else seconds(timeout, f"timeout= of {self.name}", positive=True),
            raises=tuple(raises),
            not_done_on=tuple(not_done_on),
            on_doubt=doubt_policies.check_on_doubt(on_doubt, self.name),
            key_ttl_s=seconds(key_ttl, f"key_ttl= of {self.name}"),
            has_fallback=fallback is not NO_FALLBACK,
            grouped=commit == "grouped",
            transaction=transaction,
            polls=polls,
            aliases=self.aliases,
            returns=Returns(fn) if effect else None,
        )
        if registered:
            registry.steps.update(dict.fromkeys((self.name, *self.aliases), self))
        registry.learn_types(fn)
        if effect and registered:
            registry.effects.update(dict.fromkeys((self.name, *self.aliases), self))
        if undo is not None:
            declare_undo(self, undo)
        self.made_by: bytes | None = None
        """Facts that are recorded with each outcome and are the same for all calls."""

    def replace(self, fn: Callable[..., Any]) -> None:
        """Call another function from now on, as tests do."""
        self.fn, self.made_by = fn, None

    def made_now(self) -> bytes:
        """Return what is recorded with the outcome of a call that begins now."""
        made_by: bytes = self.drift.made_by(self.fn)
        if not self.drift.has_versions:
            self.made_by = made_by
        return made_by


class Recorded(Generic[P, R]):
    """The common part of steps and effects, sync and async."""

    _awaits = False

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bound: Any = None
        self._step_key: str | None = None
        functools.update_wrapper(cast("Callable[..., Any]", self), settings.fn)

    @property
    def name(self) -> str:
        """The name under which calls are recorded."""
        return self._settings.name

    def _function(self) -> Callable[..., Any]:
        if self._bound is None:
            return self._settings.fn
        return cast("Callable[..., Any]", self._settings.fn.__get__(self._bound))

    # Functions have these, and inspect looks for them: a step passes for a function.
    @property
    def __code__(self) -> Any:
        return self._settings.fn.__code__

    @property
    def __defaults__(self) -> Any:
        return self._settings.fn.__defaults__

    @property
    def __kwdefaults__(self) -> Any:
        return self._settings.fn.__kwdefaults__

    def __repr__(self) -> str:
        return f"<{self._settings.what} {self.name}>"

    def _copy(self, bound: Any = None, step_key: str | None = None) -> Any:
        other = copy.copy(self)
        other._bound = self._bound if bound is None else bound
        if bound is not None:
            setattr(other, "__signature__", self._settings.signature.shown)  # noqa: B010
        other._step_key = self._step_key if step_key is None else step_key
        return other

    # -- calling -------------------------------------------------------------------------------

    def _outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Outside any run: a step is its function, an effect is refused."""
        settings = self._settings
        if settings.spec.effect:
            raise UsageError(
                f"the effect {self.name} was called outside a run, where nothing would remember "
                f"it; call it in a flow, or {self.name}.fn(…) for the bare function"
            )
        if os.environ.get("HOLDFAST_STRICT") == "1" and engines.any_executing():
            raise UsageError(
                f"the step {self.name} was called outside any run while one is executing (a "
                "thread pool does not carry the run along), so it would be recorded nowhere; "
                "use holdfast.each or holdfast.gather"
            )
        return self._bare(args, kwargs, engines.default_engine)

    def _bare(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], engine: Callable[[], engines.Engine]
    ) -> Any:
        signature = self._settings.signature
        if not signature.resources:
            return self._function()(*args, **kwargs)
        arguments = signature.bind(args, kwargs)
        args, kwargs = signature.call_form(arguments, lambda factory: engine().resource(factory))
        return self._function()(*args, **kwargs)

    def _within_step(self, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Inside another step: part of it, unless it is an effect."""
        assert frame.call is not None
        if self._settings.spec.effect:
            raise UsageError(
                f"the effect {self.name} was called inside {frame.call.key}; "
                "effects are called by the flow, so that each has its own record"
            )
        return self._bare(args, kwargs, lambda: frame.execution.engine)

    def _prepared(
        self,
        frame: Frame,
        step_key: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Body:
        """Take the key and position of this call, its arguments as they are now, and its record."""
        execution, settings = frame.execution, self._settings
        execution.check()
        signature, spec = settings.signature, settings.spec
        arguments = signature.bind(args, kwargs)
        recorded = signature.recorded(arguments) if signature.hidden else arguments
        if step_key is not None:
            key, position = key_override.take(
                frame,
                settings.name,
                step_key,
                lambda: execution.digest_of(settings.name, recorded),
            )
        else:  # As `key_override.take` does, with one call less for most steps.
            check_owner(frame, settings.name)
            key, position = frame.scope.take(settings.name)
        history = execution.history
        if settings.aliases:
            key = history.known_key(key, settings.aliases)
        business_key = None if settings.key is None else self._business_key(arguments, recorded)
        with execution.lock:
            digest = execution.digest_of(key, recorded)
            found = record = history.look_up(key, position, digest)
            if isinstance(record, Divergence):
                record = record.other
            if record is not None:
                execution.replay.consumed.add(key)
            is_done = record is not None and record.has_outcome
            if is_done:
                execution.replay.unreplayed -= 1
                node = b""
            else:
                node = execution.values.encode(recorded, f"{key}: argument")
        made_by = b"" if is_done else settings.made_by or settings.made_now()
        call = StepCall(
            spec=spec,
            key=key,
            position=position,
            args_digest=digest,
            idempotency_key=business_key or "",
            business_key=business_key,
            after_data_loss=execution.after_data_loss,
            args_node=node,
            args_now=None
            if record is None or record.args_digest == digest
            else argument_diff.now(record, digest, recorded, key, execution.values.redact),
            made_by=made_by,
        )
        if spec.effect and business_key is None:
            call.idempotency_key = execution.derived_key(key)
        if not is_done and (spec.effect or execution.gates):
            call.gates = self._gates(execution, call, arguments, record)
        return Body(
            call,
            settings.fn if self._bound is None else self._function(),
            arguments
            if signature.is_plain
            else lambda: signature.call_form(arguments, execution.engine.resource),
            self._on_doubt() if spec.effect else None,
            self._with_self(settings.fallback) if spec.has_fallback else None,
            awaits=self._awaits,
            resources=bool(signature.resources),
            found=found,
        )

    def _gates(
        self,
        execution: Execution,
        call: StepCall,
        arguments: dict[str, Any],
        record: Record | None,
    ) -> Sequence[Gate]:
        """Return what features demand of each attempt of a call."""
        settings = self._settings
        gates: list[Gate] = []
        if settings.spec.effect:
            approval = approvals.needed(
                settings.needs_approval, arguments, record, execution.generation, self.name
            )
            if approval is not None:
                gates.append(approval)
        gates += [maker.gate(call, settings.cost, arguments) for maker in execution.gates]
        return gates

    def _business_key(self, arguments: dict[str, Any], recorded: dict[str, Any]) -> str | None:
        key = self._settings.key
        if key is None:
            return None
        if isinstance(key, str):
            return rendered_key(key, recorded, self.name)
        return checked_business_key(key(**arguments), self.name)

    def _on_doubt(self) -> Callable[..., Any] | None:
        policy = self._settings.spec.on_doubt
        return None if isinstance(policy, str) else self._with_self(policy)

    def _with_self(self, fn: Any) -> Any:
        """Bind what was written as a method beside the step, in the same class."""
        if self._bound is not None and inspect.isfunction(fn) and is_method(fn):
            return fn.__get__(self._bound)
        return fn


class Step(Recorded[P, R]):
    """A recorded sync function."""

    @property
    def fn(self) -> Callable[P, R]:
        """The bare function, unrecorded."""
        return self._function()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it: recorded inside a flow, plain outside."""
        if self._bound is None and self._settings.method and args:
            return cast("R", self._copy(bound=args[0])(*args[1:], **kwargs))
        frame = current.get()
        if frame is None:
            return cast("R", self._outside(args, kwargs))
        if frame.call is not None:
            return cast("R", self._within_step(frame, args, kwargs))
        step_key = self._step_key
        if key_override.override.get() is not key_override.NO_OVERRIDE:
            step_key = key_override.current_key(step_key)
        if frame.awaits if step_key is None else key_override.awaits_here(frame, step_key):
            raise UsageError(
                f"{self.name} is a sync {self._settings.what}; in an async flow write "
                f"`await {self.name}.aio(…)`, which runs it in a thread; if a framework calls it as "
                "a tool, give the agent Holdfast's adapter (docs/integrations)"
            )
        body = self._prepared(frame, step_key, args, kwargs)
        execution = frame.execution
        script = step_script(body.call, execution.history, execution.decode, body.found)
        return cast("R", drive(script, execution, body))

    def aio(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call it from an async flow: it runs in a thread, and is awaited."""
        frame, step_key = current.get(), key_override.current_key(self._step_key)
        if frame is None or frame.call is not None or not key_override.awaits_here(frame, step_key):
            raise UsageError(f"{self.name}.aio(…) is awaited inside an async flow")
        return _called(frame.execution, self._prepared(frame, step_key, args, kwargs))

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Step[P, R]: ...
    @overload
    def __get__(self: Step[Concatenate[S, Q], R], instance: S, owner: Any = None) -> Step[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind a method; `self` is no part of the record."""
        return self if instance is None else self._copy(bound=instance)

    def with_options(self, *, step_key: str) -> Step[P, R]:
        """Return the same step with options for single calls."""
        return cast("Step[P, R]", self._copy(step_key=quoted(step_key)))

    def fake(self, result: Any) -> Any:
        """In tests: replace the body by a fixed result (or a function) inside a `with`."""
        return Fake(self._settings, result)


class AsyncStep(Recorded[P, R]):
    """A recorded async function."""

    _awaits = True

    @property
    def fn(self) -> Callable[P, Coroutine[Any, Any, R]]:
        """The bare function, unrecorded."""
        return self._function()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call it: the key is taken now, the work is done when it is awaited."""
        if self._bound is None and self._settings.method and args:
            bound = self._copy(bound=args[0])
            return cast("Coroutine[Any, Any, R]", bound(*args[1:], **kwargs))
        frame = current.get()
        if frame is None:
            return cast("Coroutine[Any, Any, R]", self._outside(args, kwargs))
        if frame.call is not None:
            return cast("Coroutine[Any, Any, R]", self._within_step(frame, args, kwargs))
        step_key = key_override.current_key(self._step_key)
        if not key_override.awaits_here(frame, step_key):
            raise UsageError(
                f"{self.name} is an async {self._settings.what}, and this flow is sync; make the "
                "flow `async def`, or the step a plain function"
            )
        return _called(frame.execution, self._prepared(frame, step_key, args, kwargs))

    @overload
    def __get__(self, instance: None, owner: Any = None) -> AsyncStep[P, R]: ...
    @overload
    def __get__(
        self: AsyncStep[Concatenate[S, Q], R], instance: S, owner: Any = None
    ) -> AsyncStep[Q, R]: ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind a method; `self` is no part of the record."""
        return self if instance is None else self._copy(bound=instance)

    def with_options(self, *, step_key: str) -> AsyncStep[P, R]:
        """Return the same step with options for single calls."""
        return cast("AsyncStep[P, R]", self._copy(step_key=quoted(step_key)))

    def fake(self, result: Any) -> Any:
        """In tests: replace the body by a fixed result (or a function) inside a `with`."""
        return Fake(self._settings, result)


def _called(execution: Execution, body: Body) -> Coroutine[Any, Any, Any]:
    execution.waits.unawaited.add(body.call.key)
    return _awaiting(execution, body)


async def _awaiting(execution: Execution, body: Body) -> Any:
    from holdfast._runtime.execution.awaiting_driver import drive_async

    execution.waits.unawaited.discard(body.call.key)
    execution.check()
    script = step_script(body.call, execution.history, execution.decode, body.found)
    return await drive_async(script, execution, body)


# -- for tests ---------------------------------------------------------------------------------


class Fake:
    """`step.fake(result)`: replaces a step's function while it is entered, in a test."""

    def __init__(self, settings: Settings, result: Any) -> None:
        self._settings = settings
        self._result = result
        self._real: Callable[..., Any] | None = None

    def __enter__(self) -> None:
        self._real = self._settings.fn
        answer: Callable[..., Any] = (
            self._result if callable(self._result) else _constant(self._result)
        )
        if inspect.iscoroutinefunction(self._real):
            self._settings.replace(_as_async(answer))
        else:
            self._settings.replace(answer)

    def __exit__(self, *exc: object) -> None:
        assert self._real is not None
        self._settings.replace(self._real)


def _constant(result: Any) -> Callable[..., Any]:
    def fake(*_args: Any, **_kwargs: Any) -> Any:
        return result

    return fake


def _as_async(answer: Callable[..., Any]) -> Callable[..., Any]:
    async def fake(*args: Any, **kwargs: Any) -> Any:
        result = answer(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return fake
