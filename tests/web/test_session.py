"""A session has two halves: the cookie, and a secret of this origin alone, sent with every request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, Request, Route, expect

from tests.web import flows
from tests.web.conftest import Opens, Watched, sign_in
from tests.web.stage import Stage, served, until

KEPT = "localStorage.getItem('holdfast-session')"
PIECES = r"""async ([text, sizes]) => {
  const { EventParser } = await import("/static/lib/events.js");
  return sizes.map((size) => {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
    return { events, retryMs: parser.retryMs, id: parser.id };
  });
}"""


def asked(tab: Page) -> list[Request]:
    """Note the requests to the API that a page makes from now on."""
    found: list[Request] = []

    def note(one: Request) -> None:
        if "/api/v1/" in one.url:
            found.append(one)

    tab.on("request", note)
    return found


def soon(tab: Page, fact: Callable[[], bool]) -> None:
    """Wait for a fact; meanwhile the browser is heard."""

    def heard() -> bool:
        tab.wait_for_timeout(20)
        return fact()

    until(heard)


def test_both_halves_go_with_every_request(page: Page, stage: Stage):
    requests = asked(page)
    stage.submit(flows.long, "two-halves", "two-halves")
    page.goto(stage.origin + "/run?id=two-halves")
    expect(page.get_by_role("heading", name="two-halves")).to_be_visible()
    soon(page, lambda: {"run/history/stream", "changes"} <= paths(requests))
    secret = page.evaluate(KEPT)
    assert len(secret) > 20
    assert {one.headers.get("x-holdfast-csrf") for one in requests} == {secret}
    assert {"me", "run", "pending"} <= paths(requests)


def paths(requests: list[Request]) -> set[str]:
    return {one.url.partition("/api/v1/")[2].partition("?")[0] for one in requests}


def test_signing_out_forgets_both(page: Page, stage: Stage, watched: Watched):
    assert page.evaluate(KEPT)
    watched.expect(401)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.wait_for_function(f"{KEPT} === null")
    assert page.context.cookies() == []


def without_scripts(page: Page, stage: Stage) -> None:
    """Show a file of this origin that runs no script: a page of ours that finds its session over
    loads itself again, into whatever the test does next."""
    page.goto(stage.origin + served("/static/icon.svg"))


def test_the_cookie_alone_is_asked_for_a_token(page: Page, stage: Stage, watched: Watched):
    watched.expect(401)
    without_scripts(page, stage)
    page.evaluate("localStorage.removeItem('holdfast-session')")
    page.goto(stage.origin + "/fleet")
    page.get_by_label("Token").fill(stage.address.partition("#token=")[2])
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#actor")).to_contain_text("operator")
    expect(page.get_by_role("heading", name="Fleet").first).to_be_visible()
    assert page.evaluate(KEPT)


def test_a_wrong_half_is_forgotten(page: Page, stage: Stage, watched: Watched):
    watched.expect(401)
    without_scripts(page, stage)
    page.evaluate("localStorage.setItem('holdfast-session', 'of-another-time')")
    page.goto(stage.origin + "/pending", wait_until="commit")
    expect(page.get_by_label("Token")).to_be_visible()
    page.wait_for_function(f"{KEPT} === null")


def test_a_session_ended_elsewhere(opens: Opens, stage: Stage, watched: Watched):
    """Another tab of the browser signs out: this one asks for a token."""
    first = opens()
    second = watched.watch(first.context.new_page())
    second.goto(stage.origin + "/pending")
    expect(second.locator("#actor")).to_contain_text("operator")
    watched.expect(401)
    first.get_by_role("button", name="Sign out").click()
    expect(second.get_by_label("Token")).to_be_visible()
    sign_in(first, stage.address, watched)
    second.reload()
    expect(second.locator("#actor")).to_contain_text("operator")


def test_events_in_any_pieces(page: Page):
    text = (
        ': hello\n\nevent: entry\nid: 7\ndata: {"a":\ndata:1}\n\n'
        "retry: 250\r\nevent:change\r\ndata\r\n\r\n"
        "id: 8\rdata: last\r\rnobody: knows\nretry: soon\nid: a\0b\n\nevent: lost\n\ndata: half"
    )
    told: list[Any] = page.evaluate(served(PIECES), [text, [1, 2, 3, 7, len(text)]])
    assert told[0]["events"] == [
        {"event": "entry", "data": '{"a":\n1}', "id": "7"},
        {"event": "change", "data": "", "id": "7"},
        {"event": "message", "data": "last", "id": "8"},
    ]
    assert told[0]["retryMs"] == 250
    assert all(one == told[0] for one in told)


def test_a_stream_goes_on_where_it_stopped(page: Page, stage: Stage):
    requests = asked(page)
    cut = iter(["id: 2\nevent: run\ndata: {}\n\n"])

    def cut_once(route: Route) -> None:
        body = next(cut, None)
        route.continue_() if body is None else route.fulfill(body=body)

    page.route("**/run/history/stream*", cut_once)
    with stage.working():
        stage.submit(flows.long, "broken-off", "broken-off")
        until(lambda: stage.marked("inside-broken-off"))
        page.goto(stage.origin + "/run?id=broken-off#journal")
        tails = lambda: [one for one in requests if "run/history/stream" in one.url]  # noqa: E731
        soon(page, lambda: len(tails()) > 1)
        assert [one.headers.get("last-event-id") for one in tails()[:2]] == [None, "2"]
        stage.mark("go-on-broken-off")
        expect(page.locator(".badge.is-completed").first).to_be_visible()
    expect(page.locator(".journal > li").last).to_contain_text("run completed")
    seqs = page.locator(".journal > li").evaluate_all("all => all.map((one) => +one.dataset.seq)")
    assert seqs == list(range(1, len(seqs) + 1))
