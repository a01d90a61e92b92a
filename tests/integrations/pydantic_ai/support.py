"""What the tests of Pydantic AI share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.pydantic_ai import Durable
from holdfast.testing import FakeModelServer

# A connection that is kept outlives the event loop of its test.
ONE_REQUEST = {"connection": "close"}


def model(server: FakeModelServer, **options: Any) -> OpenAIChatModel:
    client = AsyncOpenAI(
        base_url=f"{server.url}/v1", api_key="sk-canary", default_headers=ONE_REQUEST, **options
    )
    return OpenAIChatModel("test", provider=OpenAIProvider(openai_client=client))


def durable(server: FakeModelServer, *tools: Any, **options: Any) -> Agent[None, str]:
    capability = options.pop("capability", None) or Durable()
    return Agent(
        options.pop("model", None) or model(server, max_retries=0),
        name="support",
        tools=tools,
        capabilities=[capability],
        **options,
    )


def keys(steps: Iterable[Any]) -> list[str]:
    """The keys of steps, without those of ids, which are asked for from 2.61 on."""
    return [step.key for step in steps if step.name != "uuid4"]


class Interrupted(Exception):
    """Raised by a flow at its end, so that the next run replays everything."""


async def twice(work: Callable[[], Any], *, run_id: str = "r-1") -> tuple[Any, Any]:
    """Do the work in a run that fails afterwards, and again: what was seen live, and replayed."""
    seen: list[Any] = []

    @flow(name="twice")
    async def doubled() -> None:
        try:
            seen.append(await work())
        except Exception as error:
            seen.append((type(error).__name__, str(error)))
        if len(seen) == 1:
            raise Interrupted

    try:
        await doubled.run(run_id)
    except RunFailed:
        pass
    await doubled.run(run_id)
    live, replayed = seen
    return live, replayed
