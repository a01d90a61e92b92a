"""Every route, every method, every missing or wrong credential, every foreign place: refused, and
nothing has changed. The router itself is asked which routes there are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.routing import Route as Endpoint, Router

from holdfast._operator.web import app
from holdfast._operator.web.access_tokens import Role, Tokens
from holdfast._operator.web.gate import Gate
from holdfast._operator.web.headers import CACHE, CSP, HEADERS, KEPT, Headers
from holdfast._stores.contract import Store
from tests.web_api.served import Browser, Client, Person, Reply, Site, content

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY")
REFUSED = {401, 403, 405, 415, 421}
OPEN = {"/health", *map(app.static, ("pages/sign-in.js", "page.css", "icon.svg"))}
"""All that is answered to somebody unknown, beside the sign-in page itself."""
FORGED = "hft_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
JSON = {"Content-Type": "application/json"}
EVIL = "https://evil.example"


def inner(site: Site) -> tuple[Gate, Router]:
    outer: Any = site.server.config.app
    assert isinstance(outer, Headers)
    gate: Any = outer._app
    assert isinstance(gate, Gate)
    router: Any = gate._app
    assert isinstance(router, Router)
    return gate, router


def paths(site: Site) -> list[str]:
    """The paths that the router itself knows."""
    found = [route.path for route in inner(site)[1].routes if isinstance(route, Endpoint)]
    assert len(found) == len(inner(site)[1].routes), "only exact routes: no mounts, no WebSockets"
    assert not any("{" in path for path in found), "no part of a path is a parameter"
    return sorted(set(found))


def queries() -> dict[str, str]:
    """What makes each route do something, if it were let through."""
    run = {"preview-fork": "before=look", "state-diff": "from=1&to=1"}
    found = {}
    for route in app.routes():
        if "/run" in route.path and route.path != "/api/v1/runs":
            more = run.get(route.path.rpartition("/")[2], "")
            found[route.path] = f"?id=done&{more}".rstrip("&")
        elif "/queue" in route.path or "/schedule" in route.path:
            found[route.path] = "?name=mail"
    return found


BODIES: dict[str, Any] = {
    "/api/v1/run/settle": {"step": "charge", "outcome": "done"},
    "/api/v1/run/fork": {"new_run_id": "fork", "before": "look"},
    "/api/v1/run/signal": {"name": "go"},
    "/api/v1/run/answer": {"name": "size", "value": "s"},
    "/api/v1/run/reject": {"name": "size"},
    "/api/v1/run/approve": {"step": "charge", "digest": "61" * 16},
    "/api/v1/run/set-budget": {"usd": 3},
    "/api/v1/queue": {"concurrency": 7},
}


class Walk:
    """Sends the same request to every route, with every method."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.client = Client(site)
        self.queries = queries()

    def replies(
        self,
        headers: dict[str, str],
        *,
        methods: tuple[str, ...] = METHODS,
        host: str | None = None,
    ) -> Iterator[tuple[str, str, Reply]]:
        for path in paths(self.site):
            for method in methods:
                if method == "GET" and path in ("/api/v1/run/history/stream", "/api/v1/changes"):
                    continue  # Streams are asked below, since they have no end.
                yield method, path, self.send(method, path, headers, host)

    def send(
        self, method: str, path: str, headers: dict[str, str], host: str | None = None
    ) -> Reply:
        target = path + self.queries.get(path, "")
        body = None if method in ("GET", "HEAD") else BODIES.get(path, {})
        return self.client.ask(method, target, headers, body, host=host)


@pytest.fixture
def walk(patient: None, site: Site) -> Walk:
    return Walk(site)


def test_the_router_the_gate_and_the_table_know_the_same_routes(site: Site):
    gate, router = inner(site)
    of_router = {
        (method, route.path)
        for route in router.routes
        if isinstance(route, Endpoint)
        for method in route.methods or ()
        if (method, route.path) in gate._doors or method != "HEAD"
    }
    assert set(gate._doors) == of_router
    assert {route.path for route in app.routes()} | set(app.pages()) == set(paths(site))


