"""A payment server in a process of its own, and the client that effects use.

It counts, per idempotency key, the requests that it saw and the charges that it made: what it
says is the outside world's view of a run, kept where no crash of the run can reach it. Tests share
a server: what stands before the last part of a path names the books of one test (`Client.of`), so a
late request of a process that was killed is no other test's.

    POST /charge    {"amount": 5}, header Idempotency-Key   -> {"charge": "ch-1", "amount": 5}
    GET  /lookup?key=K                                      -> the charge, or 404
    GET  /state                                             -> {K: {"requests": .., "charges": [..]}}
    POST /control   {"mode": .., "times": .., "dedupe": ..}
    POST /release   lets go of every request that is held back

Modes, for the next `times` charges, then normal again:
    normal   charge and answer
    delay    hold the request until /release, then charge and answer
    hang     charge, then hold the answer until /release: the client's time-out after the charge
    refuse   answer 402 and charge nothing
    broken   charge, then answer 500
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HELD_AT_MOST_S = 60.0


class Books:
    """What the server knows; every method is called under its lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.requests: dict[str, int] = {}
        self.charges: dict[str, list[dict[str, Any]]] = {}
        self.mode = "normal"
        self.times = 0
        self.dedupe = True
        self.made = 0

    def arrive(self, key: str) -> str:
        """Count a request; return the mode in which it is answered."""
        self.requests[key] = self.requests.get(key, 0) + 1
        if self.times == 0:
            return "normal"
        self.times -= 1
        return self.mode

    def charge(self, key: str, amount: Any) -> dict[str, Any]:
        before = self.charges.setdefault(key, [])
        if before and self.dedupe:
            return before[0]
        self.made += 1
        charge = {"charge": f"ch-{self.made}", "amount": amount}
        before.append(charge)
        return charge

    def state(self) -> dict[str, Any]:
        return {
            key: {"requests": n, "charges": self.charges.get(key, [])}
            for key, n in self.requests.items()
        }


class Library:
    """All books of one server, by name."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._books: dict[str, Books] = {}

    def named(self, name: str) -> Books:
        with self._lock:
            return self._books.setdefault(name, Books())


class Handler(BaseHTTPRequestHandler):
    library: Library
    protocol_version = "HTTP/1.1"

    def asked(self) -> tuple[Books, str]:
        """Return the books and the last part of the path that a request names."""
        name, _, last = urllib.parse.urlsplit(self.path).path.rpartition("/")
        return self.library.named(name), last

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def answer(self, code: int, value: Any) -> None:
        body = json.dumps(value).encode()
        try:
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # The client was killed or gave up: that is what it is here for.
        self.close_connection = True

    def do_GET(self) -> None:
        books, asked = self.asked()
        with books.lock:
            if asked == "state":
                return self.answer(200, books.state())
            if asked == "lookup":
                query = urllib.parse.urlsplit(self.path).query
                made = books.charges.get(urllib.parse.parse_qs(query)["key"][0])
                return self.answer(200, made[0]) if made else self.answer(404, None)
        return self.answer(404, None)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return None  # The client was killed while it sent: that is no request yet.
        value = json.loads(body or b"{}")
        books, asked = self.asked()
        if asked == "charge":
            return self.do_charge(books, value)
        if asked == "control":
            with books.lock:
                books.released.clear()
                books.mode = value.get("mode", "normal")
                books.times = value.get("times", 1)
                books.dedupe = value.get("dedupe", books.dedupe)
            return self.answer(200, None)
        if asked == "release":
            books.released.set()
            return self.answer(200, None)
        return self.answer(404, None)

    def do_charge(self, books: Books, value: dict[str, Any]) -> None:
        key = self.headers.get("Idempotency-Key") or "(none)"
        with books.lock:
            mode = books.arrive(key)
        if mode == "refuse":
            return self.answer(402, {"error": "refused"})
        if mode == "delay":
            books.released.wait(HELD_AT_MOST_S)
        with books.lock:
            charge = books.charge(key, value["amount"])
        if mode == "hang":
            books.released.wait(HELD_AT_MOST_S)
        if mode == "broken":
            return self.answer(500, {"error": "broken after the charge"})
        return self.answer(200, charge)


def serve() -> None:
    """Serve until stdin closes, so that the server never outlives the test that started it."""
    Handler.library = Library()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


# --- the client -------------------------------------------------------------------------------


class Refused(Exception):
    """The server said that it did not charge."""


class Client:
    def __init__(self, url: str, timeout_s: float = 30.0) -> None:
        assert url.startswith("http://127.0.0.1:")
        self.url = url
        self.timeout_s = timeout_s
        self._open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open

    def of(self, name: str) -> Client:
        """Return a client whose books are its own, on the same server."""
        return Client(f"{self.url}/{name}", self.timeout_s)

    def _call(self, path: str, value: Any = None, headers: dict[str, str] | None = None) -> Any:
        data = None if value is None else json.dumps(value).encode()
        request = urllib.request.Request(self.url + path, data, headers or {})
        with self._open(request, timeout=self.timeout_s) as answer:
            return json.load(answer)

    def charge(self, key: str, amount: Any) -> dict[str, Any]:
        try:
            return self._call("/charge", {"amount": amount}, {"Idempotency-Key": key})
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 402:
                    raise Refused("refused") from None
                raise

    def lookup(self, key: str) -> dict[str, Any] | None:
        try:
            return self._call("/lookup?key=" + urllib.parse.quote(key, safe=""))
        except urllib.error.HTTPError as error:
            with error:
                return None

    def state(self) -> dict[str, Any]:
        return self._call("/state")

    def control(self, mode: str, *, times: int = 1, dedupe: bool = True) -> None:
        self._call("/control", {"mode": mode, "times": times, "dedupe": dedupe})

    def release(self) -> None:
        self._call("/release", {})

    def seen(self) -> tuple[int, int, int]:
        """Return how many requests, charges and keys the server has seen."""
        state = self.state().values()
        return (
            sum(key["requests"] for key in state),
            sum(len(key["charges"]) for key in state),
            len(state),
        )


if __name__ == "__main__":
    serve()
