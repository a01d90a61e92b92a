"""A small HTTP server in a thread of its own: it answers while it is entered."""

from __future__ import annotations

import threading
from http.server import ThreadingHTTPServer
from typing import Self

LOOK_S = 0.1
"""How often it is looked whether it is to end, and whose time is over."""


class Background:
    """Serves in a thread: `with Background(server, "holdfast-health"):`"""

    def __init__(self, server: ThreadingHTTPServer, name: str) -> None:
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, args=(LOOK_S,), name=name, daemon=True
        )

    @property
    def bound(self) -> tuple[str, int]:
        """The host and the port that it was given."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
