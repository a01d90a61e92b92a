"""What the page says when the store cannot be read, and when one run is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import apsw
from playwright.sync_api import Page, expect

from holdfast._store.sqlite import SqliteStore
from tests.ops.journals import Journal
from tests.web.conftest import NARROW, Watched
from tests.web.stage import Stage

GONE = "the file of the store was replaced by another one"


def test_a_store_that_is_gone_is_said_once_and_for_as_long_as_it_lasts(
    page: Page, stage: Stage, watched: Watched, shoot: Callable[..., Any]
):
    page.goto(stage.origin + "/fleet")
    expect(page.get_by_role("heading", name="Fleet").first).to_be_visible()
    watched.expect(503)
    error = {"version": 1, "error": {"type": "StoreUnusable", "message": GONE}}
    page.route(
        lambda url: "/api/v1/" in url and not url.endswith(("/me", "/changes")),
        lambda route: route.fulfill(status=503, body=json.dumps(error)),
    )
    page.reload()
    banner = page.locator(".banner[data-id=store]")
    expect(banner).to_contain_text(GONE)
    expect(page.locator(".toast")).to_have_count(0)
    shoot(page)
    shoot(page, size=NARROW)
    page.unroute_all()
    page.evaluate("import('/static/shell.js').then(({ refreshCounts }) => refreshCounts())")
    expect(banner).to_have_count(0)


def test_a_damaged_run_stands_in_the_inbox_and_takes_nothing_away(
    page: Page, stage: Stage, shoot: Callable[..., Any]
):
    store = SqliteStore(str(stage.folder / "runs.db"))
    Journal(store, "good").asks_approval("charge", {"amount": 5}).unloaded("answer:x")
    Journal(store, "bad").asks_approval("charge", {"amount": 13}).unloaded("answer:x")
    row = store.get("bad")
    assert row is not None
    store.close()
    connection = apsw.Connection(str(stage.folder / "runs.db"))
    harm = "UPDATE journal SET body = replace(body, '13', '14') WHERE id >> 32 = ?"
    connection.execute(harm, (row.run_no,))
    connection.close()
    page.goto(stage.origin + "/inbox")
    expect(page.get_by_role("article", name="Damaged: run bad")).to_contain_text("cannot be read")
    good = page.get_by_role("article", name="Approval of run good")
    expect(good.get_by_role("button", name="Approve…")).to_be_visible()
    expect(page.locator("#told")).to_contain_text("1 approval · 0 questions · 1 damaged")
    shoot(page)
    shoot(page, size=NARROW)
