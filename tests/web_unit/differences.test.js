import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { lineDifferences } = await page("lib/differences.js");
const marked = (before, after) => lineDifferences([...before], [...after])?.map(([mark, line]) => mark + line).join("");

test("the same lines stay", () => {
  assert.equal(marked("", ""), "");
  assert.equal(marked("abc", "abc"), " a b c");
});

test("what is added, removed and changed is marked", () => {
  assert.equal(marked("ac", "abc"), " a+b c");
  assert.equal(marked("abc", "ac"), " a-b c");
  assert.equal(marked("abc", "axc"), " a-b+x c");
  assert.equal(marked("", "ab"), "+a+b");
  assert.equal(marked("ab", ""), "-a-b");
  assert.equal(marked("ab", "cd"), "-a-b+c+d");
});

test("lines that repeat are not counted twice", () => {
  assert.equal(marked("aa", "a"), " a-a");
  assert.equal(marked("a", "aaa"), " a+a+a");
  assert.equal(marked("abab", "ab"), " a b-a-b");
});

test("both sides can be read back out of the marks", () => {
  const words = ["", "abcabba", "cbabac", "xx", "aé世👩", "abcdefgh", "hgfedcba"];
  for (const before of words) {
    for (const after of words) {
      const found = lineDifferences([...before], [...after]);
      const side = (other) => found.filter(([mark]) => mark !== other).map(([, line]) => line).join("");
      assert.equal(side("+"), before);
      assert.equal(side("-"), after);
    }
  }
});

test("as many lines as possible stay", () => {
  const kept = lineDifferences([..."abcabba"], [..."cbabac"]).filter(([mark]) => mark === " ");
  assert.equal(kept.length, 4);
});

test("too many lines that differ are not compared; those that are the same do not count", () => {
  const many = Array.from({ length: 401 }, (_, at) => `line ${at}`);
  assert.equal(lineDifferences(many, []), null);
  assert.equal(lineDifferences([], many), null);
  assert.equal(lineDifferences(many, [...many, "one more"]).length, 402);
  assert.equal(lineDifferences(many.slice(1), []).length, 400);
});
