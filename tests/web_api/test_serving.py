"""Where the server listens and where it refuses to; the command as a process."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from click.testing import CliRunner

from holdfast._operator.cli import server_commands
from holdfast._operator.cli.main import main
from holdfast._operator.web import gate, http_server, limits
from holdfast._operator.web.access_tokens import Tokens
from holdfast._operator.web.http_server import Serving
from holdfast._stores.contract import Store
from holdfast.errors import UsageError
from tests.tidy.source import ROOT
from tests.web_api.served import Client, Person, Site

COMMAND = [sys.executable, "-m", "holdfast._operator.cli"]


@contextlib.contextmanager
def ui(url: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """`holdfast ui` as a process, and what it printed."""
    process = subprocess.Popen(
        [*COMMAND, "--url", url, "--json", "ui", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        while lines[-1:] != ["}\n"]:
            line = process.stdout.readline()
            assert line, process.communicate()
            lines.append(line)
        yield process, msgspec.json.decode("".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
        assert (out, err) == ("", "")


# -- where it may listen (I22) -----------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_i22_without_tls_it_listens_on_this_machine_only(host: str):
    with pytest.raises(UsageError, match="other machines can reach") as refused:
        http_server.check(Serving(host=host))
    assert "--tls-cert" in str(refused.value)
    assert "--behind-proxy" in str(refused.value)
    assert "ssh -L" in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_this_machine_needs_no_tls(host: str):
    http_server.check(Serving(host=host))


def test_i22_the_command_refuses_and_listens_nowhere(tmp_path: Path, store: Store):
    options = ["ui", "--host", "0.0.0.0", "--port", "0"]
    done = CliRunner().invoke(main, ["--url", f"sqlite:///{tmp_path}/runs.db", *options])
    assert done.exit_code == 2
    assert "other machines can reach" in done.stderr
    assert done.stdout == ""


def test_there_is_no_switch_that_takes_the_credential_away():
    told = CliRunner().invoke(main, ["ui", "--help"]).stdout
    assert not re.search(r"--(no|without|disable|insecure|skip)\b", told)


@pytest.mark.parametrize(
    "origin",
    ["http://ops.example", "ops.example", "https://ops.example/", "https://ops.example/x", "ftp://x",
     "https://kim@ops.example", "https://"],
)  # fmt: skip
def test_a_proxy_is_stated_by_an_origin_with_tls(origin: str):
    with pytest.raises(UsageError):
        http_server.check(Serving(behind_proxy=origin))


def test_behind_a_proxy_only_its_name_is_known(store: Store, tokens: Tokens):
    with Site(store, tokens, behind_proxy="https://ops.example") as site:
        person = Person(site, tokens.create("kim", "viewer"))
        headers = {**person.headers, "X-Forwarded-For": "198.51.100.9, 203.0.113.4"}
        reply = Client(site).ask("GET", "/api/v1/me", headers, host="ops.example")
        assert reply.data["actor"] == "kim (api, 203.0.113.4)", "the last one: the proxy wrote it"
        forged = {**person.headers, "X-Forwarded-For": "<script>"}
        reply = Client(site).ask("GET", "/api/v1/me", forged, host="ops.example")
        assert reply.data["actor"] == "kim (api, 127.0.0.1)"
        assert Client(site).ask("GET", "/health", host="evil.example").status == 421


def test_without_a_proxy_nobody_says_where_he_comes_from(site: Site, operator: Person):
    headers = {**operator.headers, "X-Forwarded-For": "203.0.113.4", "Forwarded": "for=203.0.113.4"}
    reply = operator.client.ask("GET", "/api/v1/me", headers)
    assert reply.data["actor"] == "kim (api, 127.0.0.1)"


def test_everything_with_tls_needs_a_name(tmp_path: Path):
    unnamed = Serving(host="0.0.0.0", tls_cert="c", tls_key="k")
    with pytest.raises(UsageError, match="give the origin that browsers use"):
        http_server.front_of(unnamed, 1)
    named = Serving(host="0.0.0.0", tls_cert="c", tls_key="k", origin="https://ops.example:8321")
    assert http_server.front_of(named, 8321).hosts == {"ops.example:8321"}


def test_a_port_that_is_taken_is_said_to(site: Site):
    with (
        pytest.raises(UsageError, match="choose another"),
        http_server.listening(Serving(port=site.port)),
    ):
        pass


def test_small_packets_are_sent_at_once():
    """Else each answer waits for the acknowledgement of its head: forty milliseconds."""
    with http_server.listening(Serving(port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


# -- a Unix socket -----------------------------------------------------------------------------


def over(path: Path, target: str, headers: dict[str, str]) -> tuple[int, bytes]:
    wire = http.client.HTTPConnection("localhost", timeout=30)
    wire.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    wire.sock.connect(str(path))
    wire.request("GET", target, headers=headers)
    answer = wire.getresponse()
    told = (answer.status, answer.read())
    wire.close()
    return told


def test_a_unix_socket_is_its_owners(store: Store, tokens: Tokens, tmp_path: Path):
    path = tmp_path / "ui.sock"
    before = os.umask(0)
    try:
        site = Site(store, tokens, socket=str(path))
    finally:
        os.umask(before)
    with site:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        secret = tokens.create("kim", "viewer")
        assert over(path, "/api/v1/me", {})[0] == 401
        status, body = over(path, "/api/v1/me", {"Authorization": f"Bearer {secret}"})
        assert status == 200
        assert msgspec.json.decode(body)["actor"] == "kim (api, socket)"
        assert over(path, "/health", {"Host": "evil.example"})[0] == 421
        with (
            pytest.raises(UsageError, match="another process listens"),
            http_server.listening(Serving(socket=str(path))),
        ):
            pass
    assert not path.exists()


def test_a_socket_that_nobody_listens_on_is_replaced_and_a_file_is_not(tmp_path: Path):
    path = tmp_path / "ui.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as left:
        left.bind(str(path))
    with http_server.listening(Serving(socket=str(path))):
        assert path.exists()
    file = tmp_path / "precious"
    file.write_text("x")
    with (
        pytest.raises(UsageError, match="is not your socket"),
        http_server.listening(Serving(socket=str(file))),
    ):
        pass
    assert file.read_text() == "x"


# -- TLS ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def test_tls_with_a_certificate_of_ones_own(
    store: Store, tokens: Tokens, certificate: tuple[Path, Path]
):
    cert, key = certificate
    with Site(store, tokens, tls_cert=str(cert), tls_key=str(key)) as site:
        trust = ssl.create_default_context(cafile=str(cert))
        wire = http.client.HTTPSConnection("localhost", site.port, context=trust, timeout=30)
        headers = {"Content-Type": "application/json", "Origin": f"https://localhost:{site.port}"}
        body = msgspec.json.encode({"token": tokens.create("kim", "viewer")})
        wire.request("POST", "/api/v1/session", body, headers)
        answer = wire.getresponse()
        assert answer.status == 200
        second = msgspec.json.decode(answer.read())["csrf"]
        cookie = answer.headers["Set-Cookie"]
        assert cookie.startswith("__Host-")
        assert "Secure" in cookie
        both = {"Cookie": cookie.partition(";")[0], "X-Holdfast-CSRF": second}
        wire.request("GET", "/api/v1/me", headers=both)
        answer = wire.getresponse()
        assert answer.status == 200
        answer.read()
        headers["Origin"] = f"http://localhost:{site.port}"
        wire.request("POST", "/api/v1/session", body, headers)
        answer = wire.getresponse()
        assert answer.status == 403, "the same place without TLS is another origin"
        answer.read()
        wire.close()


def test_a_certificate_without_its_key_is_refused(certificate: tuple[Path, Path]):
    with pytest.raises(UsageError, match="must be given together"):
        http_server.check(Serving(tls_cert=str(certificate[0])))
    with pytest.raises(UsageError, match="cannot be read"):
        http_server.check(Serving(tls_cert=str(certificate[0]), tls_key="/nowhere"))


def test_a_key_that_does_not_fit_is_refused_before_a_token_is_told(
    certificate: tuple[Path, Path], store: Store, tmp_path: Path
):
    (tmp_path / "bad.pem").write_text("no key")
    with pytest.raises(UsageError, match="cannot be used"):
        http_server.check(Serving(tls_cert=str(certificate[0]), tls_key=str(tmp_path / "bad.pem")))
    asked = ["--url", store.url, "ui", "--port", "0", "--tls-cert", str(certificate[0])]
    for more in (
        ["--tls-key", str(tmp_path / "bad.pem")],
        ["--tls-key", str(certificate[1]), "--host", "0.0.0.0"],
    ):
        told = CliRunner().invoke(main, [*asked, *more])
        assert told.exit_code == 2, told.output
        assert "hft_" not in told.output


@pytest.mark.parametrize("host", ["localhost", "LocalHost", "127.0.0.1", "127.0.0.2", "::1"])
def test_the_address_that_is_told_answers(store: Store, tokens: Tokens, host: str):
    with Site(store, tokens, host=host) as site:
        told = urlsplit(http_server.address_of(site.serving, site.port))
        wire = http.client.HTTPConnection(str(told.hostname), site.port, timeout=30)
        wire.request("GET", "/health", headers={"Host": told.netloc})
        assert wire.getresponse().status == 200
        wire.close()


def test_a_name_of_another_machine_is_known_by_that_name(monkeypatch: pytest.MonkeyPatch):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    serving = Serving(host="Ops.example", tls_cert="c", tls_key="k")
    assert http_server.front_of(serving, 8321).hosts == {"ops.example:8321"}
    assert http_server.address_of(serving, 8321) == "https://ops.example:8321"


def test_a_proxy_that_others_can_listen_to_needs_tls():
    for origin in ("http://localhost", "http://127.0.0.1:8000"):
        http_server.check(Serving(behind_proxy=origin))
        with pytest.raises(UsageError, match="must use TLS"):
            http_server.check(Serving(host="0.0.0.0", behind_proxy=origin))
    http_server.check(Serving(host="0.0.0.0", behind_proxy="https://ops.example"))


@pytest.mark.parametrize(
    ("peer", "trusted", "believed"),
    [
        ("127.0.0.1", (), True),
        ("::1", (), True),
        ("10.0.0.7", (), False),
        ("10.0.0.7", ("10.0.0.7",), True),
        ("::ffff:10.0.0.7", ("10.0.0.7",), True),
        ("10.0.0.8", ("10.0.0.7",), False),
    ],
)
def test_only_the_proxy_says_where_a_request_came_from(
    peer: str, trusted: tuple[str, ...], believed: bool
):
    serving = Serving(behind_proxy="https://ops.example", trusted_proxies=trusted)
    http_server.check(serving)
    headers = [(b"x-forwarded-for", b"203.0.113.4")]
    scope: dict[str, Any] = {"client": (peer, 1), "headers": headers}
    found = gate.address_of(scope, gate._Headers(scope), http_server.front_of(serving, 1))
    assert found == ("203.0.113.4" if believed else peer)


@pytest.mark.parametrize("address", ["ops.example", "10.0.0.0/8", ""])
def test_a_trusted_proxy_is_one_address(address: str):
    with pytest.raises(UsageError, match="--trusted-proxy"):
        http_server.check(Serving(behind_proxy="https://a.example", trusted_proxies=(address,)))
    with pytest.raises(UsageError, match="requires --behind-proxy"):
        http_server.check(Serving(trusted_proxies=("10.0.0.7",)))


# -- slow ones ---------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"GET /health HT", b"GET /health HTTP/1.1\r\nA: b\r\n"])
def test_who_asks_nothing_is_sent_away(site: Site, monkeypatch: pytest.MonkeyPatch, sent: bytes):
    monkeypatch.setattr(http_server, "HEAD_S", 0.3)
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as wire:
        wire.sendall(sent)
        assert wire.recv(100) == b"", "closed"
    assert Client(site).ask("GET", "/health").status == 200


def test_a_second_request_that_does_not_come_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_server, "HEAD_S", 0.3)
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as wire:
        wire.sendall(f"GET /health HTTP/1.1\r\nHost: {site.host}\r\n\r\n".encode())
        answer = b""
        while not answer.endswith(b'{"ok":true}'):
            part = wire.recv(10_000)
            assert part, answer
            answer += part
        assert answer.startswith(b"HTTP/1.1 200")
        wire.sendall(b"GET /hea")
        assert wire.recv(100) == b""


def test_a_body_that_does_not_come_is_not_waited_for(
    site: Site, operator: Person, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "BODY_S", 0.2)
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as wire:
        wire.sendall(
            f"POST /api/v1/session HTTP/1.1\r\nHost: {site.host}\r\nOrigin: {site.origin}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{".encode()
        )
        assert wire.recv(10_000).startswith(b"HTTP/1.1 408")


# -- the commands, as processes ----------------------------------------------------------------


def test_fault_102_ui_prints_its_token_once_behind_the_hash(tmp_path: Path, store: Store):
    with ui(f"sqlite:///{tmp_path}/runs.db", "--port", "0") as (process, told):
        address, hash_, secret = told["url"].partition("#token=")
        assert hash_ and secret == told["token"]  # noqa: PT018
        host = address.removeprefix("http://").rstrip("/")
        wire = http.client.HTTPConnection(host, timeout=30)
        wire.request("GET", "/api/v1/me", headers={"Authorization": f"Bearer {secret}"})
        answer = wire.getresponse()
        assert answer.status == 200
        assert msgspec.json.decode(answer.read())["role"] == "operator"
        wire.close()
        for name in ("cmdline", "environ"):
            assert secret[3:].encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()
        for file in tmp_path.iterdir():
            assert secret[3:].encode() not in file.read_bytes()
    assert process.returncode == 0


def test_fault_102_a_browser_is_opened_without_the_token_in_its_arguments(
    monkeypatch: pytest.MonkeyPatch,
):
    opened: list[tuple[str, int, str]] = []

    def spying(address: str) -> bool:
        file = Path(address.removeprefix("file://"))
        opened.append((address, stat.S_IMODE(file.stat().st_mode), file.read_text()))
        return True

    monkeypatch.setattr("webbrowser.open", spying)
    with server_commands._opened("http://127.0.0.1:1/#token=hft_secret"):
        [(address, mode, text)] = opened
        assert "hft_secret" not in address
        assert mode == 0o600
        assert 'url=http://127.0.0.1:1/#token=hft_secret"' in text
    assert not Path(address.removeprefix("file://")).exists()


def test_the_token_of_a_start_ends_with_it_and_so_does_its_socket(tmp_path: Path, store: Store):
    url, path = f"sqlite:///{tmp_path}/runs.db", tmp_path / "ui.sock"
    with ui(url, "--socket", str(path)) as (process, told):
        assert told["socket"] == str(path)
        bearer = {"Authorization": f"Bearer {told['token']}"}
        assert over(path, "/api/v1/runs", bearer)[0] == 200
    assert process.returncode == 0
    assert not path.exists()
    assert Tokens.of(store).verify(told["token"]) is None


def test_tokens_by_the_command_line(tmp_path: Path, store: Store):
    url = f"sqlite:///{tmp_path}/runs.db"

    def told(*args: str) -> Any:
        return msgspec.json.decode(
            CliRunner().invoke(main, ["--url", url, "--json", "tokens", *args]).stdout
        )

    made = told("create", "kim", "--role", "operator", "--expires", "12h")
    tokens = Tokens.of(store)
    found = tokens.verify(made["token"])
    assert found is not None
    assert (found.expires_at - found.created_at).total_seconds() == 12 * 3600
    [listed] = told("list")["tokens"]
    assert (listed["name"], listed["role"], listed["holds"]) == ("kim", "operator", True)
    assert "hash" not in listed
    fresh = told("rotate", "kim")["token"]
    assert tokens.verify(made["token"]) is None
    assert tokens.verify(fresh) is not None
    assert told("revoke", "kim")["revoked"]["name"] == "kim"
    assert tokens.verify(fresh) is None
    assert told("create", "kim", "--expires", "10y")["error"]["type"] == "UsageError"
    plain = CliRunner().invoke(main, ["--url", url, "tokens", "create", "lee"]).stdout
    assert re.fullmatch(r"hft_[\w-]{43}\n", plain), "a script can take it as it is"


def test_what_a_page_needs_is_loaded_only_by_the_page():
    code = (
        "import sys, holdfast, holdfast._operator.cli.main\n"
        "print([name for name in ('starlette', 'uvicorn', 'jinja2', 'anyio') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
