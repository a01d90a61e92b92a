"""Every request of an HTTP client is a step: for httpx and httpx2, and all SDKs that are built on them.

    client = httpx.Client(transport=DurableTransport())
    client = httpx.AsyncClient(transport=AsyncDurableTransport())
    OpenAI(http_client=httpx.Client(transport=DurableTransport()))
    Anthropic(http_client=httpx2.Client(transport=DurableTransport()))

Inside a run each request is recorded with its answer; a replay gives the same answer, byte for byte,
and sends nothing. Outside a run, and inside a step, requests pass untouched. `transport` is the front,
`exchange` is what happens inside of the step, `asked` and `answered` are what is kept of both sides.
"""

from __future__ import annotations

from holdfast.integrations.http.transport import AsyncDurableTransport, DurableTransport

__all__ = ["AsyncDurableTransport", "DurableTransport"]
