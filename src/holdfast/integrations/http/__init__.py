"""Make every request of an HTTP client a step: for httpx and httpx2, and all SDKs built on them.

    client = httpx.Client(transport=DurableTransport())
    client = httpx.AsyncClient(transport=AsyncDurableTransport())
    OpenAI(http_client=httpx.Client(transport=DurableTransport()))
    Anthropic(http_client=httpx2.Client(transport=DurableTransport()))

Inside a run each request is recorded with its answer; a replay returns the same answer, byte for
byte, and sends nothing. Outside a run, and inside a step, requests pass through. `transport` is the
interface, `exchange` the body of the step, `asked` and `answered` the records of both sides.
"""

from __future__ import annotations

from holdfast.integrations.http.transport import AsyncDurableTransport, DurableTransport

__all__ = ["AsyncDurableTransport", "DurableTransport"]
