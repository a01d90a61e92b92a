"""A TCP proxy between a client and the server, which is as bad as a network can be.

It counts bytes, cuts a connection after the n-th byte of either direction, delivers later what was
cut off, passes nothing at all while it keeps connections open, and loses notifications.

    with Proxy(server.port) as proxy:
        cut = proxy.cut(TO_SERVER, after=17)      # of the next connection on which a client speaks
        ...
        assert cut.fired
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.postgres.protocol import GSS, NOTIFICATION, SSL, Messages, hello_code
from tests.postgres.server import USER

TO_SERVER = "to the server"
TO_CLIENT = "to the client"
PIECE = 65_536
JOIN_AT_MOST_S = 10.0


def at_once(end: socket.socket) -> None:
    """Let nothing wait for more to send."""
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Pair:
    """One client's connection, and ours to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.bytes = {TO_SERVER: 0, TO_CLIENT: 0}
        self.cut = False
        self.late: bytes | None = None
        """What the server is to get although its client is gone; None where that is nothing."""
        self.delivered = threading.Event()
        self.over = threading.Event()

    def hang_up(self, end: socket.socket, how: int = socket.SHUT_RDWR) -> None:
        """End a connection; its number is freed when nobody reads from it any more."""
        with contextlib.suppress(OSError):
            end.shutdown(how)


class Cut:
    """The end of one connection after so many bytes in one direction."""

    def __init__(
        self, direction: str, after: int, *, alone: bool, late: bool, anywhere: bool
    ) -> None:
        self.direction = direction
        self.left = after
        self.alone = alone
        self.late = late
        self.anywhere = anywhere
        self.pair: Pair | None = None
        self.before = {TO_SERVER: 0, TO_CLIENT: 0}
        self.fired = False
        self.turns: list[int] = []
        """After how many bytes the client waited for an answer."""
        self._answered = True

    def saw(self, direction: str, said: int) -> None:
        """Note where the client had said so much and got an answer."""
        if direction == TO_SERVER and self._answered and said:
            self.turns.append(said)
        self._answered = direction == TO_CLIENT

    def deliver(self) -> None:
        """Let the server have what was held back, long after the client has given up; returns when
        it has done with it what it will."""
        assert self.pair is not None
        assert self.pair.late is not None
        with contextlib.suppress(OSError):
            self.pair.server.sendall(self.pair.late)
        self.pair.delivered.set()
        assert self.pair.over.wait(JOIN_AT_MOST_S), "the server does not end the connection"


