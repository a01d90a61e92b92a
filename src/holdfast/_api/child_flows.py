"""Child runs as users see them: a flow called inside a flow, and `start` for one in the background."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast._api.handle import PATIENCE_S, Handle
from holdfast._engine.journal.step_keys import quoted
from holdfast._engine.scripts.child_run import child_id, child_script, end_script, start_script
from holdfast._engine.scripts.requests import StepCall
from holdfast._engine.values.durations import Duration
from holdfast._runtime.execution.child_execution import Child, Children
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.frames import Frame
from holdfast._runtime.execution.operations import called, perform, perform_async, place
from holdfast._runtime.registry import RegisteredFlow
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._engine.decisions.control import Stopped

R = TypeVar("R")
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def call_child(flow: RegisteredFlow, args: Args, kwargs: Kwargs) -> Any:
    """A flow called inside a sync flow."""
    frame = _calling(flow.name, f"await {flow.name}.aio(…)", awaits=False)
    call, run_id = _placed(frame, flow, flow.name, args, kwargs)
    execution = frame.execution
    script = child_script(call, execution.history, run_id, flow.name, execution.decode)
    return perform(execution, call, script)


def call_child_async(flow: RegisteredFlow, args: Args, kwargs: Kwargs) -> Coroutine[Any, Any, Any]:
    """A flow called inside an async flow."""
    instead = f'{flow.name}.start("a name", …).result()' if flow.awaits else f"{flow.name}(…)"
    frame = _calling(flow.name, instead, awaits=True)
    call, run_id = _placed(frame, flow, flow.name, args, kwargs)
    execution = frame.execution
    script = child_script(call, execution.history, run_id, flow.name, execution.decode)
    return perform_async(execution, call, script)


def start_child(flow: RegisteredFlow, name: str, args: Args, kwargs: Kwargs) -> ChildHandle[Any]:
    """`flow.start(name, …)` inside a sync flow: a child in the background."""
    frame = _calling(f"{flow.name}.start", f"await {flow.name}.aio.start(…)", awaits=False)
    call, run_id = _placed(frame, flow, f"{flow.name}:{_named(name)}", args, kwargs)
    execution = frame.execution
    perform(execution, call, start_script(call, execution.history, run_id, flow.name))
    return ChildHandle(execution, call, run_id)


async def start_child_async(
    flow: RegisteredFlow, name: str, args: Args, kwargs: Kwargs
) -> ChildHandle[Any]:
    """`await flow.aio.start(name, …)` inside an async flow: a child in the background."""
    frame = _calling(f"{flow.name}.aio.start", f"{flow.name}.start(…)", awaits=True)
    call, run_id = _placed(frame, flow, f"{flow.name}:{_named(name)}", args, kwargs)
    execution = frame.execution
    script = start_script(call, execution.history, run_id, flow.name)
    await perform_async(execution, call, script)
    return ChildHandle(execution, call, run_id)


def _calling(name: str, instead: str, *, awaits: bool) -> Frame:
    """Return the frame of the flow that calls a child, or say how one of its colour does that."""
    return called(name, f"{name}(…)", awaits=awaits, instead=instead)


def _named(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"start(…) inside a flow takes a name for the child first, not {name!r:.80}; "
            "its run id is made of the parent's and that"
        )
    return quoted(name)


def _placed(
    frame: Frame, flow: RegisteredFlow, name: str, args: Args, kwargs: Kwargs
) -> tuple[StepCall, str]:
    """Take the place of the child's call; what it is asked to do is remembered for its start."""
    execution = frame.execution
    call = place(frame, name)
    run_id = child_id(execution.run_id, call.key)
    request = flow._request_for(run_id, args, kwargs)  # pyright: ignore[reportPrivateUsage]
    with execution.lock:
        call.args_digest = execution.digest_of(call.key, request.input)
    row = execution.lease.row
    request.parent, request.root = row.run_id, row.root or row.run_id
    if request.placing.queue is None and row.queue is not None:
        request.placing = type(request.placing)(row.queue, request.placing.priority)
    execution.slot(Children)[run_id] = Child(flow, request)
    return call, run_id


class ChildHandle(Handle[R]):
    """A child run in the background of a flow; `result()` is a recorded wait."""

    def __init__(self, execution: Execution, call: StepCall, run_id: str) -> None:
        super().__init__(execution.engine, run_id)
        self._execution = execution
        self._call = call
        self._ended = False
        self._value: Any = None

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the end of the child and return its result; ChildFailed if it has none."""
        self._no_timeout(timeout)
        if not self._ended:
            instead = "await handle.aio.result()"
            called("handle.result()", "handle.result()", awaits=False, instead=instead)
            self._value = perform(self._execution, self._call, self._script())
            self._ended = True
        return cast("R", self._value)

    def cancel(
        self, *, actor: str | None = None, reason: str = "", wait_s: float = PATIENCE_S
    ) -> Stopped:
        """Refused: the flow would see an answer that no replay gives again."""
        raise _not_in_a_flow(self.run_id)

    @property
    def aio(self) -> Any:
        """The awaited twin, for async flows."""
        return AwaitedChild(self)

    def _script(self) -> Any:
        execution = self._execution
        return end_script(self._call, execution.history, self.run_id, execution.decode)

    @staticmethod
    def _no_timeout(timeout: Duration | None) -> None:
        if timeout is not None:
            raise UsageError(
                "result(timeout=…) inside a flow would not be recorded; give the child a deadline"
            )

    async def awaited(self) -> R:
        """Await the end of the child."""
        if not self._ended:
            name, instead = "handle.aio.result()", "handle.result()"
            called(name, name, awaits=True, instead=instead)
            self._value = await perform_async(self._execution, self._call, self._script())
            self._ended = True
        return cast("R", self._value)


class AwaitedChild:
    """`handle.aio` of a child."""

    def __init__(self, handle: ChildHandle[Any]) -> None:
        self._handle = handle
        self.run_id = handle.run_id

    async def result(self) -> Any:
        """Await the end of the child and return its result; ChildFailed if it has none."""
        return await self._handle.awaited()

    async def cancel(self, **_options: Any) -> Stopped:
        """Refused, as its blocking twin is."""
        raise _not_in_a_flow(self.run_id)


def _not_in_a_flow(run_id: str) -> UsageError:
    return UsageError(
        f"cancel() of the child {run_id!r} inside its parent's flow would not be recorded; write a "
        f"step that calls store.cancel({run_id!r})"
    )
