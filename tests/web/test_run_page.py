"""The page of a run in a real browser: followed live, long, and full of text that means harm."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from holdfast._engine.text import visible
from holdfast.errors import RunFailed
from tests.web import flows, talking
from tests.web.conftest import NARROW, Watched
from tests.web.seen import HARMLESS, NAMELESS
from tests.web.stage import PATIENCE_S, Stage, until

MODULE = "tests.web.talking"
SOON_MS = PATIENCE_S * 500


def go(page: Page, stage: Stage, run_id: str, part: str = "") -> None:
    """Open the page of a run, and wait until it is there."""
    page.goto("about:blank")
    page.goto(f"{stage.origin}/run?id={quote(run_id, safe='')}{part and '#' + part}")
    expect(page.get_by_role("tab", selected=True)).to_be_visible()


def run(stage: Stage, flow: Any, run_id: str, *arguments: Any) -> None:
    """Execute a run to its end, in this process."""
    with contextlib.suppress(RunFailed):
        flow.with_options(store=stage.store).run(run_id, *arguments)


def status(page: Page) -> Locator:
    return page.locator(".run-head .badge").first


def numbers(page: Page) -> list[int]:
    """The numbers of the entries that are shown."""
    script = "(nodes) => nodes.map((node) => Number(node.dataset.seq))"
    found: list[int] = page.locator(".journal > li").evaluate_all(script)
    return found


# -- live --------------------------------------------------------------------------------------


def test_followed_live_killed_and_resumed(page: Page, stage: Stage, shoot: Callable[..., Any]):
    with stage.working(module=MODULE) as first:
        stage.submit(talking.watched, "followed", "followed")
        until(lambda: stage.marked("at-followed-0"))
        go(page, stage, "followed", "journal")
        expect(status(page)).to_have_text("running")
        page.evaluate("window.stayed = true")
        opened = page.locator(".journal > li summary").first
        opened.focus()
        opened.press("Enter")
        stage.mark("past-followed-0")
        expect(page.locator(".journal > li", has_text="step completed")).to_have_count(1)
        until(lambda: stage.marked("at-followed-1"))
        stage.killed(first)
    # Nobody wrote that it died: the page finds out by itself, and explains it.
    expect(page.get_by_label("Explanation")).to_contain_text("has died", timeout=SOON_MS)
    expect(page.locator(".timeline .bar.kind-gap.is-died")).to_have_count(1, timeout=SOON_MS)
    shoot(page, "dead")
    for number in range(1, 4):
        stage.mark(f"past-followed-{number}")
    with stage.working(module=MODULE):
        expect(status(page)).to_have_text("completed", timeout=SOON_MS)
    expect(page.locator(".journal > li", has_text="run completed")).to_have_count(1)
    history = stage.store.history("followed")
    assert numbers(page) == [entry.seq for entry in history]
    assert page.evaluate("window.stayed"), "the page was not loaded again"
    assert opened.evaluate("(node) => document.activeElement === node && node.parentElement.open")
    expect(page.locator(".timeline .bar.kind-execution")).to_have_count(2)
    expect(page.locator(".timeline-told")).to_contain_text("executed 2 times · 1 gap")
    # Nobody knows when in the gap it died.
    died = page.locator(".timeline g", has=page.locator(".bar.kind-gap.is-died")).last
    expect(died.locator("title")).to_contain_text(re.compile("Last sign of life .*; found dead "))
    expect(page.get_by_label("Explanation")).to_be_hidden()
    # One count: what the list says, too. What else is counted is called by another name.
    done = stage.store.get("followed").totals.steps
    head = page.locator(".run-facts div", has_text="Steps")
    expect(head).to_contain_text(f"{done} done")
    expect(page.locator(".timeline-told")).to_contain_text("steps called")
    page.get_by_role("tab", name="Steps").click()
    expect(page.locator("table.steps tbody tr")).to_have_count(4)
    shoot(page, "completed")


def test_the_running_step_is_shown(page: Page, stage: Stage, shoot: Callable[..., Any]):
    with stage.working("--lease", "3"):
        stage.submit(flows.long, "runs-long", "runs-long")
        until(lambda: stage.marked("inside-runs-long"))
        go(page, stage, "runs-long")
        fact = page.locator(".run-facts div", has=page.locator("dt", has_text="Running"))
        expect(fact.locator("dd")).to_contain_text("web-work#3, since", timeout=SOON_MS)
        shoot(page)
        stage.mark("go-on-runs-long")
        expect(status(page)).to_have_text("completed", timeout=SOON_MS)
        expect(fact).to_have_count(0)


# -- values, snapshots, timeline ---------------------------------------------------------------


@pytest.fixture(scope="module")
def talked(stage: Stage) -> str:
    run(stage, talking.agent, "talked", "Order 1042 arrived broken.\nPlease look.")
    return "talked"


def test_the_head(page: Page, stage: Stage, talked: str, shoot: Callable[..., Any]):
    go(page, stage, talked)
    facts = page.locator(".run-facts")
    expect(status(page)).to_have_text("completed")
    for told in ("talk-agent", "7 done, in 8 attempts", "$0.060", "4,500 in, 750 out"):
        expect(facts).to_contain_text(told)
    assert page.evaluate(NAMELESS) == []
    shoot(page)
    shoot(page, "narrow", NARROW)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= NARROW["width"], "nothing is wider than the screen"


def test_a_conversation_and_its_tree(page: Page, stage: Stage, talked: str, shoot: Any):
    go(page, stage, talked, "journal")
    last = page.locator(".journal > li", has_text="step started").last
    last.locator("summary").first.click()
    said = last.locator(".talk-message")
    expect(said).to_have_count(7)
    expect(said.first).to_have_text("userOrder 1042 arrived broken.\nPlease look.")
    expect(said.nth(1)).to_contain_text("calls look_up")
    expect(said.nth(2)).to_contain_text("state: broken")
    shoot(page)
    last.get_by_role("button", name="Tree").click()
    expect(said).to_have_count(0)
    branch = last.locator(".tree summary", has_text="messages")
    branch.focus()
    branch.press("ArrowRight")
    inner = last.locator(".tree summary").nth(1)
    expect(inner).to_be_visible()
    branch.press("ArrowDown")
    expect(inner).to_be_focused()
    inner.press("ArrowLeft")
    expect(branch).to_be_focused()
    branch.press("ArrowLeft")
    assert branch.evaluate("(node) => !node.parentElement.open")


def test_snapshots_and_what_changed(page: Page, stage: Stage, talked: str, shoot: Any):
    go(page, stage, talked, "snapshots")
    shown = page.locator(".snapshot-shown")
    expect(shown.locator(".difference")).to_have_count(3)
    expect(shown.locator(".difference").first).to_contain_text("messages[5] added")
    expect(shown.locator(".line.is-added")).to_have_text("+added: line of turn 2")
    shoot(page)
    page.get_by_label("From").select_option(index=0)
    expect(shown.locator(".line.is-added").first).to_contain_text("line of turn 1")
    page.get_by_role("button", name="State").click()
    expect(shown.locator(".talk-message")).to_have_count(7)


def test_the_timeline_by_keyboard(page: Page, stage: Stage, talked: str):
    go(page, stage, talked)
    picture = page.get_by_role("application", name="Timeline of the run")
    told = page.locator(".timeline-told")
    picture.focus()
    picture.press("ArrowRight")
    expect(told).to_contain_text("owned the run: completed")
    picture.press("ArrowRight")
    expect(told).to_contain_text("turns[0]/talk-think: completed")
    expect(page.locator("#spoken")).to_contain_text("turns[0]/talk-think: completed")
    wide = "(node) => Number(node.getAttribute('width'))"
    before = page.locator(".timeline .bar.is-chosen").evaluate(wide)
    for _ in range(8):
        picture.press("+")
    assert page.locator(".timeline .bar.is-chosen").evaluate(wide) > before
    picture.press("Home")
    assert page.locator(".timeline .bar.is-chosen").evaluate(wide) == before
    picture.press("Enter")
    expect(page.get_by_role("tab", name="Journal")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".journal > li")).to_have_count(2)
    page.get_by_text("The same as a table").click()
    rows = page.locator(".as-table tbody tr")
    expect(rows.filter(has_text="failed")).to_have_count(1)
    assert rows.count() == page.locator(".timeline .bar").count()


def test_a_long_run(page: Page, stage: Stage, shoot: Callable[..., Any]):
    run(stage, talking.many, "long", 1200)
    go(page, stage, "long", "journal")
    last = stage.store.history("long")[-1].seq
    expect(page.locator(".journal > li").last).to_contain_text("run completed")
    assert numbers(page) == list(range(last - 199, last + 1))
    page.get_by_role("button", name="Show 200 earlier entries").click()
    expect(page.locator(".journal > li")).to_have_count(400)
    assert numbers(page) == list(range(last - 399, last + 1))
    page.get_by_role("button", name="From the beginning").click()
    expect(page.locator(".journal > li").first).to_contain_text("run started")
    page.get_by_role("button", name="Show 200 later entries").click()
    expect(page.locator(".journal > li")).to_have_count(400)
    assert numbers(page) == list(range(1, 401))
    page.get_by_role("button", name="To the end").click()
    expect(page.locator(".journal > li").last).to_contain_text("run completed")
    page.get_by_role("tab", name="Steps").click()
    expect(page.locator("table.steps tbody tr")).to_have_count(200)
    page.get_by_role("button", name="Show all 1,200 steps").click()
    expect(page.locator("table.steps tbody tr")).to_have_count(1200)
    expect(page.locator(".timeline-told")).to_contain_text("bars are joined into one")
    shoot(page)


def test_a_large_value_is_shown_in_parts(page: Page, stage: Stage):
    run(stage, talking.large_value, "large", 100_000)
    go(page, stage, "large", "values")
    result = page.locator("#panel-values section").nth(1)
    expect(result).not_to_contain_text("xxx")
    result.get_by_role("button", name="Show all (99 KiB)").click()
    expect(result).to_contain_text("constructor")
    expect(result).not_to_contain_text("the end")
    result.get_by_role("button", name="Show all (100,007 characters)").click()
    expect(result).to_contain_text("the end")
    result.locator("summary", has_text="250 elements").click()
    more = result.get_by_role("button", name="Show 100 more of 150")
    more.click()
    expect(result.get_by_role("button", name="Show 50 more of 50")).to_be_visible()


# -- text that means harm ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def harmful(stage: Stage) -> list[str]:
    texts = {str(at): text for at, text in enumerate((*talking.HARM, talking.HIDDEN))}
    for text in talking.HARM:
        tagged = talking.harm.with_options(tags={"tag": text[:100]})
        run(stage, tagged, text, texts)
    return list(talking.HARM)


def test_harmful_text_is_only_text(page: Page, stage: Stage, harmful: list[str], shoot: Any):
    for text in harmful[:3]:
        go(page, stage, text, "journal")
        expect(page.locator("h1")).to_have_text(text)
        expect(page.locator(".journal > li").last).to_contain_text("run failed")
        for entry in page.locator(".journal > li > details").all():
            entry.evaluate("(node) => { node.open = true; }")
        expect(page.locator(".journal")).to_contain_text(visible(talking.HIDDEN)[:40])
        for name in ("Steps", "Input and result", "Snapshots"):
            page.get_by_role("tab", name=name).click()
            expect(page.get_by_role("tabpanel")).to_be_visible()
        expect(page.locator(".snapshot-shown")).to_contain_text("plan")
        assert page.evaluate(HARMLESS) == {"harmed": None, "made": []}
        hidden = re.compile("[\u202a-\u202e\u2066-\u2069\u200b\ufeff\x07\x1b]")
        assert hidden.search(page.locator("body").inner_text()) is None
    shoot(page)


def test_harmful_text_in_the_list(page: Page, stage: Stage, harmful: list[str], shoot: Any):
    page.goto(stage.origin + "/")
    for text in harmful:
        expect(page.locator("table.runs a.run-id", has_text=text)).to_have_count(1)
    expect(page.get_by_role("region", name="Needs a person")).to_contain_text("onerror")
    assert page.evaluate(HARMLESS) == {"harmed": None, "made": []}
    page.locator("table.runs a.run-id", has_text=harmful[0]).click()
    expect(page.locator("h1")).to_have_text(harmful[0])
    shoot(page)


def test_a_run_that_is_not_there(page: Page, stage: Stage, watched: Watched, shoot: Any):
    watched.expect(404)
    page.goto(f"{stage.origin}/run?id={quote(talking.HARM[1] + ' none')}")
    expect(page.get_by_role("heading", level=1)).to_have_text("This store has no run with this id.")
    expect(page.locator("main")).to_contain_text(talking.HARM[1])
    assert page.evaluate(HARMLESS) == {"harmed": None, "made": []}
    shoot(page)
