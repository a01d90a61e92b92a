"""Liveness and readiness over HTTP, for whatever starts and watches processes.

GET /live and GET /ready answer 200 or 503 with `{"live": true}` or `{"ready": false}`, and nothing
else: nobody is asked who they are, so nothing is told about runs. Paths are matched exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from holdfast._ops.background import Background
from holdfast.errors import UsageError

CLIENT_TIMEOUT_S = 5.0

Check = Callable[[], bool]


class Health(Background):
    """A small server in a thread of its own: `with Health(address, {"live": …}):`"""

    def __init__(self, address: str, checks: Mapping[str, Check]) -> None:
        host, port = parsed(address)
        handler = type("_Handler", (_Handler,), {"checks": dict(checks)})
        try:
            server = _Server((host, port), handler)
        except OSError as error:
            raise UsageError(f"--health {address}: {error.strerror or error}") from None
        super().__init__(server, "holdfast-health")

    @property
    def address(self) -> str:
        """Where it listens, with the port that it was given."""
        host, port = self.bound
        return f"{host}:{port}"


def parsed(address: str, option: str = "--health") -> tuple[str, int]:
    """Return host and port of HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"{option} {address}: HOST:PORT, as in 127.0.0.1:8090")
    return host.strip("[]"), int(port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no news."""


class _Handler(BaseHTTPRequestHandler):
    checks: ClassVar[dict[str, Check]] = {}
    timeout = CLIENT_TIMEOUT_S
    server_version = "holdfast"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.requestline.split()[1]  # As it was sent: `path` has been tidied up.
        name = path[1:]
        if not path.startswith("/") or name not in self.checks:
            self._answer(404, {"error": "not found"})
            return
        fine = self.checks[name]()
        self._answer(200 if fine else 503, {name: fine})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, code: int, told: dict[str, Any]) -> None:
        body = json.dumps(told).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every second; they are no news."""
