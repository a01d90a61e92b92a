"""Text of others is inert on the page: nothing unseen, nothing that moves what stands around it."""

from __future__ import annotations

import unicodedata
from typing import Any

from playwright.sync_api import Page

from holdfast._engine.text import visible
from tests.web.stage import served

ESCAPED = """async (codes) => {
  const { visible } = await import("/static/lib/text.js");
  const isEscaped = (before) => (code) => {
    const text = before + String.fromCodePoint(code);
    return visible(text) !== text;
  };
  return { after: codes.filter(isEscaped("a")), alone: codes.filter(isEscaped("")) };
}"""
NOWHERE = [0xD800, 0xDFFF, 0xE000, 0xF8FF, 0xF0000, 0x10FFFD, 0xFFFE, 0x10FFFF]
"""Surrogates, private use, and what is no character: some of very many."""
SAMPLES = [
    "a\u0301\u0301\u0301\u0301\u0301b\u0301",
    "\u0301\u0302a\u200b\u0301",
    "❤\ufe0f 👩\u200d🚀 alice\u3164\u2800",
    "\u0e17\u0e35\u0e48 \u05e9\u05c1\u05b8",
    "\n\u0301 \u0301\r\t\x1b[0m\U000e0100",
]
WHERE = """(texts) => {
  // Where each letter of a text is seen, in the order in which they are written.
  const box = document.createElement("div");
  document.querySelector("main").append(box);
  return import("/static/lib/dom.js").then(({ el }) => texts.map((text) => {
    const node = el("p", null, text);
    box.replaceChildren(node);
    const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
      const range = document.createRange();
      for (let at = 0; at < walker.currentNode.length; at++) {
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, at + 1);
        found.push([walker.currentNode.data[at], range.getBoundingClientRect().left]);
      }
    }
    return found;
  }));
}"""


def test_page_and_terminal_escape_the_same_of_all_unicode(page: Page):
    # Which code points are assigned depends on the age of the tables; a browser's may be newer.
    unknown = ("Cn", "Co", "Cs")
    codes = [it for it in range(0x110000) if unicodedata.category(chr(it)) not in unknown]
    codes += NOWHERE
    assert len(codes) > 140_000
    told: dict[str, list[int]] = page.evaluate(served(ESCAPED), codes)
    for name, before in (("after", "a"), ("alone", "")):
        ours = {it for it in codes if visible(f"{before}{chr(it)}") != f"{before}{chr(it)}"}
        assert [hex(it) for it in sorted(ours ^ set(told[name]))] == [], name
    blank = [0x034F, 0x115F, 0x1160, 0x2800, 0x3164, 0xFE0F, 0xFFA0, 0xE0100, 0x202E, 0x200B]
    assert {*blank, *NOWHERE} <= set(told["after"])


def test_samples_are_escaped_alike(page: Page):
    says = """async (all) => {
      const { visible } = await import("/static/lib/text.js");
      return all.map((one) => [visible(one), visible(one, { lines: true })]);
    }"""
    assert page.evaluate(served(says), SAMPLES) == [
        [visible(one), visible(one, lines=True)] for one in SAMPLES
    ]


def test_letters_from_the_right_move_nothing_else(page: Page):
    texts = [
        "\u05d0\u05d1 100 \u05d2, pay 200",
        "to \u0627\u0644: 5, \u0628: 17",
        "1\u05d02\u05d13",
    ]
    for text, seen in zip(texts, page.evaluate(served(WHERE), texts), strict=True):
        assert "".join(char for char, _ in seen) == text
        others = [left for char, left in seen if unicodedata.bidirectional(char) not in ("R", "AL")]
        assert others == sorted(others), text
        # A word stands between what is written before and behind it.
        for at, (char, left) in enumerate(seen):
            if unicodedata.bidirectional(char) in ("R", "AL"):
                assert all(left > x for before, x in seen[:at] if before.isdecimal())
                assert all(left < x for behind, x in seen[at:] if behind.isdecimal())


def test_all_letters_from_the_right_are_known(page: Page):
    kinds = ("R", "AL", "AN")
    codes = [it for it in range(0x110000) if unicodedata.bidirectional(chr(it)) in kinds]
    shown = [it for it in codes if visible(f"a{chr(it)}") == f"a{chr(it)}"]
    left: list[Any] = page.evaluate(
        served(
            """async (codes) => {
            const { pieces } = await import("/static/lib/text.js");
            return codes.filter((code) => pieces(String.fromCodePoint(code)).length !== 3);
        }"""
        ),
        shown,
    )
    assert len(shown) > 1000
    assert [hex(it) for it in left] == []
