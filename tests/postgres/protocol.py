"""As much of PostgreSQL's protocol as one must know to stand between a client and a server:
where a message ends and what it is called. What is in it is nobody's business here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

LENGTH = struct.Struct("!i")
HELLO = struct.Struct("!ii")

PROTOCOL_3 = 3
CANCEL, SSL, GSS = 80877102, 80877103, 80877104
"""Codes of a first message that is none."""

NOTIFICATION = b"A"
READY = b"Z"
TERMINATE = b"X"
ANSWERED_BY_READY = frozenset({b"Q", b"S", b"F"})
"""Messages of a client that the server ends with one `READY` each: query, sync, function call."""


class Messages:
    """Cuts a stream into messages: `feed` it, and get those that are complete.

    A client's first messages have no type; those come with `b""`.
    """

    def __init__(self, *, hello: bool) -> None:
        self.hello = hello
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield each complete message as its type and all of its bytes."""
        self._rest += data
        while True:
            kind = b"" if self.hello else self._rest[:1]
            start = len(kind)
            if len(self._rest) < start + 4:
                return
            (length,) = LENGTH.unpack_from(self._rest, start)
            if len(self._rest) < start + length:
                return
            message, self._rest = self._rest[: start + length], self._rest[start + length :]
            yield kind, message


def hello_code(message: bytes) -> int:
    """Return what the first message of a client asks for; PROTOCOL_3 if it means to talk."""
    _, code = HELLO.unpack_from(message)
    return code >> 16 if code >> 16 == PROTOCOL_3 else code


def parameters(message: bytes) -> dict[str, str]:
    """Return what a client says of itself in its first message."""
    parts = message[8:].split(b"\0")
    texts = [part.decode() for part in parts]
    return {name: value for name, value in zip(texts[::2], texts[1::2], strict=False) if name}


def message(kind: bytes, body: bytes) -> bytes:
    """Return a message with its length."""
    return kind + LENGTH.pack(len(body) + 4) + body


def fatal(code: str, text: str) -> bytes:
    """Return the message with which a server ends a connection."""
    fields = {"S": "FATAL", "V": "FATAL", "C": code, "M": text}
    body = b"".join(name.encode() + value.encode() + b"\0" for name, value in fields.items())
    return message(b"E", body + b"\0")
