"""What is long or narrow: the end of a journal, commands and who is signed in on a small screen, and a
part of the page that is named in the address."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from tests.web import flows, talking
from tests.web.conftest import NARROW, WIDE
from tests.web.stage import Stage, until

MODULE = "tests.web.talking"
SIZES = pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])


def is_whole(entry: Locator) -> bool:
    """Whether an entry is seen as a whole: neither cut by the screen nor by the list."""
    found: bool = entry.evaluate(
        """(node) => {
          const own = node.getBoundingClientRect();
          const box = node.parentElement.getBoundingClientRect();
          return own.bottom <= innerHeight + 1 && own.top >= 0 && own.bottom <= box.bottom + 1;
        }"""
    )
    return found


@SIZES
def test_the_end_of_a_journal_that_is_followed(page: Page, stage: Stage, size: Any):
    name = f"follow-{size['width']}"
    with stage.working(module=MODULE):
        stage.submit(talking.then_waits, name, 60)
        stage.until_status(name, "waiting")
        page.set_viewport_size(size)
        page.goto(f"{stage.origin}/run?id={name}#journal")
        last = page.locator(".journal > li").last
        expect(last).to_contain_text("run waiting")
        until(lambda: is_whole(last))
        stage.store.signal(name, "go")
        stage.until_status(name, "completed")
    expect(last).to_contain_text("run completed")
    # A run that has ended is not followed, and nothing of its journal is hidden in a box.
    expect(page.get_by_label("Follow new entries")).to_be_hidden()
    hides = "(list) => list.scrollHeight > list.clientHeight + 2"
    assert not page.locator(".journal").evaluate(hides)


def test_a_part_in_the_address_is_shown(page: Page, stage: Stage):
    with stage.working(module=MODULE):
        stage.submit(talking.many, "parts", 2)
        stage.until_status("parts", "completed")
    page.goto(f"{stage.origin}/run?id=parts#journal")
    chosen = page.get_by_role("tab", selected=True)
    expect(chosen).to_have_text("Journal")
    page.evaluate("location.hash = '#steps'")
    expect(chosen).to_have_text("Steps")
    page.evaluate("location.hash = '#nothing'")
    expect(chosen).to_have_text("Steps")


def test_a_small_screen_hides_nothing_that_is_needed(page: Page, stage: Stage):
    (stage.folder / "breaks-small").touch()
    with stage.working():
        stage.submit(flows.order, "small", "small")
        stage.until_status("small", "held")
    page.set_viewport_size(ViewportSize(width=NARROW["width"], height=NARROW["height"]))
    page.goto(f"{stage.origin}/run?id=small")
    commands = page.get_by_label("Explanation").locator(".command code")
    expect(commands.first).to_be_visible()
    cut = "(nodes) => nodes.filter((node) => node.scrollWidth > node.clientWidth + 1).length"
    assert commands.evaluate_all(cut) == 0
    expect(page.locator("#actor")).to_be_visible()
    expect(page.locator("#actor")).to_contain_text("operator")
    expect(page.locator("#theme")).to_have_text("Theme: system")
    attempts = page.locator("table.steps td[data-label=Attempts]").first
    expect(attempts).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
