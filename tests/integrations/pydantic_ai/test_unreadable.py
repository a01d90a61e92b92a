"""What the journal has and a version of Pydantic AI cannot read: said clearly, and nothing is lost."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_ai.durable_exec import JSON_CODEC

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.pydantic_ai import _plain
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import durable


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


class OtherVersion:
    """Stands for the codec of a version that has other fields."""

    def load(self, tp: Any, payload: Any) -> Any:
        TypeAdapter(int).validate_python("no number")


def test_the_version_that_wrote_it_goes_on(
    store: holdfast.types.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups = []

    def lookup(order: str) -> str:
        lookups.append(order)
        return "a lamp"

    script = [CallTools(("lookup", {"order": "42"}, "call_a")), Say("A lamp.")]
    lives = 0
    with FakeModelServer(script) as server:
        support = durable(server, lookup)

        @flow(name="unreadable")
        async def agent() -> str:
            nonlocal lives
            lives += 1
            output = (await support.run("What is it?")).output
            if lives == 1:
                raise ConnectionError
            return output

        with pytest.raises(RunFailed):
            asyncio.run(agent.run("r-1"))
        with monkeypatch.context() as upgraded:
            upgraded.setattr(_plain, "JSON_CODEC", OtherVersion())
            with pytest.raises(RunFailed, match="continue with the version that wrote it"):
                asyncio.run(agent.run("r-1"))
        assert _plain.JSON_CODEC is JSON_CODEC
        assert asyncio.run(agent.run("r-1")) == "A lamp."
        assert server.count == 2
    assert lookups == ["42"]
    assert store.get("r-1").status == "completed"
