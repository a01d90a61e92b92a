import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { part, read, sendable, sourceOf, typed, written } = await page("lib/numbers.js");
const HUGE = "12345678901234567891";

test("a number that JavaScript would write otherwise is written as it was", () => {
  for (const text of [`{"a":${HUGE}}`, '{"a":1.0}', "[9007199254740993]", '[1e2,-0,-0.0]', '{"a":[{"b":1.50}]}']) {
    assert.equal(written(read(text), { indent: 0 }), text);
  }
});

test("only such numbers have a source", () => {
  const value = read(`{"plain": 12, "long": ${HUGE}, "text": "1.0", "list": [1.0, 2]}`);
  assert.equal(sourceOf(value, "plain"), undefined);
  assert.equal(sourceOf(value, "long"), HUGE);
  assert.equal(sourceOf(value, "text"), undefined);
  assert.equal(sourceOf(value.list, 0), "1.0");
  assert.equal(sourceOf(value.list, "0"), "1.0");
  assert.equal(sourceOf(value.list, 1), undefined);
  assert.equal(sourceOf({}, "long"), undefined);
});

test("values are read as JSON reads them", () => {
  assert.deepEqual(read('{"a": [1, "é", null, true]}'), { a: [1, "é", null, true] });
  assert.equal(read("0"), 0);
  assert.equal(read('""'), "");
  assert.throws(() => read("{"), SyntaxError);
  assert.throws(() => read(""), SyntaxError);
});

test("a value that is nested too deeply for a memory is read without one", () => {
  const text = "[".repeat(20_000) + "]".repeat(20_000);
  let depth = 0;
  for (let value = read(text); value !== undefined; value = value[0]) depth++;
  assert.equal(depth, 20_000);
});

test("nothing is null, and a source stands for its value", () => {
  assert.equal(written(undefined), "null");
  assert.equal(written(null), "null");
  assert.equal(written(1, { source: "1.0" }), "1.0");
  assert.equal(written({ a: 1 }), '{\n  "a": 1\n}');
});

test("a part of an object keeps how its numbers were written", () => {
  const value = read('{"a": 1.0, "b": 2.0, "c": "x"}');
  const left = part(value, (name) => name !== "b");
  assert.deepEqual(left, { a: 1, c: "x" });
  assert.equal(written(left, { indent: 0 }), '{"a":1.0,"c":"x"}');
  assert.equal(written(value, { indent: 0 }), '{"a":1.0,"b":2.0,"c":"x"}');
  assert.deepEqual(part({}, () => true), {});
});

test("what a person typed is sent digit by digit", () => {
  assert.equal(JSON.stringify(typed(`{"a": ${HUGE}, "b": [1.0, 2, -0.10]}`)), `{"a":${HUGE},"b":[1.0,2,-0.10]}`);
  assert.equal(JSON.stringify(sendable(9007199254740992, "9007199254740993")), "9007199254740993");
  assert.equal(sendable(0.5, ".5"), 0.5);
  assert.equal(sendable(3, undefined), 3);
  assert.equal(sendable(3, "3"), 3);
});
