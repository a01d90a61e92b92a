"""LangGraph with its SQLite and its PostgreSQL savers.

A step is one turn of a graph of a single node, which is what LangGraph
saves a checkpoint for. The SQLite savers put the file into WAL mode
themselves; the PostgreSQL savers get a pool of connections in W2.

`request.mode` is the durability: `sync` (saved before the next step begins),
`async` (the default: saved in the background), and `delta` (sync, with the
conversation in the beta `DeltaChannel`, which stores increments).
"""

# LangGraph is installed only in this worker's own environment.
# mypy: disable-error-code="import-not-found"
# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import operator
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph

from benchmarks.worker import Executions, Marks, Numbers, Stopwatch, serve
from benchmarks.workloads import Message, Request, message, payload

marks = Marks()
log = Executions()


def concatenate(state: list[Message], writes: list[list[Message]]) -> list[Message]:
    return [*state, *(message for write in writes for message in write)]


class Counted(TypedDict):
    number: int
    steps: int
    result: dict[str, object]


class Conversation(TypedDict):
    steps: int
    messages: Annotated[list[Message], operator.add]


class DeltaConversation(TypedDict):
    steps: int
    messages: Annotated[list[Message], DeltaChannel(concatenate)]


def plain(state: Counted) -> dict[str, object]:
    return {"number": state["number"] + 1, "result": payload(state["number"])}


async def awaited(state: Counted) -> dict[str, object]:
    return plain(state)


def logged(state: Counted) -> dict[str, object]:
    log.executed(state["number"])
    return plain(state)


def think(state: Any) -> dict[str, object]:
    """`Any`, because an annotation would decide how the state is kept."""
    marks.mark()
    return {"messages": [message(len(state["messages"]))]}


def counted_out(state: Counted) -> str:
    return END if state["number"] >= state["steps"] else "step"


def talked_out(state: Any) -> str:
    return END if len(state["messages"]) > state["steps"] else "step"


def loop(state: Any, node: Any, until: Any, saver: Any) -> Any:
    graph = StateGraph(state)
    graph.add_node("step", node)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", until, ["step", END])
    return graph.compile(checkpointer=saver)


CONNECTIONS = 8


@contextmanager
def open_saver(request: Request) -> Iterator[Any]:
    """One connection, as `from_conn_string` makes it; for many runs on PostgreSQL a pool."""
    if not request.url:
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = sqlite3.connect(database(request), check_same_thread=False)
        connection.execute("PRAGMA synchronous = FULL")
        yield set_up(SqliteSaver(connection))
        return
    from langgraph.checkpoint.postgres import PostgresSaver

    if request.runs == 1:
        with PostgresSaver.from_conn_string(request.url) as saver:
            yield set_up(saver)
        return
    from psycopg_pool import ConnectionPool

    with ConnectionPool(
        request.url, min_size=CONNECTIONS, max_size=CONNECTIONS, timeout=600, kwargs=pooled()
    ) as pool:
        yield set_up(PostgresSaver(pool))


@asynccontextmanager
async def open_async_saver(request: Request) -> AsyncIterator[Any]:
    if not request.url:
        import aiosqlite
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async with aiosqlite.connect(database(request)) as connection:
            await connection.execute("PRAGMA synchronous = FULL")
            yield AsyncSqliteSaver(connection)
        return
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
    from psycopg_pool import AsyncConnectionPool

    async with AsyncConnectionPool(
        request.url, min_size=CONNECTIONS, max_size=CONNECTIONS, timeout=600, kwargs=pooled()
    ) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        yield saver


def pooled() -> dict[str, Any]:
    """What the savers say that a connection has to be."""
    from psycopg.rows import dict_row

    return {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}


def set_up(saver: Any) -> Any:
    saver.setup()
    return saver


def database(request: Request) -> str:
    return str(Path(request.directory) / "langgraph.db")


def counted(steps: int) -> Counted:
    return {"number": 0, "steps": steps, "result": {}}


def options(request: Request, thread: str, steps: int) -> dict[str, Any]:
    return {
        "config": {
            "configurable": {"thread_id": thread},
            "recursion_limit": steps + 10,
        },
        "durability": "async" if request.mode == "async" else "sync",
    }


def one_run(request: Request) -> Numbers:
    with open_saver(request) as saver:
        graph = loop(Counted, plain, counted_out, saver)

        def run(thread: str, steps: int) -> None:
            graph.invoke(counted(steps), **options(request, thread, steps))

        run("warm-up", request.warm_up)
        watch = Stopwatch()
        run("measured", request.steps)
        return watch.numbers(request.steps)


def many_runs_in_threads(request: Request) -> Numbers:
    with open_saver(request) as saver:
        graph = loop(Counted, plain, counted_out, saver)

        def run(thread: str, steps: int) -> None:
            graph.invoke(counted(steps), **options(request, thread, steps))

        run("warm-up", request.warm_up)
        watch = Stopwatch()
        with ThreadPoolExecutor(max_workers=request.runs) as pool:
            threads = [f"measured-{number}" for number in range(request.runs)]
            list(pool.map(run, threads, repeat(request.steps)))
        return watch.numbers(request.runs * request.steps)


def many_runs_async(request: Request) -> Numbers:
    async def measured() -> Numbers:
        async with open_async_saver(request) as saver:
            graph = loop(Counted, awaited, counted_out, saver)

            def run(thread: str, steps: int) -> Awaitable[object]:
                invoked: Awaitable[object] = graph.ainvoke(
                    counted(steps), **options(request, thread, steps)
                )
                return invoked

            await run("warm-up", request.warm_up)
            watch = Stopwatch()
            threads = [f"measured-{number}" for number in range(request.runs)]
            await asyncio.gather(*map(run, threads, repeat(request.steps)))
            return watch.numbers(request.runs * request.steps)

    return asyncio.run(measured())


def conversation(request: Request) -> Numbers:
    with open_saver(request) as saver:
        if request.phase == "empty":
            return {}
        state = DeltaConversation if request.mode == "delta" else Conversation
        graph = loop(state, think, talked_out, saver)

        def run(thread: str, steps: int) -> None:
            first = {"steps": steps, "messages": [message(0)]}
            graph.invoke(first, **options(request, thread, steps))

        if request.warm_up:
            run("warm-up", request.warm_up)
        marks.clear()
        run("measured", request.steps)
        marks.mark()
        return marks.numbers(request.window)


def killed(request: Request) -> Numbers:
    """Resumes from the last checkpoint, or from the start if none was saved."""
    log.open(request)
    with open_saver(request) as saver:
        graph = loop(Counted, logged, counted_out, saver)
        how = options(request, "measured", request.steps)
        saved = graph.get_state(how["config"]).values
        graph.invoke(None if saved else counted(request.steps), **how)
    return {}


if __name__ == "__main__":
    serve(
        {
            "w1/steps": one_run,
            "w2/async": many_runs_async,
            "w2/threads": many_runs_in_threads,
            "w3/state": conversation,
            "w4": killed,
        }
    )
