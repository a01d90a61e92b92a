"""The small HTTP servers of a worker: `GET /metrics` for Prometheus, and liveness and readiness.

`GET /live` and `GET /ready` answer 200 or 503 with `{"live": true}` or `{"ready": false}`. They
need no token, so they report nothing about runs. Paths are matched exactly.

`GET /metrics` passes these checks, in this order:

    the Host is one of ours                                     else 421
    a bearer token of the store, whatever its role              else 401, later with each wrong one
    not sent by a browser of another site                       else 403
    the path, as sent, is /metrics, and the method GET          else 404, 405

It listens on this machine only, unless it serves TLS itself or an https origin of a proxy is given.
No option disables the token.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self, cast
from urllib.parse import urlsplit

import msgspec

from holdfast._operator.web.access_tokens import Tokens
from holdfast.errors import StoreError, UsageError

# -- a server in a thread -----------------------------------------------------------------------


LOOK_S = 0.1
"""How often the server checks for its end and for expired connections."""


class Background:
    """Serves in a thread: `with Background(server, "holdfast-health"):`"""

    def __init__(self, server: ThreadingHTTPServer, name: str) -> None:
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, args=(LOOK_S,), name=name, daemon=True
        )

    @property
    def bound(self) -> tuple[str, int]:
        """The bound host and port."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


# -- metrics ------------------------------------------------------------------------------------


CLIENT_TIMEOUT_S = 5.0
"""The time limit for a whole request, from the first byte to the last."""
AT_ONCE = 32
"""The limit of connections without a token. A further one closes the oldest of them: a client with
a token sends it at once, and is not refused because of others."""
DELAYED_MAX = 32
"""How many wrong tokens are answered with a delay at the same time; further ones are answered at
once."""
DELAY_S, DELAY_MAX_S = 0.2, 5.0
"""The delay of a wrong token; it grows with each, until a minute passes without one."""
FORGET_S = 60.0
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Text = Callable[[], str]
TokensOf = Callable[[], Tokens]


