"""The process in which a supervised run is executed: `python -m holdfast._ops.cli.child FD`.

It reports how it ended through a pipe of its own. A process that ends without a report has died,
whatever its exit code is, and its supervisor starts another. If the supervisor dies, this process stops
its run at the next durable call and gives it back: an effect at work is finished and recorded first.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import typing
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NoReturn, cast

import msgspec

from holdfast._core.commands import another_id
from holdfast._core.stops import Unwind
from holdfast._ops.cli.session import ERROR, INTERRUPTED, OK, code_of
from holdfast.errors import HoldfastError, RunConflict, RunError, RunHeld, UsageError

if typing.TYPE_CHECKING:
    from holdfast._opened import Store

FLOWS_SHOWN = 20
LOOK_S = 0.05
"""How often a process without a supervisor looks for runs that it still has to stop."""


class Order(msgspec.Struct):
    """What the supervisor wants to have executed."""

    target: str
    run_id: str
    url: str
    namespace: str
    input: str | None = None
    """JSON; None for a run that exists and knows its input."""
    report_fd: int = -1
    life_fd: int = -1
    """A pipe whose other end only the supervisor has: it ends when the supervisor does."""


class Report(msgspec.Struct):
    """How the process ended."""

    code: int
    message: str = ""
    unfit: bool = False
    """Whether the run was given back because this version of its flow does not fit it."""


def start(
    module: str, order: msgspec.Struct, pass_fds: tuple[int, ...], **options: Any
) -> subprocess.Popen[bytes]:
    """Start a process of ours, and give it its order through a pipe: what stands in its arguments
    can be read by everybody on the machine, and an address may have a password."""
    reads, writes = os.pipe()
    try:
        process = subprocess.Popen(  # noqa: S603 - this interpreter, and a module of ours
            [sys.executable, "-m", module, str(reads)], pass_fds=(*pass_fds, reads), **options
        )
    except BaseException:
        os.close(writes)
        raise
    finally:
        os.close(reads)
    # One that has died already does not read it; that is found out by whoever waits for it.
    with contextlib.suppress(BrokenPipeError), os.fdopen(writes, "wb") as pipe:
        pipe.write(msgspec.json.encode(order))
    return cast("subprocess.Popen[bytes]", process)


def ordered(argv: list[str]) -> bytes:
    """Return the order that this process was started with."""
    with os.fdopen(int(argv[1]), "rb") as pipe:
        return pipe.read()


def main(argv: list[str]) -> int:
    """Execute one order."""
    order = msgspec.json.decode(ordered(argv), type=Order)
    sys.argv = [order.target.partition(":")[0]]  # What the user's module looks at is not for us.
    signal.signal(signal.SIGTERM, _terminated)
    alone = threading.Event()
    if order.life_fd >= 0:
        threading.Thread(target=outlives, args=(order.life_fd, alone), daemon=True).start()
    report = execute(order, alone)
    if order.report_fd >= 0:
        with contextlib.suppress(BrokenPipeError):  # The supervisor is gone.
            os.write(order.report_fd, msgspec.json.encode(report))
    return report.code


def outlives(life_fd: int, alone: threading.Event) -> None:
    """Set `alone` when the other end of the pipe is gone, and its process with it."""
    with contextlib.suppress(OSError):
        while os.read(life_fd, 64):
            pass
    alone.set()


def execute(order: Order, alone: threading.Event) -> Report:
    """Execute the run of an order until it ends here, however it ends."""
    try:
        _work(order, alone)
    except HoldfastError as error:
        unfit = isinstance(error, RunHeld) and bool(error.unfit_version)
        return Report(code_of(error), str(error), unfit)
    except (KeyboardInterrupt, SystemExit):
        return Report(INTERRUPTED, "interrupted")
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return Report(ERROR, f"{type(error).__name__}: {error}")
    return Report(OK)


def _work(order: Order, alone: threading.Event) -> None:
    import holdfast
    from holdfast._ops.cli import whereabouts

    flow = find_flow(order.target)
    whereabouts.warn(order.url, order.namespace)
    # Not the default: the module may have opened a store of its own.
    store = holdfast.open(order.url, namespace=order.namespace, default=False)
    with store:
        threading.Thread(target=_stop_when, args=(alone, store), daemon=True).start()
        args, kwargs = _arguments(order, flow, store.kept)
        going = flow.with_options(store=store).run(order.run_id, *args, **kwargs)
        if inspect.isawaitable(going):
            import asyncio

            asyncio.run(_awaited(going))


def _stop_when(alone: threading.Event, store: Store) -> None:
    """Stop what is executed here once nobody supervises it: at its next durable call, or now if it
    only waits. Nothing is interrupted."""
    alone.wait()
    while not store.engine.closed:  # A child run may begin after a look.
        for execution in store.engine.executing():
            why = f"run {execution.run_id!r} was given back: its supervisor has died"
            unwind = Unwind(RunError(execution.run_id, why), released="supervisor died")
            execution.stop(unwind, later=True)
        time.sleep(LOOK_S)


async def _awaited(going: Any) -> Any:
    return await going


def _terminated(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Let the run be released, as after Ctrl-C."""
    raise SystemExit(128 + number)


