import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { page } from "./static.js";

const { agoText, bytes, clipped, clock, count, length, moment, money, ms, nowMs, number, setClock, words } =
  await page("lib/format.js");
const NOON = Date.UTC(2026, 10, 18, 12);

beforeEach(() => {
  mock.timers.reset();
  mock.timers.enable({ apis: ["Date"], now: NOON });
  setClock(new Date(NOON).toISOString());
});

test("a span of time has the unit in which people think of it", () => {
  const said = [
    [0, "0 ms"], [0.0004, "0 ms"], [0.05, "50 ms"], [0.0994, "99 ms"], [0.1, "0.1 s"], [9.94, "9.9 s"],
    [10, "10 s"], [119, "119 s"], [120, "2 min"], [7199, "120 min"], [7200, "2 h"], [172799, "48 h"],
    [172800, "2 days"], [1e9, "11574 days"],
  ];
  for (const [seconds, text] of said) assert.equal(length(seconds), text);
  assert.equal(length(null), "–");
  assert.equal(length(undefined), "–");
  assert.equal(length(-1), "-1000 ms");
});

test("numbers have their thousands marked, and two decimals at most", () => {
  assert.equal(number(0), "0");
  assert.equal(number(-1234567), "-1,234,567");
  assert.equal(number(1.005), "1.01");
  assert.equal(number(0.004), "0");
  assert.equal(number("12345"), "12,345");
  assert.equal(number(1e15), "1,000,000,000,000,000");
  assert.equal(number(null), "–");
  assert.equal(number(undefined), "–");
});

test("small amounts keep the digits that matter", () => {
  const said = [[0, "$0.00"], [1, "$1.00"], [1234.5, "$1234.50"], [0.5, "$0.500"], [0.01, "$0.010"], [0.00042, "$0.00042"]];
  for (const [usd, text] of said) assert.equal(money(usd), text);
  assert.equal(money("2.5"), "$2.50");
  assert.equal(money(null), "–");
});

test("a noun is singular for one, and only for one", () => {
  assert.equal(count(0, "run"), "0 runs");
  assert.equal(count(1, "run"), "1 run");
  assert.equal(count(2, "process", "processes"), "2 processes");
  assert.equal(count(1, "process", "processes"), "1 process");
  assert.equal(count(-1, "run"), "-1 runs");
  assert.equal(count(12345, "run"), "12,345 runs");
});

test("bytes", () => {
  const said = [[0, "0 B"], [1023, "1023 B"], [1024, "1.0 KiB"], [10240, "10 KiB"], [1 << 20, "1.0 MiB"], [1e9, "954 MiB"]];
  for (const [size, text] of said) assert.equal(bytes(size), text);
  assert.equal(bytes(null), "–");
});

test("what is cut says how much is left out", () => {
  assert.equal(clipped("abc", 3), "abc");
  assert.equal(clipped("abcd", 3), "abc… (1 more characters)");
  assert.equal(clipped("x".repeat(2000)), `${"x".repeat(400)}… (1,600 more characters)`);
  assert.equal(clipped("", 0), "");
});

test("words of ours have underscores, people do not", () => {
  assert.equal(words("rolled_back"), "rolled back");
  assert.equal(words("a_b_c"), "a b c");
  assert.equal(words(""), "");
  assert.equal(words(null), "");
  assert.equal(words(undefined), "");
});

test("microseconds are kept", () => {
  assert.equal(ms("2026-11-18T12:00:00Z"), NOON);
  assert.equal(ms("2026-11-18T12:00:00.123456Z"), NOON + 123.456);
  assert.equal(ms("2026-11-18T12:00:00.1234Z"), NOON + 123.4);
  assert.equal(ms("2026-11-18T13:00:00+01:00"), NOON);
  assert.equal(ms(42), 42);
});

test("a moment is said in UTC, to the second", () => {
  assert.equal(moment(NOON + 999), "2026-11-18 12:00:00 UTC");
  assert.equal(moment("1970-01-01T00:00:00Z"), "1970-01-01 00:00:00 UTC");
});

test("a time of day has its date if it is of another day, and its year if of another year", () => {
  assert.match(clock(NOON), /^\d\d:00:00$/);
  assert.match(clock(NOON - 3 * 86400e3), /^11-15 \d\d:00:00$/);
  assert.match(clock(NOON - 400 * 86400e3), /^2025-\d\d-\d\d \d\d:00:00$/);
});

test("how long ago, by the clock of the server", () => {
  assert.equal(agoText(NOON), "just now");
  assert.equal(agoText(NOON - 999), "just now");
  assert.equal(agoText(NOON - 90_000), "90 s ago");
  assert.equal(agoText(NOON + 90_000), "in 90 s");
  setClock(new Date(NOON + 3600_000).toISOString());
  assert.equal(nowMs(), NOON + 3600_000);
  assert.equal(agoText(NOON), "60 min ago");
});
