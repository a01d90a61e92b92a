"""The HTTP server: sockets, TLS, and its allowed addresses.

It binds a loopback address or a Unix socket, unless TLS or a proxy with TLS is configured. A
credential is always required; no option disables that.

uvicorn waits without limit for the head of a request. Here a connection without a complete head is
closed after a while, even if it sends bytes slowly; a body has a separate limit (`limits`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import signal
import socket
import ssl
import stat
import threading
from collections.abc import Generator
from pathlib import Path
from types import FrameType
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from holdfast._operator.web.access_tokens import Tokens
from holdfast._operator.web.app import application
from holdfast._operator.web.event_streams import Changes
from holdfast._operator.web.gate import Front
from holdfast._stores.contract import Store
from holdfast.errors import UsageError

# -- slow clients -------------------------------------------------------------------------------


HEAD_S = 15.0


class SlowClientLimit(H11Protocol):
    """HTTP/1.1 with a limit for the head of a request."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time limit when a client connects."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._count()

    def data_received(self, data: bytes) -> None:
        """Stop the time limit when a request is complete; restart it for the next request."""
        super().data_received(data)
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop()
        super().connection_lost(exc)

    def _asks(self) -> bool:
        """Return whether a complete request is not answered yet."""
        cycle: RequestResponseCycle | None = getattr(self, "cycle", None)
        return cycle is not None and not cycle.response_complete

    def _count(self) -> None:
        if self._asks():
            self._stop()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_S, self._too_slow)

    def _stop(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _too_slow(self) -> None:
        self._waiting = None
        if not self._asks():
            self.transport.close()


# -- the server ---------------------------------------------------------------------------------


PORT = 8321
COOKIE = "holdfast"
BACKLOG = 128
CONNECTIONS_MAX = 500
GRACE_S = 3


class Serving(msgspec.Struct, frozen=True):
    """The options of the server."""

    host: str = "127.0.0.1"
    port: int = PORT
    socket: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: str | None = None
    """The origin that browsers see, if a proxy is in front."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses of that proxy, if it is on another machine."""
    origin: str | None = None
    """The origin that browsers see, if it cannot be derived from the address."""
    four_eyes: str | None = None
    """The tag of a run that names who started it; that actor may not approve."""

    @property
    def tls(self) -> bool:
        """Whether it serves TLS itself."""
        return self.tls_cert is not None


def check(serving: Serving) -> None:
    """Refuse options that would expose the token to eavesdroppers."""
    if (serving.tls_cert is None) != (serving.tls_key is None):
        raise UsageError("--tls-cert and --tls-key must be given together")
    for name in (serving.tls_cert, serving.tls_key):
        if name is not None and not os.access(name, os.R_OK):
            raise UsageError(f"{name} cannot be read")
    if serving.tls:
        _check_tls(serving)
    if serving.behind_proxy is not None:
        _check_origin("--behind-proxy", serving.behind_proxy)
    for address in serving.trusted_proxies:
        _check_proxy(serving, address)
    if serving.origin is not None:
        _check_origin("--origin", serving.origin)
    if serving.socket is not None or _is_loopback(serving.host):
        return
    if not serving.tls and serving.behind_proxy is None:
        raise UsageError(
            f"other machines can reach {serving.host}, and without TLS others could read the traffic. "
            "Give --tls-cert and --tls-key; or --behind-proxy https://NAME, if you run a proxy with "
            "TLS; or keep 127.0.0.1, and connect with `ssh -L "
            f"{serving.port}:127.0.0.1:{serving.port} THIS-MACHINE`"
        )
    if not serving.tls and not (serving.behind_proxy or "").startswith("https:"):
        raise UsageError(
            f"other machines can reach {serving.host}, so the proxy must use "
            f"TLS: --behind-proxy https://NAME, not {serving.behind_proxy}; or listen on 127.0.0.1"
        )


def _check_tls(serving: Serving) -> None:
    """Refuse an invalid certificate or key, before the address is printed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(serving.tls_cert), serving.tls_key, password="")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise UsageError(
            f"--tls-cert {serving.tls_cert} and --tls-key {serving.tls_key} cannot be used (they must be "
            f"PEM and match, the key without a password): {error}"
        ) from None


def _check_proxy(serving: Serving, address: str) -> None:
    if serving.behind_proxy is None:
        raise UsageError("--trusted-proxy requires --behind-proxy")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise UsageError(
            f"--trusted-proxy must be an address such as 10.0.0.7, not {address!r}"
        ) from None


def _is_loopback(host: str) -> bool:
    return all(ipaddress.ip_address(it[4][0]).is_loopback for it in _resolved_addresses(host))


def _families(host: str) -> list[socket.AddressFamily]:
    """Return the address families of a host; IPv4 first for a name."""
    return sorted((it[0] for it in _resolved_addresses(host)), key=lambda it: it != socket.AF_INET)


def _resolved_addresses(host: str) -> list[Any]:
    try:
        return socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"{host!r} is not an address of this machine: {why}") from None


def _name(host: str) -> str:
    """Return an address or a name in the form that browsers send."""
    return f"[{host}]" if ":" in host else host.lower()


def _check_origin(option: str, origin: str) -> None:
    parts = urlsplit(origin)
    plain = f"{parts.scheme}://{parts.netloc}"
    if parts.scheme not in ("http", "https") or not parts.hostname or origin != plain:
        raise UsageError(
            f"{option} must be an origin, https://NAME or https://NAME:PORT, not {origin!r}"
        )
    if parts.username is not None:
        raise UsageError(f"{option} must not contain a user name")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(f"{option} must use TLS: https://…, not {origin!r}")


# -- sockets -----------------------------------------------------------------------------------


@contextlib.contextmanager
def listening(serving: Serving) -> Generator[socket.socket]:
    """Yield the listening socket."""
    listener = _tcp(serving) if serving.socket is None else _unix(Path(serving.socket))
    try:
        yield listener
    finally:
        listener.close()
        if serving.socket is not None:
            Path(serving.socket).unlink(missing_ok=True)


def _tcp(serving: Serving) -> socket.socket:
    family = _families(serving.host)[0]
    # The protocol is given, because asyncio sets TCP_NODELAY only then.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((serving.host, serving.port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"{serving.host} port {serving.port} cannot be used: {error.strerror}; choose another "
            "with --port, or 0 for any free one"
        ) from None
    listener.listen(BACKLOG)
    return listener


def _unix(path: Path) -> socket.socket:
    """Bind a socket that only its owner can use; replace a socket without a listener."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
    except OSError as error:
        listener.close()
        raise UsageError(f"{path} cannot be used as a socket: {error.strerror or error}") from None
    except UsageError:
        listener.close()
        raise
    listener.listen(BACKLOG)
    return listener


def _clear(path: Path) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode) or facts.st_uid != os.getuid():
        raise UsageError(f"{path} exists already and is not your socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise UsageError(f"another process listens on {path}")


# -- serving -----------------------------------------------------------------------------------


def front_of(serving: Serving, port: int) -> Front:
    """Return the names of the page and of its cookie."""
    scheme = "https" if serving.tls else "http"
    stated = serving.behind_proxy or serving.origin
    origins = set[str]() if stated is None else {stated}
    if serving.socket is not None:
        origins.add(f"{scheme}://localhost")
    elif _is_loopback(serving.host):
        names = ("127.0.0.1", "localhost", "[::1]", _name(serving.host))
        origins |= {f"{scheme}://{name}:{port}" for name in names}
    elif stated is None:
        if any(
            ipaddress.ip_address(it[4][0]).is_unspecified
            for it in _resolved_addresses(serving.host)
        ):
            raise UsageError("give the origin that browsers use: --origin https://NAME:PORT")
        origins.add(f"{scheme}://{_name(serving.host)}:{port}")
    secure = serving.tls or (stated or "").startswith("https:")
    named = f"{COOKIE}-{port}"
    return Front(
        hosts=frozenset(origin.partition("://")[2] for origin in origins),
        origins=frozenset(origins),
        secure=secure,
        cookie=f"__Host-{named}" if secure else named,
        proxied=serving.behind_proxy is not None,
        proxies=frozenset(str(ipaddress.ip_address(it)) for it in serving.trusted_proxies),
    )


def address_of(serving: Serving, port: int) -> str:
    """Return the address that a person opens."""
    stated = serving.behind_proxy or serving.origin
    if stated is not None:
        return stated
    scheme = "https" if serving.tls else "http"
    return f"{scheme}://{_name(serving.host)}:{port}"


def port_of(serving: Serving, listener: socket.socket) -> int:
    """Return the listening port; 0 for a Unix socket."""
    return 0 if serving.socket is not None else int(listener.getsockname()[1])


class Server(uvicorn.Server):
    """A server that ends its streams before it stops."""

    def __init__(self, config: uvicorn.Config, changes: Changes) -> None:
        super().__init__(config)
        self._changes = changes

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Treat Ctrl-C and SIGTERM as a normal end: do not raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        known = (signal.SIGINT, signal.SIGTERM)
        before = {one: signal.signal(one, self.handle_exit) for one in known}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal: end the streams, then the requests, then the server."""
        self._changes.close()
        super().handle_exit(sig, frame)

    def stop(self) -> None:
        """Stop the server from another thread."""
        self._changes.close()
        self.should_exit = True


def made(store: Store, tokens: Tokens, serving: Serving, listener: socket.socket) -> Server:
    """Return the server, ready to run."""
    check(serving)
    front = front_of(serving, port_of(serving, listener))
    changes = Changes(store)
    app: Any = application(store, tokens, front, four_eyes=serving.four_eyes, changes=changes)
    config = uvicorn.Config(
        app,
        http=SlowClientLimit,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=serving.tls_cert,
        ssl_keyfile=serving.tls_key,
    )
    return Server(config, changes)