def test_only_the_stated_paths_have_no_role(site: Site):
    gate, _ = inner(site)
    unguarded = {key for key, door in gate._doors.items() if door.role is None}
    expected = {(method, path) for path in OPEN for method in ("GET", "HEAD")}
    assert unguarded == expected | {("POST", "/api/v1/session")}


def test_every_change_needs_at_least_an_operator(site: Site):
    gate, _ = inner(site)
    weak = {
        key
        for key, door in gate._doors.items()
        if key[0] not in ("GET", "HEAD") and (door.role or 0) < Role.OPERATOR
    }
    assert weak == {("POST", "/api/v1/session"), ("DELETE", "/api/v1/session")}


# -- the walk (faults 97, 98, 100) -------------------------------------------------------------


def test_i22_nobody_gets_anything_without_a_credential(walk: Walk, store: Store):
    before = content(store)
    for method, path, reply in walk.replies({**JSON, "Origin": walk.site.origin}):
        if path in OPEN and method in ("GET", "HEAD"):
            assert reply.status == 200, (method, path)
        else:
            assert reply.status == 401, (method, path, reply)
    assert content(store) == before


def test_what_is_served_to_somebody_unknown_holds_no_data(walk: Walk):
    for method, path, reply in walk.replies({}, methods=("GET",)):
        assert b"in-doubt" not in reply.body, (method, path)
        if path in app.PAGES:
            assert reply.body == app.sign_in(), path


def test_fault_100_a_wrong_token_opens_nothing(walk: Walk, tokens: Tokens, store: Store):
    before = content(store)
    for method, path, reply in walk.replies({**JSON, "Authorization": f"Bearer {FORGED}"}):
        if path not in OPEN or method not in ("GET", "HEAD"):
            expected = {401, 403} if path == "/api/v1/session" else {401}
            assert reply.status in expected, (method, path, reply)
    good = tokens.create("good", "admin")
    for wrong in ("Bearer", "Bearer ", "Basic aGY6aGY=", f"Bearer  {good}", good,
                  f"Bearer {good[:-1]}", f"Bearer {good}x", f"Bearer {good.upper()}", f"Bearer {good},x"):  # fmt: skip
        assert walk.send("GET", "/api/v1/me", {"Authorization": wrong}).status == 401, wrong
    assert walk.send("GET", "/api/v1/me", {"Authorization": f"Bearer {good}"}).status == 200
    assert content(store) == before


def test_a_token_whose_time_is_over_opens_nothing(walk: Walk, tokens: Tokens, store: Store):
    before = content(store)
    secret = tokens.create("old", "admin", 0.01)
    until = [token.expires_at for token in tokens.list() if token.name == "old"][0]
    while not until.timestamp() < __import__("time").time():
        pass
    for method, path, reply in walk.replies({**JSON, "Authorization": f"Bearer {secret}"}):
        if path not in OPEN or method not in ("GET", "HEAD"):
            assert reply.status in {401, 403}, (method, path, reply)
    assert content(store) == before


def test_a_viewer_changes_nothing(walk: Walk, viewer: Person, store: Store):
    before = content(store)
    for method, path, reply in walk.replies({**JSON, **viewer.headers}):
        if method not in ("GET", "HEAD") and path != "/api/v1/session":
            assert reply.status in {403, 405}, (method, path, reply)
        else:
            assert reply.status != 500, (method, path, reply)
    assert content(store) == before


def test_an_operator_does_not_change_queues(operator: Person, store: Store):
    before = content(store)
    reply = operator.act("queue", {"concurrency": 9}, name="mail")
    assert (reply.status, reply.error) == (403, "NotAllowed")
    assert content(store) == before


