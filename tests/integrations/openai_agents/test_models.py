"""Model calls: streams, errors of the provider, what is recorded, and nothing outside runs."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent, Model, ModelSettings, Runner, function_tool
from agents.retry import ModelRetrySettings, retry_policies

from holdfast import flow
from holdfast.errors import RunFailed, RunHeld
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.openai_agents.made import KEY, helper, keys, model

TEXT = "One two three four five six seven eight."


async def deltas_of(agent: Any, seen: list[str], at: Any = None) -> str:
    result = Runner.run_streamed(agent, "Go on.")
    try:
        async for event in result.stream_events():
            data = getattr(event, "data", None)
            if getattr(data, "type", "").endswith("output_text.delta"):
                seen.append(data.delta)
                if at is not None:
                    await at(len(seen))
    except OSError:
        result.cancel()
        raise
    return str(result.final_output)


class Waiting(Model):
    """A model that says no more than four pieces of a text until it is let go."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.open = False

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        return await self.inner.get_response(*args, **kwargs)

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        pieces = 0
        async for event in self.inner.stream_response(*args, **kwargs):
            yield event
            pieces += event.type.endswith("output_text.delta")
            if pieces == 4 and not self.open:
                await asyncio.Event().wait()


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_pieces_are_seen_live_and_the_recorded_part_is_replayed(store, go, api):
    """The second turn is cut in the middle: four pieces were seen while the model still spoke."""

    @function_tool
    def look() -> str:
        return "saw it"

    async def at(number: int) -> None:
        if number == 5 and not waiting.open:
            raise OSError("broken")

    seen: list[str] = []
    script = [CallTools(("look", {}, "call_1"), say="Looking."), Say(TEXT)]
    with FakeModelServer(script) as server:
        agent = helper(server, look)
        waiting = agent.model = Waiting(model(server, api))

        @flow(name="streamed")
        async def play() -> str:
            return await deltas_of(agent, seen, at)

        with pytest.raises(RunFailed, match="broken"):
            go(play.run("r"))
        assert len(seen) == 5
        done = [it.key for it in store.get("r").steps if it.status == "completed"]
        assert done == ["model:support", "look:call_1"]
        seen.clear()
        waiting.open = True
        assert go(play.run("r")) == TEXT
        assert server.count == 3
        assert "".join(seen) == "Looking." + TEXT
        assert len(seen) > 5  # What was cut streams again, piece by piece.
        assert keys(store, "r") == ["model:support", "look:call_1", "model:support#2"]


def test_a_recorded_text_is_replayed_as_one_piece(store, go):
    seen: list[str] = []
    breaks = [True]
    with FakeModelServer([Say(TEXT)]) as server:
        agent = helper(server)

        @flow(name="one_piece")
        async def play() -> str:
            told = await deltas_of(agent, seen)
            if breaks and breaks.pop():
                raise OSError("the end")
            return told

        with pytest.raises(RunFailed, match="the end"):
            go(play.run("r"))
        assert len(seen) > 4
        seen.clear()
        assert go(play.run("r")) == TEXT
        assert seen == [TEXT]
        assert server.count == 1


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("status", [500, 529])
def test_a_provider_that_stumbles_is_asked_again_within_the_step(store, go, status, streamed):
    with FakeModelServer([Say("Fine.")]) as server:
        server.fail_next(status, retry_after=0.001)
        agent = helper(server)

        @flow(name="stumbling")
        async def play() -> str:
            if streamed:
                return await deltas_of(agent, [])
            return str((await Runner.run(agent, "Go on.")).final_output)

        assert go(play.run("r")) == "Fine."
        assert server.count == 2
    assert keys(store, "r") == ["model:support"]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_provider_that_fails_fails_the_run_which_is_taken_up_with_a_new_call(store, go, streamed):
    with FakeModelServer([Say("Fine.")]) as server:
        server.fail_next(500)
        agent = helper(server)
        agent.model = model(server, retries=0)

        @flow(name="failing")
        async def play() -> str:
            if streamed:
                return await deltas_of(agent, [])
            return str((await Runner.run(agent, "Go on.")).final_output)

        with pytest.raises(RunFailed, match="InternalServerError"):
            go(play.run("r"))
        assert go(play.run("r")) == "Fine."
        assert server.count == 2


