"""Sockets: HTTP/1.1 with connections that stay open, and answers in one piece or as a stream."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_CLOSE_S = 10.0


@dataclass(frozen=True)
class Reply:
    """A reply: a body, or events."""

    status: int
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    events: tuple[bytes, ...] = ()
    pause: float = 0.0
    cut_after: int | None = None


Answering = Callable[[str, str, dict[str, str], bytes], Reply]


def json_reply(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> Reply:
    """A reply in one piece."""
    return Reply(status, headers or {}, json.dumps(body, separators=(",", ":")).encode())


class Listener:
    """Listens on a port of this machine and answers each connection in a thread of its own."""

    def __init__(self, port: int, answering: Answering) -> None:
        self._server = _Server(("127.0.0.1", port), _Connection)
        self._server.answering = answering
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="model-server", daemon=True
        )
        self._thread.start()

    def until_disconnected(self, timeout_s: float | None) -> bool:
        """Wait until everything that disconnected clients sent has been read; False after the
        time."""
        return self._server.until_disconnected(timeout_s)

    def stop_answering(self) -> None:
        """Answer nothing from now on."""
        self._server.closing.set()

    def close(self) -> None:
        """Close all connections, and wait until their threads have ended."""
        self.stop_answering()
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    answering: Answering

    def __init__(self, address: tuple[str, int], connection: type[BaseHTTPRequestHandler]) -> None:
        self.closing = threading.Event()
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._answering: set[socket.socket] = set()
        super().__init__(address, connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._connections.add(request)
            self._changed.notify_all()
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._changed:
                self._connections.discard(request)
                self._changed.notify_all()

    def answer(
        self, connection: socket.socket, method: str, path: str, headers: dict[str, str], raw: bytes
    ) -> Reply:
        with self._changed:
            self._answering.add(connection)
            self._changed.notify_all()
        try:
            return self.answering(method, path, headers, raw)
        finally:
            with self._changed:
                self._answering.discard(connection)

    def until_disconnected(self, timeout_s: float | None) -> bool:
        """Wait until every connection is closed or has a request that is being answered.

        Connections are accepted in order, so the probe is accepted after all earlier ones.
        """
        with socket.create_connection(("127.0.0.1", self.server_port)) as probe:
            mine = probe.getsockname()
            with self._changed:
                return self._changed.wait_for(lambda: self._only(mine), timeout_s)

    def _only(self, address: tuple[str, int]) -> bool:
        others = self._connections - self._answering
        found = {it for it in others if _peer_of(it) == address}
        return bool(found) and found == others

    def hang_up(self) -> None:
        """End the connections that are open, and wait for their threads."""
        with self._changed:
            for connection in self._connections:
                _shut_down(connection)
            self._changed.wait_for(lambda: not self._connections, _CLOSE_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is not reported: tests kill clients."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # Head and body go out together.

    def do_GET(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def do_DELETE(self) -> None:
        self._respond()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing; the server keeps all requests."""

    @property
    def _shared(self) -> _Server:
        assert isinstance(self.server, _Server)
        return self.server

    def _respond(self) -> None:
        raw = self._body()
        if raw is None:  # The client died while it sent: this is no request.
            self.close_connection = True
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self._shared.answer(self.connection, self.command, self.path, headers, raw)
        if self._shared.closing.is_set():
            self.close_connection = True
            return
        # No date and no server name: two answers to the same request are the same bytes.
        self.send_response_only(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.events:
            self._stream(reply)
        else:
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            self.wfile.flush()

    def _body(self) -> bytes | None:
        """Return the whole body, or None if the connection ended before it."""
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            length = int(self.headers.get("content-length") or 0)
            raw = self.rfile.read(length)
            return raw if len(raw) == length else None
        parts: list[bytes] = []
        while (line := self.rfile.readline()).endswith(b"\n"):
            size = int(line, 16)
            part = self.rfile.read(size)
            if len(part) < size or not self.rfile.readline():
                return None
            if not size:
                return b"".join(parts)
            parts.append(part)
        return None

    def _stream(self, reply: Reply) -> None:
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for event in reply.events[: reply.cut_after]:
            if self._shared.closing.wait(reply.pause):
                self.close_connection = True
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
            self.wfile.flush()
        if reply.cut_after is not None:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


def _peer_of(connection: socket.socket) -> Any:
    try:
        return connection.getpeername()
    except OSError:
        return None  # The client is gone, and its thread has not noticed yet.


def _shut_down(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # The client was faster.
