"""What an integration adds to a call: the time beyond the call itself and one commit.

    python -m benchmarks.integrations [--calls 300] [--folder /var/tmp] [--smoke]

For each integration whose framework is installed here, the same call is made outside a run; in a run,
where it is recorded; and in the body of a plain step, which passes it on and is recorded itself: one
commit. What the recorded call takes beyond that step is the integration's own (divided by the number of
calls that are recorded, where there are more than one). Medians, in ms. The
store is kept in memory (`/dev/shm`) if there is such a place: a disk waits for others by milliseconds,
in which what is measured would be lost. `--folder` keeps it elsewhere.

A further integration is one function in SUBJECTS: a context manager that gives the call.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import inspect
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast import flow
from holdfast.adapters import as_step

TARGET_MS = 1.0
IN_MEMORY = "/dev/shm"
TEXT = "A model says about as much as this. " * 30
ANSWER = {
    "model": "test",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}}],
    "usage": {"prompt_tokens": 400, "completion_tokens": 250},
}
QUESTION = {"model": "test", "messages": [{"role": "user", "content": TEXT}] * 10}

Call = Callable[[int], Any]
"""Makes one call, given its number; of an async integration it returns an awaitable."""


class Subject(NamedTuple):
    """One integration."""

    name: str
    package: str
    """What must be installed for it."""
    make: Callable[[], AbstractContextManager[Call]]
    records: int = 1
    """How many calls it records: what it takes beyond one plain step is divided by it."""


class Measured(NamedTuple):
    """Milliseconds per call."""

    outside: float
    inside: float
    step: float
    """The call in a plain step: itself, and one commit."""

    def beyond(self, records: int) -> float:
        """What is left for the integration, for each call that it records."""
        return (self.inside - self.step) / records


def plain(call: Call) -> Call:
    """A step whose body makes the call."""

    def work(number: int) -> str:
        call(number)
        return f"{number} {TEXT}"

    async def work_async(number: int) -> str:
        await call(number)
        return f"{number} {TEXT}"

    awaits = inspect.iscoroutinefunction(call)
    return as_step(work_async if awaits else work, name="plain")


async def _times(calls: int, *made: Call) -> list[list[float]]:
    """Seconds of each call, the calls in turns: what the disk does at a time, it does to all."""
    times: list[list[float]] = [[] for _ in made]
    for number in range(calls):
        for call, taken in zip(made, times, strict=True):
            began = time.perf_counter()
            result = call(number)
            if inspect.isawaitable(result):
                await result
            taken.append(time.perf_counter() - began)
    return times


def _without_waiting(calls: int, *made: Call) -> list[list[float]]:
    """The same for calls that block: nothing is awaited, so one step is all of it."""
    try:
        _times(calls, *made).send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a call that blocks was awaited")


def _ms(times: list[float]) -> float:
    return 1000 * statistics.median(times[len(times) // 10 :])


def measure(subject: Subject, calls: int, place: str | None) -> Measured:
    """Measure one integration, in a store of its own."""

    @flow(name=f"{subject.name} blocks")
    def blocks() -> list[list[float]]:
        return _without_waiting(calls, call, plain(call))

    @flow(name=f"{subject.name} awaits")
    async def awaits() -> list[list[float]]:
        return await _times(calls, call, plain(call))

    async def awaited() -> list[list[float]]:
        return [*await _times(calls, call), *await awaits.run("r")]

    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=place) as folder,
        holdfast.open(f"sqlite:///{folder}/runs.db"),
        subject.make() as call,
    ):
        if inspect.iscoroutinefunction(call):
            found = asyncio.run(awaited())
        else:
            found = [*_without_waiting(calls, call), *blocks.run("r")]
    return Measured(*map(_ms, found))


# -- the integrations ---------------------------------------------------------------------------


def _http(library_name: str) -> Callable[[], AbstractContextManager[Call]]:
    @contextmanager
    def make() -> Iterator[Call]:
        from holdfast.integrations.http import DurableTransport

        library = importlib.import_module(library_name)
        inner = library.MockTransport(lambda _request: library.Response(200, json=ANSWER))
        with library.Client(transport=DurableTransport(inner)) as client:
            yield lambda _number: client.post("https://model.test/v1/chat", json=QUESTION)

    return make


def _http_async(library_name: str) -> Callable[[], AbstractContextManager[Call]]:
    @contextmanager
    def make() -> Iterator[Call]:
        from holdfast.integrations.http import AsyncDurableTransport

        library = importlib.import_module(library_name)
        inner = library.MockTransport(lambda _request: library.Response(200, json=ANSWER))
        client = library.AsyncClient(transport=AsyncDurableTransport(inner))

        async def call(_number: int) -> Any:
            return await client.post("https://model.test/v1/chat", json=QUESTION)

        yield call

    return make


def _tools(*, awaits: bool) -> Callable[[], AbstractContextManager[Call]]:
    """One tool call of a model, in a loop round a provider's SDK."""

    @contextmanager
    def make() -> Iterator[Call]:
        from holdfast.integrations.tools import ToolCall, Tools, tool

        @tool(name="search")
        def search(query: str) -> str:
            return query

        @tool(name="search")
        async def asearch(query: str) -> str:
            return query

        tools, awaited = Tools([search]), Tools([asearch]).aio

        def asked(number: int) -> list[ToolCall]:
            return [ToolCall(f"call_{number}", "search", {"query": TEXT})]

        async def call(number: int) -> Any:
            return await awaited.run(asked(number))

        yield call if awaits else lambda number: tools.run(asked(number))

    return make


