"""The list of runs in a real browser: live, filtered, by keyboard; and the page's pure functions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Locator, Page, expect

from holdfast._engine import text
from holdfast.errors import RunFailed
from tests.web import flows, talking
from tests.web.conftest import NARROW, Opens, Watched
from tests.web.seen import NAMELESS
from tests.web.stage import Stage, served

SAMPLES = (
    "plain",
    "tab\tand\nbreak\r",
    talking.HIDDEN,
    "\u00a0\u3000\u2003wide",
    "caf\u00e9 \u4e2d\u6587 \U0001f600 \u200d",
    "\ue000\U000f0000\U000e0041\x00\x7f\x85",
)

TALKS: tuple[tuple[Any, list[str] | None], ...] = (
    ([{"role": "user", "content": "x"}], ["text"]),
    ({"Chat": {"messages": [{"role": "user", "content": "x"}], "turn": 2}}, ["text"]),
    ({"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}, ["thought"]),
    ([{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}], ["result"]),
    ([{"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}], ["call"]),
    ([{"type": "function_call", "name": "f", "arguments": "{}"}], ["call"]),
    ({"choices": [{"message": {"role": "assistant", "content": "x"}}]}, ["text"]),
    ([{"role": "model", "parts": [{"text": "x"}]}], ["text"]),
    ([{"role": "cook", "content": "x"}], None),
    ({"content": "x"}, None),
    ([], None),
    ("text", None),
)
"""Values, and the kinds of parts of the conversation in them; None if there is none."""


@pytest.fixture(scope="module")
def runs(stage: Stage) -> str:
    """Sixty runs of one flow, one with a tag, and one that failed."""
    for number in range(60):
        talking.many.with_options(store=stage.store).run(f"many-{number:02}", 1)
    tagged = talking.many.with_options(store=stage.store, tags={"team": "north"})
    tagged.run("tagged", 2)
    with contextlib.suppress(RunFailed):
        texts = {str(number): "x" for number in range(2)}
        talking.harm.with_options(store=stage.store).run("broken", texts)
    return stage.origin


@pytest.fixture
def listed(page: Page, runs: str) -> Page:
    page.goto(runs + "/")
    expect(ids(page).first).to_be_visible()
    return page


def ids(page: Page) -> Locator:
    return page.locator("table.runs a.run-id")


# -- the list ----------------------------------------------------------------------------------


def test_it_is_live(listed: Page, stage: Stage):
    listed.evaluate("window.stayed = true")
    talking.many.with_options(store=stage.store).run("just-now", 3)
    row = listed.locator("table.runs tbody tr").first
    expect(row).to_contain_text("just-now")
    expect(row).to_contain_text("completed")
    stage.submit(flows.long, "for-somebody", "for-somebody")
    expect(row).to_contain_text("queued")
    expect(listed.get_by_role("button", name="queued 1")).to_be_visible()
    stage.command("cancel", "for-somebody")
    expect(row).to_contain_text("cancelled")
    assert listed.evaluate("window.stayed"), "the page was not loaded again"


def test_many_tabs_share_one_stream(listed: Page, stage: Stage, watched: Watched):
    tabs = [listed, *(watched.watch(listed.context.new_page()) for _ in range(8))]
    for tab in tabs[1:]:
        tab.goto(stage.origin + "/")
        expect(ids(tab).first).to_be_visible()
    talking.many.with_options(store=stage.store).run("for-all-tabs", 1)
    for tab in tabs:
        expect(ids(tab).first).to_have_text("for-all-tabs")
    # The tab that listens for all is closed, and another takes over.
    listed.close()
    talking.many.with_options(store=stage.store).run("for-the-others", 1)
    for tab in tabs[1:]:
        expect(ids(tab).first).to_have_text("for-the-others")


def test_filters_stand_in_the_address(listed: Page, stage: Stage, shoot: Callable[..., Any]):
    listed.get_by_role("button", name="failed").click()
    expect(ids(listed)).to_have_text(["broken"])
    expect(listed).to_have_url(re.compile(r"/\?status=failed$"))
    listed.get_by_role("button", name="Clear filters").click()
    listed.get_by_label("Tag").fill("team=north")
    listed.get_by_label("Tag").press("Enter")
    expect(ids(listed)).to_have_text(["tagged"])
    expect(listed).to_have_url(re.compile(r"/\?tag=team%3Dnorth$"))
    shoot(listed)
    listed.reload()
    expect(ids(listed)).to_have_text(["tagged"])
    expect(listed.get_by_label("Tag")).to_have_value("team=north")
    listed.get_by_label("Not changed for").select_option("1d")
    expect(listed.get_by_role("heading", name="No matching runs")).to_be_visible()
    listed.go_back()
    expect(ids(listed)).to_have_text(["tagged"])
    listed.goto(stage.origin + "/?held_reason=budget&finding=stuck&queue=nobody&flow=talk-many")
    expect(listed.get_by_role("heading", name="No matching runs")).to_be_visible()
    expect(listed.get_by_label("Held for")).to_have_value("budget")


def test_a_filter_that_does_not_work(page: Page, runs: str, watched: Watched):
    watched.expect(400)
    page.goto(runs + "/?tag=nothing")
    expect(page.get_by_role("heading", name="These filters do not work")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(ids(page).first).to_be_visible()


def test_pages(listed: Page, shoot: Callable[..., Any]):
    expect(ids(listed)).to_have_count(50)
    first = ids(listed).all_text_contents()
    listed.get_by_role("button", name="Older").click()
    expect(listed.get_by_role("button", name="Newest")).to_be_visible()
    expect(ids(listed).last).to_have_text("many-00")
    assert not set(first) & set(ids(listed).all_text_contents())
    listed.get_by_role("button", name="Newest").click()
    expect(ids(listed)).to_have_text(first)
    shoot(listed, "narrow", NARROW)
    assert listed.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_what_needs_a_person_is_on_top(listed: Page, shoot: Callable[..., Any]):
    needs = listed.get_by_role("region", name="Needs a person")
    expect(needs).to_contain_text("broken")
    expect(needs).to_contain_text("Failed in turns[1]/talk-harmful-error.")
    needs.get_by_role("link", name=re.compile("^All failed")).click()
    expect(ids(listed)).to_have_text(["broken"])
    shoot(listed)


# -- the keyboard ------------------------------------------------------------------------------


def test_by_keyboard_alone(listed: Page):
    focused = listed.locator(":focus")
    for key, wanted in (("j", 0), ("j", 1), ("k", 0)):
        listed.keyboard.press(key)
        expect(focused).to_have_text(listed.locator("main a.run-id").nth(wanted).inner_text())
    opened = focused.inner_text()
    listed.keyboard.press("Enter")
    expect(listed.locator("h1")).to_have_text(opened)
    listed.keyboard.press("g")
    listed.keyboard.press("r")
    expect(ids(listed).first).to_be_visible()
    listed.keyboard.press("/")
    listed.keyboard.type("many-07")
    listed.keyboard.press("Enter")
    expect(listed.locator("h1")).to_have_text("many-07")
    listed.keyboard.press("/")
    listed.keyboard.type("many-1")
    listed.keyboard.press("Enter")
    expect(ids(listed)).to_have_count(10)
    listed.keyboard.press("?")
    help = listed.get_by_role("dialog", name="Keys")
    expect(help).to_contain_text("Older runs")
    listed.keyboard.press("Escape")
    expect(help).to_be_hidden()


def test_every_control_can_be_reached_and_has_a_name(listed: Page):
    skip = listed.get_by_role("link", name="Skip to the content")
    listed.keyboard.press("Tab")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    assert listed.evaluate(NAMELESS) == []
    reached: set[str] = set()
    for _ in range(40):
        listed.keyboard.press("Tab")
        reached.add(listed.evaluate("document.activeElement.id || document.activeElement.tagName"))
    assert {"search", "theme", "sign-out", "by-flow", "by-held_reason", "A", "BUTTON"} <= reached


def test_the_theme_is_kept(listed: Page, shoot: Callable[..., Any]):
    ground = "getComputedStyle(document.body).backgroundColor"
    light = listed.evaluate(ground)
    theme = listed.get_by_role("button", name=re.compile("^Theme"))
    theme.click()
    theme.click()
    expect(theme).to_have_text("Theme: dark")
    dark = listed.evaluate(ground)
    assert dark != light
    listed.reload()
    expect(ids(listed).first).to_be_visible()
    assert listed.evaluate(ground) == dark
    shoot(listed)


# -- nothing there, nobody there ---------------------------------------------------------------


def test_no_runs_yet(opens: Opens, watched: Watched, tmp_path: Path, shoot: Callable[..., Any]):
    with contextlib.closing(Stage(tmp_path)) as empty, empty.serving() as address:
        tab = opens(address)
        expect(tab.get_by_role("heading", name="No runs yet")).to_be_visible()
        expect(tab.locator("main")).to_contain_text("holdfast demo")
        shoot(tab)
        talking.many.with_options(store=empty.store).run("the-first", 1)
        expect(ids(tab)).to_have_text(["the-first"])
    # The server is gone: the page says so, and keeps what it shows.
    watched.problems.clear()
    expect(tab.get_by_role("alert")).to_contain_text("No connection")
    expect(ids(tab)).to_have_text(["the-first"])
    tab.close()
    watched.problems.clear()


# -- pure functions ----------------------------------------------------------------------------


def call(page: Page, module: str, code: str, *given: Any) -> Any:
    """Call a function of a module of the page."""
    code = f"async (given) => (await import('/static/{module}')).{code}"
    return page.evaluate(served(code), given)


def test_the_page_says_what_the_terminal_says(listed: Page):
    for sample in SAMPLES:
        assert call(listed, "lib/dom.js", "visible(given[0])", sample) == text.visible(sample)
    for seconds in (0, 0.05, 0.0996, 1.26, 9.96, 61, 119, 121, 7300, 200_000):
        assert call(listed, "lib/format.js", "length(given[0])", seconds) == text.length(seconds)


def test_a_link_leads_nowhere_else(listed: Page):
    for harm in ("javascript:alert(1)", "data:text/html,x", "//evil.example", "\x01javascript:x"):
        assert call(listed, "lib/dom.js", "outside(given[0]).nodeName ?? 'text'", harm) == "text"
        with pytest.raises(Error, match="link is not allowed"):
            call(listed, "lib/dom.js", "el('a', { href: given[0] }).href", harm)
    assert (
        call(
            listed, "lib/dom.js", "outside(given[0]).nodeName ?? 'text'", "https://example.com/a b"
        )
        == "text"
    )
    link = call(listed, "lib/dom.js", "outside(given[0]).outerHTML", "https://example.com/x")
    assert 'rel="noopener noreferrer"' in link


def test_lines_that_differ(listed: Page):
    before, after = ["a", "b", "c", "d"], ["a", "x", "c", "d", "e"]
    found = call(listed, "lib/differences.js", "lineDifferences(...given)", before, after)
    assert found == [
        [" ", "a"],
        ["-", "b"],
        ["+", "x"],
        [" ", "c"],
        [" ", "d"],
        ["+", "e"],
    ]


def test_conversations_are_found(listed: Page):
    for value, kinds in TALKS:
        found = call(listed, "lib/messages.js", "messagesIn(given[0])", value)
        told = found and [part["kind"] for message in found for part in message["parts"]]
        assert told == kinds, value


def test_idle_time_is_folded(listed: Page):
    hour = 3_600_000
    busy = [[0, 5000], [hour, hour + 5000]]
    pieces = call(listed, "lib/scale.js", "pieces(...given)", 0, hour + 5000, busy, True)
    assert [piece["folded"] for piece in pieces] == [False, True, False]
    assert sum(piece["size"] for piece in pieces) < 12_000
    flat = call(listed, "lib/scale.js", "pieces(...given)", 0, hour + 5000, busy, False)
    assert [(piece["from"], piece["size"]) for piece in flat] == [(0, hour + 5000)]
