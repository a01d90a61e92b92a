"""Looking at a run's watched facts without taking it up: its flow is replayed, and nothing else.

The flow's own code is executed on the recorded outcomes, up to the first call that has none. No step is
called and nothing is written; only what it watches is looked at, with the functions that it gives.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec

from holdfast._engine.journal.drift_record import Change
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import Lease, RunRow
from holdfast._engine.journal.step_record import Record
from holdfast._engine.scripts.stops import Unwind
from holdfast._features.drift.comparison import CodeNow
from holdfast._features.drift.model import AfterGap
from holdfast._features.drift.runtime import code_now, names_in
from holdfast._runtime import registry
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.frames import Frame, current, here
from holdfast._runtime.execution.recorder import Recorder
from holdfast._stores import lineage
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.registry import RegisteredFlow


class _Ends(HoldfastError):
    """The record ends here."""


def _ends() -> Unwind:
    return Unwind(_Ends("the record ends here"))


class _Record(History):
    """A history that ends a replay where it has no outcome."""

    def match(self, key: str, position: int | None, args_digest: bytes | None) -> Record | None:
        """Return the record of this call, or end."""
        record = super().match(key, position, args_digest)
        if record is None or not record.has_outcome:
            raise _ends()
        return record


class _WritesNothing(Recorder):
    """The recorder of a run that is only looked at: a write ends the look."""

    def append(self, *_args: Any, **_options: Any) -> NoReturn:
        raise self._execution.stop(_ends())

    def write(self, *_args: Any, **_options: Any) -> NoReturn:
        raise self._execution.stop(_ends())

    def prepared(self, *_args: Any, **_options: Any) -> NoReturn:
        raise self._execution.stop(_ends())


def looked(
    engine: Engine, row: RunRow, past: History
) -> tuple[CodeNow | None, list[Change], frozenset[str]]:
    """Return what the code of this process says of a run, None if it has none of it; which watched
    facts are not as they were, and which steps were looked at."""
    flow = registry.flows.get(row.flow)
    now = code_now(flow, names_in(past))
    if flow is None:
        return (now if now.steps else None), [], frozenset()
    if row.status in ENDED or flow.is_method:
        return now, [], frozenset()
    seen, consumed = facts_changed(engine, flow, row)
    return now, seen, frozenset(consumed)


def facts_changed(
    engine: Engine, flow: RegisteredFlow, row: RunRow
) -> tuple[list[Change], set[str]]:
    """Return which watched facts are not as they were, and the steps of those that were looked at."""
    skips = [(int(low), int(high)) for low, high in msgspec.json.decode(row.skips)]
    history = lineage.fold(engine.kept, row, skips, empty=_Record(row.run_id))
    look = Execution(engine, Lease(row), history, engine.values(row), awaits=flow.awaits)
    look.recorder = _WritesNothing(look)
    seen: list[Change] = []
    look.slot(AfterGap).compares, look.slot(AfterGap).seen = True, seen
    look.slot(AfterGap).policies = dict(flow.drift.policies)
    # In a thread of its own: the caller may be in an event loop, or inside another run.
    thread = threading.Thread(target=_replay, args=(flow, look), daemon=True)
    thread.start()
    thread.join()
    return seen, set(look.replay.consumed)


def _replay(flow: RegisteredFlow, look: Execution) -> None:
    try:
        args, kwargs = flow.arguments_of(look)
        if flow.awaits:
            import asyncio

            asyncio.run(_awaited(flow, look, args, kwargs))
            return
        current.set(Frame(look, look.root, here(awaits=False), awaits=False))
        flow.function()(*args, **kwargs)
    except BaseException:
        return


async def _awaited(
    flow: RegisteredFlow, look: Execution, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    current.set(Frame(look, look.root, here(awaits=True), awaits=True))
    await cast("Any", flow.function())(*args, **kwargs)