def test_fault_98_a_foreign_host_is_refused_whatever_else_is_right(
    walk: Walk, admin: Person, store: Store
):
    before = content(store)
    good = walk.site.host
    for host in (
        "evil.example",
        f"evil.example:{walk.site.port}",
        good + ".",
        "127.0.0.1",
        good.upper().replace("127.0.0.1", "LOCALHOST"),
        f"{good}@evil.example",
        f"0.0.0.0:{walk.site.port}",
        f"127.0.0.1:{walk.site.port + 1}",
    ):
        for method, path, reply in walk.replies(
            {**JSON, **admin.headers}, host=host, methods=("GET", "POST", "DELETE")
        ):
            assert reply.status == 421, (host, method, path, reply)
    assert content(store) == before


@pytest.mark.parametrize(
    "foreign",
    [
        {"Origin": EVIL},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1"},
    ],
)
def test_fault_97_another_site_is_refused_with_every_method(
    walk: Walk, admin: Person, browser: Browser, foreign: dict[str, str], store: Store
):
    before = content(store)
    session = {**browser.headers(), **foreign}
    for headers in ({**JSON, **admin.headers, **foreign}, session):
        for method, path, reply in walk.replies(headers):
            if path not in OPEN or method not in ("GET", "HEAD"):
                assert reply.status in REFUSED | {404}, (method, path, reply)
            if method == "POST":
                assert reply.status in {403, 405}, (method, path, reply)
    assert content(store) == before


@pytest.mark.parametrize("missing", ["X-Holdfast-CSRF", "Content-Type", "Origin and site"])
def test_fault_97_a_session_without_consent_changes_nothing(
    walk: Walk, browser: Browser, store: Store, missing: str
):
    before = content(store)
    headers = browser.headers()
    for name in ["Origin", "Sec-Fetch-Site"] if missing == "Origin and site" else [missing]:
        del headers[name]
    for method, path, reply in walk.replies(headers, methods=METHODS[2:]):
        allowed = {415, 403, 405} | ({401, 400} if path == "/api/v1/session" else set())
        if missing == "X-Holdfast-CSRF":
            allowed = {401} | ({400} if path == "/api/v1/session" else set())
        assert reply.status in allowed, (method, path, reply)
    assert content(store) == before


@pytest.mark.parametrize("given", [None, "x" * 43])
def test_a_cookie_alone_opens_no_route(
    walk: Walk, browser: Browser, store: Store, given: str | None
):
    """Reads included: other servers of the host get the cookie, whatever their port."""
    before = content(store)
    headers = browser.headers()
    del headers["X-Holdfast-CSRF"]
    if given is not None:
        headers["X-Holdfast-CSRF"] = given
    empty = {*app.pages(), "/health"}
    for method, path, reply in walk.replies(headers):
        if path in empty:
            assert reply.status in {200, 405} or method not in ("GET", "HEAD"), (method, path)
        elif (method, path) != ("POST", "/api/v1/session"):
            assert reply.status == 401, (method, path, reply)
            assert method == "HEAD" or reply.error == "SessionIncomplete"
    for path in ("/api/v1/changes", "/api/v1/run/history/stream?id=asking", "/nowhere", "/metrics"):
        assert browser.client.ask("GET", path, headers).error == "SessionIncomplete"
    assert content(store) == before


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json", ""],
)
def test_fault_97_only_json_changes_something(walk: Walk, admin: Person, store: Store, kind: str):
    before = content(store)
    for method, path, reply in walk.replies(
        {**admin.headers, "Content-Type": kind}, methods=("POST", "DELETE")
    ):
        assert reply.status in {415, 405}, (method, path, reply)
    assert content(store) == before


def test_the_walk_would_notice_an_open_door(walk: Walk, admin: Person, store: Store):
    """With the right credential the same requests come through: the refusals above are no accident."""
    before = content(store)
    passed = [
        (method, path)
        for method, path, reply in walk.replies({**JSON, **admin.headers, "If-Match": '"x"'})
        if reply.status not in REFUSED
    ]
    known = {key for key in inner(walk.site)[0]._doors if key[1] not in ("/api/v1/changes",)}
    streams = {("GET", "/api/v1/run/history/stream"), ("POST", "/api/v1/session")}
    assert set(passed) == known - streams
    assert content(store) != before


