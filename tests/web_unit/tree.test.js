import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { isClipped, preview, sizeOf } = await page("lib/tree.js");
const { read } = await page("lib/numbers.js");

test("a preview is the beginning of a value, in one line", () => {
  assert.equal(preview({ a: 1, b: [true, null] }), "{a: 1, b: [true, null]}");
  assert.equal(preview([]), "[]");
  assert.equal(preview({}), "{}");
  assert.equal(preview("a\nb"), '"a\\nb"');
  assert.equal(preview(null), "null");
  assert.equal(preview(0), "0");
  assert.equal(preview(-1.5), "-1.5");
});

test("a preview is never longer than asked for, and one", () => {
  const long = { a: "x".repeat(1000), b: Array.from({ length: 1000 }, (_, at) => at) };
  for (const chars of [0, 1, 10, 80]) {
    assert.ok(preview(long, chars).length <= chars + 1);
    assert.ok(preview("é".repeat(500), chars).length <= chars + 1);
  }
});

test("a preview shows numbers as they were written", () => {
  const value = read('{"a": 1.0, "b": [12345678901234567891]}');
  assert.equal(preview(value), "{a: 1.0, b: [12345678901234567891]}");
  assert.equal(preview(1, 80, "1.0"), "1.0");
});

test("a preview of what is nested deeply ends", () => {
  let value = [];
  for (let depth = 0; depth < 5000; depth++) value = [value];
  assert.equal(preview(value, 80), "[[[[[[[[…]]]]]]]]");
});

test("what the server has cut is known by its one field", () => {
  assert.equal(isClipped({ "…clipped": 12 }), true);
  assert.equal(isClipped({ "…clipped": 0 }), true);
  for (const value of [{ "…clipped": "12" }, { "…clipped": 1, a: 1 }, {}, [], null, 1, "…clipped"]) {
    assert.equal(isClipped(value), false);
  }
});

test("the size of a value is that of its JSON; too deep counts as endless", () => {
  assert.equal(sizeOf([1, 2]), 5);
  assert.equal(sizeOf(""), 2);
  assert.equal(sizeOf(null), 4);
  let deep = [];
  for (let depth = 0; depth < 200_000; depth++) deep = [deep];
  assert.equal(sizeOf(deep), Infinity);
});
