import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { page } from "./static.js";

const { all, axisOf, ended, idOf, inOrder, inWords, span, summary } = await page("pages/bars.js");
const { setClock } = await page("lib/format.js");
const START = Date.UTC(2026, 0, 1);
const at = (seconds) => new Date(START + seconds * 1000).toISOString();

const bar = (given) => ({
  kind: "step", key: "look", name: "look", effect: false, status: "completed", start: at(0), end: at(1), attempt: 1,
  generation: 1, lane: 0, branch: "", superseded: false, count: 1, known_until: null, ...given,
});
const timeline = (given) => ({
  run_id: "r", start: at(0), end: at(10), open: false, bars: [], lanes: 1, executions: [], steps: 0, joined: 0,
  borrowed: 0, ...given,
});

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["Date"], now: START + 20_000 });
  setClock(at(20));
});

test("a run that has ended ends there; one that is open, now", () => {
  assert.deepEqual(span(timeline()), { start: START, now: START + 10_000 });
  assert.deepEqual(span(timeline({ open: true })), { start: START, now: START + 20_000 });
  assert.deepEqual(span(timeline({ open: true, end: at(30) })), { start: START, now: START + 30_000 });
});

test("a run without length lasts a millisecond", () => {
  assert.deepEqual(span(timeline({ end: at(0) })), { start: START, now: START + 1 });
});

test("a bar that has not ended ends now", () => {
  assert.equal(ended(bar(), 7), START + 1000);
  assert.equal(ended(bar({ end: null }), 7), 7);
});

test("executions are bars too, and all of them stand in the order of time", () => {
  const told = timeline({
    bars: [bar({ key: "b", start: at(5) }), bar({ key: "a", start: at(2) })],
    executions: [{ owner: "w1", start: at(3), end: null, how: "running", found_dead: null }],
  });
  assert.deepEqual(all(told).map((one) => one.kind), ["execution", "step", "step"]);
  assert.deepEqual(inOrder(told).map((one) => one.key || one.name), ["a", "w1", "b"]);
  assert.deepEqual(inOrder(timeline()), []);
});

test("bars are told apart by attempt, generation and start", () => {
  const ids = [bar(), bar({ attempt: 2 }), bar({ generation: 2 }), bar({ start: at(1) }), bar({ kind: "attempt" })].map(idOf);
  assert.equal(new Set(ids).size, ids.length);
  assert.equal(idOf(bar()), idOf(bar({ status: "failed", end: null })));
});

test("an axis folds by itself when most of the time is idle, or as asked", () => {
  const idle = timeline({ end: at(86400), bars: [bar()] });
  assert.equal(axisOf(idle, null).folded, true);
  assert.equal(axisOf(idle, false).folded, false);
  const busy = timeline({ bars: [bar({ end: at(10) })] });
  assert.equal(axisOf(busy, null).folded, false);
  assert.equal(axisOf(timeline({ bars: [] }), false).axis.length, 1);
});

test("a step in doubt works no longer once the run is held", () => {
  const bars = [bar({ status: "in_doubt", end: null }), bar({ kind: "held", status: "in_doubt", start: at(1), end: null })];
  const told = timeline({ open: true, bars, end: at(1) });
  mock.timers.setTime(START + 86400_000);
  setClock(at(86400));
  assert.equal(axisOf(told, null).folded, true);
});

test("bars in words", () => {
  const told = timeline();
  const words = (given) => inWords(told, bar(given));
  assert.equal(words(), "look: completed. 2026-01-01 00:00:00 UTC (+0 ms), 1.0 s");
  assert.equal(words({ effect: true, attempt: 3 }), "effect look: completed, 3 attempts. 2026-01-01 00:00:00 UTC (+0 ms), 1.0 s");
  assert.match(words({ kind: "attempt", attempt: 2, status: "failed" }), /^attempt 2 of look: failed\. /);
  assert.match(words({ superseded: true }), /superseded \(generation 1\)/);
  assert.match(words({ kind: "held", status: "in_doubt" }), /^Held: in doubt\. /);
  assert.match(words({ kind: "joined", count: 12 }), /^12 earlier bars, joined\. /);
  assert.match(words({ kind: "wait", name: "an answer", status: "waiting" }), /^look waits for: an answer, waiting\. /);
  assert.match(words({ kind: "gap", status: "queued", name: "not taken" }), /^Nobody owned the run: not taken\. /);
  assert.match(words({ end: null }), / so far$/);
});

test("when a process died is not known, only between which times", () => {
  const told = timeline();
  const gap = { kind: "gap", status: "died", start: at(1), end: at(3) };
  assert.equal(
    inWords(told, bar(gap)),
    "Last sign of life 2026-01-01 00:00:01 UTC; found dead 2026-01-01 00:00:03 UTC. In between it may have been at work. 2.0 s",
  );
  assert.match(inWords(told, bar({ ...gap, end: null })), /found dead, and no process has claimed the run yet/);
  const had = { kind: "execution", name: "w1", status: "lease expired", found_dead: at(4) };
  assert.match(inWords(told, bar(had)), /^w1 owned the run: lease expired, last sign of life .*; its lease had expired /);
});

test("a summary counts what there is, and leaves out what there is not", () => {
  assert.equal(summary(timeline()), "0 steps called · executed 0 times. Point at a bar, or use the arrow keys.");
  const full = timeline({
    steps: 1, joined: 1200, borrowed: 1,
    executions: [{ owner: "w", start: at(0), end: null, how: "running", found_dead: null }],
    bars: [bar({ kind: "gap", status: "died" }), bar({ kind: "gap", status: "queued" })],
  });
  assert.equal(
    summary(full),
    "1 step called · executed 1 time · 1 gap · the oldest 1,200 bars are joined into one · " +
      "1 outcome borrowed from the run that it was forked from. Point at a bar, or use the arrow keys.",
  );
});