# -- one health path (fault 101) ---------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    ["/x/health", "//health", "/health/", "/health//", "/Health", "/HEALTH", "/health.", "/./health",
     "/api/../health", "/%68ealth", "/health%2f", "/%2e/health", "/health%00", "/health;x", "/health%20",
     "/api/v1/health", "/static/../health", "/healthz", "/health/../api/v1/runs", "\\health",
     "http://evil.example/health", "/static/page.css", app.static("pages/sign-in.js/"),
     app.static("/pages/sign-in.js"), app.static("pages/%73ign-in.js"), app.static("pages/sign-in.JS"),
     app.static("page.css/../../../api/v1/runs"), "*"],
)  # fmt: skip
def test_fault_101_no_other_spelling_is_let_through(patient: None, site: Site, path: str):
    assert Client(site).ask("GET", path).status == 401


@pytest.mark.parametrize("path", ["/health", "/health?x=1"])
def test_health_says_that_it_answers_and_nothing_else(site: Site, path: str):
    reply = Client(site).ask("GET", path)
    assert (reply.status, reply.data) in [(200, {"ok": True}), (400, reply.data)]
    for method in METHODS[2:]:
        assert Client(site).ask(method, "/health").status == 401


# -- headers of every answer (faults 102, 104) -------------------------------------------------


def test_fault_104_every_answer_has_the_headers_and_none_of_cors(
    walk: Walk, admin: Person, operator: Person
):
    assert CSP == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'"
    )
    asked = [
        {},
        {**JSON, **admin.headers, "Origin": EVIL},
        {**JSON, **admin.headers},
        {**JSON, **operator.headers, "Access-Control-Request-Method": "POST"},
    ]
    statuses = set()
    for headers in asked:
        for method, path, reply in walk.replies(headers):
            statuses.add(reply.status)
            kept = {CACHE: KEPT} if path.startswith("/static/") and reply.status == 200 else {}
            for name, value in {**HEADERS, **kept}.items():
                assert reply.headers.get_all(name.decode()) == [value.decode()], (method, path)
            names = [name.lower() for name in reply.headers]
            assert not any(name.startswith("access-control") for name in names), (method, path)
            assert "server" not in names
    assert {200, 400, 401, 403, 405} <= statuses