# -- what to execute ---------------------------------------------------------------------------


def find_flow(target: str) -> Any:
    """Return the flow that MODULE:FLOW names; MODULE may be a file."""
    where, colon, path = target.rpartition(":")
    if not colon or not where or not path:
        raise UsageError(
            f"{target!r} is not MODULE:FLOW, as in agent:research or agent.py:research"
        )
    found: Any = (module := module_named(where))
    for name in path.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise UsageError(f"{where} has no {path!r}; {_flows_of(module)}")
    if not _is_flow(found):
        raise UsageError(f"{target} is no flow; decorate it with @holdfast.flow")
    return found


def _is_flow(found: Any) -> bool:
    return callable(getattr(found, "with_options", None)) and hasattr(found, "submit")


def _flows_of(module: ModuleType) -> str:
    names = sorted(name for name, found in vars(module).items() if _is_flow(found))
    if not names:
        return "it has no flows"
    more = ", …" if len(names) > FLOWS_SHOWN else ""
    return f"its flows: {', '.join(names[:FLOWS_SHOWN])}{more}"


def module_named(where: str) -> ModuleType:
    """Import a module by its name, as from this folder, or by its file."""
    if where.endswith(".py"):
        return _module_of_file(Path(where))
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{where}.".startswith(f"{error.name}."):
            raise  # The module is there; something that it imports is not.
        raise UsageError(
            f"there is no module {where!r} here; give its name as you would import it, or its file"
        ) from None


def _module_of_file(file: Path) -> ModuleType:
    try:
        there = file.is_file()
    except PermissionError:  # A folder above it cannot be searched.
        there = True
    if not there:
        raise UsageError(f"there is no file {file}")
    if not os.access(file, os.R_OK):
        raise UsageError(
            f"{file} cannot be read by this user; look at its permissions: namei -l {file}"
        )
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


# -- with which input --------------------------------------------------------------------------


def _arguments(order: Order, flow: Any, kept: Any) -> tuple[list[Any], dict[str, Any]]:
    if order.input is None:
        return [], _recorded_input(kept, order.run_id, flow)
    given = msgspec.json.decode(order.input)
    signature = inspect.signature(flow.fn)
    if isinstance(given, list):
        names = list(signature.parameters)[: len(given)]  # pyright: ignore[reportUnknownArgumentType]
        hints = _hints(flow.fn)
        return [_typed(hints.get(n), v, n) for n, v in zip(names, given, strict=False)], {}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not isinstance(given, dict):
        raise UsageError(
            "--input is a JSON object of arguments by name, or an array of them in order"
        )
    return [], typed_arguments(flow, given)  # pyright: ignore[reportUnknownArgumentType]


def typed_arguments(flow: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Return JSON arguments by name as what the flow's annotations ask for."""
    hints = _hints(flow.fn)
    return {str(name): _typed(hints.get(name), value, name) for name, value in given.items()}


def _recorded_input(kept: Any, run_id: str, flow: Any) -> dict[str, Any]:
    """A run that exists knows its input; its classes are known by now."""
    from holdfast._ops import inspect as looking

    row = kept.get(run_id)
    if row is None:
        return {}
    if row.flow not in (flow.name, *flow.aliases):
        # Its input would not fit, and say nothing of what is wrong.
        why = f"as a run of {row.flow!r}, not {flow.name!r}"
        raise RunConflict(run_id, why, another_id(run_id))
    recorded = looking.view(kept, run_id).input
    return dict(recorded) if isinstance(recorded, dict) else {}  # pyright: ignore[reportUnknownArgumentType]


def _hints(fn: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn)
    except Exception:
        return {}


def _typed(hint: Any, value: Any, name: Any) -> Any:
    """Return JSON data as what the flow's annotation asks for."""
    try:
        if hasattr(hint, "model_validate"):
            return hint.model_validate(value)
        return value if hint is None else msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise UsageError(f"--input: {name}: {error}") from None
    except TypeError:
        return value  # An annotation that says nothing of data.


if __name__ == "__main__":
    sys.exit(main(sys.argv))
