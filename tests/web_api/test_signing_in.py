"""Tokens become sessions; sessions are short, bound to their browser, and end with their token."""

from __future__ import annotations

import asyncio
import hmac
import io
import logging
import statistics
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pytest

from holdfast._operator.web import app, browser_sessions, limits
from holdfast._operator.web.access_tokens import Tokens
from holdfast._operator.web.limits import Failures
from holdfast._stores.contract import Store
from tests.web_api.served import Browser, Client, Person, Reply, Site

JSON = {"Content-Type": "application/json"}
FORGED = "hft_" + "A" * 43


def sign_in(site: Site, secret: str) -> Reply:
    headers = {**JSON, "Origin": site.origin}
    return Client(site).ask("POST", "/api/v1/session", headers, {"token": secret})


def test_the_cookie_is_for_this_browser_this_port_and_no_script(site: Site, tokens: Tokens):
    reply = sign_in(site, tokens.create("kim", "operator"))
    assert reply.status == 200
    name, _, rest = reply.headers["Set-Cookie"].partition("=")
    value, *attributes = rest.split("; ")
    assert name == f"holdfast-{site.port}"
    assert len(value) == 43
    assert sorted(attributes) == ["HttpOnly", "Max-Age=28800", "Path=/", "SameSite=Strict"]
    assert value not in reply.body.decode()


def test_with_tls_before_it_the_cookie_is_secure(store: Store, tokens: Tokens):
    with Site(store, tokens, behind_proxy="https://ops.example") as site:
        headers = {**JSON, "Origin": "https://ops.example"}
        body = {"token": tokens.create("kim", "operator")}
        reply = Client(site).ask("POST", "/api/v1/session", headers, body, host="ops.example")
        cookie = reply.headers["Set-Cookie"]
        assert cookie.startswith(f"__Host-holdfast-{site.port}=")
        assert "Secure" in cookie.split("; ")


def test_a_session_says_who_it_is_and_its_second_secret_is_told_once(browser: Browser):
    me = browser.get("me")
    assert (me.data["actor"], me.data["role"]) == ("lee (page, 127.0.0.1)", "operator")
    assert len(browser.csrf) == 43
    assert browser.csrf not in browser.cookie
    assert browser.csrf not in me.body.decode()


def test_a_cookie_without_the_second_secret_is_asked_to_sign_in(browser: Browser, site: Site):
    """Other servers of the host get the cookie, whatever their port: it opens nothing by itself."""
    for given in ({}, {"X-Holdfast-CSRF": "x" * 43}, {"X-Holdfast-CSRF": ""}):
        reply = browser.client.ask("GET", "/api/v1/runs", {"Cookie": browser.cookie, **given})
        assert (reply.status, reply.error) == (401, "SessionIncomplete")
        assert b"in-doubt" not in reply.body
        assert "Set-Cookie" not in reply.headers
    other = Browser(site, site.tokens.create("zoe", "operator"))
    crossed = {"Cookie": browser.cookie, "X-Holdfast-CSRF": other.csrf}
    assert browser.client.ask("GET", "/api/v1/me", crossed).error == "SessionIncomplete"
    assert browser.get("me").status == 200


def test_the_sign_in_page_knows_who_has_led_there(site: Site):
    for site_, told in (("cross-site", "cross-site"), ("none", "none"), ('"><b>', ""), ("", "")):
        reply = Client(site).ask("GET", "/", {"Sec-Fetch-Site": site_} if site_ else {})
        assert reply.status == 401
        assert f'data-site="{told}"' in reply.body.decode()


def test_signing_out_ends_the_session(browser: Browser):
    reply = browser.client.ask("DELETE", "/api/v1/session", browser.headers(), {})
    assert reply.status == 200
    assert "Max-Age=0" in reply.headers["Set-Cookie"]
    assert browser.get("me").status == 401


def test_a_session_ends_with_its_token(browser: Browser, tokens: Tokens):
    assert browser.get("me").status == 200
    Tokens(tokens.path).revoke("lee")  # By another process, as `holdfast tokens revoke` does.
    assert browser.get("me").status == 401


def test_a_rotated_token_signs_nobody_in_any_more(site: Site, tokens: Tokens):
    old = tokens.create("kim", "operator")
    browser = Browser(site, old)
    new = Tokens(tokens.path).rotate("kim")
    assert browser.get("me").status == 401
    assert sign_in(site, old).status == 401
    assert sign_in(site, new).status == 200


