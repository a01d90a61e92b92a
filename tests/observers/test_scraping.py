"""Where figures are read: every path, method and credential but one is refused, over real sockets."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import closing

import pytest

from holdfast._operator.cli.worker_telemetry import TelemetryOptions
from holdfast._operator.web import metrics_server
from holdfast._operator.web.access_tokens import Tokens
from holdfast._operator.web.metrics_server import MetricsServer, Place
from holdfast.errors import UsageError

TEXT = "holdfast_figure 1.0\n"


@pytest.fixture
def asked(monkeypatch):
    """A server, and a function that asks it."""
    monkeypatch.setattr(metrics_server, "DELAY_MAX_S", 0.0)
    tokens = Tokens(None)
    right = {"Authorization": f"Bearer {tokens.create_here('prometheus', 'viewer')}"}
    with MetricsServer(Place("127.0.0.1:0"), lambda: TEXT, lambda: tokens) as server:
        port = int(server.url.rsplit(":", 1)[1].removesuffix("/metrics"))

        def ask(headers, path="/metrics", method="GET"):
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as link:
                link.request(method, path, headers=headers)
                answer = link.getresponse()
                return answer.status, answer.read().decode()

        ask.right, ask.port = right, port  # type: ignore[attr-defined]
        yield ask


def test_who_has_a_token_is_told(asked):
    assert asked(asked.right) == (200, TEXT)
    assert asked(asked.right | {"Host": f"localhost:{asked.port}"}) == (200, TEXT)
    assert asked(asked.right | {"Sec-Fetch-Site": "none"}) == (200, TEXT)


@pytest.mark.parametrize("given", [None, "Bearer hf_wrong", "Bearer ", "Bearer", "hf_", "Bearer é"])
def test_without_a_right_token_nothing_is_told_by_any_path_or_method(asked, given):
    headers = {} if given is None else {"Authorization": given.encode("latin-1")}
    for path in ("/metrics", "/", "/metrics/", "//metrics", "/metrics?x=1", "/%6detrics", "/live"):
        for method in ("GET", "POST", "HEAD", "OPTIONS", "ANYTHING"):
            code, text = asked(headers, path, method)
            assert (code, TEXT in text) == (401, False)


def test_a_token_given_otherwise_is_none(asked):
    secret = asked.right["Authorization"].removeprefix("Bearer ")
    assert asked({"Authorization": f"Basic {secret}"})[0] == 401
    assert asked({"Cookie": f"holdfast={secret}"})[0] == 401
    assert asked({}, f"/metrics?token={secret}")[0] == 401


def test_there_is_one_path_and_one_method(asked):
    for path in ("/", "/metrics/", "//metrics", "/metrics?x=1", "/%6detrics", "/live", "/health"):
        assert asked(asked.right, path)[0] == 404
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "ANYTHING"):
        assert asked(asked.right, method=method)[0] == 405


def test_it_is_known_by_its_own_names_and_to_no_other_site(asked):
    port = asked.port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        assert asked(asked.right | {"Host": host})[0] == 421
    assert asked(asked.right | {"Origin": f"http://127.0.0.1:{port}"})[0] == 403
    assert asked(asked.right | {"Sec-Fetch-Site": "cross-site"})[0] == 403


def test_a_wrong_token_costs_more_each_time_and_a_right_one_nothing(asked, monkeypatch):
    monkeypatch.setattr(metrics_server, "DELAY_MAX_S", 5.0)

    def took_s(headers) -> float:
        began_s = time.monotonic()
        asked(headers)
        return time.monotonic() - began_s

    first, second, third = took_s({}), took_s({}), took_s({})
    assert first < second < third
    assert third >= 4 * metrics_server.DELAY_S
    waiting = threading.Thread(target=asked, args=({},))
    waiting.start()
    assert took_s(asked.right) < third
    waiting.join()


def test_who_only_connects_keeps_nobody_out_for_long(asked, monkeypatch):
    """Connections that say nothing are dropped after a while; beyond the room, at once."""
    monkeypatch.setattr(metrics_server, "CLIENT_TIMEOUT_S", 0.5)
    idle = [socket.create_connection(("127.0.0.1", asked.port)) for _ in range(40)]
    deadline = time.monotonic() + 30
    while True:
        try:
            assert asked(asked.right)[0] == 200
            break
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    for link in idle:
        link.close()


def connected(port: int, sent: bytes) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", port), timeout=30)
    link.sendall(sent)
    return link


def test_a_right_token_is_never_refused_because_of_others(asked, monkeypatch):
    """Some ask nothing, some are made to wait for their wrong tokens: there is room all the same."""
    monkeypatch.setattr(metrics_server, "DELAY_S", 600.0)
    monkeypatch.setattr(metrics_server, "DELAY_MAX_S", 600.0)
    wrong = (
        f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{asked.port}\r\nAuthorization: Bearer x\r\n\r\n"
    )
    links = [connected(asked.port, wrong.encode()) for _ in range(metrics_server.AT_ONCE)]
    links += [connected(asked.port, b"GET /met") for _ in range(2 * metrics_server.AT_ONCE)]
    for _ in range(5):
        assert asked(asked.right) == (200, TEXT)
    for link in links:
        link.close()


def test_a_request_that_drips_is_cut_off(asked, monkeypatch):
    monkeypatch.setattr(metrics_server, "CLIENT_TIMEOUT_S", 0.6)
    with connected(asked.port, b"GET /metrics HTTP/1.1\r\n") as link:
        begun = time.monotonic()
        link.settimeout(0.1)
        while time.monotonic() - begun < 20:
            try:
                link.sendall(b"A: b\r\n")
                if link.recv(100) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        assert time.monotonic() - begun < 10
    assert asked(asked.right) == (200, TEXT)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        (TelemetryOptions(metrics="0.0.0.0:0"), "other machines can reach"),
        (TelemetryOptions(metrics="127.0.0.1"), "HOST:PORT"),
        (TelemetryOptions(metrics="127.0.0.1:0", metrics_tls_cert="x"), "must be given together"),
        (
            TelemetryOptions(metrics="127.0.0.1:0", metrics_tls_cert="x", metrics_tls_key="y"),
            "cannot be read",
        ),
        (TelemetryOptions(metrics="0.0.0.0:0", metrics_origin="http://x.example"), "https://NAME"),
        (
            TelemetryOptions(metrics="0.0.0.0:0", metrics_origin="https://a@x.example"),
            "must not contain a user name",
        ),
        (TelemetryOptions(metrics_origin="https://x.example"), "requires --metrics"),
        (TelemetryOptions(alerts=["no-such-command --urgent"]), "command not found"),
        (TelemetryOptions(alerts=["notify 'open"]), "No closing quotation"),
        (TelemetryOptions(alerts=[""]), "command not found"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(wanted, told):
    with pytest.raises(UsageError, match=told):
        wanted.check()


def test_a_stated_proxy_is_the_only_name_beside_its_own():
    place = Place("0.0.0.0:9464", origin="https://metrics.example")
    place.check()
    assert place.hosts(9464) == {"metrics.example"}
    assert Place("127.0.0.1:1", origin="https://x.example:8443").hosts(1) == {
        *("127.0.0.1:1", "localhost:1", "[::1]:1", "x.example:8443"),
    }