class Proxy:
    """Listens on a port of its own, and passes everything on until it is told otherwise."""

    def __init__(self, server_port: int) -> None:
        self.server_port = server_port
        self.drops_notifications = False
        self.dropped = 0
        self.bytes = {TO_SERVER: 0, TO_CLIENT: 0}
        self.refuses = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._plan: Cut | None = None
        self._pairs: set[Pair] = set()
        self._threads: set[threading.Thread] = set()
        self._over = False
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._in_thread(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def url(self, database: str = "postgres", user: str = USER) -> str:
        """Return the URL of a database, through this proxy."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    # -- what it can do ------------------------------------------------------------------------

    def cut(
        self,
        direction: str,
        after: int,
        *,
        alone: bool = True,
        late: bool = False,
        anywhere: bool = False,
    ) -> Cut:
        """Cut the next connection on which a client says something, after so many bytes; or, if
        `anywhere`, whichever connection passes the last of so many bytes in all.

        Others are left alone, but for `alone=False`: then all are cut, and nobody gets through any
        more until `mend`. `late`: the server gets the rest all the same, at `Cut.deliver`.
        """
        with self._lock:
            self._plan = Cut(direction, after, alone=alone, late=late, anywhere=anywhere)
            return self._plan

    def cut_all(self) -> None:
        """Cut every connection that there is."""
        with self._lock:
            pairs = list(self._pairs)
            for pair in pairs:  # Before one client notices, or another gets through meanwhile.
                pair.cut = True
        for pair in pairs:
            self._cut_now(pair)

    def stall(self) -> None:
        """Pass nothing, and keep every connection open: a cable that was pulled."""
        self._flowing.clear()

    def mend(self) -> None:
        """Pass everything again."""
        with self._lock:
            self._plan = None
        self.refuses = False
        self._flowing.set()

    def measure_all(self, work: Callable[[], Any]) -> dict[str, int]:
        """Return how many bytes a piece of work takes on all connections."""
        with self._lock:
            before = dict(self.bytes)
        work()
        with self._lock:
            return {way: self.bytes[way] - count for way, count in before.items()}

    def turns(self, work: Callable[[], Any]) -> list[int]:
        """Return after how many bytes a piece of work waits for an answer and says more."""
        plan = self.cut(TO_SERVER, after=1 << 62)
        work()
        self.mend()
        return plan.turns

    def measure(self, work: Callable[[], Any]) -> dict[str, int]:
        """Return how many bytes a piece of work takes on the connection that it uses."""
        plan = self.cut(TO_SERVER, after=1 << 62)
        work()
        with self._lock:
            self._plan = None
            assert plan.pair is not None, "nothing was said"
            return {way: plan.pair.bytes[way] - before for way, before in plan.before.items()}

    def close(self) -> None:
        """End every connection and every thread."""
        self._over = True
        self._flowing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        with self._lock:
            pairs, threads = list(self._pairs), list(self._threads)
        for pair in pairs:
            pair.delivered.set()
            pair.hang_up(pair.server)
        for thread in threads:
            thread.join(JOIN_AT_MOST_S)
            assert not thread.is_alive(), "a thread of the proxy does not end"

    # -- connections ---------------------------------------------------------------------------

    def _in_thread(self, work: Callable[..., None], *args: Any) -> threading.Thread:
        def body() -> None:
            try:
                work(*args)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=body, daemon=True)
        with self._lock:
            self._threads.add(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        while not self._over:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            at_once(client)
            if self.refuses or self._over:
                client.close()
            else:
                self._in_thread(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = socket.create_connection(("127.0.0.1", self.server_port), 10)
            except OSError:
                return
            with server:
                server.settimeout(None)
                at_once(server)
                self._pass_on(Pair(client, server))

    def _pass_on(self, pair: Pair) -> None:
        with self._lock:
            self._pairs.add(pair)
        answers = Answers(self)
        back = self._in_thread(self._pump, pair, TO_CLIENT, answers.passed)
        self._pump(pair, TO_SERVER, answers.asked)
        if pair.late is not None:
            pair.delivered.wait()
        pair.hang_up(pair.server, socket.SHUT_WR)
        back.join()
        with self._lock:
            self._pairs.discard(pair)
        pair.over.set()

    def _pump(self, pair: Pair, direction: str, look: Callable[[bytes], bytes]) -> None:
        """Pass on what comes from one end, until it ends. What the server still says after a cut
        is read and thrown away, so that it is not disturbed."""
        source, to = pair.client, pair.server
        if direction == TO_CLIENT:
            source, to = to, source
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE):
                self._flowing.wait()
                passed, cut = self._allowed(pair, direction, look(data))
                if passed and not (pair.cut and direction == TO_CLIENT):
                    to.sendall(passed)
                if cut is not None:
                    self._cut_as(cut, pair)
        pair.hang_up(to if direction == TO_CLIENT else source, socket.SHUT_WR)

    # -- cutting -------------------------------------------------------------------------------

    def _allowed(self, pair: Pair, direction: str, data: bytes) -> tuple[bytes, Cut | None]:
        """Count; return as much of it as may pass, and the cut that comes after it."""
        with self._lock:
            plan = self._plan
            if plan is not None and direction == TO_SERVER and plan.pair is None:
                plan.pair, plan.before = pair, dict(pair.bytes)
            if plan is not None and plan.pair is pair:
                plan.saw(direction, pair.bytes[TO_SERVER] - plan.before[TO_SERVER])
            pair.bytes[direction] += len(data)
            self.bytes[direction] += len(data)
            if pair.cut:
                return b"" if direction == TO_SERVER else data, None
            if plan is None or plan.direction != direction:
                return data, None
            if plan.pair is not pair and not plan.anywhere:
                return data, None
            passed, rest = data[: plan.left], data[plan.left :]
            plan.left -= len(passed)
            if plan.left:
                return passed, None
            plan.fired, plan.pair = True, pair
            pair.late = rest if plan.late else None
            self._plan = None
            return passed, plan

    def _cut_as(self, cut: Cut, pair: Pair) -> None:
        if not cut.alone:
            self.refuses = True
            self.cut_all()
        self._cut_now(pair)

    def _cut_now(self, pair: Pair) -> None:
        pair.cut = True
        pair.hang_up(pair.client)


class Answers:
    """What is looked at on the way: notifications, to lose them."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._asked = Messages(hello=True)
        self._told = Messages(hello=False)
        self._plain_answers = 0
        """Answers of one byte that are still to come: no, there is no encryption."""

    def asked(self, data: bytes) -> bytes:
        """See what a client says first."""
        if self._asked.hello:
            for _, message in self._asked.feed(data):
                if hello_code(message) in {SSL, GSS}:
                    self._plain_answers += 1
                else:
                    self._asked.hello = False
                    break
        return data

    def passed(self, data: bytes) -> bytes:
        """Return what the client is to get."""
        if not self._proxy.drops_notifications:
            return data
        kept = b""
        if self._plain_answers:
            kept, data = data[: self._plain_answers], data[self._plain_answers :]
            self._plain_answers -= len(kept)
        for kind, message in self._told.feed(data):
            if kind == NOTIFICATION:
                self._proxy.dropped += 1
            else:
                kept += message
        return kept