@pytest.mark.parametrize("limit", ["IDLE_S", "LIFE_S"])
def test_a_session_is_short(
    site: Site, tokens: Tokens, monkeypatch: pytest.MonkeyPatch, limit: str
):
    monkeypatch.setattr(browser_sessions, limit, -1.0)
    secret = tokens.create("kim", "operator")
    browser = Browser.__new__(Browser)
    browser.client, browser.csrf = site.client(), ""
    reply = sign_in(site, secret)
    browser.cookie = reply.headers["Set-Cookie"].partition(";")[0]
    assert browser.get("me").status == 401


def test_a_made_up_cookie_is_nobody(site: Site):
    name = f"holdfast-{site.port}"
    for value in ("", "x", "A" * 43, "../../etc", '"', "a=b; " * 50):
        reply = Client(site).ask("GET", "/api/v1/me", {"Cookie": f"{name}={value}"})
        assert reply.status == 401, value


def test_cookies_of_other_servers_of_the_host_do_not_matter(browser: Browser):
    """A browser sends them all, whatever the port, and some are not as a grammar wants them."""
    for other in ("a=b", "broken", 'json={"a": "b, c"}', "x\\=1", "[]=1", "a/b=(c)", "=", ""):
        for cookie in (f"{other}; {browser.cookie}", f"{browser.cookie}; {other}"):
            headers = {"Cookie": cookie, "X-Holdfast-CSRF": browser.csrf}
            assert browser.client.ask("GET", "/api/v1/me", headers).status == 200, cookie
    name, _, value = browser.cookie.partition("=")
    for cookie in (
        f"x{name}={value}",
        f"{name}x={value}",
        f"{name.upper()}={value}",
        f"a={name}={value}",
    ):
        headers = {"Cookie": cookie, "X-Holdfast-CSRF": browser.csrf}
        assert browser.client.ask("GET", "/api/v1/me", headers).status == 401, cookie


def test_a_token_has_few_sessions_and_ends_none_of_others(
    site: Site, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(browser_sessions, "SESSIONS_EACH", 3)
    other = Browser(site, tokens.create("other", "viewer"))
    secret = tokens.create("kim", "operator")
    mine = [Browser(site, secret) for _ in range(5)]
    assert [it.get("me").status for it in mine] == [401, 401, 200, 200, 200]
    assert other.get("me").status == 200


def test_a_session_may_do_what_its_token_may_do_now(site: Site, tokens: Tokens):
    browser = Browser(site, tokens.create("kim", "admin"))
    assert browser.act("queue", {"concurrency": 5}, name="mail").status == 200
    with tokens._changing() as known:
        known[:] = [msgspec.structs.replace(it, role="viewer") for it in known]
    assert browser.get("me").data["role"] == "viewer"
    assert browser.act("queue", {"concurrency": 6}, name="mail").error == "NotAllowed"


def test_what_signs_in_is_a_body_and_not_an_address(site: Site, tokens: Tokens):
    secret = tokens.create("kim", "operator")
    headers = {**JSON, "Origin": site.origin}
    reply = Client(site).ask("POST", f"/api/v1/session?token={secret}", headers, {})
    assert reply.status == 400
    assert "Set-Cookie" not in reply.headers
    for path in (f"/api/v1/me?token={secret}", f"/?token={secret}"):
        assert Client(site).ask("GET", path).status == 401


def test_fault_111_if_others_could_write_the_tokens_nobody_is_let_in(
    browser: Browser, operator: Person, tokens: Tokens, caplog: pytest.LogCaptureFixture
):
    assert tokens.path is not None
    tokens.path.chmod(0o666)
    for reply in (browser.get("me"), operator.get("me")):
        assert (reply.status, reply.error) == (503, "NoTokens")
        assert str(tokens.path) not in reply.body.decode()
        assert "chmod 600" in reply.data["error"]["message"]
    assert "chmod 600" in caplog.text
    assert sign_in(browser.site, FORGED).error == "NoTokens"
    tokens.path.chmod(0o600)
    assert operator.get("me").status == 200


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"\xff\xfe",
        b'{"tokens":[{"name":"x"}]}',
        (
            b'{"tokens":[{"name":"x","role":"king","hash":"0","created_at":"2026-01-01T00:00:00Z",'
            b'"expires_at":"2036-01-01T00:00:00Z"}]}'
        ),
        (
            b'{"tokens":[{"name":"x","role":"admin","hash":"0","created_at":"2026-01-01T00:00:00Z",'
            b'"expires_at":"2036-01-01T00:00:00"}]}'
        ),
    ],
)
def test_a_damaged_file_of_tokens_is_said_to_and_lets_nobody_in(
    browser: Browser, operator: Person, tokens: Tokens, text: bytes
):
    assert tokens.path is not None
    tokens.path.write_bytes(text)
    for reply in (browser.get("me"), operator.get("me"), sign_in(browser.site, FORGED)):
        assert (reply.status, reply.error) == (503, "NoTokens"), reply
        assert "is damaged" in reply.data["error"]["message"]
        assert str(tokens.path) not in reply.body.decode()


