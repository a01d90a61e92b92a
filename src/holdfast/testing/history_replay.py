"""`replay`: run today's code on a recorded history, in CI, without executing any step.

    def test_runs_of_last_year_still_replay():
        testing.replay(refund, "tests/histories/refund-41.json")

The flow runs on the recorded outcomes. If it makes a different call than the journal has,
`Diverged` says where: a run with that history would be held after this deploy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast._engine.journal.entries import FORMAT, Draft, Entry, Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import GENESIS, Lease, RunRow, Write, entry_digest
from holdfast._engine.scripts.stops import Unwind
from holdfast._engine.values.codec import same
from holdfast._stores.contract import Outcome, WholeRun
from holdfast.errors import Corrupt, HoldfastError, RunHeld, UsageError
from holdfast.testing.clock import FakeClock
from holdfast.testing.internals import (
    AsyncFlow,
    Engine,
    Execution,
    Flow,
    Frame,
    exports,
    lineage,
    open_store,
    watching,
)
from holdfast.testing.store_proxy import Through

T = TypeVar("T")


class Diverged(AssertionError):
    """Today's code does not fit a recorded history."""


class ReplayResult(msgspec.Struct):
    """A history that still fits."""

    run_id: str
    status: str
    steps: int
    """How many recorded steps the flow asked for."""
    result: Any = None

    def __str__(self) -> str:
        return f"{self.run_id} ({self.status}): {self.steps} recorded steps replayed"


class _Beyond(HoldfastError):
    """Whether the flow continued beyond the record."""


class _ReadOnly(Through):
    """A read-only store with one run and its family."""

    def __init__(self, exported: Exported) -> None:
        kept = open_store("memory:", namespace=exported.run.namespace)
        super().__init__(kept)
        own = WholeRun(exported.run, exported.entries, exported.chunks, [], [])
        for run in (own, *exported.others):
            kept.put_whole(run)
        row = kept.get(exported.run.run_id)
        assert row is not None
        self.row = row
        """The row as this store has it: with its own number, and without an owner."""
        self.refused: list[Draft] = []

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        """Refuse, and remember the attempted write."""
        self.refused += [draft for write in writes for draft in write.drafts]
        raise _Beyond("the record ends here")

    def around(self, operation: str, what: str, perform: Callable[[], T]) -> T:
        """Pass everything else through."""
        return perform()


def replay(flow: Flow[..., Any] | AsyncFlow[..., Any], exported: str | Path) -> ReplayResult:
    """Replay a run that `store.export_run` or `holdfast store export` wrote; raises `Diverged`
    where today's code differs."""
    read = read_export(exported)
    if read.run.flow not in (flow.name, *flow.aliases):
        raise UsageError(f"{exported} is a run of {read.run.flow!r}, not of {flow.name!r}")
    kept = _ReadOnly(read)
    engine = Engine(kept.as_store(), FakeClock(auto=True))
    history = lineage.fold(kept.as_store(), kept.row)
    execution = Execution(
        engine, Lease(kept.row), history, engine.values(kept.row), awaits=flow.awaits
    )
    called: list[str] = []
    try:
        with watching(lambda frame, _what: _stop(frame, called)):
            error = _executed(flow, execution)
        engine.committer.close()
    finally:
        engine.close()
    _judge(read, execution, kept.refused, called, error)
    completed = read.run.status is Status.COMPLETED
    return ReplayResult(
        read.run.run_id,
        read.run.status.value,
        len(execution.replay.consumed),
        _result(execution, read.entries[-1].body) if completed else None,
    )


def _executed(flow: Any, execution: Execution) -> BaseException | None:
    try:
        if flow.awaits:
            import asyncio

            asyncio.run(flow._execute(execution))
        else:
            flow._execute(execution)
    except Exception as error:
        return error
    return None


def _stop(frame: Frame, called: list[str]) -> Callable[[BaseException | None], None]:
    assert frame.call is not None
    called.append(frame.call.key)
    raise Unwind(_Beyond(f"{frame.call.key} has no record"))


def _judge(
    read: Exported,
    execution: Execution,
    refused: Sequence[Draft],
    called: Sequence[str],
    error: BaseException | None,
) -> None:
    run_id = read.run.run_id
    if isinstance(error, RunHeld) and error.reason == "diverged":
        raise Diverged(f"{run_id}: {error.detail}") from error
    if read.run.status is not Status.COMPLETED:
        return
    live = [*called, *(draft.step for draft in refused if draft.step is not None)]
    if live:
        raise Diverged(
            f"{run_id} has completed, but the flow now calls {live[0]}, which the journal does "
            "not have"
        ) from error
    end = next((draft for draft in refused if draft.kind is Kind.RUN_COMPLETED), None)
    if end is None:
        raise Diverged(f"{run_id} has completed, but the flow now stops: {error}") from error
    recorded = read.entries[-1].body
    if not same(_result(execution, end.body), _result(execution, recorded)):
        raise Diverged(f"{run_id} has completed with another result than the flow returns now")


def _result(execution: Execution, body: bytes) -> Any:
    node = msgspec.json.decode(body, type=dict[str, msgspec.Raw])["result"]
    return execution.values.decode(bytes(node))


# -- the file ----------------------------------------------------------------------------------


class _Line(msgspec.Struct):
    """One entry in a file; its body is there as it was stored."""

    seq: int
    kind: str
    at_us: int
    step: str | None
    attempt: int
    position: int | None
    args_digest: bytes | None
    started_us: int | None
    body: msgspec.Raw
    digest: bytes


class _File(msgspec.Struct):
    """The whole file."""

    holdfast_export: int
    run: RunRow
    entries: list[_Line]
    chunks: dict[int, bytes]


class Exported(msgspec.Struct):
    """One run, as it was exported."""

    run: RunRow
    entries: list[Entry]
    chunks: dict[int, bytes]
    others: list[WholeRun] = []
    """Its children, and the runs that it was forked from."""


def read_export(path: str | Path) -> Exported:
    """Read an exported file, and check that nobody changed it."""
    if not _is_old(Path(path)):
        read = exports.read(Path(path))
        others = [run for run in read.runs if run is not read.run]
        return Exported(read.run.row, read.run.entries, dict(read.run.chunks), others)
    try:
        file = msgspec.json.decode(Path(path).read_bytes(), type=_File)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not an exported run: {error}") from None
    if file.holdfast_export != FORMAT:
        raise UsageError(f"{path} has format {file.holdfast_export}; this version reads {FORMAT}")
    file.run.check()
    entries = [
        Entry(
            line.seq,
            Kind(line.kind),
            line.at_us,
            line.step,
            line.attempt,
            line.position,
            line.args_digest,
            line.started_us,
            bytes(line.body),
            line.digest,
        )
        for line in file.entries
    ]
    head = GENESIS
    for entry in entries:
        head = entry_digest(head, file.run.run_id, entry.seq, entry)
        if head != entry.digest:
            raise Corrupt(f"entry {entry.seq} in {path}", run_id=file.run.run_id)
    if head != file.run.head:
        raise Corrupt(f"the end of {path}", run_id=file.run.run_id, why="entries are missing")
    return Exported(file.run, entries, file.chunks)


def _is_old(path: Path) -> bool:
    """Return whether a file has the first format: one object, its head on a line of its own."""
    with path.open("rb") as file:
        return file.readline(100).rstrip() in (b'{"holdfast_export":1,', b'{"holdfast_export": 1,')
