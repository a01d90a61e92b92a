"""A model server for tests and examples: real HTTP, scripted answers, no model.

It speaks OpenAI's chat completions and Responses, and Anthropic's messages, streaming included.

    with FakeModelServer([CallTools(("refund", {"order": "42"}, "call_a")), Say("Refunded.")]) as server:
        client = OpenAI(base_url=server.url + "/v1", api_key="test")
        ...
    assert server.count == 2
    assert server.problems == []

The conversation in a request selects the turn of the script that answers it: without a model turn
the first, with one the second. A request that is repeated after a crash gets the same answer, byte
for byte, and parallel conversations do not disturb each other.

`http_listener` receives a request, `fake_model_server` notes it and decides, one of `chat`,
`responses` and `messages` reads the conversation and formats the answer.
"""

from __future__ import annotations

from holdfast.testing.models.fake_model_server import FakeModelServer
from holdfast.testing.models.request import Request
from holdfast.testing.models.script import CallTools, Say

__all__ = ["CallTools", "FakeModelServer", "Request", "Say"]