# -- fault 102: a token in no log, no address, no list of processes ----------------------------


def test_fault_102_a_token_is_in_no_log(site: Site, tokens: Tokens):
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        secret = tokens.create("kim", "operator")
        person, browser = Person(site, secret), Browser(site, secret)
        person.get("runs")
        person.get("run", id="no such run")
        browser.act("run/cancel", {"reason": "x"}, "stale", id="in-doubt")
        sign_in(site, FORGED)
    finally:
        root.removeHandler(handler)
        root.setLevel(logging.WARNING)
    cookie = browser.cookie.partition("=")[2]
    for private in (secret, secret[3:20], cookie, browser.csrf, FORGED):
        assert private not in heard.getvalue()


def test_a_token_is_stored_as_a_hash_only(site: Site, tokens: Tokens, tmp_path: Path):
    secret = tokens.create("kim", "operator")
    Browser(site, secret)
    for file in tmp_path.iterdir():
        assert secret[3:].encode() not in file.read_bytes(), file


# -- fault 103: compared in constant time; guessing costs time ---------------------------------


def test_fault_103_every_hash_is_compared_by_compare_digest(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
):
    compared: list[tuple[str, str]] = []
    real = hmac.compare_digest

    def spying(one: str, other: str) -> bool:
        compared.append((one, other))
        return real(one, other)

    secrets = [tokens.create(f"t{n}", "viewer") for n in range(5)]
    monkeypatch.setattr(hmac, "compare_digest", spying)
    assert tokens.verify(secrets[0]) is not None
    assert len(compared) == 5, "the right one does not end it early"
    assert all(len(one) == len(other) == 64 for one, other in compared), "hashes of one length"


def test_fault_103_how_much_of_a_guess_is_right_does_not_show(tokens: Tokens):
    secret = tokens.create("kim", "operator")
    near, far = secret[:-1] + ("A" if secret[-1] != "A" else "B"), FORGED

    def took(guess: str) -> float:
        begun = time.perf_counter_ns()
        for _ in range(20):
            tokens.verify(guess)
        return float(time.perf_counter_ns() - begun)

    times = [(took(near), took(far)) for _ in range(60)]
    nears, fars = (statistics.median(column) for column in zip(*times, strict=True))
    assert 0.7 < nears / fars < 1.4


def test_fault_103_wrong_tokens_cost_more_and_more_time():
    failures = Failures()
    costs = [failures.note("10.0.0.1") for _ in range(14)]
    assert costs[: limits.FREE_FAILURES] == [0.0] * limits.FREE_FAILURES
    assert costs == sorted(costs)
    assert costs[-1] == limits.FAILURE_DELAY_MAX_S
    assert failures.note("10.0.0.2") == 0.0, "others do not pay for it"
    failures.forget("10.0.0.1")
    assert failures.note("10.0.0.1") == 0.0


def test_fault_103_guesses_from_many_addresses_cost_time_too():
    failures = Failures()
    costs = [failures.note(f"10.0.{n // 200}.{n % 200}") for n in range(300)]
    assert costs[: limits.ALL_FREE_FAILURES - 1] == [0.0] * (limits.ALL_FREE_FAILURES - 1)
    assert costs == sorted(costs)
    assert costs[-1] == limits.FAILURE_DELAY_MAX_S


