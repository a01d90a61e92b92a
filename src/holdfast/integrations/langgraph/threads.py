"""The operations of a run on a thread of a graph.

Each operation has two forms, side by side: blocking and awaited. `turns.py` decides which comes
next; `drive` and `adrive` perform them and decide nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import StateSnapshot

import holdfast
from holdfast.adapters import as_step, step_key
from holdfast.errors import RunNotFound, UsageError
from holdfast.integrations.langgraph import places
from holdfast.integrations.langgraph.checkpoints import RUN
from holdfast.integrations.langgraph.interrupts import Question
from holdfast.integrations.langgraph.keys import thread_digest
from holdfast.integrations.langgraph.saver import HoldfastSaver

Graph = CompiledStateGraph[Any, Any, Any, Any]
Saver = BaseCheckpointSaver[Any]
R = TypeVar("R")


@dataclass(frozen=True)
class Act:
    """An operation on a thread."""

    blocking: Callable[[], Any]
    awaited: Callable[[], Awaitable[Any]]
    within: Callable[[], AbstractContextManager[Any]] = nullcontext


Script = Generator[Act, Any, R]


class Thread:
    """One thread in one run."""

    def __init__(self, graph: Graph, config: RunnableConfig, run_id: str) -> None:
        self._graph = graph
        self._saver = cast("Saver", graph.checkpointer)
        self._config = config
        self.run_id = run_id
        self.id = str(config["configurable"]["thread_id"])

    def look(self, config: RunnableConfig | None = None) -> Script[StateSnapshot]:
        """Read the state of the thread, now or at a checkpoint."""
        at = config or self._config
        return _act(
            lambda: self._graph.get_state(at, subgraphs=True),
            lambda: self._graph.aget_state(at, subgraphs=True),
        )

    def find(self) -> Script[CheckpointTuple | None]:
        """Find the newest checkpoint of this run in the thread itself."""
        root: RunnableConfig = {"configurable": {"thread_id": self.id, "checkpoint_ns": ""}}
        of_run: Any = {"filter": {RUN: self.run_id}, "limit": 1}
        return _act(
            lambda: next(iter(self._saver.list(root, **of_run)), None),
            lambda: anext(aiter(self._saver.alist(root, **of_run)), None),
        )

    def read(self, config: RunnableConfig) -> Script[CheckpointTuple | None]:
        """Read a checkpoint, with the writes of its tasks."""
        return _act(
            lambda: self._saver.get_tuple(config),
            lambda: self._saver.aget_tuple(config),
        )

    def claim(self) -> Script[None]:
        """Claim the thread for this run."""
        return self._change_claim(Claims.take)

    def release(self) -> Script[None]:
        """Release the claim."""
        return self._change_claim(Claims.release)

    def _change_claim(self, change: Callable[[Claims, str, str], None]) -> Script[None]:
        def work() -> None:
            if isinstance(self._saver, HoldfastSaver):  # Only a Holdfast store can keep claims.
                change(Claims(self._saver.store), self.id, self.run_id)

        return _act(work, lambda: asyncio.to_thread(work))

    def record(self, name: str, key: str, value: Any) -> Script[Any]:
        """Record a value; returns the one that was recorded first."""
        options: Any = {"name": name, "unrecorded": ("value",)}
        return _act(
            lambda: as_step(_same, **options)(value),
            lambda: as_step(_asame, **options)(value),
            lambda: step_key(key),
        )

    def invoke(self, given: Any) -> Script[Any]:
        """Run the graph: with an input, an answer, or None to continue from its checkpoint."""
        return _act(
            lambda: self._graph.invoke(given, self._config, durability="sync"),
            lambda: self._graph.ainvoke(given, self._config, durability="sync"),
            places.on_thread,
        )

    def ask(self, question: Question) -> Script[Any]:
        """Ask a person."""
        text = question.text(self.run_id)
        options: Any = {"name": question.name, "type": question.type}
        return _act(
            lambda: holdfast.ask(text, **options),
            lambda: holdfast.aio.ask(text, **options),
            lambda: step_key(question.key),
        )


def _act(
    blocking: Callable[[], Any],
    awaited: Callable[[], Awaitable[Any]],
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Script[Any]:
    return (yield Act(blocking, awaited, within))


def _same(value: Any) -> Any:
    return value


async def _asame(value: Any) -> Any:
    return value


def drive(script: Script[R]) -> R:
    """Perform the operations of a script, in a sync flow. Exceptions of an operation are raised in
    the script."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            act = script.send(answer) if error is None else script.throw(error)
        except StopIteration as end:
            return cast("R", end.value)
        answer, error = None, None
        try:
            with act.within():
                answer = act.blocking()
        except Exception as raised:
            error = raised


async def adrive(script: Script[R]) -> R:
    """The awaited twin of `drive`, in an async flow."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            act = script.send(answer) if error is None else script.throw(error)
        except StopIteration as end:
            return cast("R", end.value)
        answer, error = None, None
        try:
            with act.within():
                answer = await act.awaited()
        except Exception as raised:
            error = raised


# -- claims on threads -------------------------------------------------------------------------
# A thread has one run at a time: claims on threads, beside their checkpoints.
#
# A claim is a row that names the run. It is removed at the end of the turn. If the claim's run has
# ended, or the store does not have it, the next run takes the claim over.


NAMESPACE = "langgraph-claims"
"""The name of the memory with the claims."""
ENDED = frozenset({"completed", "failed", "cancelled", "rolled_back"})


class Claims:
    """The runs that work on threads, in the store that has the checkpoints."""

    def __init__(self, store: holdfast.types.Store) -> None:
        self._store = store
        self._memory = store.memory(NAMESPACE, recorded=False)

    def take(self, thread_id: str, run_id: str) -> None:
        """Claim a thread for a run, or raise an error that names its owner.

        The run's own claim is written again, so that a process that saw the run as failed just
        before cannot take it over.
        """
        key = thread_digest(thread_id)
        while True:
            claim = self._memory.item(key)
            if claim is not None and claim.value != run_id:
                self._check_ended(thread_id, claim.value)
            version = 0 if claim is None else claim.version
            if self._memory.set(key, run_id, if_version=version):
                return

    def release(self, thread_id: str, run_id: str) -> None:
        """Release a thread, unless another run has taken it over."""
        key = thread_digest(thread_id)
        claim = self._memory.item(key)
        if claim is not None and claim.value == run_id:
            self._memory.delete(key, if_version=claim.version)

    def _check_ended(self, thread_id: str, other: str) -> None:
        try:
            status = self._store.handle(other).status()
        except RunNotFound:
            return
        if status not in ENDED:
            raise UsageError(
                f"thread {thread_id!r} belongs to run {other!r}, which is {status}, and would mix it "
                f"with this input; let that run end first, or cancel it"
            )