@contextmanager
def _openai_agents() -> Iterator[Call]:
    """A whole run of an agent that asks its model once; the model answers at once."""
    from agents import Agent, Model, ModelResponse, Runner, Usage, set_tracing_disabled
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    from holdfast.integrations.openai_agents import install_durable_runner

    class AtOnce(Model):
        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            text = ResponseOutputText(annotations=[], text=TEXT, type="output_text")
            said = ResponseOutputMessage(
                id="msg_1", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    set_tracing_disabled(disabled=True)
    install_durable_runner()
    agent = Agent(name="bench", model=AtOnce())

    async def call(_number: int) -> Any:
        return await Runner.run(agent, list(QUESTION["messages"]))

    yield call


@contextmanager
def _pydantic_ai() -> Iterator[Call]:
    """A whole run of an agent that asks its model once; the model answers at once."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    from holdfast.integrations.pydantic_ai import Durable

    model = FunctionModel(lambda _messages, _info: ModelResponse(parts=[TextPart(TEXT)]))
    agent = Agent(model, name="bench", capabilities=[Durable()])
    history = [ModelRequest.user_text_prompt(TEXT) for _ in range(9)]

    async def call(_number: int) -> Any:
        return await agent.run(TEXT, message_history=history)

    yield call


def _langchain(*, awaits: bool) -> Callable[[], AbstractContextManager[Call]]:
    """A whole call of an agent that asks its model once; the model answers at once."""

    @contextmanager
    def make() -> Iterator[Call]:
        from langchain.agents import create_agent
        from langchain_core.language_models import BaseChatModel
        from langchain_core.messages import AIMessage
        from langchain_core.outputs import ChatGeneration, ChatResult

        from holdfast.integrations.langgraph import DurableMiddleware

        class AtOnce(BaseChatModel):
            @property
            def _llm_type(self) -> str:
                return "at once"

            def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
                return ChatResult(generations=[ChatGeneration(message=AIMessage(TEXT))])

            async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
                return self._generate()

        agent = create_agent(AtOnce(), middleware=[DurableMiddleware()])
        asked = {"messages": list(QUESTION["messages"])}

        async def call(_number: int) -> Any:
            return await agent.ainvoke(asked)

        yield call if awaits else lambda _number: agent.invoke(asked)

    return make


@contextmanager
def _mcp() -> Iterator[Call]:
    """One call of a tool; a client without a server answers at once."""
    from mcp_types import CallToolResult, TextContent

    from holdfast.integrations.mcp import durable

    class AtOnce:
        async def call_tool(self, *_args: Any, **_options: Any) -> CallToolResult:
            return CallToolResult(content=[TextContent(text=TEXT)])

    client = durable(AtOnce(), steps=["search"])

    async def call(number: int) -> Any:
        return await client.call_tool("search", {"query": TEXT}, call_id=f"call_{number}")

    yield call


SUBJECTS = [
    Subject("http sync", "httpx", _http("httpx")),
    Subject("http async", "httpx", _http_async("httpx")),
    Subject("http2 sync", "httpx2", _http("httpx2")),
    Subject("http2 async", "httpx2", _http_async("httpx2")),
    Subject("tools sync", "holdfast", _tools(awaits=False)),
    Subject("tools async", "holdfast", _tools(awaits=True)),
    Subject("openai agents", "agents", _openai_agents),
    Subject("langchain sync", "langchain", _langchain(awaits=False)),
    Subject("langchain async", "langchain", _langchain(awaits=True)),
    Subject("pydantic ai", "pydantic_ai", _pydantic_ai, records=2),  # Its run's id, and the model.
    Subject("mcp", "mcp", _mcp),
]


def main(words: list[str]) -> int:
    """Print the table; 1 if an integration takes more than the target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.integrations")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--folder", default=IN_MEMORY if Path(IN_MEMORY).is_dir() else None)
    parser.add_argument("--smoke", action="store_true", help="few calls; no target")
    asked = parser.parse_args(words)
    calls = 20 if asked.smoke else asked.calls
    chosen = [it for it in SUBJECTS if importlib.util.find_spec(it.package)]
    print(f"{'ms per call':22}{'outside':>9}{'in a run':>9}{'step':>9}{'beyond':>9}{'ratio':>8}")
    slow = 0
    for subject in chosen:
        found = measure(subject, calls, asked.folder)
        ratio, beyond = found.inside / found.step, found.beyond(subject.records)
        print(
            f"{subject.name:22}{found.outside:9.3f}{found.inside:9.3f}{found.step:9.3f}"
            f"{beyond:9.3f}{ratio:8.2f}",
            flush=True,
        )
        slow += beyond > TARGET_MS
    if not chosen:
        print("no framework of an integration is installed here")
    print(f"target: at most {TARGET_MS:g} ms beyond a plain step")
    return 1 if slow and not asked.smoke else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