def test_the_retries_of_the_sdk_see_the_error_of_the_provider_again_on_replay(store, go):
    settings = ModelSettings(
        retry=ModelRetrySettings(
            max_retries=2,
            policy=retry_policies.http_status([500]),
            backoff={
                "initial_delay": 0.001,
                "max_delay": 0.001,
                "multiplier": 1.0,
                "jitter": False,
            },
        )
    )
    breaks = [True]
    with FakeModelServer([Say("Fine.")]) as server:
        server.fail_next(500)
        agent = helper(server, model_settings=settings)
        agent.model = model(server, retries=0)

        @flow(name="retrying")
        async def play() -> str:
            result = await Runner.run(agent, "Go on.")
            if breaks and breaks.pop():
                raise OSError("the end")
            return str(result.final_output)

        with pytest.raises(RunFailed, match="the end"):
            go(play.run("r"))
        assert server.count == 2
        assert go(play.run("r")) == "Fine."
        assert server.count == 2
    assert keys(store, "r") == ["model:support", "model:support#2"]


def test_another_prompt_on_resume_is_held_as_diverged(store, go):
    breaks = [True]
    with FakeModelServer([Say("Fine.")]) as server:
        agent = helper(server)

        @flow(name="edited")
        async def play() -> str:
            result = await Runner.run(agent, "Go on.")
            if breaks and breaks.pop():
                raise OSError("the end")
            return str(result.final_output)

        with pytest.raises(RunFailed, match="the end"):
            go(play.run("r"))
        agent.instructions = "Do something else."
        with pytest.raises(RunHeld, match="model:support") as held:
            go(play.run("r"))
        assert held.value.reason == "diverged"
        assert "model:support" in str(store.explain("r"))
        assert server.count == 1


def test_outside_a_run_nothing_is_recorded_and_no_store_is_opened(tmp_path, monkeypatch, go):
    monkeypatch.chdir(tmp_path)
    called: list[int] = []

    @function_tool
    def look(n: int) -> str:
        called.append(n)
        return "saw it"

    with FakeModelServer([CallTools(("look", {"n": 1}, "call_1")), Say("Fine.")]) as server:
        agent = helper(server, look)
        assert go(Runner.run(agent, "Go on.")).final_output == "Fine."
        seen: list[str] = []
        assert go(deltas_of(agent, seen)) == "Fine."
    assert called == [1, 1]
    assert list(tmp_path.iterdir()) == []


def test_usage_is_counted_and_the_key_is_not_stored(store, go, tmp_path):
    with FakeModelServer([Say("Fine.")]) as server:
        agent = helper(server)

        @flow(name="counted")
        async def play() -> str:
            result = await Runner.run(agent, "Go on.")
            return f"{result.context_wrapper.usage.total_tokens}"

        total = int(go(play.run("r")))
        spent = store.get("r").totals.usage
        assert total > 0
        assert spent["input_tokens"] + spent["output_tokens"] == total, spent
    store.close()
    kept = b"".join(path.read_bytes() for path in Path(tmp_path).iterdir() if path.is_file())
    assert b"Go on." in kept
    assert KEY.encode() not in kept


class Ending(BaseHTTPRequestHandler):
    """A provider that ends its first stream in good order, before it has said that it is complete."""

    asked = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).asked += 1
        events = CHUNKS if "chat" in self.path else EVENTS
        told = events[:-1] if self.asked == 1 else events
        body = "".join(f"data: {json.dumps(it)}\n\n" for it in told).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def chunk(delta: Any, why: str | None = None) -> Any:
    choice = {"index": 0, "delta": delta, "finish_reason": why}
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "test"}
    return {**head, "choices": [choice]}


CHUNKS = [
    chunk({"role": "assistant", "content": "hello "}),
    chunk({"content": "world"}),
    chunk({}, "stop"),
]
PART = {"type": "output_text", "text": "hello world", "annotations": []}
MESSAGE = {"id": "m1", "type": "message", "role": "assistant"}
RESPONSE = {
    "id": "r1",
    "object": "response",
    "created_at": 1,
    "model": "test",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
EVENTS = [
    {
        "type": "response.output_text.delta",
        "delta": "hello ",
        "item_id": "m1",
        "output_index": 0,
        "content_index": 0,
        "logprobs": [],
        "sequence_number": 1,
    },
    {
        "type": "response.completed",
        "response": {**RESPONSE, "output": [{**MESSAGE, "status": "completed", "content": [PART]}]},
        "sequence_number": 2,
    },
]


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_a_stream_that_ends_in_good_order_but_not_complete_is_asked_for_again(store, go, api):
    provider = type("Provider", (Ending,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), provider) as server:
        threading.Thread(target=server.serve_forever).start()
        place = SimpleNamespace(url=f"http://127.0.0.1:{server.server_port}")
        agent = Agent(name="support", model=model(place, api, retries=0))  # type: ignore[arg-type]

        @flow(name="ending")
        async def play() -> str:
            return await deltas_of(agent, [])

        try:
            with pytest.raises(RunFailed, match="the stream ended without"):
                go(play.run("r"))
            assert go(play.run("r")) == "hello world"
            assert go(play.run("r")) == "hello world"
        finally:
            server.shutdown()
    assert provider.asked == 2
