"""The process that executes a supervised run: `python -m holdfast._operator.cli.run_process FD`.

It reports its end through a pipe. A process that ends without a report has died, whatever its exit
code, and its supervisor starts another. If the supervisor dies, this process stops its run at the
next durable call and releases it; an effect at work finishes and is recorded first.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from holdfast._engine.command_lines import another_id
from holdfast._engine.scripts.stops import Unwind
from holdfast._operator.cli.child_process import (
    find_flow,
    hints_of,
    outlives,
    read_order,
    typed_argument,
    typed_arguments,
)
from holdfast._operator.cli.exit_codes import ERROR, INTERRUPTED, OK, code_of
from holdfast.errors import HoldfastError, RunConflict, RunError, RunHeld, UsageError

if TYPE_CHECKING:
    from holdfast._api.opened_store import Store


LOOK_S = 0.05
"""How often a process without a supervisor searches for runs that it still has to stop."""


class Order(msgspec.Struct):
    """The run that the supervisor wants executed."""

    target: str
    run_id: str
    url: str
    namespace: str
    input: str | None = None
    """JSON; None for an existing run, whose input is recorded."""
    report_fd: int = -1
    life_fd: int = -1
    """A pipe whose other end only the supervisor holds: it closes when the supervisor ends."""


class Report(msgspec.Struct):
    """The end of the process."""

    code: int
    message: str = ""
    unfit: bool = False
    """Whether the run was released because this version of its flow does not fit it."""


def main(argv: list[str]) -> int:
    """Execute one order."""
    order = msgspec.json.decode(read_order(argv), type=Order)
    sys.argv = [order.target.partition(":")[0]]  # The user's module must not see our arguments.
    signal.signal(signal.SIGTERM, _terminated)
    alone = threading.Event()
    if order.life_fd >= 0:
        threading.Thread(target=outlives, args=(order.life_fd, alone), daemon=True).start()
    report = execute(order, alone)
    if order.report_fd >= 0:
        with contextlib.suppress(BrokenPipeError):  # The supervisor is gone.
            os.write(order.report_fd, msgspec.json.encode(report))
    return report.code


def execute(order: Order, alone: threading.Event) -> Report:
    """Execute the run of an order until it ends or is released; report the end, whatever its
    cause."""
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
    from holdfast._operator.cli import default_store

    flow = find_flow(order.target)
    default_store.warn(order.url, order.namespace)
    # Do not replace the default: the module may have opened its own store.
    store = holdfast.open(order.url, namespace=order.namespace, default=False)
    with store:
        threading.Thread(target=_stop_when, args=(alone, store), daemon=True).start()
        args, kwargs = _arguments(order, flow, store._backend)  # pyright: ignore[reportPrivateUsage]
        going = flow.with_options(store=store).run(order.run_id, *args, **kwargs)
        if inspect.isawaitable(going):
            import asyncio

            asyncio.run(_awaited(going))


def _stop_when(alone: threading.Event, store: Store) -> None:
    """Stop the runs of this process once its supervisor is gone: at the next durable call, or now
    if a run only waits. Nothing is interrupted."""
    alone.wait()
    while not store._engine.closed:  # pyright: ignore[reportPrivateUsage]  # A child run may begin after a check.
        for execution in store._engine.executing():  # pyright: ignore[reportPrivateUsage]
            why = f"run {execution.run_id!r} was released: its supervisor has died"
            unwind = Unwind(RunError(execution.run_id, why), released="supervisor died")
            execution.stop(unwind, later=True)
        time.sleep(LOOK_S)


async def _awaited(going: Any) -> Any:
    return await going


def _terminated(number: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    """Release the run, as after Ctrl-C."""
    raise SystemExit(128 + number)


# -- input -------------------------------------------------------------------------------------


def _arguments(order: Order, flow: Any, kept: Any) -> tuple[list[Any], dict[str, Any]]:
    if order.input is None:
        return [], _recorded_input(kept, order.run_id, flow)
    given = msgspec.json.decode(order.input)
    signature = inspect.signature(flow.fn)
    if isinstance(given, list):
        names = list(signature.parameters)[: len(given)]  # pyright: ignore[reportUnknownArgumentType]
        hints = hints_of(flow.fn)
        return [typed_argument(hints.get(n), v, n) for n, v in zip(names, given, strict=False)], {}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not isinstance(given, dict):
        raise UsageError(
            "--input must be a JSON object of arguments by name, or an array of them in order"
        )
    return [], typed_arguments(flow, given)  # pyright: ignore[reportUnknownArgumentType]


def _recorded_input(kept: Any, run_id: str, flow: Any) -> dict[str, Any]:
    """Return the recorded input of an existing run; the module has registered its classes."""
    from holdfast._operator.read import run_views

    row = kept.get(run_id)
    if row is None:
        return {}
    if row.flow not in (flow.name, *flow.aliases):
        # The input of another flow would not fit, and its error would not name the cause.
        why = f"as a run of {row.flow!r}, not {flow.name!r}"
        raise RunConflict(run_id, why, another_id(run_id))
    recorded = run_views.view(kept, run_id).input
    return dict(recorded) if isinstance(recorded, dict) else {}  # pyright: ignore[reportUnknownArgumentType]


if __name__ == "__main__":
    sys.exit(main(sys.argv))
