"""How a person gets in: by the address that `holdfast ui` printed, and in no other way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import NARROW, Opens, Watched
from tests.web.stage import Stage


def test_the_token_leaves_the_address_bar(page: Page, stage: Stage):
    assert "token" not in page.url
    assert page.evaluate("document.cookie") == ""  # HttpOnly: no script reads it.
    expect(page.get_by_role("navigation").first).to_be_visible()


def test_without_a_token_nothing_is_shown(opens: Opens, stage: Stage, watched: Watched):
    tab = opens(signs_in=False)
    watched.expect(401)
    answered = tab.goto(stage.origin + "/pending")
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


# -- a token that somebody else has put into the address ---------------------------------------


def led(tab: Page, address: str, other: str = "http://other.test/") -> None:
    """Follow a link that a page of another site has to the page."""
    html = f'<a href="{address}">See the runs</a>'
    tab.route(f"{other}**", lambda route: route.fulfill(content_type="text/html", body=html))
    tab.goto(other)
    tab.get_by_role("link").click()


@pytest.mark.parametrize("other", ["http://other.test/", "http://127.0.0.1:9/"])
def test_a_token_from_another_site_is_not_used_unasked(
    opens: Opens, stage: Stage, watched: Watched, other: str, shoot: Callable[..., Any]
):
    tab = opens(signs_in=False)
    watched.expect(401)
    led(tab, stage.address, other)
    use = tab.get_by_role("button", name="Sign in with the token of that address")
    expect(use).to_be_visible()
    expect(use).not_to_be_focused()  # Nobody asks for it by pressing Enter.
    assert "token" not in tab.url
    assert tab.context.cookies() == []
    shoot(tab)
    shoot(tab, size=NARROW)
    use.click()
    expect(tab.locator("#actor")).to_contain_text("operator")


def test_who_is_signed_in_stays_so(
    opens: Opens, stage: Stage, watched: Watched, shoot: Callable[..., Any]
):
    tab = opens()
    expect(tab.locator("#actor")).to_contain_text("operator")
    watched.expect(401)  # The browser sends no cookie when another site leads here.
    led(tab, stage.address_of("mallory", "viewer"))
    toast = tab.locator(".toast")
    expect(toast).to_contain_text("It was not used")
    assert "token" not in tab.url
    expect(tab.locator("#actor")).to_contain_text("operator")
    shoot(tab)
    shoot(tab, size=NARROW)
    toast.get_by_role("button", name="Use it instead").click()
    expect(tab.locator("#actor")).to_contain_text("mallory (page, 127.0.0.1) (viewer)")
    expect(tab.locator(".toast")).to_have_count(0)


def test_a_link_of_another_site_meets_the_session(opens: Opens, stage: Stage, watched: Watched):
    tab = opens()
    watched.expect(401)
    led(tab, stage.origin + "/pending")
    expect(tab.locator("#actor")).to_contain_text("operator")
    expect(tab.locator(".toast")).to_have_count(0)
    assert tab.url == stage.origin + "/pending"


def test_a_token_pasted_into_a_page_that_is_signed_in(page: Page, stage: Stage):
    page.evaluate("location.hash = '#token=hft_pasted'")
    expect(page.locator(".toast")).to_contain_text("It was not used")
    assert "hft_pasted" not in page.url
