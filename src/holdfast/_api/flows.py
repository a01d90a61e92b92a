"""Flows: durable workflows. A flow is a function whose steps are recorded; one execution of it is a run."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from holdfast._api import child_flows
from holdfast._api.callables import is_method
from holdfast._api.handle import Handle
from holdfast._engine.journal.step_keys import CHILD_SEPARATOR, check_run_id, checked_tags
from holdfast._engine.values.durations import Duration
from holdfast._features.budgets.model import Budget, checked_budget, limits_of
from holdfast._features.drift.model import Policy
from holdfast._features.drift.runtime import FlowDrift, OnResume, begin, begin_async
from holdfast._features.retention.model import KEEP, checked_keep
from holdfast._features.rollback import runtime as rollback
from holdfast._features.watchdog.model import Watchdog, checked_watch
from holdfast._runtime import engine as engines, registry
from holdfast._runtime.engine import Engine, HasEngine
from holdfast._runtime.execution import run_end
from holdfast._runtime.execution.admission import Ended, RunRequest, admit, submit
from holdfast._runtime.execution.execute import admit_async, admit_or_none, finish, finish_async
from holdfast._runtime.execution.execution import INPUT, Execution
from holdfast._runtime.execution.fingerprints import of_flow
from holdfast._runtime.execution.frames import Frame, current, current_task, here
from holdfast._runtime.execution.version_rules import accepted
from holdfast._runtime.interrupt_shield import Shield
from holdfast._runtime.queues import Placing, Queue, declared, placed
from holdfast._runtime.signatures import Signature, fingerprint
from holdfast.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")


class FlowLike(registry.RegisteredFlow):
    """The common part of sync and async flows."""

    awaits = False

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        version: str = "1",
        aliases: tuple[str, ...] = (),
        accepts_versions: tuple[str, ...] = (),
        queue: str | Queue | None = None,
        budget: Budget | None = None,
        timeout: Duration | None = None,
        retention: Duration | None = None,
        on_drift: Mapping[str, Policy] | None = None,
        on_resume: OnResume | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise UsageError(f"{fn.__qualname__} is a generator function; a flow returns a value")
        self.fn = fn
        self.name = registry.name_for("flow", fn, name)
        self.version = str(version)
        self.aliases = tuple(aliases)
        self.accepts = accepted(self.name, accepts_versions)
        self._drift = FlowDrift(self.name, on_drift, on_resume)
        self.is_method = is_method(fn)
        self._signature = Signature(fn, skip_self=self.is_method)
        self._bound: Any = None
        self._store: HasEngine | None = None
        self._tags: dict[str, str] = {}
        self.queue = declared(self.name, queue)
        self.keep_us = checked_keep(self.name, retention)
        self.watch = checked_watch(f"flow {self.name}", watchdog)
        self._placing = placed(Placing(), queue=self.queue, deadline=timeout)
        self._budget = checked_budget(budget, "a flow")
        functools.update_wrapper(cast("Callable[..., Any]", self), fn)
        registry.learn_types(fn)
        for alias in self.aliases:
            known = registry.flows.get(alias)
            if known is not None and known.name == alias:
                registry.check_same("flow", alias, known.fn, fn)
        for name_ in (self.name, *self.aliases):
            registry.flows[name_] = self

    def __repr__(self) -> str:
        return f"<flow {self.name}>"

    @property
    def runs_versions(self) -> tuple[str, ...]:
        """The versions whose runs a worker with this flow takes."""
        return (self.version, *self.accepts)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind a method; `self` is no part of the record."""
        if instance is None:
            return self
        other = copy.copy(self)
        other._bound = instance
        return other

    def code(self) -> str:
        """Return what tells this deploy of the flow from others: version and fingerprint."""
        return f"{self.version}/{of_flow(self.fn)}"

    def _function(self) -> Callable[..., Any]:
        """Return the flow's own function, bound if it is a method."""
        if self._bound is None:
            return self.fn
        return cast("Callable[..., Any]", self.fn.__get__(self._bound))

    @property
    def __code__(self) -> Any:
        return self.fn.__code__

    @property
    def __defaults__(self) -> Any:
        return self.fn.__defaults__

    @property
    def __kwdefaults__(self) -> Any:
        return self.fn.__kwdefaults__

    def _refuse_call(self) -> UsageError:
        return UsageError(
            f"the flow {self.name} was called directly, so it has no run id; "
            f"write {self.name}.run('my-run-id', …)"
        )

    def _with(
        self,
        store: HasEngine | None,
        tags: Mapping[str, str] | None,
        budget: Budget | None,
        **placing: Any,
    ) -> Any:
        other = copy.copy(self)
        other._budget = checked_budget(budget, "a flow") or self._budget
        other._store = store or self._store
        other._tags = checked_tags({**self._tags, **(tags or {})})
        other._placing = placed(self._placing, **placing)
        return other

    def _engine(self) -> Engine:
        """Return the engine of the store that runs of this flow are kept in."""
        return self._store._engine if self._store is not None else engines.default_engine()  # pyright: ignore[reportPrivateUsage]

    def _request(self, run_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RunRequest:
        """Return what is asked for by a call of run, start or submit."""
        frame = current.get()
        if frame is not None:
            raise UsageError(
                f"{self.name}.run was called inside run {frame.execution.run_id!r}; a child has an "
                f"id of its own: write {self.name}(…), or {self.name}.start('name', …)"
            )
        if not self._is_derived(run_id):
            check_run_id(run_id)
        return self._request_for(run_id, args, kwargs)

    def _is_derived(self, run_id: object) -> bool:
        """Return whether an id was made by us, for a tick of a schedule: such a run is taken up under
        its id like any other, and never begun under it."""
        derived = isinstance(run_id, str) and CHILD_SEPARATOR in run_id
        return derived and self._engine().backend.get(str(run_id)) is not None

    def _request_for(
        self, run_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RunRequest:
        """Return what is asked for, under an id that was checked or derived."""
        try:
            arguments = self._signature.bind(args, kwargs)
        except TypeError as error:
            why = self._signature.why_not(error, kwargs)
            raise UsageError(f"{self.name}.run({run_id!r}, …): {why}") from None
        return RunRequest(
            run_id=run_id,
            flow=self.name,
            names=(self.name, *self.aliases),
            version=self.version,
            input=self._signature.recorded(arguments),
            defaults=self._signature.defaults,
            fingerprint=lambda: fingerprint(self.fn),
            code=self.code,
            awaits=self.awaits,
            tags=self._tags,
            placing=self._placing,
            facts=self._facts(),
        )

    def _facts(self) -> dict[str, Any]:
        """Return what features record with the start of a run of this flow."""
        facts: dict[str, Any] = {}
        if self._budget is not None:
            facts["budget"] = limits_of(self._budget)
        if self.keep_us is not None:
            facts[KEEP] = self.keep_us
        if self.watch is not None:
            facts["watch"] = self.watch.limits()
        return facts

    def _arguments_of(self, execution: Execution) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the recorded input in the form of a call, with today's defaults and resources."""
        execution.instance = self._bound
        rollback.check(execution)
        run_end.check_tried(execution)
        started = execution.history.started
        assert started is not None
        recorded = execution.read(bytes(started.data()["input"]), INPUT)
        signature = self._signature
        if why := signature.misfit(recorded):
            raise execution.stop(run_end.other_parameters(execution.run_id, self.name, why))
        arguments = {**signature.defaults, **signature.resources, **recorded}
        return signature.call_form(arguments, execution.engine.resource)


class Flow(FlowLike, Generic[P, R]):
    """A sync flow."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Inside a flow: a child run. Elsewhere it is refused: a run has an id, always."""
        if current.get() is None:
            raise self._refuse_call()
        return cast("R", child_flows.call_child(self, args, kwargs))

    def run(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the run, or pick it up where it stopped, and work on it here until it ends."""
        if current_task() is not None:
            raise UsageError(
                f"{self.name}.run blocks, and this is an event loop; write "
                f"`await asyncio.to_thread({self.name}.run, …)`, or make the flow async"
            )
        with Shield() as shield:
            admitted = admit(self._engine(), self._request(run_id, args, kwargs))
            if isinstance(admitted, Ended):
                return cast("R", admitted.result)
            return cast("R", self._execute(admitted, shield))

    def start(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start the run in the background of this process; returns a handle at once. Inside a flow:
        a child of this name, in the background."""
        if current.get() is not None:
            return child_flows.start_child(self, run_id, args, kwargs)
        engine = self._engine()
        admitted = admit_or_none(engine, self._request(run_id, args, kwargs))
        handle: Handle[R] = Handle(engine, run_id)
        if admitted is not None:
            handle._works_in_thread(admitted, lambda: self._execute(admitted))  # pyright: ignore[reportPrivateUsage]
        return handle

    def submit(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Record the run and leave it to any worker; returns a handle at once."""
        engine = self._engine()
        submit(engine, self._request(run_id, args, kwargs))
        return Handle(engine, run_id)

    def with_options(
        self,
        *,
        store: HasEngine | None = None,
        tags: Mapping[str, str] | None = None,
        queue: str | Queue | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        limit_key: str | None = None,
        budget: Budget | None = None,
        timeout: Duration | None = None,
    ) -> Flow[P, R]:
        """Return the same flow with other options for its runs. The larger `priority` is taken
        first; `delay` ("1h") is for `submit`; runs with one `limit_key` share limits."""
        placing = {
            "queue": queue,
            "priority": priority,
            "delay": delay,
            "limit_key": limit_key,
            "deadline": timeout,
        }
        return cast("Flow[P, R]", self._with(store, tags, budget, **placing))

    @property
    def aio(self) -> Awaited[P, R]:
        """The same calls for async callers."""
        return Awaited(self)

    def _execute(self, execution: Execution, shield: Shield | None = None) -> Any:
        """Execute a claimed run in this thread; signals come through while user code runs."""
        shield = execution.shield = shield or Shield()
        frame = Frame(execution, execution.root, here(awaits=False), awaits=False)
        token = current.set(frame)
        try:
            try:
                args, kwargs = self._arguments_of(execution)
                shield.lower()
                begin(self, execution)
                value = self._function()(*args, **kwargs)
                shield.raise_again()
                end = run_end.returned(execution, value)
            except BaseException as error:
                shield.raise_again()
                end = run_end.raised(execution, error)
            return finish(execution, end)
        finally:
            current.reset(token)
            execution.engine.leave(execution)
            shield.lower()


class AsyncFlow(FlowLike, Generic[P, R]):
    """An async flow."""

    awaits = True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Inside a flow: a child run. Elsewhere it is refused: a run has an id, always."""
        if current.get() is None:
            raise self._refuse_call()
        return child_flows.call_child_async(self, args, kwargs)

    async def run(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the run, or pick it up where it stopped, and work on it here until it ends."""
        admitted = await admit_async(self._engine(), self._request(run_id, args, kwargs))
        if isinstance(admitted, Ended):
            return cast("R", admitted.result)
        return cast("R", await self._execute(admitted))

    def start(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start the run in a background thread with an event loop of its own. Inside a sync flow: a
        child of this name, in the background."""
        import asyncio

        if current.get() is not None:
            return child_flows.start_child(self, run_id, args, kwargs)
        engine = self._engine()
        admitted = admit_or_none(engine, self._request(run_id, args, kwargs))
        handle: Handle[R] = Handle(engine, run_id)
        if admitted is not None:
            handle._works_in_thread(admitted, lambda: asyncio.run(self._execute(admitted)))  # pyright: ignore[reportPrivateUsage]
        return handle

    def submit(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Record the run and leave it to any worker; returns a handle at once."""
        engine = self._engine()
        submit(engine, self._request(run_id, args, kwargs))
        return Handle(engine, run_id)

    def with_options(
        self,
        *,
        store: HasEngine | None = None,
        tags: Mapping[str, str] | None = None,
        queue: str | Queue | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        limit_key: str | None = None,
        budget: Budget | None = None,
        timeout: Duration | None = None,
    ) -> AsyncFlow[P, R]:
        """Return the same flow with other options for its runs. The larger `priority` is taken
        first; `delay` ("1h") is for `submit`; runs with one `limit_key` share limits."""
        placing = {
            "queue": queue,
            "priority": priority,
            "delay": delay,
            "limit_key": limit_key,
            "deadline": timeout,
        }
        return cast("AsyncFlow[P, R]", self._with(store, tags, budget, **placing))

    @property
    def aio(self) -> Awaited[P, R]:
        """The same calls for async callers."""
        return Awaited(self)

    async def _execute(self, execution: Execution) -> Any:
        """Execute a claimed run in this task."""
        frame = Frame(execution, execution.root, here(awaits=True), awaits=True)
        token = current.set(frame)
        try:
            try:
                args, kwargs = self._arguments_of(execution)
                await begin_async(self, execution)
                end = run_end.returned(execution, await self._function()(*args, **kwargs))
            except BaseException as error:
                end = run_end.raised(execution, error)
        finally:
            current.reset(token)
        return await finish_async(execution, end)


class _FlowDecorator(Protocol):
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncFlow[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Flow[P, R]: ...


@overload
def flow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncFlow[P, R]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]
@overload
def flow(fn: Callable[P, R], /) -> Flow[P, R]: ...
@overload
def flow(
    *,
    name: str | None = None,
    version: str = "1",
    aliases: tuple[str, ...] = (),
    accepts_versions: tuple[str, ...] = (),
    queue: str | Queue | None = None,
    budget: Budget | None = None,
    timeout: Duration | None = None,
    retention: Duration | None = None,
    on_drift: Mapping[str, Policy] | None = None,
    on_resume: OnResume | None = None,
    watchdog: Watchdog | None = None,
) -> _FlowDecorator: ...
def flow(fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a flow: `my_flow.run("run-id", …)` starts a run or picks it up."""

    def decorate(fn: Callable[..., Any]) -> Any:
        awaits = inspect.iscoroutinefunction(fn)
        kind = cast("type[FlowLike]", AsyncFlow if awaits else Flow)
        return kind(fn, **options)

    return decorate if fn is None else decorate(fn)


# -- for callers in an event loop --------------------------------------------------------------

Q = ParamSpec("Q")
T = TypeVar("T")


class Awaited(Generic[P, R]):
    """`flow.aio`: the same calls for async callers; a sync flow works in a thread."""

    def __init__(self, flow: Flow[P, R] | AsyncFlow[P, R]) -> None:
        self._flow = flow

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Inside an async flow: a child run of a sync flow, awaited."""
        return child_flows.call_child_async(self._flow, args, kwargs)

    async def run(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the run, or pick it up where it stopped, and await its end."""
        if self._flow.awaits:
            return await cast("AsyncFlow[P, R]", self._flow).run(run_id, *args, **kwargs)
        return await _in_thread(cast("Flow[P, R]", self._flow).run, run_id, *args, **kwargs)

    async def start(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start the run in the background of this process. Inside a flow: a child of this name."""
        if current.get() is not None:
            return await child_flows.start_child_async(self._flow, run_id, args, kwargs)
        return await _in_thread(self._flow.start, run_id, *args, **kwargs)

    async def submit(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Record the run and leave it to any worker."""
        return await _in_thread(self._flow.submit, run_id, *args, **kwargs)


async def _in_thread(work: Callable[Q, T], *args: Q.args, **kwargs: Q.kwargs) -> T:
    import asyncio

    return await asyncio.to_thread(work, *args, **kwargs)
