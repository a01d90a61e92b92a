"""How a person gets in: by the address that `holdfast ui` printed, and in no other way."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.conftest import Opens, Watched
from tests.web.stage import Stage


def test_the_token_leaves_the_address_bar(page: Page, stage: Stage):
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""  # HttpOnly: no script reads it.
    expect(page.get_by_role("navigation").first).to_be_visible()


def test_without_a_token_nothing_is_shown(opens: Opens, stage: Stage, watched: Watched):
    tab = opens(signs_in=False)
    watched.expect(401)
    answered = tab.goto(stage.origin + "/inbox")
    assert answered is not None
    assert answered.status == 401
    expect(tab.get_by_label("Token")).to_be_visible()
    tab.get_by_label("Token").fill("hf_wrong")
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("alert")).to_contain_text("not valid")
    assert tab.context.cookies() == []


def test_with_the_token_typed_in(opens: Opens, stage: Stage, watched: Watched):
    tab = opens(signs_in=False)
    watched.expect(401)
    tab.goto(stage.origin + "/fleet")
    tab.get_by_label("Token").fill(stage.address.partition("#token=")[2])
    tab.get_by_role("button", name="Sign in").click()
    expect(tab.get_by_role("heading", name="Fleet").first).to_be_visible()
