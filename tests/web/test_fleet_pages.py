"""Fleet, trends and findings in a real browser, of a worker that really works."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.web import flows
from tests.web.conftest import NARROW, Opens
from tests.web.measured import write_a_day
from tests.web.stage import Stage, until


@pytest.fixture(scope="module")
def stage(stage: Stage) -> Iterator[Stage]:
    """A fleet with some history: runs that were completed, failed, held, and one that is at work."""
    with stage.working("--name", "crew-1", "--concurrency", "4") as process:
        for number in range(6):
            stage.submit(flows.order, f"order-{number}", f"order-{number}")
        stage.submit(flows.failing, "broken", "broken")
        stage.mark("breaks-odd")
        stage.submit(flows.order, "odd", "odd")
        stage.until_status("broken", "failed")
        stage.until_status("odd", "held")
        until(lambda: stage.status("order-5") == "completed", process)
        process.terminate()  # In good order: what it measured is written when it ends.
        process.wait(60)
    # It says three times per lease how many places are in use.
    with stage.working("--name", "crew-2", "--concurrency", "4", "--lease", "6"):
        stage.submit(flows.long, "busy", "busy")
        until(lambda: stage.marked("inside-busy"))
        yield stage
        stage.mark("go-on-busy")


def both(tab: Page, shoot: Callable[..., Any]) -> None:
    """Keep pictures of a page, wide and narrow; it must not be wider than the screen."""
    shoot(tab)
    shoot(tab, "", NARROW)
    assert tab.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_the_fleet_with_a_real_worker(page: Page, stage: Stage, shoot: Callable[..., Any]):
    page.goto(stage.origin + "/fleet")
    worker = page.get_by_role("row").filter(has_text="crew-2")
    expect(worker).to_contain_text("running")
    expect(worker.get_by_role("img")).to_have_attribute("aria-label", "Places in use: 1 of 4, 25 %")
    queue = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="default"))
    expect(queue).to_contain_text("1 worker")
    expect(page.locator("#numbers")).to_contain_text("1 of 4")
    expect(page.locator("#numbers")).to_contain_text("Not due")
    both(page, shoot)


def test_a_schedule_is_paused_and_goes_on(page: Page, stage: Stage):
    page.goto(stage.origin + "/fleet")
    row = page.get_by_role("row").filter(has=page.get_by_role("rowheader", name="web-nightly"))
    row.get_by_role("button", name="Pause: schedule web-nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(row).to_contain_text("paused")
    assert [it.paused for it in stage.store.schedules()] == [True]
    row.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(row).not_to_contain_text("paused")
    assert [it.paused for it in stage.store.schedules()] == [False]


def test_limits_of_a_queue_are_the_admins(
    page: Page, opens: Opens, stage: Stage, shoot: Callable[..., Any]
):
    page.goto(stage.origin + "/fleet")
    expect(page.get_by_role("rowheader", name="default")).to_be_visible()
    expect(page.get_by_role("button", name="Limits of queue default")).to_have_count(0)
    tab = opens(stage.address_of("ada", "admin"))
    tab.goto(stage.origin + "/fleet")
    tab.get_by_role("button", name="Limits of queue default").click()
    tab.get_by_role("dialog").get_by_label("Runs at work at once", exact=True).fill("2")
    tab.get_by_role("dialog").get_by_role("button", name="Set the limits").click()
    queue = tab.get_by_role("row").filter(has=tab.get_by_role("rowheader", name="default"))
    expect(queue).to_contain_text("2 at once")
    expect(queue.get_by_label("Its own limit in use: 1 of 2, 50 %")).to_be_visible()
    change = tab.locator("#audit tbody tr").first
    expect(change).to_contain_text("queue default")
    expect(change).to_contain_text("ada (page, 127.0.0.1)")
    expect(change).to_contain_text("concurrency: 2")
    shoot(tab)
    shoot(tab, size=NARROW)
    viewer = opens(stage.address_of("vic", "viewer"))
    viewer.goto(stage.origin + "/fleet")
    expect(viewer.get_by_role("rowheader", name="default")).to_be_visible()
    expect(viewer.locator("#audit")).to_be_hidden()


def test_a_worker_that_dies_leaves_the_page(page: Page, stage: Stage):
    with stage.working("--name", "short-lived") as process:
        page.goto(stage.origin + "/fleet")
        row = page.get_by_role("row").filter(has_text="short-lived")
        expect(row).to_be_visible()
        process.terminate()
        process.wait(60)
        expect(row).to_have_count(0)


def test_plots_are_drawn_from_real_measures(page: Page, stage: Stage, shoot: Callable[..., Any]):
    page.goto(stage.origin + "/trends?since=1h")
    for title in ("Step latency", "Error rate", "Throughput", "Cost", "Trace coverage"):
        plot = page.locator("figure").filter(has=page.get_by_role("heading", name=title))
        expect(plot.locator("svg[role=slider]")).to_be_visible()
        marks = plot.locator("svg[role=slider] :is(polyline, circle, rect)")
        expect(marks.first).to_be_attached()
    both(page, shoot)
    page.get_by_label("Flow").select_option("web-order")
    # Seven look-ups at 0.4 cents: six orders, and the one whose charge broke off.
    cost = page.locator("figure").filter(has=page.get_by_role("heading", name="Cost"))
    expect(cost.locator(".total")).to_have_text("$0.028 · 10,500 tokens")
    runs = page.locator("figure").filter(has=page.get_by_role("heading", name="Throughput"))
    expect(runs.locator(".total")).to_have_text("6 runs completed")


def test_a_plot_is_read_by_keys_and_as_a_table(page: Page, stage: Stage):
    page.goto(stage.origin + "/trends?since=1h")
    plot = page.locator("figure").filter(has=page.get_by_role("heading", name="Throughput"))
    slider = plot.get_by_role("slider")
    slider.focus()
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"completed [1-6]"))
    expect(plot.locator(".readout")).to_contain_text("failed 1")
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuenow", "0")
    expect(slider).to_have_attribute("aria-valuetext", re.compile("completed 0"))
    plot.get_by_text("As a table").click()
    expect(plot.get_by_role("table").get_by_role("row")).to_have_count(2)


def test_another_time_and_one_flow(page: Page, stage: Stage):
    page.goto(stage.origin + "/trends")
    page.get_by_label("Flow").select_option("web-failing")
    page.get_by_label("6 h").check()
    expect(page).to_have_url(re.compile(r"since=6h&flow=web-failing"))
    errors = page.locator("figure").filter(has=page.get_by_role("heading", name="Error rate"))
    expect(errors.locator(".total")).to_have_text("50 %")


def test_findings_are_shown(page: Page, stage: Stage, shoot: Callable[..., Any]):
    page.goto(stage.origin + "/findings")
    finding = page.get_by_role("article", name="partial failure in run broken")
    expect(finding).to_contain_text("web-mail")  # What it did before it failed, and what stays.
    expect(finding).to_contain_text("holdfast rollback broken")
    page.get_by_label("Kind").select_option("partial_failure")
    expect(finding).to_be_visible()
    both(page, shoot)


def test_in_the_dark(opens: Opens, stage: Stage, shoot: Callable[..., Any]):
    tab = opens(scheme="dark")
    for name in ("pending", "fleet", "findings"):
        tab.goto(f"{stage.origin}/{name}")
        expect(tab.locator("#told")).not_to_be_empty()
        shoot(tab, name)


# -- a store of their own ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A store without any run, with its page. It is empty until a test writes a day of measures."""
    with contextlib.closing(Stage(tmp_path_factory.mktemp("bare"))) as made, made.serving():
        yield made