def test_what_goes_wrong_unforeseen_tells_nothing(
    site: Site, operator: Person, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def broken() -> str:
        raise ValueError("sword" + "fish")

    monkeypatch.setattr(site.store, "regression", broken)
    reply = operator.get("me")
    assert (reply.status, reply.error) == (500, "InternalError")
    assert b"swordfish" not in reply.body
    assert reply.headers["Content-Security-Policy"] == CSP
    assert "ValueError" in caplog.text
    assert "swordfish" not in caplog.text


# -- WebSockets and streams (fault 99) ---------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/changes", "/api/v1/run/history/stream", "/ws", "/health"]
)
def test_fault_99_a_websocket_is_closed_before_it_opens(site: Site, path: str):
    """Whatever a server would hand over as a WebSocket, the gate closes it."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    secret = site.tokens.create("ws", "admin")
    for headers in ([], [(b"authorization", f"Bearer {secret}".encode())]):
        scope = {
            "type": "websocket",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", site.host.encode()), *headers],
            "client": ("127.0.0.1", 1),
        }
        sent.clear()
        asyncio.run(inner(site)[0](scope, receive, send))
        assert sent == [{"type": "websocket.close", "code": 1008}]


def test_fault_99_an_upgrade_on_the_wire_gets_no_socket(site: Site):
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as wire:
        wire.sendall(
            f"GET /api/v1/changes HTTP/1.1\r\nHost: {site.host}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert wire.recv(1000).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", ["/api/v1/changes", "/api/v1/run/history/stream?id=asking"])
def test_fault_99_a_stream_is_checked_like_everything_else(
    patient: None, site: Site, operator: Person, path: str
):
    client = Client(site)
    assert client.ask("GET", path).status == 401
    assert client.ask("GET", path, {"Authorization": f"Bearer {FORGED}"}).status == 401
    assert client.ask("GET", path, operator.headers, host="evil.example").status == 421
    assert client.ask("GET", path, {**operator.headers, "Origin": EVIL}).status == 403
    crossed = {**operator.headers, "Sec-Fetch-Site": "cross-site"}
    assert client.ask("GET", path, crossed).status == 403


# -- what a request may look like --------------------------------------------------------------


def test_two_hosts_or_none_are_refused(site: Site):
    for head in (
        "GET /health HTTP/1.0\r\n",
        f"GET /health HTTP/1.1\r\nHost: {site.host}\r\nHost: evil.example\r\n",
    ):
        with socket.create_connection(("127.0.0.1", site.port), timeout=30) as wire:
            wire.sendall(f"{head}\r\n".encode())
            assert wire.recv(1000).split(b" ")[1] in (b"421", b"400")


def test_a_link_to_a_page_may_be_followed_from_elsewhere(browser: Browser):
    """A page is an empty shell; the API refuses the same."""
    followed = {"Cookie": browser.cookie, "Sec-Fetch-Site": "cross-site"}
    followed |= {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert browser.client.ask("GET", "/run?id=in-doubt", followed).status == 200
    assert browser.client.ask("GET", "/api/v1/run?id=in-doubt", followed).status == 401
    whole = {**followed, "X-Holdfast-CSRF": browser.csrf}
    assert browser.client.ask("GET", "/api/v1/run?id=in-doubt", whole).status == 403
    assert browser.client.ask("GET", app.static("lib/dom.js"), followed).status == 403


def test_shells_and_files_are_the_same_for_all_runs(browser: Browser):
    one = browser.client.ask("GET", "/run?id=in-doubt", {"Cookie": browser.cookie})
    other = browser.client.ask("GET", "/run?id=<script>", {"Cookie": browser.cookie})
    assert one.status == 200
    assert one.body == other.body
    for path, page in app.pages().items():
        reply = browser.client.ask("GET", path, {"Cookie": browser.cookie})
        assert (reply.status, reply.body) == (200, page.text), path
        assert reply.headers["Content-Type"] == page.type


def test_fault_107_no_path_reaches_the_disk(patient: None, site: Site, operator: Person):
    for path in ("/static/../gate.py", "/static/%2e%2e/gate.py", "/static/..%2fgate.py",
                 "/static//etc/passwd", "/static/", app.static("/etc/passwd"), app.static("../gate.py"),
                 app.static("lib/dom.js%00"), app.static("lib/dom.js/x"), app.static("lib")):  # fmt: skip
        assert operator.client.ask("GET", path, operator.headers).status == 404


# -- with a guard taken away, the tests above would fail ---------------------------------------


def _nothing(*_: Any) -> None:
    """A guard that guards nothing."""


@pytest.mark.parametrize(
    ("guard", "headers", "host", "status"),
    [
        ("Gate._check_host", {}, "evil.example", 421),
        ("Gate._check_site", {"Origin": EVIL}, None, 403),
        ("_check_whole", {"X-Holdfast-CSRF": "wrong"}, None, 401),
        ("_check_json", {"Content-Type": "text/plain"}, None, 415),
    ],
)
def test_each_guard_is_what_refuses(
    patient: None,
    browser: Browser,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    guard: str,
    headers: dict[str, str],
    host: str | None,
    status: int,
):
    def cancelled() -> int:
        etag = str(browser.get("run", id="waiting").data["etag"])
        sent = {**browser.headers(), "If-Match": f'"{etag}"', **headers}
        target = "/api/v1/run/cancel?id=waiting"
        return browser.client.ask("POST", target, sent, {"reason": "x"}, host=host).status

    before = content(store)
    assert cancelled() == status
    assert content(store) == before
    monkeypatch.setattr(f"holdfast._operator.web.gate.{guard}", _nothing)
    assert cancelled() == 200
    assert content(store) != before
