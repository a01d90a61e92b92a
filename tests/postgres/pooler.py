"""A pooler in transaction mode, as PgBouncer is one: every transaction may get another session.

A client has a session of the server from its first message until the server says that no
transaction is open; then the session goes to the end of the queue, and the next transaction gets
the one that has waited longest. So whatever a client leaves in a session (prepared statements,
LISTEN, SET, advisory locks) is somewhere else the next time, and in the way of somebody else.
Parameters of the connection that the pooler would have to keep for each client are refused.
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import struct
import time

from tests.postgres.protocol import (
    ANSWERED_BY_READY,
    GSS,
    NOTIFICATION,
    PROTOCOL_3,
    READY,
    SSL,
    TERMINATE,
    Messages,
    fatal,
    hello_code,
    parameters,
)
from tests.postgres.proxy import PIECE, Pair, Proxy, at_once

PATIENCE_S = 30.0
LOOK_S = 0.05
KEPT_PER_CLIENT = frozenset(
    {"user", "database", "client_encoding", "datestyle", "timezone", "application_name",
     "standard_conforming_strings"}
)  # fmt: skip
"""What PgBouncer keeps for each client; it refuses all other parameters."""


class Session:
    """One connection to the server, which clients get in turn."""

    def __init__(self, port: int, hello: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.messages = Messages(hello=False)
        self.greeting = b""
        self.uses = 0
        at_once(self.socket)
        self.socket.sendall(hello)
        try:
            while self._last != READY:
                self._greet()
        except OSError:
            self.socket.close()
            raise
        self.socket.settimeout(None)

    _last = b""

    def _greet(self) -> None:
        data = self.socket.recv(PIECE)
        if not data:
            raise OSError("the server refused")
        for kind, message in self.messages.feed(data):
            self.greeting += message
            self._last = kind

    def throw_away_what_came_meanwhile(self) -> None:
        """What is said to a session that no client has is heard by nobody."""
        while select.select([self.socket], [], [], 0)[0]:
            data = self.socket.recv(PIECE)
            if not data:
                raise OSError("the server ended it")
            for _ in self.messages.feed(data):
                pass


class Pooler(Proxy):
    """Hands a few sessions to many clients, one transaction at a time."""

    def __init__(self, server_port: int, sessions: int = 3) -> None:
        super().__init__(server_port)
        self.sessions = sessions
        self.switches = 0
        """How often a client got another session than it had before."""
        self.unheard = 0
        """Notifications that came to a session that somebody else had just then."""
        self._made: dict[bytes, int] = {}
        self._idle: dict[bytes, queue.Queue[Session]] = {}

    def close(self) -> None:
        """End every connection and every thread."""
        super().close()
        for idle in self._idle.values():
            while not idle.empty():
                idle.get().socket.close()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            pair = Pair(client, client)
            with self._lock:
                self._pairs.add(pair)
            try:
                self._talk(client)
            finally:
                with self._lock:
                    self._pairs.discard(pair)

    def _talk(self, client: socket.socket) -> None:
        hello = self._hello(client)
        if hello is None:
            return
        strange = set(map(str.lower, parameters(hello))) - KEPT_PER_CLIENT
        if strange:
            client.sendall(fatal("08P01", f"unsupported startup parameter: {min(strange)}"))
            return
        session = self._get(hello)
        greeting = session.greeting
        self._put(hello, session)
        client.sendall(greeting)
        last: Session | None = None
        asked = Messages(hello=False)
        while data := client.recv(PIECE):
            first = list(asked.feed(data))
            if any(kind == TERMINATE for kind, _ in first):
                return
            if first:
                session = self._get(hello)
                self.switches += session is not last and last is not None
                last = session
                self._transaction(client, hello, session, asked, first)

    def _hello(self, client: socket.socket) -> bytes | None:
        """Return the message with which a client begins; encryption is not to be had."""
        messages = Messages(hello=True)
        while data := client.recv(PIECE):
            for _, message in messages.feed(data):
                code = hello_code(message)
                if code in {SSL, GSS}:
                    client.sendall(b"N")
                elif code == PROTOCOL_3:
                    return message
                else:
                    return None
        return None

    # -- sessions ------------------------------------------------------------------------------

    def _get(self, hello: bytes) -> Session:
        """Return the session that has waited longest; make one while there are too few."""
        hello = _of_anybody(hello)
        with self._lock:
            idle = self._idle.setdefault(hello, queue.Queue())
        deadline = time.monotonic() + PATIENCE_S
        while not self._may_grow(hello):
            try:
                session = idle.get(timeout=LOOK_S)
            except queue.Empty:
                if time.monotonic() > deadline:
                    raise
                continue  # One may have been lost meanwhile, and have made room.
            try:
                session.throw_away_what_came_meanwhile()
            except OSError:
                self._lose(hello, session)
            else:
                return session
        try:
            return Session(self.server_port, hello)
        except OSError:
            with self._lock:
                self._made[hello] -= 1
            raise

    def _may_grow(self, hello: bytes) -> bool:
        """Take the place of one more session, if there are too few."""
        with self._lock:
            grow = self._made.get(hello, 0) < self.sessions
            self._made[hello] = self._made.get(hello, 0) + grow
            return grow

    def _put(self, hello: bytes, session: Session) -> None:
        self._idle[_of_anybody(hello)].put(session)

    def _lose(self, hello: bytes, session: Session) -> None:
        session.socket.close()
        with self._lock:
            self._made[_of_anybody(hello)] -= 1

    def _transaction(
        self,
        client: socket.socket,
        hello: bytes,
        session: Session,
        asked: Messages,
        first: list[tuple[bytes, bytes]],
    ) -> None:
        """Pass messages between the two until no transaction is open."""
        try:
            over = self._pass_messages(client, session, asked, first)
        except OSError:
            self._lose(hello, session)
            raise
        if over:
            self._put(hello, session)
        else:
            self._lose(hello, session)  # Its client is gone: whatever was open is rolled back.
            raise OSError("the client is gone")

    def _pass_messages(
        self,
        client: socket.socket,
        session: Session,
        asked: Messages,
        first: list[tuple[bytes, bytes]],
    ) -> bool:
        """Return whether the transaction came to its end; if not, its client is gone."""
        expected, unfinished = 0, False
        pending = first
        while True:
            session.socket.sendall(b"".join(message for _, message in pending))
            for kind, _ in pending:
                expected += kind in ANSWERED_BY_READY
                unfinished = kind not in ANSWERED_BY_READY
            pending = []
            ready, _, _ = select.select([client, session.socket], [], [])
            if session.socket in ready:
                data = session.socket.recv(PIECE)
                if not data:
                    raise OSError("the server ended it")
                open_still = True
                for kind, message in session.messages.feed(data):
                    client.sendall(message)
                    self.unheard += kind == NOTIFICATION
                    if kind == READY:
                        expected -= 1
                        open_still = message[5:6] != b"I"
                if expected == 0 and not unfinished and not open_still:
                    return True
            elif client in ready:
                data = client.recv(PIECE)
                if not data:
                    return False
                pending = list(asked.feed(data))
                if any(kind == TERMINATE for kind, _ in pending):
                    return False


def _of_anybody(hello: bytes) -> bytes:
    """Return the first message with what tells sessions apart: the database and the user."""
    said = parameters(hello)
    body = b"".join(
        f"{name}\0{said[name]}\0".encode() for name in ("user", "database") if name in said
    )
    head = struct.pack("!ii", len(body) + 9, 3 << 16)
    return head + body + b"\0"