def test_what_is_empty_says_so(opens: Opens, bare: Stage, shoot: Callable[..., Any]):
    tab = opens(bare.address)
    for name, told in {
        "pending": "No pending decisions",
        "fleet": "No worker is alive",
        "trends": "No measures in this time",
        "findings": "No findings",
    }.items():
        tab.goto(f"{bare.origin}/{name}")
        expect(tab.get_by_role("heading", name=told)).to_be_visible()
        shoot(tab, name)


def test_a_day_of_plots(opens: Opens, bare: Stage, shoot: Callable[..., Any]):
    write_a_day(f"{bare.folder}/runs.db")
    tab = opens(bare.address)
    tab.goto(bare.origin + "/trends")
    saturation = tab.locator("figure").filter(has=tab.get_by_role("heading", name="Saturation"))
    # Nobody worked for an hour in the night: the line is interrupted, nothing is made up.
    expect(saturation.locator("svg[role=slider] polyline")).to_have_count(2)
    tab.locator("figure svg[role=slider]").first.hover()
    expect(tab.locator(".readout").first).to_contain_text("median")
    expect(tab.locator(".readout .at").first).to_contain_text(" to ")
    both(tab, shoot)
    tab.emulate_media(color_scheme="dark")
    tab.set_viewport_size({"width": 1280, "height": 800})
    shoot(tab, "dark")
