"""The page Pending in a real browser: questions, approvals and doubts, and two people, or a person and
the run, that are at it at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web import flows
from tests.web.conftest import NARROW, Opens, Watched
from tests.web.stage import Stage, until


@pytest.fixture(scope="module", autouse=True)
def _worker(stage: Stage) -> Iterator[None]:
    with stage.working("--name", "desk"):
        yield


def card(page: Page, run_id: str) -> Locator:
    """The card of a run in what is pending."""
    return page.locator("article.card").filter(has=page.get_by_text(run_id, exact=True))


def dialog(page: Page) -> Locator:
    return page.get_by_role("dialog")


def asked(stage: Stage, run_id: str) -> Any:
    """What a run asks, once it asks."""
    return until(lambda: stage.store.questions(run_id=run_id))[0]


def asks_to_pay(stage: Stage, run_id: str, amount: int) -> Any:
    (stage.folder / f"amount-{run_id}").write_text(str(amount))
    stage.submit(flows.payment, run_id, run_id)
    question = asked(stage, run_id)
    stage.until_status(run_id, "waiting")
    return question


def in_doubt(stage: Stage, run_id: str) -> None:
    stage.mark(f"breaks-{run_id}")
    stage.submit(flows.order, run_id, run_id)
    stage.until_status(run_id, "held")


def entries(stage: Stage, run_id: str, kind: str) -> list[Any]:
    return [entry.body for entry in stage.store.history(run_id) if entry.kind == kind]


# -- doubts ------------------------------------------------------------------------------------


def test_a_doubt_is_settled_as_done(page: Page, stage: Stage, shoot: Callable[..., Any]):
    in_doubt(stage, "doubt-done")
    page.goto(stage.origin + "/pending")
    doubt = card(page, "doubt-done")
    expect(doubt).to_contain_text("order:doubt-done")  # The key that the other side has seen.
    expect(doubt).to_contain_text('"cents": 4200')
    shoot(page, "pending")
    doubt.get_by_role("button", name="Settle").click()
    opened = dialog(page)
    expect(opened).to_contain_text("may or may not have happened")
    expect(opened).to_contain_text('"cents": 4200')
    opened.get_by_label("It happened").check()
    opened.get_by_label("Its result").fill('"charged, as the bank says"')
    shoot(page, "dialog")
    shoot(page, "dialog", NARROW)
    opened.get_by_role("button", name="Settle", exact=True).click()
    expect(opened).to_be_hidden()
    expect(card(page, "doubt-done")).to_have_count(0)
    stage.until_status("doubt-done", "completed")
    assert stage.store.get("doubt-done").result == "charged, as the bank says"
    [settled] = entries(stage, "doubt-done", "step_settled")
    assert "(page, 127.0.0.1)" in settled["actor"]


def test_it_did_not_happen_wants_a_second_word(page: Page, stage: Stage):
    in_doubt(stage, "doubt-not")
    page.goto(stage.origin + "/pending")
    card(page, "doubt-not").get_by_role("button", name="Settle").click()
    opened = dialog(page)
    opened.get_by_label("It did not happen").check()
    opened.get_by_role("button", name="Settle", exact=True).click()
    expect(opened.get_by_role("heading", name="Execute it?")).to_be_focused()
    expect(opened.get_by_label("Effects concerned")).to_contain_text("web-charge")
    expect(opened.get_by_label("Effects concerned")).to_contain_text("order:doubt-not")
    assert stage.status("doubt-not") == "held"  # Nothing happens before it is said twice.
    (stage.folder / "breaks-doubt-not").unlink()
    opened.get_by_role("button", name="It did not happen: execute it").click()
    stage.until_status("doubt-not", "completed")
    assert stage.store.get("doubt-not").result == "charged 4200"


def test_a_doubt_that_somebody_else_settled(page: Page, stage: Stage, watched: Watched):
    from holdfast import Done

    in_doubt(stage, "doubt-late")
    page.goto(stage.origin + "/pending")
    card(page, "doubt-late").get_by_role("button", name="Settle").click()
    opened = dialog(page)
    opened.get_by_label("Give up").check()
    stage.store.settle("doubt-late", "web-charge", Done("by hand"), actor="ana")
    stage.until_status("doubt-late", "completed")
    watched.expect(409)
    opened.get_by_role("button", name="Settle", exact=True).click()
    expect(opened.get_by_role("heading", name="The run has changed")).to_be_visible()
    expect(opened).to_contain_text("completed")
    opened.get_by_role("button", name="Reload").click()
    assert stage.store.get("doubt-late").result == "by hand"


# -- approvals ---------------------------------------------------------------------------------


def test_an_approval_is_given(page: Page, stage: Stage, shoot: Callable[..., Any]):
    question = asks_to_pay(stage, "pay-given", 7)
    page.goto(stage.origin + "/pending")
    shown = card(page, "pay-given")
    expect(shown).to_contain_text('"amount": 7')
    expect(shown).to_contain_text(question.digest)
    shown.get_by_role("button", name="Approve").click()
    opened = dialog(page)
    expect(opened).to_contain_text('"amount": 7')
    expect(opened).to_contain_text(question.digest)
    shoot(page, "dialog")
    opened.get_by_role("button", name="Approve these arguments").click()
    expect(card(page, "pay-given")).to_have_count(0)
    stage.until_status("pay-given", "completed")
    assert stage.marked("paid-pay-given-7")


def test_an_approval_is_refused_because_the_arguments_changed(
    page: Page, stage: Stage, watched: Watched, shoot: Callable[..., Any]
):
    first = asks_to_pay(stage, "pay-changed", 7)
    page.goto(stage.origin + "/pending")
    card(page, "pay-changed").get_by_role("button", name="Approve").click()
    opened = dialog(page)
    expect(opened).to_contain_text('"amount": 7')
    # Meanwhile the amount changes, and somebody lets the run go on with it: it asks anew.
    (stage.folder / "amount-pay-changed").write_text("7000")
    stage.store.approve("pay-changed", "web-pay", digest=first.digest, actor="ana")
    stage.until_status("pay-changed", "held")
    stage.store.resume("pay-changed", accept_change=True, actor="ana")
    until(lambda: [it for it in stage.store.questions() if it.args and it.digest != first.digest])
    expect(opened).to_contain_text('"amount": 7')  # A dialog does not change under a person.
    watched.expect(409)
    opened.get_by_role("button", name="Approve these arguments").click()
    expect(opened.get_by_role("heading", name="the arguments changed")).to_be_visible()
    expect(opened.get_by_label("Arguments that you saw")).to_contain_text('"amount": 7')
    expect(opened.get_by_label("Arguments now")).to_contain_text('"amount": 7000')
    shoot(page, "dialog")
    opened.get_by_role("button", name="Reload").click()
    expect(card(page, "pay-changed")).to_contain_text('"amount": 7000')
    expect(card(page, "pay-changed")).to_contain_text(
        "Asked again: ana's approval did not fit: it was given for other arguments"
    )
    assert stage.status("pay-changed") == "waiting"
    assert not stage.marked("paid-pay-changed-7")
    assert not stage.marked("paid-pay-changed-7000")


def test_an_approval_is_refused_by_a_person(page: Page, stage: Stage):
    asks_to_pay(stage, "pay-refused", 9)
    page.goto(stage.origin + "/pending")
    card(page, "pay-refused").get_by_role("button", name="Reject").click()
    opened = dialog(page)
    opened.get_by_label("Reason").fill("too much")
    opened.get_by_role("button", name="Reject", exact=True).click()
    stage.until_status("pay-refused", "failed")
    assert "too much" in str(stage.store.get("pay-refused").error)
    assert not stage.marked("paid-pay-refused-9")


# -- questions ---------------------------------------------------------------------------------


def test_questions_are_answered_by_the_field_that_fits(
    page: Page, stage: Stage, shoot: Callable[..., Any]
):
    stage.submit(flows.question, "asks", "flyers")
    asked(stage, "asks")
    page.goto(stage.origin + "/pending")
    shown = card(page, "asks")
    shown.get_by_role("button", name="Answer").click()
    expect(shown).to_contain_text("Choose one.")
    shown.get_by_label("green").check()
    expect(shown).not_to_contain_text("Choose one.")
    shoot(page, "choices")
    shown.get_by_role("button", name="Answer").click()
    expect(card(page, "asks")).to_contain_text("How many copies of flyers?")
    number = card(page, "asks").get_by_label("Answer", exact=True)
    expect(number).to_have_attribute("type", "number")
    number.fill("2.5")
    card(page, "asks").get_by_role("button", name="Answer").click()
    expect(number).to_have_attribute("aria-invalid", "true")
    number.fill("250")
    card(page, "asks").get_by_role("button", name="Answer").click()
    stage.until_status("asks", "completed")
    assert stage.store.get("asks").result == "250 green"


def test_two_tabs_answer_and_the_first_wins(opens: Opens, stage: Stage, watched: Watched):
    stage.submit(flows.question, "two-tabs", "posters")
    asked(stage, "two-tabs")
    tabs = [opens(), opens()]
    for tab, colour in zip(tabs, ("red", "green"), strict=True):
        tab.goto(stage.origin + "/pending")
        card(tab, "two-tabs").get_by_label(colour).check()
    # The second tab hears of nothing any more, as on a bad line: it still shows the question.
    tabs[1].route("**/api/v1/pending*", lambda route: None)
    tabs[0].bring_to_front()
    card(tabs[0], "two-tabs").get_by_role("button", name="Answer").click()
    expect(card(tabs[0], "two-tabs")).to_contain_text("How many copies")
    tabs[1].bring_to_front()
    watched.expect(409)
    card(tabs[1], "two-tabs").get_by_role("button", name="Answer").click()
    opened = dialog(tabs[1])
    expect(opened.get_by_role("heading", name="The run has changed")).to_be_visible()
    expect(opened).to_contain_text("Your decision was not applied.")
    [answer] = [it for it in stage.store.get("two-tabs").signals if it.name == "colour"]
    assert answer.value == "red"


def test_what_is_pending_of_one_kind_and_of_one_person(
    page: Page, stage: Stage, shoot: Callable[..., Any]
):
    stage.submit(flows.question, "kinds", "cards")
    asked(stage, "kinds")
    page.goto(stage.origin + "/pending?kind=question")
    expect(card(page, "kinds")).to_be_visible()
    page.get_by_label("To whom").select_option("design")
    expect(card(page, "kinds")).to_be_visible()
    page.get_by_label("Doubts").check()
    expect(card(page, "kinds")).to_have_count(0)
    expect(page.get_by_role("heading", name="Nothing of this kind")).to_be_visible()
    page.get_by_label("To whom").select_option("")
    in_doubt(stage, "kinds-doubt")
    expect(card(page, "kinds-doubt")).to_be_visible()  # It appears by itself.
    page.get_by_label("All").check()
    shoot(page, "all")
    shoot(page, "all", NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]


def test_a_viewer_sees_the_arguments_and_no_button(opens: Opens, stage: Stage):
    asks_to_pay(stage, "pay-seen", 11)
    tab = opens(stage.address_of("vera", "viewer"))
    tab.goto(stage.origin + "/pending")
    expect(card(tab, "pay-seen")).to_contain_text('"amount": 11')
    expect(card(tab, "pay-seen")).to_contain_text("viewer")
    expect(tab.locator("article.card").get_by_role("button", name="Approve")).to_have_count(0)
    expect(tab.locator("article.card").get_by_role("button", name="Reject")).to_have_count(0)


# -- text that means harm ----------------------------------------------------------------------

HARM = "<img src=x onerror=alert(1)>\u202egnp.exe\x1b[2J</script><script>alert(2)</script>"


def test_what_others_wrote_stays_text(page: Page, stage: Stage):
    run_id = "harm <b onmouseover=alert(3)>&amp;\"'"
    stage.submit(flows.question, run_id, HARM)
    asked(stage, run_id)
    stage.store.answer(run_id, "colour", "red", actor="ana")
    until(lambda: [it for it in stage.store.questions(run_id=run_id) if it.name == "copies"])
    page.goto(stage.origin + "/pending?kind=question")
    shown = card(page, run_id)
    expect(shown).to_contain_text("<img src=x onerror=alert(1)>\\u202egnp.exe\\x1b[2J</script>")
    shown.get_by_role("button", name="Reject").click()
    expect(dialog(page)).to_contain_text("<img src=x onerror=alert(1)>\\u202egnp.exe")
    assert page.locator("main img, dialog img, main b[onmouseover]").count() == 0
    dialog(page).get_by_role("link", name=run_id).click()
    expect(page.get_by_role("heading", name=run_id)).to_be_visible()