class Place(msgspec.Struct, frozen=True):
    """The address of the metrics."""

    address: str
    tls_cert: str | None = None
    tls_key: str | None = None
    origin: str | None = None
    """The origin by which it is reached: the https origin of a proxy, if it does not serve TLS
    itself."""

    def check(self) -> None:
        """Refuse options that would expose the token to eavesdroppers."""
        host, port = parsed(self.address, "--metrics")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("--metrics-tls-cert and --metrics-tls-key must be given together")
        for name in (self.tls_cert, self.tls_key):
            if name is not None and not os.access(name, os.R_OK):
                raise UsageError(f"{name} cannot be read")
        if self.origin is not None:
            _check_origin(self.origin)
        if is_loopback(host):
            return
        if self.tls_cert is None and self.origin is None:
            raise UsageError(
                f"other machines can reach --metrics {self.address}, and without TLS others "
                "could read the token. Give --metrics-tls-cert and --metrics-tls-key; or "
                "--metrics-origin https://NAME, if you run a proxy with TLS; or keep "
                f"127.0.0.1:{port}"
            )
        if self.origin is None and ipaddress.ip_address(host).is_unspecified:
            raise UsageError(
                "give the origin by which it is reached: --metrics-origin https://NAME:PORT"
            )

    def hosts(self, port: int) -> frozenset[str]:
        """Return the allowed values of the Host header."""
        host, _ = parsed(self.address, "--metrics")
        names = set[str]() if self.origin is None else {urlsplit(self.origin).netloc}
        if is_loopback(host):
            names |= {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        elif self.origin is None:
            names.add(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return frozenset(names)


def is_loopback(host: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UsageError(f"{host!r} is not an address of this machine: {error.strerror}") from None
    return all(ipaddress.ip_address(it[4][0]).is_loopback for it in found)


def _check_origin(origin: str) -> None:
    parts = urlsplit(origin)
    if parts.scheme != "https" or not parts.hostname or origin != f"https://{parts.netloc}":
        raise UsageError(
            f"--metrics-origin must be https://NAME or https://NAME:PORT, not {origin!r}"
        )
    if parts.username is not None:
        raise UsageError("--metrics-origin must not contain a user name")


class MetricsServer(Background):
    """A small server in its own threads: `with MetricsServer(place, text, tokens):`"""

    def __init__(self, place: Place, text: Text, tokens: TokensOf) -> None:
        place.check()
        self._place = place
        host, port = parsed(place.address, "--metrics")
        tls = None if place.tls_cert is None else _tls(place)
        try:
            server = _Server(host, port, text, tokens, tls)
        except OSError as error:
            raise UsageError(f"--metrics {place.address}: {error.strerror or error}") from None
        super().__init__(server, "holdfast-metrics")
        server.hosts = place.hosts(self.bound[1])

    @property
    def url(self) -> str:
        """The URL of the metrics."""
        if self._place.origin is not None:
            return f"{self._place.origin}/metrics"
        host, port = self.bound
        scheme = "http" if self._place.tls_cert is None else "https"
        shown = f"[{host}]" if ":" in host else host
        return f"{scheme}://{shown}:{port}/metrics"


def _tls(place: Place) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(str(place.tls_cert), place.tls_key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(f"--metrics-tls-cert {place.tls_cert}: {error}") from None
    return context


class Failures:
    """Wrong tokens by client address, and the delay of the next refusal. A valid token never waits
    for those of others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[int, float]] = {}

    def delay_s(self, address: str) -> float:
        """Count a wrong token, and return the delay of its refusal."""
        now_s = time.monotonic()
        with self._lock:
            kept = {who: it for who, it in self._seen.items() if now_s - it[1] < FORGET_S}
            times = kept.get(address, (0, 0.0))[0] + 1
            self._seen = kept | {address: (times, now_s)}
        return float(min(DELAY_MAX_S, DELAY_S * 2 ** min(times - 1, 10)))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    allow_reuse_address = True

    def __init__(
        self, host: str, port: int, text: Text, tokens: TokensOf, tls: ssl.SSLContext | None
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.text, self.tokens, self.tls = text, tokens, tls
        self.hosts: frozenset[str] = frozenset()
        self.failures = Failures()
        self.delayed = threading.BoundedSemaphore(DELAYED_MAX)
        self._lock = threading.Lock()
        self._open: dict[Any, float] = {}
        """The open connections and their time limits; the oldest first."""
        self._unknown: dict[Any, socket.socket] = {}
        """The connections that have not sent a token, by their peer."""
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread. If too many connections have sent no token, close the oldest of
        them."""
        with self._lock:
            while len(self._unknown) >= AT_ONCE:
                _cut(self._unknown.pop(next(iter(self._unknown))))
            self._unknown[client_address] = request
            self._open[request] = time.monotonic() + CLIENT_TIMEOUT_S
        super().process_request(request, client_address)

    def known(self, client_address: Any, more_s: float = 0.0) -> None:
        """Remove a connection from those without a checked token, and extend its time limit for the
        answer."""
        with self._lock:
            request = self._unknown.pop(client_address, None)
            if request in self._open:
                self._open[request] = time.monotonic() + more_s + CLIENT_TIMEOUT_S

    def late(self, client_address: Any, seconds: float) -> None:
        """Delay the refusal of a wrong token; the connection does not count as one without a
        token."""
        self.known(client_address, seconds)
        if self.delayed.acquire(blocking=False):
            try:
                time.sleep(seconds)
            finally:
                self.delayed.release()

    def service_actions(self) -> None:
        """Close the connections whose time limit has passed."""
        now_s = time.monotonic()
        with self._lock:
            for request in [it for it, until_s in self._open.items() if until_s < now_s]:
                del self._open[request]
                _cut(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Do the TLS handshake in this thread, so that a slow client does not block the others."""
        raw = request
        try:
            request.settimeout(CLIENT_TIMEOUT_S)
            if self.tls is not None:
                try:
                    request = self._shaken(raw, self.tls, client_address)
                except OSError:
                    self.shutdown_request(request)
                    return
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._unknown.pop(client_address, None)
                self._open.pop(request, None)
                self._open.pop(raw, None)

    def _shaken(self, raw: Any, tls: ssl.SSLContext, client_address: Any) -> Any:
        request = tls.wrap_socket(raw, server_side=True, do_handshake_on_connect=False)
        with self._lock:
            self._open[request] = self._open.pop(raw, 0.0)
            if client_address in self._unknown:
                self._unknown[client_address] = request
        try:
            request.do_handshake()
        except OSError:
            with self._lock:
                self._open.pop(request, None)
            request.close()
            raise
        return request

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log a client that disconnects during a request."""


def _cut(request: socket.socket) -> None:
    """Shut a connection down, even while its thread waits; the thread closes it."""
    with contextlib.suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server_version = "holdfast"
    sys_version = ""

    @property
    def _own(self) -> _Server:
        return cast("_Server", self.server)

    def parse_request(self) -> bool:
        """Check before the method is looked up, so that all methods are checked."""
        if not super().parse_request():
            return False
        refused = self._refused()
        if refused is None:
            return True
        code, said = refused
        self._answer(code, f"{said}\n", "text/plain; charset=utf-8")
        self.close_connection = True
        return False

    def _refused(self) -> tuple[int, str] | None:
        if self._all("Host") not in [[host] for host in self._own.hosts]:
            return 421, "the Host header does not name this server"
        if not self._has_token():
            delay_s = self._own.failures.delay_s(str(self.client_address[0]))
            self._own.late(self.client_address, delay_s)
            return 401, "this requires a token: Authorization: Bearer"
        self._own.known(self.client_address)
        sites = self._all("Sec-Fetch-Site")
        if self._all("Origin") or any(site not in ("same-origin", "none") for site in sites):
            return 403, "another site has sent this"
        if self.requestline.split()[1] != "/metrics":  # As it was sent: `path` has been tidied up.
            return 404, "there is no such path"
        if self.command != "GET":
            return 405, "this path allows GET only"
        return None

    def _has_token(self) -> bool:
        given = self._all("Authorization")
        if len(given) != 1:
            return False
        scheme, _, secret = given[0].partition(" ")
        try:
            return scheme.lower() == "bearer" and self._own.tokens().verify(secret) is not None
        except (StoreError, UsageError):
            return False  # An unreadable token file grants no access.

    def _all(self, name: str) -> list[str]:
        return self.headers.get_all(name) or []

    def do_GET(self) -> None:
        try:
            self._answer(200, self._own.text(), CONTENT_TYPE)
        except StoreError:
            self._answer(503, "the store cannot be read\n", "text/plain; charset=utf-8")

    def _answer(self, code: int, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if code == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        if code == 405:
            self.send_header("Allow", "GET")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests, which arrive every few seconds."""


# -- health -------------------------------------------------------------------------------------


HEALTH_TIMEOUT_S = 5.0

Check = Callable[[], bool]


class Health(Background):
    """A small server in its own thread: `with Health(address, {"live": …}):`"""

    def __init__(self, address: str, checks: Mapping[str, Check]) -> None:
        host, port = parsed(address)
        handler = type("_Handler", (_HealthHandler,), {"checks": dict(checks)})
        try:
            server = _HealthServer((host, port), handler)
        except OSError as error:
            raise UsageError(f"--health {address}: {error.strerror or error}") from None
        super().__init__(server, "holdfast-health")

    @property
    def address(self) -> str:
        """The bound address and port."""
        host, port = self.bound
        return f"{host}:{port}"


def parsed(address: str, option: str = "--health") -> tuple[str, int]:
    """Return host and port of HOST:PORT."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"{option} {address}: HOST:PORT, as in 127.0.0.1:8090")
    return host.strip("[]"), int(port)


class _HealthServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not log a client that disconnects during a request."""


class _HealthHandler(BaseHTTPRequestHandler):
    checks: ClassVar[dict[str, Check]] = {}
    timeout = HEALTH_TIMEOUT_S
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
        """Do not log probes, which arrive every second."""
