"""How long a connection may take until it has asked something.

uvicorn waits for the head of a request as long as it takes. Here a connection that has nothing asked
is closed after a while, however slowly its bytes drip; a body has a limit of its own (`limits`).
"""

from __future__ import annotations

import asyncio
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_S = 15.0


class Patient(H11Protocol):
    """HTTP/1.1 with a limit for the head of a request."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to count when somebody connects."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._count()

    def data_received(self, data: bytes) -> None:
        """Stop counting when a request has come; count again when another begins."""
        super().data_received(data)
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._stop()
        super().connection_lost(exc)

    def _asks(self) -> bool:
        """Say whether a request has come that is not answered yet."""
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def _count(self) -> None:
        if self._asks():
            self._stop()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_S, self._too_slow)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _too_slow(self) -> None:
        self._waiting = None
        if not self._asks():
            self.transport.close()