def test_fault_103_guessing_is_slow_and_locks_nobody_out(
    site: Site, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "FAILURE_DELAY_MAX_S", 0.5)
    secret = tokens.create("kim", "operator")
    begun = time.monotonic()
    for _ in range(6):
        assert sign_in(site, FORGED).status == 401
    assert time.monotonic() - begun > 0.6

    delayed, let_go, sleep = [], threading.Event(), asyncio.sleep

    async def until_let_go(seconds: float) -> None:
        if seconds != limits.FAILURE_DELAY_MAX_S:
            await sleep(seconds)
            return
        delayed.append(seconds)
        while not let_go.is_set():
            await sleep(0.01)

    monkeypatch.setattr(asyncio, "sleep", until_let_go)
    guesses = [threading.Thread(target=sign_in, args=(site, FORGED)) for _ in range(5)]
    for guess in guesses:
        guess.start()
    while len(delayed) < len(guesses):
        threading.Event().wait(0.01)
    assert sign_in(site, secret).status == 200, "while all guesses wait"
    let_go.set()
    for guess in guesses:
        guess.join()


def test_too_many_guesses_at_one_time_are_refused_at_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "DELAYED_MAX", 0)
    reply = sign_in(site, FORGED)
    assert (reply.status, reply.error) == (429, "TooMany")
    assert reply.headers["Retry-After"]
    bearer = {"Authorization": f"Bearer {FORGED}"}
    assert Client(site).ask("GET", "/api/v1/me", bearer).status == 429


# -- limits (fault 115) ------------------------------------------------------------------------


def test_fault_115_asking_too_often_is_refused_and_passes(
    store: Store, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "BURST", 20.0)
    monkeypatch.setattr(limits, "RATE_PER_S", 5.0)
    with Site(store, tokens) as site:
        person = Person(site, tokens.create("kim", "viewer"))
        statuses = [person.get("me").status for _ in range(60)]
        assert 429 in statuses
        assert statuses[0] == 200
        other = Person(site, tokens.create("lee", "viewer"))
        assert other.get("me").status == 200, "others are not concerned"
        until = time.monotonic() + 30
        while person.get("me").status == 429:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_others_who_ask_too_often_keep_nobody_from_signing_in(
    store: Store, tokens: Tokens, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(limits, "BURST", 5.0)
    monkeypatch.setattr(limits, "RATE_PER_S", 0.01)
    monkeypatch.setattr(limits, "WRONG_BURST", 3.0)
    monkeypatch.setattr(limits, "WRONG_PER_S", 0.01)
    with Site(store, tokens) as site:
        flood = [Client(site).ask("GET", "/health").status for _ in range(9)]
        assert (flood[0], flood[-1]) == (200, 429)
        assert Client(site).ask("GET", "/api/v1/me").status == 429
        guesses = [sign_in(site, FORGED).status for _ in range(5)]
        assert (guesses[0], guesses[-1]) == (401, 429)
        secret = tokens.create("kim", "viewer")
        for _ in range(9):
            assert Client(site).ask("GET", "/").status == 401
            assert Client(site).ask("GET", app.static("pages/sign-in.js")).status == 200
            assert sign_in(site, secret).status == 200


def test_fault_108_a_body_that_is_too_large_is_refused(operator: Person, site: Site):
    large = b'{"reason":"' + b"x" * limits.BODY_MAX_BYTES + b'"}'
    reply = operator.act("run/cancel", large, "x", id="in-doubt")
    assert (reply.status, reply.error) == (413, "TooLarge")


def test_fault_108_a_body_without_a_length_is_measured_while_it_comes(operator: Person, site: Site):
    import http.client

    wire = http.client.HTTPConnection("127.0.0.1", site.port, timeout=30)
    parts = (b"x" * 65536 for _ in range(2 * limits.BODY_MAX_BYTES // 65536))
    headers = {**operator.headers, **JSON, "If-Match": '"x"'}
    try:
        wire.request("POST", "/api/v1/run/cancel?id=done", parts, headers, encode_chunked=True)
    except (BrokenPipeError, ConnectionResetError):
        wire.close()  # It did not want to hear the rest.
        return
    assert wire.getresponse().status == 413
    wire.close()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b'{"reason":1}', b'{"no":1}', b"[" * 100_000, b"\xff\xfe"]
)
def test_a_body_that_makes_no_sense_is_said_to(operator: Person, body: bytes):
    reply = operator.act("run/cancel", body, "x", id="in-doubt")
    assert reply.status in (400, 409), reply


def test_the_list_of_processes_has_no_token(site: Site, tokens: Tokens):
    secret = tokens.create("kim", "operator")
    listed = subprocess.run(["ps", "axww"], capture_output=True, text=True, check=True).stdout
    assert secret not in listed
