"""`durable_graph`: what is asked of a LangGraph thread becomes a run, which any worker takes up.

    support = durable_graph("support", graph)
    support.run("ticket-7", {"messages": [{"role": "user", "content": "Where is my lamp?"}]})

The run has the lease, the thread has the checkpoints. When a process dies, a worker takes the run over
and the graph goes on from the last checkpoint; what was recorded of the node that was under way is not
called again, if the agent has `DurableMiddleware`. An interrupt of the graph becomes a question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast, overload

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations.langgraph import plain_messages
from holdfast.integrations.langgraph.checkpoints import RUN
from holdfast.integrations.langgraph.threads import Graph, Saver, Thread, adrive, drive
from holdfast.integrations.langgraph.turns import turn

Result = Callable[[dict[str, Any]], Any]


@overload
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain_messages.state_data,
    config: RunnableConfig | None = None,
    awaits: Literal[False] = False,
    **options: Any,
) -> holdfast.types.Flow[..., Any]: ...
@overload
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain_messages.state_data,
    config: RunnableConfig | None = None,
    awaits: Literal[True],
    **options: Any,
) -> holdfast.types.AsyncFlow[..., Any]: ...
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain_messages.state_data,
    config: RunnableConfig | None = None,
    awaits: bool = False,
    **options: Any,
) -> Any:
    """Return a flow whose runs invoke the graph on a thread: `flow.run(run_id, input, thread_id=…)`.

    Without `thread_id` the thread has the run's id. The input is plain data; None goes on with a
    thread that something other than a run has left half way. The run returns `result` of the last
    state, messages as dictionaries by default. `saver=` is a checkpointer, or a function that makes
    it when the first run needs it; else the graph has its own. With `awaits=True` the graph is
    awaited and the flow is async. Other options are those of `@holdfast.flow`.
    """
    threads = _Threads(graph, saver, config)

    def work(input: Any, thread_id: str | None = None) -> Any:  # LangGraph's name.
        return result(drive(turn(threads.thread(thread_id), input)))

    async def awork(input: Any, thread_id: str | None = None) -> Any:
        return result(await adrive(turn(threads.thread(thread_id), input)))

    return holdfast.flow(name=name, **options)(awork if awaits else work)


class _Threads:
    """One graph, and the threads of it that runs work on."""

    def __init__(
        self,
        graph: Graph,
        saver: Saver | Callable[[], Saver] | None,
        config: RunnableConfig | None,
    ) -> None:
        self._graph = graph
        self._saver = saver
        self._config = config or {}
        self._ready: Graph | None = None

    def thread(self, thread_id: str | None) -> Thread:
        """The thread that the run which we are in works on; its checkpoints name the run."""
        run = holdfast.context.current_run()
        assert run is not None
        config = dict(self._config)
        config["configurable"] = {
            **(self._config.get("configurable") or {}),
            "thread_id": thread_id or run.run_id,
        }
        config["metadata"] = {**(self._config.get("metadata") or {}), RUN: run.run_id}
        return Thread(self._with_saver(), cast("RunnableConfig", config), run.run_id)

    def _with_saver(self) -> Graph:
        """The graph with its checkpointer."""
        if self._ready is None:
            saver = self._saver() if callable(self._saver) else self._saver
            ready = self._graph.copy({"checkpointer": saver}) if saver else self._graph
            if not isinstance(ready.checkpointer, BaseCheckpointSaver):
                raise UsageError(
                    "the graph has no checkpointer, so no thread of it can be taken up: give "
                    'durable_graph(…, saver=HoldfastSaver("sqlite:///runs.db")), or compile it so'
                )
            self._ready = ready
        return self._ready
