"""A real server on a real socket, a store with runs in every state, and a client that sends exactly
what it is told, header by header."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from holdfast._operator.web import http_server
from holdfast._operator.web.access_tokens import Tokens
from holdfast._operator.web.http_server import Serving
from holdfast._stores.contract import Limits, Query, Store
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.ops.journals import Journal

PATIENCE_S = 30.0


class Reply:
    """One answer."""

    def __init__(self, status: int, headers: http.client.HTTPMessage, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def error(self) -> str:
        return str(self.data["error"]["type"])

    def __repr__(self) -> str:
        return f"<{self.status} {self.body[:200]!r}>"


class Site:
    """A server in a thread of this process."""

    def __init__(self, store: Store, tokens: Tokens, **serving: Any) -> None:
        self.store = store
        self.tokens = tokens
        self.serving = Serving(port=0, **serving)
        self.clients: list[Client] = []
        self._stack = contextlib.ExitStack()
        self.listener = self._stack.enter_context(http_server.listening(self.serving))
        self.server = http_server.made(store, tokens, self.serving, self.listener)
        self.port = http_server.port_of(self.serving, self.listener)
        self._thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self.listener]}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        until_s = time.monotonic() + PATIENCE_S
        while not self.server.started:
            assert time.monotonic() < until_s
            assert self._thread.is_alive()
            time.sleep(0.005)
        return self

    def __exit__(self, *exc: object) -> None:
        for client in self.clients:
            client.close()
        self.server.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._stack.close()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def origin(self) -> str:
        return f"http://{self.host}"

    def client(self) -> Client:
        return Client(self)


class Client:
    """Sends requests over one connection; nothing is added but what HTTP itself needs."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._connection: http.client.HTTPConnection | None = None
        site.clients.append(self)

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        *,
        host: str | None = None,
    ) -> Reply:
        data = body if isinstance(body, bytes | None) else msgspec.json.encode(body)
        try:
            return self._sent(method, path, headers or {}, data, host)
        except (http.client.HTTPException, OSError):
            self.close()  # The server has closed a connection that was kept.
            return self._sent(method, path, headers or {}, data, host)

    def _sent(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        host: str | None,
    ) -> Reply:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=60)
            self._connection.connect()
            self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = self._connection
        wire.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        wire.putheader("Host", host or self.site.host)
        for name, value in headers.items():
            wire.putheader(name, value)
        if body is not None:
            wire.putheader("Content-Length", str(len(body)))
        wire.endheaders(body)
        answer = wire.getresponse()
        return Reply(answer.status, answer.headers, answer.read())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Person:
    """Somebody with a token, who asks as a program does."""

    def __init__(self, site: Site, secret: str) -> None:
        self.client = site.client()
        self.headers = {"Authorization": f"Bearer {secret}"}

    def get(self, path: str, **query: Any) -> Reply:
        return self.client.ask("GET", address(path, **query), self.headers)

    def act(self, path: str, body: Any, etag: str | None = None, **query: Any) -> Reply:
        headers = {**self.headers, "Content-Type": "application/json"}
        if etag is not None:
            headers["If-Match"] = f'"{etag}"'
        return self.client.ask("POST", address(path, **query), headers, body)

    def etag(self, run_id: str) -> str:
        return str(self.get("run", id=run_id).data["etag"])


class Browser:
    """Somebody with a session, who asks as a browser does."""

    def __init__(self, site: Site, secret: str) -> None:
        self.site = site
        self.client = site.client()
        self.site_headers = {"Origin": site.origin, "Sec-Fetch-Site": "same-origin"}
        self.answer = self.client.ask(
            "POST",
            "/api/v1/session",
            {**self.site_headers, "Content-Type": "application/json"},
            {"token": secret},
        )
        self.cookie = self.answer.headers.get("Set-Cookie", "").partition(";")[0]
        self.csrf = str(self.answer.data.get("csrf", ""))

    def get(self, path: str, **query: Any) -> Reply:
        headers = {"Cookie": self.cookie, "X-Holdfast-CSRF": self.csrf}
        return self.client.ask("GET", address(path, **query), headers)

    def headers(self) -> dict[str, str]:
        return {
            **self.site_headers,
            "Cookie": self.cookie,
            "Content-Type": "application/json",
            "X-Holdfast-CSRF": self.csrf,
        }

    def act(self, path: str, body: Any, etag: str | None = None, **query: Any) -> Reply:
        headers = self.headers()
        if etag is not None:
            headers["If-Match"] = f'"{etag}"'
        return self.client.ask("POST", address(path, **query), headers, body)


def address(path: str, **query: Any) -> str:
    """Return the address of something in the API."""
    from urllib.parse import urlencode

    start = path if path.startswith("/") else f"/api/v1/{path}"
    return f"{start}?{urlencode(query, doseq=True)}" if query else start


# -- stores ------------------------------------------------------------------------------------


@contextlib.contextmanager
def kept_in(path: Path) -> Iterator[Store]:
    """A store in a file."""
    store = SqliteStore(str(path))
    try:
        yield store
    finally:
        store.close()


def filled(store: Store) -> None:
    """Put runs into a store, one for each decision that can be made."""
    Journal(store, "done", input={"x": 1}).step("look", {"found": 3}).completed({"ok": True})
    Journal(store, "in-doubt").held_in_doubt("charge", args={"amount": 12})
    Journal(store, "failed").failing("look").failed("look")
    Journal(store, "paid").effect("charge", {"paid": True}).completed()
    Journal(store, "asking").asks("ask:size", "size", "How large?", choices=["s", "l"]).unloaded(
        "answer:size"
    )
    Journal(store, "approving").asks_approval("charge", {"amount": 12}).unloaded(
        "answer:approve:charge"
    )
    Journal(store, "waiting").waits("wait:go", "go").unloaded("signal:go")
    Journal(store, "paused").held("paused", "somebody wanted it")
    store.set_limits(Limits("mail", concurrency=3))


def content(store: Store) -> bytes:
    """Return all that a store keeps, to see whether anything of it has changed."""
    runs = store.list(Query(limit=1000))
    whole = [store.whole(row) for row in runs]
    rest = [[state.limits for state in store.queues()], store.schedules(), store.questions()]
    return msgspec.json.encode([[it.row, it.entries, it.messages] for it in whole]) + (
        msgspec.json.encode(rest)
    )
