"""Values that mean harm, or that JavaScript would change: shown as what they are, or said not to be."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.ops.journals import Journal
from tests.web.conftest import NARROW
from tests.web.stage import Stage, served

BIG = 9223372036854775807
NUMBERS = {"amount": 9007199254740993, "account": BIG, "rate": 1.0, "list": [1e22, 2.50, -0.0, 7]}
HUGE = 12345678901234567891234567890
"""More than fits into the numbers of JSON readers."""
HEBREW = "\u05d0\u05d1"
HOSTILE: dict[str, Any] = {
    "role-object": {"role": {"toString": None}, "content": "x"},
    "proto": {"messages": [{"role": "user", "content": [{"type": "__proto__", "text": "hi"}]}]},
    "constructor": {"type": "message", "role": "constructor", "content": [{"type": "toString"}]},
    "name-object": {"role": "user", "name": {"toString": None}, "content": "named"},
    "call": {"role": "assistant", "tool_calls": [{"id": {"a": 1}, "function": {"name": []}}]},
    "thought": {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": {"toString": 1}}],
    },
    "cut": {"…clipped": {"toString": None}},
    "own-names": {"__proto__": {"x": 1}, "constructor": 2, "toString": None, "hasOwnProperty": 3},
    "rest": {"__proto__": {"a": 1.0}, "messages": [{"role": "user", "content": "said"}]},
}


@pytest.fixture(scope="module")
def hostile(stage: Stage) -> Stage:
    store = SqliteStore(str(stage.folder / "runs.db"))
    for name, value in HOSTILE.items():
        Journal(store, name, input=json.loads(json.dumps(value))).completed()
    deep: Any = "end"
    for _ in range(60):
        deep = [deep]
    Journal(store, "deep", input=deep).completed()
    Journal(store, "numbers", input=NUMBERS).step("whole", BIG).completed(1.0)
    asks = Journal(store, "asks-numbers").asks_approval("charge", NUMBERS)
    asks.unloaded("answer:approve:charge")
    Journal(store, "doubts-numbers").held_in_doubt("charge", args=NUMBERS | {"huge": HUGE})
    asks = Journal(store, "asks-hebrew").asks_approval("charge", {HEBREW: f"{HEBREW} 100 {HEBREW}"})
    asks.unloaded("answer:approve:charge")
    store.close()
    return stage


def at(page: Page, stage: Stage, run_id: str, tab: str = "") -> None:
    page.goto("about:blank")
    page.goto(f"{stage.origin}/run?id={quote(run_id)}#{tab}")
    expect(page.get_by_role("heading", name=run_id).first).to_be_visible()


@pytest.mark.parametrize("name", [*HOSTILE, "deep"])
def test_a_value_that_means_harm_is_shown(page: Page, hostile: Stage, name: str):
    at(page, hostile, name, "values")
    value = page.locator("#panel-values section").first.locator(".value")
    expect(value).to_be_visible()
    assert value.inner_text().strip()
    expect(page.locator(".toast")).to_have_count(0)
    at(page, hostile, name, "journal")
    page.locator(".journal summary").first.click()
    expect(page.locator(".entry-body .value").first).to_be_visible()


def test_fields_that_every_object_has_are_shown(page: Page, hostile: Stage):
    at(page, hostile, "own-names", "values")
    shown = page.locator("#panel-values section").first
    for name in ("__proto__", "constructor", "toString", "hasOwnProperty"):
        expect(shown.locator(".tree-name", has_text=name).first).to_be_visible()
    at(page, hostile, "rest", "values")
    shown = page.locator("#panel-values section").first
    expect(shown).to_contain_text("said")
    expect(shown.locator(".tree-name", has_text="__proto__")).to_be_visible()
    expect(shown).to_contain_text("1.0")


def test_nothing_was_said_to_it(page: Page, hostile: Stage):
    at(page, hostile, "cut", "messages")
    expect(page.get_by_role("tab", name="Messages")).to_be_hidden()
    expect(page.get_by_role("tab", name="Steps")).to_have_attribute("aria-selected", "true")
    expect(page.locator("#panel-steps")).to_be_visible()


# -- numbers -----------------------------------------------------------------------------------


def test_numbers_are_shown_as_they_are_stored(page: Page, hostile: Stage):
    at(page, hostile, "numbers", "values")
    values = page.locator("#panel-values")
    shown = values.locator("section").first.locator(".tree-number").all_inner_texts()
    assert shown[:3] == ["9007199254740993", str(BIG), "1.0"]
    assert [float(one) for one in shown[3:]] == NUMBERS["list"]
    assert "-0.0" in shown
    expect(values.locator("section").nth(1).locator(".value")).to_have_text("1.0")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    values.get_by_role("button", name="Copy Input as JSON").click()
    expect(values.get_by_role("button", name="Copy Input as JSON")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert json.loads(copied) == NUMBERS
    assert '"rate": 1.0' in copied
    at(page, hostile, "numbers", "journal")
    expect(page.locator(".entry-hint", has_text=str(BIG)).first).to_be_visible()


def test_what_is_approved_is_what_is_stored(page: Page, hostile: Stage, shoot: Callable[..., Any]):
    at(page, hostile, "asks-numbers")
    card = page.locator("article.card")
    assert json.loads(card.locator("pre.exact").inner_text()) == NUMBERS
    card.get_by_role("button", name="Approve…").click()
    shown = page.locator("dialog[open] pre.exact").inner_text()
    assert json.loads(shown) == NUMBERS
    assert "9007199254740993" in shown
    assert str(BIG) in shown
    assert "1.0" in shown
    shoot(page)
    shoot(page, size=NARROW)


def test_what_is_settled_is_what_is_stored(page: Page, hostile: Stage):
    at(page, hostile, "doubts-numbers")
    page.get_by_role("button", name="Settle").first.click()
    shown = page.locator("dialog[open] pre.exact").inner_text()
    assert json.loads(shown) == NUMBERS | {"huge": HUGE}
    assert f'"huge": {HUGE}' in shown
    assert '"rate": 1.0' in shown


def test_a_wait_is_called_by_what_it_waits_for(page: Page, hostile: Stage):
    at(page, hostile, "asks-numbers")
    bar = page.locator(".timeline g", has=page.locator(".bar.kind-wait")).last
    expect(bar.locator("title")).to_contain_text("charge waits for: approval of charge")
    expect(bar.locator("text")).to_contain_text("approval of charge")


def test_arguments_from_the_right_stand_in_their_order(page: Page, hostile: Stage):
    at(page, hostile, "asks-hebrew")
    exact = page.locator("article.card pre.exact")
    assert json.loads(exact.inner_text()) == {HEBREW: f"{HEBREW} 100 {HEBREW}"}
    # The key, and the two words of the value; each stands by itself.
    places = [one.bounding_box() for one in exact.locator("bdi bdi").all()]
    boxes = [(one["x"], one["x"] + one["width"]) for one in places if one is not None]
    assert len(boxes) == 3
    assert boxes[0][1] < boxes[1][0]
    assert boxes[1][1] < boxes[2][0]


def test_what_is_typed_is_what_is_sent(page: Page, stage: Stage):
    sent = page.evaluate(
        served(
            """async () => {
            const { json, number, answer } = await import("/static/dialogs/fields.js");
            const { read, written } = await import("/static/lib/numbers.js");
            const typed = json({ name: "v", label: "v" });
            typed.control.value = '{"a": 12345678901234567891, "b": [1.0, 2]}';
            const whole = number({ name: "n", label: "n", whole: true });
            whole.control.value = "9007199254740993";
            const chosen = answer(read('{"choices": [1.0, 9007199254740993]}'));
            chosen.node.querySelectorAll("input")[1].checked = true;
            const labels = [...chosen.node.querySelectorAll("label")].map((one) => one.textContent);
            return [written([typed.read(), whole.read(), chosen.read()], { indent: 0 }), labels];
        }"""
        )
    )
    assert sent == [
        '[{"a":12345678901234567891,"b":[1.0,2]},9007199254740993,9007199254740993]',
        ["1.0", "9007199254740993"],
    ]
