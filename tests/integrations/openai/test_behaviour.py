"""Streams, errors, divergence, growth, upgrades; and that outside a run nothing is different."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from openai.lib.responses_tool_runner import (
    RegisteredFunction,
    ResponsesToolLedger,
    ResponsesToolRunner,
    ToolRunnerError,
)

import holdfast
from holdfast import flow
from holdfast.errors import RunHeld
from holdfast.integrations.http import DurableTransport
from holdfast.integrations.openai import boundary, ledger
from holdfast.integrations.tools import ToolResult, Tools, tool
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.environments import python_of
from tests.integrations.harness import SCRIPT, Agent
from tests.integrations.sizes import bytes_of

URL: list[str] = []
STOP: list[bool] = []
SEEN: list[str] = []


def client() -> OpenAI:
    return OpenAI(
        base_url=f"{URL[-1]}/v1",
        api_key="sk-very-secret",
        http_client=httpx2.Client(transport=DurableTransport()),
    )


def closing_client(server: FakeModelServer) -> OpenAI:
    URL.append(server.url)
    return client()


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
def chat(task: str) -> list[str]:
    messages: Any = [{"role": "user", "content": task}]
    with client() as openai:
        while True:
            reply = openai.chat.completions.create(
                model="test", messages=messages, tools=tools.openai
            )
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return [it["content"] for it in messages if it["role"] == "tool"]
            messages += tools.answer_chat(message)
            stop_once()


@flow
def streamed(tasks: list[str]) -> list[str]:
    texts = []
    with client() as openai:
        for task in tasks:
            messages: Any = [{"role": "user", "content": task}]
            text = ""
            for chunk in openai.chat.completions.create(
                model="test", messages=messages, stream=True
            ):
                piece = (chunk.choices[0].delta.content or "") if chunk.choices else ""
                text += piece
                SEEN.append(f"{task}:{piece}")
            texts.append(text)
            stop_once()
    return texts


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    STOP.clear()
    SEEN.clear()
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


def test_a_stream_is_seen_live_and_replayed_from_the_record(store: Any) -> None:
    with FakeModelServer([Say("one two three", pause=0.05)]) as server:
        URL.append(server.url)
        STOP.append(True)
        with pytest.raises(KeyboardInterrupt):
            streamed.run("s", ["a", "b"])
        assert server.count == 1
        seen = list(SEEN)
        assert [it for it in seen if it.startswith("a:") and it != "a:"] == [
            *("a:one ", "a:two ", "a:three")
        ]
        SEEN.clear()
        assert streamed.run("s", ["a", "b"]) == ["one two three"] * 2
        assert server.count == 2  # The first stream came out of the journal, the second was live.
        assert [it for it in SEEN if it.startswith("a:")] == seen


def test_a_stream_that_is_cut_is_asked_again(store: Any) -> None:
    with FakeModelServer([Say("one two three")]) as server:
        URL.append(server.url)
        server.cut_stream(after_events=2)
        with pytest.raises(Exception, match="fail"):
            streamed.run("s", ["a"])
        assert streamed.run("s", ["a"]) == ["one two three"]
        assert server.count == 2


def test_errors_are_told_alike_live_and_replayed_and_a_busy_model_is_one_step(store: Any) -> None:
    script = [
        CallTools(("look", {"x": -1}, "call_a"), ("look", {"y": 1}, "call_b")),
        CallTools(("gone", {}, "call_c")),
        Say("done"),
    ]
    with FakeModelServer(script) as server:
        URL.append(server.url)
        server.fail_next(500)
        STOP.append(True)
        with pytest.raises(KeyboardInterrupt):
            chat.run("e", "go")
        results = chat.run("e", "go")
        assert results[0] == "KeyError: -1"
        assert results[1].startswith("BadArguments: ")
        assert results[2].startswith("BadArguments: there is no tool 'gone'")
        assert server.count == 4  # Three turns, one of them asked twice.
        assert server.problems == []
        steps = [it for it in store.get("e").steps if it.name == "http"]
        assert len(steps) == 3


def test_another_prompt_is_held_as_diverged(store: Any) -> None:
    prompt = ["go"]

    @flow(name="diverging")
    def diverging() -> Any:
        return chat_of(prompt[0])

    with FakeModelServer([CallTools(("look", {"x": 1}, "call_a")), Say("done")]) as server:
        URL.append(server.url)
        STOP.append(True)
        with pytest.raises(KeyboardInterrupt):
            diverging.run("d")
        prompt[0] = "go elsewhere"
        with pytest.raises(RunHeld, match="diverged") as held:
            diverging.run("d")
        assert "POST" in str(held.value)
        assert server.count == 1


chat_of = chat.fn


def test_the_key_of_the_account_is_not_in_the_store(store: Any, tmp_path: Path) -> None:
    with FakeModelServer([CallTools(("look", {"x": 1}, "call_a")), Say("done")]) as server:
        URL.append(server.url)
        chat.run("k", "go")
    store.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.glob("runs.db*"))
    assert b"call_a" in kept
    assert b"very-secret" not in kept


def test_outside_a_run_nothing_is_different(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeModelServer([CallTools(("look", {"x": 1}, "call_a")), Say("done")]) as server:
        URL.append(server.url)
        assert chat_of("go")[0].startswith("found 1")
        book = ledger(tools)
        runner = ResponsesToolRunner(functions=book.functions)
        params: Any = {"model": "test", "input": "go"}
        with client() as openai:
            assert runner.run(openai, params, ledger=book).output_text == "done"
        assert server.count == 4
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_with_pending_work_is_made_resumable() -> None:
    saved: list[Any] = []
    script = [CallTools(("a", {}, "call_a"), ("b", {}, "call_b")), Say("done")]

    def definition(name: str) -> Any:
        parameters = {"type": "object", "properties": {}}
        return {"type": "function", "name": name, "parameters": parameters, "strict": False}

    def dies(_: Any) -> str:
        raise ConnectionError

    def runner(*executors: Any) -> ResponsesToolRunner:
        pairs = zip("ab", executors, strict=True)
        functions = [RegisteredFunction(definition(name), execute) for name, execute in pairs]
        return ResponsesToolRunner(functions=functions)

    with FakeModelServer(script) as server, closing_client(server) as openai:
        params: Any = {"model": "test", "input": "go"}
        with pytest.raises(ToolRunnerError):
            runner(lambda _: "real", dies).run(
                openai, params, ledger=ResponsesToolLedger("r", saved.append)
            )
        assert saved[-1]["phase"] == "pending"
        resumable = boundary(saved[-1], {"call_b": ToolResult("call_b", "recorded")})
        book = ResponsesToolLedger("r", saved.append, resumable)
        assert runner(dies, dies).run(openai, params, ledger=book).output_text == "done"
        outputs = [it["output"] for it in saved[-1]["history"] if it.get("output")]
        assert outputs == ["real", "recorded"]
        assert server.problems == []
        assert boundary(resumable) == resumable


@pytest.mark.timeout(600)
def test_500_turns_cost_what_their_messages_cost(store: Any, tmp_path: Path) -> None:
    said = "y" * 1000
    turns = [CallTools(("look", {"x": n}, f"call_{n}"), say=said) for n in range(500)]
    sizes: list[int] = []

    def grown() -> int:
        return bytes_of(tmp_path / "runs.db")

    def measured(request: Any) -> Any:
        sizes.append(grown())
        return turns[request.turn]

    with FakeModelServer([*turns[:250], measured, *turns[251:], Say("done")]) as server:
        URL.append(server.url)
        before = grown()
        chat.run("long", "go")
        last = server.requests[-1].body["messages"]
    messages = sum(len(json.dumps(it)) for it in last)
    half, whole = sizes[0] - before, grown() - before
    assert whole <= 2 * messages, (whole, messages)
    assert whole - half <= 1.5 * half, (half, whole)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("variant", ["chat", "runner"])
def test_the_sdk_is_upgraded_between_crash_and_resume(tmp_path: Path, variant: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(
            "tests.integrations.openai.agent",
            tmp_path / "a",
            server,
            environ={"VARIANT": variant},
        )
        first = agent.life("ended:2", python=str(python_of("openai", "lowest")))
        assert first.code == -signal.SIGKILL, first.output
        again = agent.life(python=str(python_of("openai", "newest")))
        assert again.code == 0, again.output
        assert again.requests == 2  # It resumed: the model was not asked again.
