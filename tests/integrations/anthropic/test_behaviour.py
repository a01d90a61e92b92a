"""Streams, errors, divergence, growth, upgrades; and that outside a run nothing is different."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, AsyncAnthropic

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed, RunHeld, UsageError
from holdfast.integrations.anthropic import tool_runner
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from holdfast.integrations.tools import Tools, tool
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.environments import python_of
from tests.integrations.harness import SCRIPT, Agent
from tests.integrations.sizes import bytes_of

URL: list[str] = []
STOP: list[bool] = []
SEEN: list[str] = []
PROMPT = ["go"]


def client() -> Anthropic:
    http = httpx2.Client(transport=DurableTransport())
    return Anthropic(base_url=URL[-1], api_key="sk-very-secret", http_client=http)


@tool
def look(x: int) -> str:
    """Look something up."""
    if x < 0:
        raise KeyError(x)
    return f"found {x} " + "x" * 1000


tools = Tools([look])


def stop_once() -> None:
    """Be interrupted here, once: the run is released, and can be taken up at once."""
    if STOP:
        STOP.pop()
        raise KeyboardInterrupt


@flow
def loop() -> list[Any]:
    messages: Any = [{"role": "user", "content": PROMPT[0]}]
    with client() as anthropic:
        while True:
            reply = anthropic.messages.create(
                model="test", max_tokens=99, messages=messages, tools=tools.anthropic
            )
            messages.append({"role": "assistant", "content": reply.to_dict()["content"]})
            if reply.stop_reason != "tool_use":
                return [b for it in messages if it["role"] == "user" for b in it["content"]]
            messages.append(tools.answer_messages(reply))
            stop_once()


@flow
def runs(stream: bool) -> str:
    with client() as anthropic:
        runner = tool_runner(
            anthropic,
            tools=[look],
            model="test",
            max_tokens=99,
            max_iterations=9,
            stream=stream,
            messages=[{"role": "user", "content": "go"}],
        )
        for item in runner:
            if stream:
                SEEN.extend(item.text_stream)
            stop_once()
        return str(runner.until_done().content[0].text)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    STOP.clear()
    SEEN.clear()
    PROMPT[0] = "go"
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


LOOKS = [CallTools(("look", {"x": 1}, "call_a"), say="let me see"), Say("one two three")]


def test_a_streaming_runner_is_seen_live_and_replayed_from_the_record(store: Any) -> None:
    with FakeModelServer(LOOKS) as server:
        URL.append(server.url)
        STOP.append(True)
        with pytest.raises(KeyboardInterrupt):
            runs.run("s", stream=True)
        assert SEEN == ["let ", "me ", "see"]
        assert server.count == 1
        SEEN.clear()
        assert runs.run("s", stream=True) == "one two three"
        assert SEEN == ["let ", "me ", "see", "one ", "two ", "three"]
        assert server.count == 2
        assert [it.key for it in store.get("s").steps if it.name == "look"] == ["look:call_a"]


ERRORS = [
    CallTools(("look", {"x": -1}, "call_a"), ("look", {"y": 1}, "call_b")),
    CallTools(("gone", {}, "call_c")),
    Say("done"),
]


def test_errors_are_told_alike_live_and_replayed_and_a_busy_model_is_one_step(store: Any) -> None:
    with FakeModelServer(ERRORS) as server:
        URL.append(server.url)
        server.fail_next(529)
        STOP.append(True)
        with pytest.raises(KeyboardInterrupt):
            loop.run("e")
        blocks = [it for it in loop.run("e") if isinstance(it, dict)]
        assert [it["content"].partition(":")[0] for it in blocks] == [
            *("KeyError", "BadArguments", "BadArguments")
        ]
        assert all(it["is_error"] for it in blocks)
        assert server.count == 4  # Three turns, one of them asked twice.
        assert server.problems == []
        assert len([it for it in store.get("e").steps if it.name == "http"]) == 3


def test_the_runner_tells_errors_as_errors(store: Any) -> None:
    with FakeModelServer([ERRORS[0], Say("done")]) as server:
        URL.append(server.url)
        assert runs.run("r", stream=False) == "done"
        results = server.requests[-1].body["messages"][-1]["content"]
        assert [it["is_error"] for it in results] == [True, True]
        assert results[0]["content"] == "KeyError: -1"


@tool(effect=True, key=lambda order, amount: order)
def pay(order: str, amount: int) -> str:
    """Pay an order."""
    return f"paid {amount}"


@flow
def pays() -> str:
    asked: Any = [{"role": "user", "content": "go"}]
    with client() as anthropic:
        runner = tool_runner(anthropic, tools=[pay], model="test", max_tokens=9, messages=asked)
        return str(runner.until_done().content[0].text)


@flow
async def pays_awaited() -> str:
    asked: Any = [{"role": "user", "content": "go"}]
    http = httpx2.AsyncClient(transport=AsyncDurableTransport())
    async with AsyncAnthropic(base_url=URL[-1], api_key="sk", http_client=http) as anthropic:
        runner = tool_runner(anthropic, tools=[pay], model="test", max_tokens=9, messages=asked)
        return str((await runner.until_done()).content[0].text)


@pytest.mark.parametrize("awaited", [False, True])
def test_what_only_a_person_can_mend_ends_the_run_and_is_not_told(
    store: Any, awaited: bool
) -> None:
    script = [
        CallTools(("pay", {"order": "1", "amount": 1}, "call_a")),
        CallTools(("pay", {"order": "1", "amount": 2}, "call_b")),
        Say("done"),
    ]
    with FakeModelServer(script) as server:
        URL.append(server.url)
        with pytest.raises(RunFailed, match="KeyConflict"):
            _ = asyncio.run(pays_awaited.run("k")) if awaited else pays.run("k")
        assert store.get("k").status == "failed"
        assert server.count == 2


def test_two_calls_with_one_id_get_a_result_each(store: Any) -> None:
    paid = [("pay", {"order": str(n), "amount": n}, "call_a") for n in (1, 2)]
    with FakeModelServer([CallTools(*paid), Say("done")]) as server:
        URL.append(server.url)
        with pytest.raises(
            RunFailed, match="BadRequest"
        ):  # A provider may take it ill; that is told as it is.
            pays.run("two")
        results = server.requests[-1].body["messages"][-1]["content"]
        assert [it["content"] for it in results] == ["paid 1", "paid 2"]


def test_another_prompt_is_held_as_diverged(store: Any) -> None:
    with FakeModelServer(LOOKS) as server:
        URL.append(server.url)
        STOP.append(True)
        with pytest.raises(KeyboardInterrupt):
            loop.run("d")
        PROMPT[0] = "go elsewhere"
        with pytest.raises(RunHeld, match="diverged"):
            loop.run("d")
        assert server.count == 1


def test_outside_a_run_nothing_is_different(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeModelServer(LOOKS) as server:
        URL.append(server.url)
        assert runs.fn(stream=False) == "one two three"
        assert server.count == 2
    assert list(tmp_path.iterdir()) == []


def test_tools_are_not_run_eagerly() -> None:
    with Anthropic(api_key="x") as anthropic, pytest.raises(UsageError, match="cut off"):
        tool_runner(anthropic, tools=[look], run_tools_eagerly=True, stream=True)


@pytest.mark.timeout(600)
def test_500_turns_cost_what_their_messages_cost(store: Any, tmp_path: Path) -> None:
    turns = [CallTools(("look", {"x": n}, f"call_{n}"), say="y" * 1000) for n in range(500)]
    sizes: list[int] = []

    def grown() -> int:
        return bytes_of(tmp_path / "runs.db")

    def measured(request: Any) -> Any:
        sizes.append(grown())
        return turns[request.turn]

    with FakeModelServer([*turns[:250], measured, *turns[251:], Say("done")]) as server:
        URL.append(server.url)
        before = grown()
        loop.run("long")
        messages = sum(len(json.dumps(it)) for it in server.requests[-1].body["messages"])
    half, whole = sizes[0] - before, grown() - before
    assert whole <= 2 * messages, (whole, messages)
    assert whole - half <= 1.5 * half, (half, whole)


@pytest.mark.timeout(600)
def test_the_sdk_is_upgraded_between_crash_and_resume(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = _killed_at_lowest(tmp_path, server, "loop")
        again = agent.life(python=str(python_of("anthropic", "newest")))
        assert again.code == 0, again.output
        assert again.requests == 2  # It resumed: the model was not asked again.
        agent._check_end(again)


@pytest.mark.timeout(600)
def test_the_runner_of_a_newer_sdk_asks_otherwise_and_is_held(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = _killed_at_lowest(tmp_path, server, "runner")
        held = agent.life(python=str(python_of("anthropic", "newest")))
        assert held.code == 1
        assert "is held (diverged)" in held.output
        assert "/v1/messages?beta=true', is 'http" in held.output
        assert "holdfast resume agent-1 --accept-change" in held.output
        assert held.requests == 1


def _killed_at_lowest(tmp_path: Path, server: FakeModelServer, variant: str) -> Agent:
    agent = Agent(
        "tests.integrations.anthropic.agent", tmp_path / "a", server, environ={"VARIANT": variant}
    )
    first = agent.life("ended:2", python=str(python_of("anthropic", "lowest")))
    assert first.code == -signal.SIGKILL, first.output
    return agent
