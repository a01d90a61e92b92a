"""A browser fetches the files of the page once: the next visit asks the server for none of them."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from holdfast._operator.web import app
from tests.web.conftest import Opens
from tests.web.stage import Stage

LOADED = """() => performance.getEntriesByType("resource")
  .filter((one) => new URL(one.name).pathname.startsWith("/static/"))
  .map((one) => ({ path: new URL(one.name).pathname, sent: one.transferSize, size: one.decodedBodySize }))
"""


def visit(page: Page, stage: Stage, path: str, heading: str) -> list[dict[str, Any]]:
    """Open a page, and return which files it loaded, with how much of each the server sent."""
    page.goto(stage.origin + path)
    expect(page.get_by_role("heading", name=heading).first).to_be_visible()
    expect(page.locator("#actor")).not_to_be_empty()
    loaded: list[dict[str, Any]] = page.evaluate(LOADED)
    assert {one["path"] for one in loaded} <= set(app.pages())
    return loaded


def test_a_second_visit_fetches_no_file(opens: Opens, stage: Stage):
    tab = opens()
    first = visit(tab, stage, "/fleet", "Fleet")
    assert len(first) > 10
    assert [one for one in first if one["sent"] > 0], "the first visit fetches what it needs"
    again = visit(tab, stage, "/fleet", "Fleet")
    assert {one["path"] for one in again} == {one["path"] for one in first}
    assert all(one["size"] > 0 for one in again)
    assert [one["path"] for one in again if one["sent"] > 0] == []


def test_another_page_fetches_only_what_is_new_to_it(opens: Opens, stage: Stage):
    tab = opens()
    known = {one["path"] for one in visit(tab, stage, "/fleet", "Fleet")}
    pending = visit(tab, stage, "/pending", "Pending")
    fetched = {one["path"] for one in pending if one["sent"] > 0}
    assert app.static("pages/pending-decisions.js") in fetched
    assert not fetched & known
    other = tab.context.new_page()
    assert [
        one["path"] for one in visit(other, stage, "/pending", "Pending") if one["sent"] > 0
    ] == []


def test_a_browser_that_reloads_asks_for_no_file_again(opens: Opens, stage: Stage):
    """Counted by what the page asks for at the network, below its own clock."""
    tab = opens()
    visit(tab, stage, "/findings", "Findings")
    wire = tab.context.new_cdp_session(tab)
    wire.send("Network.enable")
    asked: set[str] = set()
    kept: set[str] = set()

    def note(event: dict[str, Any]) -> None:
        answer = event["response"]
        if "/static/" in answer["url"]:
            (kept if answer["fromDiskCache"] else asked).add(event["requestId"])

    wire.on("Network.responseReceived", note)
    wire.on("Network.requestServedFromCache", lambda event: kept.add(event["requestId"]))
    tab.reload()
    expect(tab.locator("#actor")).not_to_be_empty()
    assert len(kept) > 10
    assert asked - kept == set()
