"""Approvals of calls whose arguments are longer than a question may be."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic_ai import Tool

import holdfast
from holdfast.errors import UsageError
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import durable, keys, twice

LONG = "a" * 150_000 + " THE END"
WHOLE = f"Call send with {json.dumps({'text': LONG})}?"
DIGEST = hashlib.sha256(WHOLE.encode()).hexdigest()
SEND = CallTools(("send", {"text": LONG}, "call_a"))


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


def decided(
    store: holdfast.types.Store, decide: Callable[[Any], None]
) -> tuple[list[str], list[str]]:
    """Let an agent send, and replay it: what was sent, and what the model was told of the call."""
    sent: list[str] = []

    def send(text: str) -> str:
        sent.append(text)
        return "sent"

    async def person() -> None:
        async with asyncio.timeout(30):
            while not (asked := store.questions()):
                await asyncio.sleep(0.005)
        decide(asked[0])

    with FakeModelServer([SEND, Say("Done.")]) as server:
        agent = durable(server, Tool(send, requires_approval=True))

        async def work() -> Any:
            (live, replayed), _ = await asyncio.gather(twice(lambda: agent.run("Go.")), person())
            return live.output, replayed.output

        assert asyncio.run(work()) == ("Done.", "Done.")
        assert store.questions() == []
        assert server.count == 2
        told = [it["content"] for it in server.requests[1].body["messages"] if it["role"] == "tool"]
    return sent, told


def test_a_long_call_is_approved_by_its_digest(store: holdfast.types.Store) -> None:
    def decide(asked: Any) -> None:
        assert len(asked.text) <= 100_000
        assert asked.text.startswith(
            "CUT, too long to be shown here. "
            "All of it: holdfast history r-1 --step 'shown:send call_a' --json. "
            f'To approve all of it, answer {{"sha256":"{DIGEST}"}}; to reject, refuse. '
            'Call send with {"text": "aaa'
        )
        assert asked.text.endswith(" more characters)")
        entries = [it for it in store.history("r-1") if it.step == "shown:send call_a"]
        shown = entries[-1].body["result"]
        assert (shown["sha256"], shown["asked"]) == (DIGEST, WHOLE)
        for wrong in (True, False, {}, {"sha256": "0" * 64}):
            with pytest.raises(UsageError, match="does not fit"):
                store.answer("r-1", asked.name, wrong, actor="ana")
        store.answer("r-1", asked.name, {"sha256": DIGEST}, actor="ana")

    assert decided(store, decide) == ([LONG], ["sent"])
    assert keys(store.get("r-1").steps) == [
        "model:support",
        "shown:send call_a",
        "ask:send call_a:approval",
        "send:call_a",
        "model:support#2",
    ]


def test_a_long_call_that_is_refused_is_told_to_the_model(store: holdfast.types.Store) -> None:
    sent, (told,) = decided(
        store, lambda asked: store.reject("r-1", asked.name, reason="Far too much.", actor="ana")
    )
    assert sent == []
    assert "Far too much." in told
    assert "send:call_a" not in keys(store.get("r-1").steps)
