"""A real server that sends bytes as they are given: whole, too short, in any framing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self


class Got(NamedTuple):
    """A request as it came over the wire."""

    line: str
    headers: dict[str, str]
    body: bytes


class Wire:
    """One connection for each request; `answer` gives all the bytes that are sent back."""

    def __init__(self, answer: Callable[[Got], bytes]) -> None:
        self._answer = answer
        self.got: list[Got] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                line = lines.readline().decode().strip()
                headers: dict[str, str] = {}
                while header := lines.readline().decode().strip():
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                if not line:
                    continue
                body = lines.read(int(headers.get("content-length", 0)))
                self.got.append(Got(line, headers, body))
                connection.sendall(self._answer(self.got[-1]))
                connection.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)


def whole(status: str, body: bytes = b"", *headers: str) -> bytes:
    """An answer that says how long it is."""
    lines = [f"HTTP/1.1 {status}", *headers, f"content-length: {len(body)}", "connection: close"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def unframed(kind: str, body: bytes) -> bytes:
    """An answer that ends with its connection."""
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n"
    return head.encode() + body
