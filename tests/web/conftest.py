"""One browser per test process, one store with its page per module, a fresh context per test.

A test fails if its page writes an error to the console, raises, or breaks the content security
policy. Screenshots are kept in build/screenshots, by test and width, to be looked at.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    expect,
    sync_playwright,
)

from tests.tidy.source import ROOT
from tests.web import chromium
from tests.web.stage import PATIENCE_S, Stage

SCREENSHOTS = ROOT / "build" / "screenshots"
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}
REPORT_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`CSP violation: ${event.violatedDirective} ${event.blockedURI}`);
});
"""
STATUS = re.compile(r"status of (\d{3})")


class Watched:
    """What went wrong in the pages of a test."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.expected: set[str] = set()
        """Statuses of answers that the test provokes; a browser logs each as an error."""

    def watch(self, page: Page) -> Page:
        """Note what goes wrong in a page."""
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        page.on("dialog", self._alert)
        return page

    def expect(self, *statuses: int) -> None:
        """Say that the test provokes answers of these statuses."""
        self.expected |= set(map(str, statuses))

    def _alert(self, shown: Dialog) -> None:
        """No page of ours calls `alert`: text of others that became a script might."""
        self.problems.append(f"alert: {shown.message}")
        shown.dismiss()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        status = STATUS.search(message.text)
        if status is not None and status.group(1) in self.expected:
            return
        self.problems.append(f"{message.type}: {message.text} ({message.location.get('url')})")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = chromium.path()
    assert found is not None, chromium.HELP
    expect.set_options(timeout=PATIENCE_S * 1000 / 2)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=list(chromium.FLAGS))
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A store of this module, with its page."""
    with contextlib.closing(Stage(tmp_path_factory.mktemp("stage"))) as made, made.serving():
        yield made


@pytest.fixture
def watched() -> Iterator[Watched]:
    seen = Watched()
    yield seen
    assert not seen.problems, "\n".join(seen.problems)


Opens = Callable[..., Page]


@pytest.fixture
def opens(browser: Browser, stage: Stage, watched: Watched) -> Iterator[Opens]:
    """Opens a tab in a context of its own (another person, another browser), and signs in."""
    contexts: list[BrowserContext] = []

    def opened(
        address: str | None = None,
        size: dict[str, int] = WIDE,
        *,
        scheme: Literal["light", "dark"] = "light",
        signs_in: bool = True,
    ) -> Page:
        context = browser.new_context(
            viewport={"width": size["width"], "height": size["height"]},
            color_scheme=scheme,
            reduced_motion="reduce",
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE_S * 1000 / 2)
        context.add_init_script(REPORT_VIOLATIONS)
        tab = watched.watch(context.new_page())
        if signs_in:
            sign_in(tab, address or stage.address, watched)
        return tab

    yield opened
    for context in contexts:
        context.close()


def sign_in(tab: Page, address: str, watched: Watched) -> None:
    """Open the address that `holdfast ui` printed, and wait for the page behind it."""
    watched.expect(401)
    tab.goto(address)
    tab.locator("nav").first.wait_for()
    watched.expected.discard("401")


@pytest.fixture
def page(opens: Opens) -> Page:
    """A tab that is signed in, 1280 pixels wide."""
    return opens()


@pytest.fixture
def shoot(request: pytest.FixtureRequest) -> Callable[..., Path]:
    """Keeps a picture of a page, as wide as asked for."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    test = re.sub(r"\W+", "-", request.node.name).strip("-")

    def keep(tab: Page, name: str = "", size: dict[str, int] | None = None) -> Path:
        if size is not None:
            tab.set_viewport_size({"width": size["width"], "height": size["height"]})
        viewport = tab.viewport_size
        assert viewport is not None
        part = f"-{name}" if name else ""
        path = SCREENSHOTS / f"{test}{part}-{viewport['width']}.png"
        # A dialog stands before what is seen, not before all of the page.
        tab.screenshot(path=path, full_page=tab.locator("dialog[open]").count() == 0)
        return path

    return keep
