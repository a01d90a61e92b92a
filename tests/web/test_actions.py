"""What a person does with a run, on its page in a real browser: each with its confirmation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

import holdfast
from holdfast._operator.act import store_move
from tests.web import flows
from tests.web.conftest import NARROW, Opens, Watched
from tests.web.stage import Stage, served, until


@pytest.fixture(scope="module", autouse=True)
def _worker(stage: Stage) -> Iterator[None]:
    with stage.working("--name", "hands"):
        yield


def shown(page: Page, stage: Stage, run_id: str) -> Locator:
    """The actions of a run, on its page."""
    page.goto(f"{stage.origin}/run?id={run_id}")
    return page.get_by_role("group", name="Actions")


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def actors(stage: Stage, run_id: str, kind: str) -> list[str]:
    return [entry.body["actor"] for entry in stage.store.history(run_id) if entry.kind == kind]


def at_work(stage: Stage, run_id: str) -> None:
    """A run that is inside its third step, until it is told."""
    stage.submit(flows.long, run_id, run_id)
    until(lambda: stage.marked(f"inside-{run_id}"))


# -- pause, resume, cancel ---------------------------------------------------------------------


def test_pause_and_resume(page: Page, stage: Stage, shoot: Callable[..., Any]):
    at_work(stage, "paused")
    actions = shown(page, stage, "paused")
    actions.get_by_role("button", name="Pause").click()
    dialog(page).get_by_label("Reason").fill("to look at it")
    shoot(page, "pause")
    dialog(page).get_by_role("button", name="Pause", exact=True).click()
    expect(dialog(page)).to_have_count(
        0
    )  # Its process is asked: what it executes comes to its end.
    stage.mark("go-on-paused")
    stage.until_status("paused", "held")
    resume = actions.get_by_role("button", name="Resume")
    expect(resume).to_be_visible()  # The page heard of it by itself.
    resume.click()
    expect(dialog(page)).to_contain_text("Steps with an outcome are not executed again")
    dialog(page).get_by_role("button", name="Resume", exact=True).click()
    stage.until_status("paused", "completed")
    assert "(page, 127.0.0.1)" in actors(stage, "paused", "run_resumed")[-1]


def test_cancel_counts_children_that_have_not_ended(page: Page, stage: Stage):
    stage.submit(flows.parent, "mother", "mother")
    until(
        lambda: [it.status for it in stage.store.get("mother").children] == ["completed", "waiting"]
    )
    shown(page, stage, "mother").get_by_role("button", name="Cancel run").click()
    expect(dialog(page)).to_contain_text("1 child run of it is cancelled too.")


def test_cancel_lists_what_stays(page: Page, stage: Stage, shoot: Callable[..., Any]):
    stage.submit(flows.trip, "cancelled", "cancelled")
    stage.until_status("cancelled", "waiting")
    shown(page, stage, "cancelled").get_by_role("button", name="Cancel run").click()
    opened = dialog(page)
    expect(opened.get_by_label("Effects that stay")).to_contain_text("web-charge")
    expect(opened.get_by_label("Effects that stay")).to_contain_text("web-mail")
    shoot(page, "cancel")
    opened.get_by_role("button", name="Do nothing").click()
    assert stage.status("cancelled") == "waiting"
    page.get_by_role("button", name="Cancel run").click()
    dialog(page).get_by_role("button", name="Cancel the run").click()
    stage.until_status("cancelled", "cancelled")
    expect(page.get_by_role("button", name="Cancel run")).to_have_count(0)
    assert "(page, 127.0.0.1)" in actors(stage, "cancelled", "run_cancelled")[0]


def test_the_keyboard_is_enough(page: Page, stage: Stage):
    stage.submit(flows.trip, "by-keys", "by-keys")
    stage.until_status("by-keys", "waiting")
    button = shown(page, stage, "by-keys").get_by_role("button", name="Pause")
    button.focus()
    page.keyboard.press("Enter")
    expect(dialog(page).get_by_label("Reason")).to_be_focused()
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type("by keys")
    page.keyboard.press("Enter")
    stage.until_status("by-keys", "held")


def test_a_failed_run_is_taken_up_again(page: Page, stage: Stage):
    stage.submit(flows.failing, "failed", "failed")
    stage.until_status("failed", "failed")
    stage.mark("mended-failed")
    shown(page, stage, "failed").get_by_role("button", name="Resume").click()
    expect(dialog(page)).to_contain_text("next generation")
    dialog(page).get_by_role("button", name="Resume", exact=True).click()
    stage.until_status("failed", "completed")
    assert stage.store.get("failed").generation == 2


def test_resuming_says_what_changed_meanwhile(page: Page, stage: Stage, shoot: Callable[..., Any]):
    prices = stage.folder / "prices-gap"
    prices.write_text("10")
    stage.submit(flows.quoted, "gap", "gap")
    stage.until_status("gap", "waiting")
    prices.write_text("12")
    stage.store.signal("gap", "go", "now")
    stage.until_status("gap", "held")
    shown(page, stage, "gap").get_by_role("button", name="Resume").click()
    expect(dialog(page).get_by_label("Preview of the resume")).to_contain_text("fact prices")
    shoot(page, "drift")
    dialog(page).get_by_role("button", name="Resume", exact=True).click()
    expect(dialog(page)).to_contain_text("Choose one.")
    dialog(page).get_by_label("Keep").check()
    dialog(page).get_by_role("button", name="Resume", exact=True).click()
    stage.until_status("gap", "completed")
    assert stage.store.get("gap").result == "10"


def test_what_may_have_happened_is_not_repeated_without_a_second_word(
    page: Page, stage: Stage, watched: Watched
):
    from holdfast.types import Failed

    stage.mark("breaks-unknown")
    stage.submit(flows.order, "unknown", "unknown")
    stage.until_status("unknown", "held")
    stage.store.settle("unknown", "web-charge", Failed("nobody knows"), actor="ana")
    stage.until_status("unknown", "failed")
    (stage.folder / "breaks-unknown").unlink()
    shown(page, stage, "unknown").get_by_role("button", name="Resume").click()
    watched.expect(409)
    dialog(page).get_by_role("button", name="Resume", exact=True).click()
    expect(dialog(page).get_by_role("heading", name="Execute these again?")).to_be_focused()
    expect(dialog(page).get_by_label("Effects concerned")).to_contain_text("web-charge")
    assert stage.status("unknown") == "failed"
    dialog(page).get_by_role("button", name="Yes, resume and execute them").click()
    expect(dialog(page)).to_have_count(0)
    [resumed] = [it for it in stage.store.history("unknown") if it.kind == "run_resumed"]
    assert resumed.body["confirmed"] is True
    assert "(page, 127.0.0.1)" in resumed.body["actor"]


def test_a_decision_on_what_is_no_longer_so(page: Page, stage: Stage, watched: Watched):
    stage.submit(flows.failing, "stale", "stale")
    stage.until_status("stale", "failed")
    shown(page, stage, "stale").get_by_role("button", name="Resume").click()
    stage.mark("mended-stale")
    stage.store.resume("stale", actor="ana")
    stage.until_status("stale", "completed")
    watched.expect(409)
    dialog(page).get_by_role("button", name="Resume", exact=True).click()
    expect(dialog(page).get_by_role("heading", name="The run has changed")).to_be_visible()
    expect(dialog(page).get_by_role("row", name="Status")).to_contain_text("completed")
    dialog(page).get_by_role("button", name="Reload").click()
    assert actors(stage, "stale", "run_resumed") == ["ana"]


# -- fork, rollback ----------------------------------------------------------------------------


def test_fork_lists_what_it_repeats(page: Page, stage: Stage, shoot: Callable[..., Any]):
    stage.submit(flows.failing, "origin", "origin")
    stage.until_status("origin", "failed")
    stage.mark("mended-origin")
    shown(page, stage, "origin").get_by_role("button", name="Fork").click()
    opened = dialog(page)
    opened.get_by_label("Id of the new run").fill("the-fork")
    opened.get_by_label("First step to execute").fill("web-mail")
    shoot(page, "fork")
    opened.get_by_role("button", name="Show effects it may repeat").click()
    expect(opened.get_by_label("Effects concerned")).to_contain_text("web-mail")
    shoot(page, "repeats")
    assert not [run for run in stage.store.runs() if run.run_id == "the-fork"]
    opened.get_by_role("button", name="Fork, and repeat them").click()
    page.wait_for_url("**/run?id=the-fork")
    stage.until_status("the-fork", "completed")
    assert stage.store.get("the-fork").origin == "origin"
    assert stage.status("origin") == "failed"


def test_rollback_shows_the_plan_first(page: Page, stage: Stage, shoot: Callable[..., Any]):
    stage.submit(flows.trip, "undone", "undone")
    stage.until_status("undone", "waiting")
    shown(page, stage, "undone").get_by_role("button", name="Roll back").click()
    opened = dialog(page)
    opened.get_by_label("Reason").fill("the guest is ill")
    opened.get_by_role("button", name="Show the plan").click()
    plan = opened.get_by_label("Effects concerned")
    expect(plan).to_contain_text("web-charge is undone")
    expect(plan).to_contain_text("web-mail has no undo")
    shoot(page, "plan")
    shoot(page, "plan", NARROW)
    assert stage.status("undone") == "waiting"
    opened.get_by_role("button", name="Roll back, and leave the rest").click()
    stage.until_status("undone", "rolled_back")
    assert stage.marked("refunded-undone")


def test_back_to_a_step_is_held_until_somebody_resumes_it(page: Page, stage: Stage):
    stage.submit(flows.trip, "partly", "partly")
    stage.until_status("partly", "waiting")
    shown(page, stage, "partly").get_by_role("button", name="Roll back").click()
    opened = dialog(page)
    expect(opened).to_contain_text("held (paused); when resumed")
    opened.get_by_label("Back to the step").fill("web-charge")
    opened.get_by_role("button", name="Show the plan").click()
    expect(opened).to_contain_text("Then the run is held (paused) until somebody resumes it.")
    opened.get_by_role("button", name="Roll back, and leave the rest").click()
    stage.until_status("partly", "held")
    assert stage.store.get("partly").held_reason == "paused"


# -- budget, signals ---------------------------------------------------------------------------


def test_raise_the_budget(page: Page, stage: Stage, shoot: Callable[..., Any]):
    stage.submit(flows.budgeted, "poor", "poor")
    stage.until_status("poor", "held")
    shown(page, stage, "poor").get_by_role("button", name="Set budget").click()
    field = dialog(page).get_by_label("Dollars")
    expect(field).to_have_value("0.5")  # What is spent: the limit was 0.4.
    expect(dialog(page)).to_contain_text("spent so far")
    shoot(page, "budget")
    field.fill("5")
    dialog(page).get_by_role("button", name="Set the limits").click()
    stage.until_status("poor", "completed")
    assert "(page, 127.0.0.1)" in actors(stage, "poor", "budget_set")[0]


def test_a_signal_is_sent(page: Page, stage: Stage):
    stage.submit(flows.trip, "told", "told")
    stage.until_status("told", "waiting")
    shown(page, stage, "told").get_by_role("button", name="Signal").click()
    opened = dialog(page)
    opened.get_by_label("Name").fill("go")
    opened.get_by_label("Value").fill("north")
    opened.get_by_role("button", name="Send").click()
    expect(opened).to_contain_text("This is not JSON")
    opened.get_by_label("Value").fill('"north"')
    opened.get_by_role("button", name="Send").click()
    stage.until_status("told", "completed")
    assert stage.store.get("told").result == "went: north"


# -- who may -----------------------------------------------------------------------------------


def test_a_viewer_has_no_action_that_works(opens: Opens, stage: Stage, watched: Watched):
    stage.submit(flows.trip, "looked-at", "looked-at")
    stage.until_status("looked-at", "waiting")
    tab = opens(stage.address_of("vera", "viewer"))
    actions = shown(tab, stage, "looked-at")
    expect(actions).to_contain_text("viewer")
    expect(actions.get_by_role("button")).to_have_count(0)
    watched.expect(403)
    answer = tab.evaluate(
        served(
            """async () => {
            const { act, get } = await import("/static/lib/api.js");
            const { etag } = await get("run", { id: "looked-at" });
            try {
              await act("run/cancel", { id: "looked-at" }, { reason: "" }, etag);
              return "done";
            } catch (error) {
              return error.status;
            }
        }"""
        )
    )
    assert answer == 403
    assert stage.status("looked-at") == "waiting"


# -- a run that was moved to another store -----------------------------------------------------


def test_a_moved_run_can_only_be_taken_back(page: Page, stage: Stage):
    stage.submit(flows.question, "emigrant", "tea")
    stage.until_status("emigrant", "waiting")
    stage.store.pause("emigrant", actor="kim", wait_s=0)
    stage.until_status("emigrant", "held")
    with holdfast.open(f"sqlite:///{stage.folder}/there.db", default=False) as there:
        moved = store_move.move_runs(
            stage.store._backend, there._backend, ["emigrant"], actor="kim"
        )
        assert [one.run_id for one in moved] == ["emigrant"]
    actions = shown(page, stage, "emigrant")
    expect(actions.get_by_role("button")).to_have_text(["Resume"])
    actions.get_by_role("button", name="Resume").click()
    expect(dialog(page)).to_contain_text("its effects may happen twice")
