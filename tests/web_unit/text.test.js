import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { isolated, pieces, visible } = await page("lib/text.js");

test("plain text stays as it is", () => {
  for (const text of ["", "a", "Grüße, 世界", "👩", "a b", "{}[]<script>", "é"]) {
    assert.equal(visible(text), text);
  }
});

test("what is unseen is escaped, by the width of its number", () => {
  assert.equal(visible("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  assert.equal(visible("\x00\x1b[0m"), "\\x00\\x1b[0m");
  assert.equal(visible("a\u202eb"), "a\\u202eb");
  assert.equal(visible("a\u200bb"), "a\\u200bb");
  assert.equal(visible("a\u{e0100}"), "a\\U000e0100");
  assert.equal(visible("a\u00a0b"), "a\\xa0b");
});

test("breaks stay if they are asked for, and nothing else does", () => {
  assert.equal(visible("a\nb\tc", { lines: true }), "a\nb\\tc");
  assert.equal(visible("\r\n", { lines: true }), "\\r\n");
});

test("marks stay on a letter, four at most, and never on nothing", () => {
  const mark = "\u0301";
  assert.equal(visible(`a${mark.repeat(4)}`), `a${mark.repeat(4)}`);
  assert.equal(visible(`a${mark.repeat(5)}`), `a${mark.repeat(4)}\\u0301`);
  assert.equal(visible(mark), "\\u0301");
  assert.equal(visible(`a\n${mark}`, { lines: true }), "a\n\\u0301");
});

test("half of a surrogate pair is escaped", () => {
  assert.equal(visible("\ud800"), "\\ud800");
  assert.equal(visible("\udfffa"), "\\udfffa");
});

test("what is no text is never asked to make itself one", () => {
  const trap = { toString: () => assert.fail("it was asked") };
  assert.equal(visible(trap), "(not a text)");
  assert.equal(visible([1]), "(not a text)");
  assert.equal(visible(null), "null");
  assert.equal(visible(undefined), "undefined");
  assert.equal(visible(-0.5), "-0.5");
  assert.equal(visible(true), "true");
});

test("words from right to left are every second piece", () => {
  assert.deepEqual(pieces(""), [""]);
  assert.deepEqual(pieces("abc"), ["abc"]);
  assert.deepEqual(pieces("to אב: 5"), ["to ", "אב", ": 5"]);
  assert.deepEqual(pieces("אב גד"), ["", "אב גד", ""]);
  assert.deepEqual(pieces("1א2ב3"), ["1", "א", "2", "ב", "3"]);
  assert.equal(pieces("to אב: 5, ال").join(""), "to אב: 5, ال");
});

test("where no element can stand, such words stand between isolates", () => {
  assert.equal(isolated("abc 1"), "abc 1");
  assert.equal(isolated("a אב 1"), "a \u2068אב\u2069 1");
});
