import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { extent, pieces, placed, ticks, timed } = await page("lib/scale.js");
const HOUR = 3600_000;

test("without folding, the axis is time", () => {
  const axis = pieces(0, 100, [[0, 10], [50, 60]], false);
  assert.equal(extent(axis), 100);
  for (const at of [0, 5, 30, 99, 100]) {
    assert.equal(placed(axis, at), at);
    assert.equal(timed(axis, at), at);
  }
});

test("long idle time is folded, and says so", () => {
  const axis = pieces(0, HOUR + 20, [[0, 10], [HOUR, HOUR + 20]], true);
  assert.deepEqual(axis.map((one) => one.folded), [false, true, false]);
  assert.deepEqual([axis[1].start, axis[1].end], [10, HOUR]);
  assert.ok(axis[1].size < HOUR / 100);
  assert.equal(extent(axis), axis.reduce((sum, one) => sum + one.size, 0));
});

test("what is executed is never folded, and keeps its size", () => {
  const busy = [[0, 1000], [HOUR, HOUR + 3000]];
  const axis = pieces(0, HOUR + 3000, busy, true);
  for (const [from, until] of busy) {
    assert.ok(Math.abs(placed(axis, until) - placed(axis, from) - (until - from)) < 1e-6);
  }
});

test("pieces follow each other without a hole, whatever is busy", () => {
  const cases = [
    [],
    [[10, 20]],
    [[30, 10]],
    [[-50, 1e6]],
    [[60, 70], [5, 40], [20, 50]],
    [[0, 0], [500, 500]],
  ];
  for (const busy of cases) {
    for (const fold of [true, false]) {
      const axis = pieces(0, 1000, busy, fold);
      assert.equal(axis[0].start, 0);
      assert.equal(axis.at(-1).end, 1000);
      axis.slice(1).forEach((one, at) => {
        assert.equal(one.start, axis[at].end);
        assert.equal(one.from, axis[at].from + axis[at].size);
      });
    }
  }
});

test("a run without length has an axis all the same", () => {
  assert.deepEqual(pieces(5, 5, [], true), [{ start: 5, end: 6, from: 0, size: 1, folded: false }]);
});

test("times and places are each other's inverse, and stay on the axis", () => {
  const axis = pieces(0, HOUR, [[0, 100], [HOUR - 100, HOUR]], true);
  for (const at of [0, 50, 100, HOUR / 2, HOUR - 100, HOUR]) {
    assert.ok(Math.abs(timed(axis, placed(axis, at)) - at) < 1);
  }
  assert.equal(placed(axis, -1000), 0);
  assert.equal(placed(axis, HOUR * 2), extent(axis));
  assert.equal(timed(axis, -1000), 0);
  assert.equal(timed(axis, 1e12), HOUR);
});

test("ticks are round, inside, and not more than asked for", () => {
  assert.deepEqual(ticks(0, 0, 10, 10), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  assert.deepEqual(ticks(0, 0, 10_000, 2), [0, 5000, 10_000]);
  assert.deepEqual(ticks(1000, 1000, 61_000, 3), [1000, 31_000, 61_000]);
  for (const until of [0.05, 7, 999, 86400e3, 365 * 86400e3, 100 * 365 * 86400e3]) {
    for (const most of [1, 4, 12]) {
      const found = ticks(0, 0, until, most);
      assert.ok(found.length <= most + 1, `${found.length} ticks until ${until}, of ${most}`);
      assert.ok(found.every((at) => at >= 0 && at <= until));
    }
  }
});

test("ticks count from the start of the run, not of the piece", () => {
  assert.deepEqual(ticks(3, 1000, 1010, 3).map((at) => (at - 3) % 5), [0, 0]);
});
