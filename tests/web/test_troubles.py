"""What the page says when the store cannot be read, and when one run is damaged."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import apsw
import pytest
from playwright.sync_api import Page, Route, expect

from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.ops.journals import Journal
from tests.tidy.source import ROOT
from tests.web import talking
from tests.web.conftest import NARROW, Watched
from tests.web.stage import Stage, served

STATIC = ROOT / "src" / "holdfast" / "_operator" / "web" / "static"
ASK_FOR_NEVER = """async () => {
  const { get } = await import("/static/lib/api.js");
  window.told = get("run", { id: "never" }).catch((error) => error.message);
}"""
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
    counts = "import('/static/lib/shell.js').then(({ refreshCounts }) => refreshCounts())"
    page.evaluate(served(counts))
    expect(banner).to_have_count(0)


def test_a_damaged_run_stands_in_what_is_pending_and_takes_nothing_away(
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
    page.goto(stage.origin + "/pending")
    expect(page.get_by_role("article", name="Damaged: run bad")).to_contain_text("cannot be read")
    good = page.get_by_role("article", name="Approval of run good")
    expect(good.get_by_role("button", name="Approve…")).to_be_visible()
    expect(page.locator("#told")).to_contain_text("1 approval · 0 questions · 1 damaged")
    shoot(page)
    shoot(page, size=NARROW)


# -- what could not be read --------------------------------------------------------------------

BROKEN = "the planted damage"
PANELS = {
    # What fails: the page, the path of the API, what the page must say could not be read, and what it
    # says when it has read that there is nothing.
    "needs: pending": ("/", "pending", "Questions, approvals and doubts could not be read", None),
    "needs: held": ("/", "runs?status=held", "Held runs could not be read", None),
    "needs: failed": ("/", "runs?status=failed", "Failed runs could not be read", None),
    "list": ("/", "runs?limit=50", "The list of runs could not be read", "No runs yet"),
    "pending": (
        "/pending",
        "pending",
        "The pending decisions could not be read",
        "No pending decisions",
    ),
    "findings": (
        "/findings",
        "findings",
        "The findings could not be read",
        "No findings",
    ),
    "fleet": ("/fleet", "fleet", "The fleet could not be read", "No worker is alive"),
    "audit": (
        "/fleet",
        "audit",
        "The log of changes could not be read",
        "No changes in the last 90 days",
    ),
    "trends": (
        "/trends",
        "trends",
        "The trends could not be read",
        "No measures",
    ),
    "run": ("/run?id=seen", "run?", "This run cannot be read", None),
    "timeline": ("/run?id=seen", "run/timeline", "The timeline could not be read", None),
    "journal": ("/run?id=seen#journal", "run/history?", "The journal could not be read", None),
    "tail": ("/run?id=seen", "run/history?", "New entries could not be read", None),
    "snapshots": (
        "/run?id=seen#snapshots",
        "run/snapshots",
        "The snapshots could not be read",
        "No snapshots",
    ),
}
"""Every part of every page that is read on its own."""


def breaks(page: Page, path: str, status: int = 500) -> None:
    """Let the server answer what is read there with an error."""
    error = {"version": 1, "error": {"type": "Corrupt", "message": BROKEN}}
    page.route(
        lambda url: f"/api/v1/{path}" in url,
        lambda route: route.fulfill(status=status, body=json.dumps(error)),
    )


@pytest.fixture
def seen(stage: Stage) -> None:
    """A run that is at work, so that its page has all parts."""
    store = SqliteStore(str(stage.folder / "runs.db"))
    if store.get("seen") is None:
        Journal(store, "seen").step("look", {"found": 3})
    store.close()


@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.usefixtures("seen")
def test_a_part_that_cannot_be_read_says_so(
    page: Page, stage: Stage, watched: Watched, shoot: Callable[..., Any], panel: str
):
    where, path, told, nothing = PANELS[panel]
    watched.expect(500)
    breaks(page, path)
    page.goto(stage.origin + where)
    expect(page.locator("main")).to_contain_text(told)
    expect(page.locator("main")).to_contain_text(BROKEN)
    if nothing is not None:
        expect(page.get_by_text(nothing).filter(visible=True)).to_have_count(0)
    shoot(page, panel.replace(": ", "-"))
    page.unroute_all()
    page.reload()
    expect(page.locator(".unread")).to_have_count(0)
    expect(page.locator("main")).not_to_contain_text(BROKEN)


def test_every_read_of_the_page_is_in_the_table():
    """A part that is added is added to the table: whoever reads handles that it fails."""
    known = {path.partition("?")[0] for _, path, *_ in PANELS.values()}
    asked = set(
        re.findall(
            r'(?<![.\w])get\("([\w/-]+)"',
            "".join(path.read_text() for path in sorted(STATIC.rglob("*.js"))),
        )
    )
    elsewhere = {
        "me": "the shell says who is signed in, or asks for a token",
        "run/state": "a snapshot that is chosen: a message",
        "run/steps": "more steps, on a button: a message",
        "run/state-diff": "two snapshots that are chosen: a message",
        "run/preview-resume": "in a dialog, which says what could not be read",
        "run/preview-rollback": "in a dialog: a message",
        "run/preview-fork": "in a dialog: a message",
    }
    assert asked == known | set(elsewhere)


def test_counts_that_cannot_be_read_are_no_nought(page: Page, stage: Stage, watched: Watched):
    watched.expect(500)
    breaks(page, "pending")
    breaks(page, "findings")
    page.goto(stage.origin + "/fleet")
    for name in ("pending", "findings"):
        expect(page.locator(f"nav [data-count={name}]")).to_have_text("?")
    page.unroute_all()
    page.reload()
    expect(page.locator("nav [data-count=findings]")).not_to_have_text("?")


def test_parts_of_the_fleet_that_are_damaged_are_not_known(
    page: Page, stage: Stage, shoot: Callable[..., Any]
):
    told = {"version": 1, "workers": None, "queues": None, "schedules": None, "troubles": [BROKEN]}
    page.route(
        lambda url: "/api/v1/fleet" in url, lambda route: route.fulfill(body=json.dumps(told))
    )
    page.goto(stage.origin + "/fleet")
    expect(page.locator("section .unread")).to_have_count(3)
    expect(page.locator("#numbers")).to_contain_text("not known")
    expect(page.locator("#told")).to_have_text(
        "workers not known · queues not known · schedules not known"
    )
    expect(page.get_by_text("No worker is alive")).to_be_hidden()
    shoot(page)


def test_a_run_whose_process_died_is_shown_as_abandoned(
    page: Page, stage: Stage, shoot: Callable[..., Any]
):
    store = SqliteStore(str(stage.folder / "runs.db"))
    Journal(store, "left-alone").step("look", {"found": 3})
    store.close()  # With its last handle the owner is gone.
    page.goto(stage.origin + "/?search=left-alone")
    row = page.get_by_role("row").filter(has_text="left-alone")
    expect(row).to_contain_text("running: abandoned")
    shoot(page, "list")
    page.goto(stage.origin + "/run?id=left-alone")
    expect(page.locator(".run-head")).to_contain_text("running: abandoned")
    expect(page.locator(".run-head")).to_contain_text("which is dead")
    shoot(page, "run")
    page.goto(stage.origin + "/fleet")
    expect(page.locator("#queues tbody")).to_contain_text("abandoned")
    shoot(page, "fleet")


def test_an_answer_that_never_comes_is_an_error(page: Page, stage: Stage):
    """Without a limit the page would show its old state for ever, as if it were the present one."""
    page.clock.install()
    page.goto(stage.origin + "/fleet")
    unanswered: list[Route] = []
    page.route(lambda url: "id=never" in url, lambda route: unanswered.append(route))
    page.evaluate(served(ASK_FOR_NEVER))
    while not unanswered:
        page.wait_for_timeout(20)
    page.clock.run_for(60_000)
    assert page.evaluate("window.told") == "The server of this page did not answer in time."


def test_half_an_answer_is_not_taken_for_an_answer(page: Page, stage: Stage):
    page.route(
        lambda url: "/api/v1/fleet" in url, lambda route: route.fulfill(body='{"workers": [')
    )
    page.goto(stage.origin + "/fleet")
    expect(page.locator(".unread").first).to_contain_text("is incomplete")


def test_a_page_that_waited_for_an_answer_goes_on_looking(page: Page, stage: Stage):
    """What changes while the page reads the run is looked at afterwards, and so is what comes then."""
    held: list[Route] = []
    is_holding = True
    status = page.locator(".run-head .badge").first

    def hold(route: Route) -> None:
        if is_holding:
            held.append(route)
        else:
            route.continue_()

    with stage.working(module="tests.web.talking"):
        stage.submit(talking.then_waits, "slow", 2)
        stage.until_status("slow", "waiting")
        page.goto(f"{stage.origin}/run?id=slow#journal")
        expect(status).to_contain_text("waiting")
        page.route(lambda url: url.endswith("/run?id=slow"), hold)
        stage.store.pause("slow")
        while not held:
            page.wait_for_timeout(20)
        # Entries that come while the answer is awaited: the page wants to look again, and may not yet.
        stage.store.resume("slow")
        expect(page.locator(".journal > li").last).not_to_contain_text("run held")
        page.wait_for_timeout(1000)
        is_holding = False
        for route in held:
            route.continue_()
        expect(status).to_contain_text("waiting")
        stage.store.signal("slow", "go")
    expect(status).to_contain_text("completed")
