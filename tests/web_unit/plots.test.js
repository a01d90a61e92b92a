import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { lastKnown, limited, nice, pieces, roundTime, scales, stacked } = await page("lib/plots.js");
const MINUTE = 60_000;

const numbers = (values, given = {}) => ({
  of: { title: "", means: "", format: String, series: [], ...given },
  times: values[0]?.map((_, at) => at * MINUTE) ?? [],
  values,
  bucketMs: MINUTE,
  at: -1,
  more: null,
});

test("an axis ends at the next round number", () => {
  const said = [[1, 1], [1.1, 2], [2.4, 2.5], [3, 5], [7, 10], [10, 10], [11, 20], [240, 250], [0.03, 0.05], [1e12 + 1e10, 2e12]];
  for (const [value, high] of said) assert.ok(Math.abs(nice(value) - high) < high * 1e-9, `${value}: ${nice(value)}`);
});

test("an axis of nothing, or of less, ends at one", () => {
  for (const value of [0, -5, NaN, -Infinity]) assert.equal(nice(value), 1);
});

test("an axis is never shorter than its values, and at most two and a half times as long", () => {
  for (let value = 1e-6; value < 1e9; value *= 1.37) {
    assert.ok(nice(value) >= value * 0.999 && nice(value) <= value * 2.5, `${value}: ${nice(value)}`);
  }
});

test("bars are stacked; what is not known counts nothing", () => {
  assert.equal(stacked([[1, 2], [null, 3]], 0), 1);
  assert.equal(stacked([[1, 2], [null, 3]], 1), 5);
  assert.equal(stacked([], 0), 0);
  assert.equal(stacked([[1]], 7), 0);
});

test("a scale reaches the sum of bars, or the largest of lines", () => {
  const values = [[1, 2], [3, 4]];
  assert.equal(scales(numbers(values, { kind: "bar" }), 500).high, 10);
  assert.equal(scales(numbers(values), 500).high, 5);
  assert.equal(scales(numbers([[null, null]]), 500).high, 1);
});

test("a scale reaches at least as far as asked for", () => {
  assert.equal(scales(numbers([[0.3]], { top: 1 }), 500).high, 1);
  assert.equal(scales(numbers([[3]], { top: 1 }), 500).high, 5);
  assert.equal(scales(numbers([[]], { top: 4 }), 500).high, 4);
});

test("higher values stand higher, later ones more to the right, all inside", () => {
  const { x, y, high } = scales(numbers([[1, 2, 3, 4]]), 400);
  assert.ok(y(high) < y(high / 2) && y(high / 2) < y(0));
  assert.ok(y(high) >= 0 && y(0) <= 168);
  assert.ok(x(0) < x(1) && x(3) < 400);
  assert.ok(Math.abs(x(1) - x(0) - (x(3) - x(2))) < 1e-9);
});

test("a line is broken where nothing was measured", () => {
  assert.deepEqual(pieces([]), []);
  assert.deepEqual(pieces([null, null]), []);
  assert.deepEqual(pieces([0, 1, 2]), [[0, 1, 2]]);
  assert.deepEqual(pieces([null, 0, null, null, 3, 4]), [[1], [4, 5]]);
});

test("labels stand at round times, weeks at most", () => {
  assert.equal(roundTime(0), MINUTE);
  assert.equal(roundTime(MINUTE), MINUTE);
  assert.equal(roundTime(MINUTE + 1), 2 * MINUTE);
  assert.equal(roundTime(3 * 3600_000 + 1), 4 * 3600_000);
  assert.equal(roundTime(1e12), 7 * 86400_000);
});

test("a bucket that is asked for is one that there is", () => {
  const three = numbers([[1, 2, 3]]);
  assert.deepEqual([-5, 0, 1, 2, 99].map((at) => limited(three, at)), [0, 0, 1, 2, 2]);
});

test("the keyboard begins at the last bucket that has something", () => {
  assert.equal(lastKnown(numbers([[1, 2, 0, null]])), 1);
  assert.equal(lastKnown(numbers([[0, 0], [null, 1]])), 1);
  assert.equal(lastKnown(numbers([[null, null, null]])), 2);
  assert.equal(lastKnown(numbers([])), -1);
});
