import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { page } from "./static.js";

const { asked, isFiltered } = await page("pages/filters.js");
const NOTHING = {
  status: [], before: null, search: "", flow: "", queue: "", tag: "", held_reason: "", finding: "", older_than: "",
  version: "", parent: "",
};

/** What the address `/` with a query asks for. */
function wanted(search) {
  globalThis.location = { search };
  return asked();
}

beforeEach(() => delete globalThis.location);

test("an address without a query asks for all runs", () => {
  assert.deepEqual(wanted(""), NOTHING);
  assert.deepEqual(wanted("?"), NOTHING);
  assert.equal(isFiltered(wanted("")), false);
});

test("each filter is one", () => {
  for (const name of Object.keys(NOTHING).filter((one) => one !== "before")) {
    assert.equal(isFiltered(wanted(`?${name}=x`)), true, name);
    assert.equal(isFiltered(wanted(`?${name}=`)), name === "status", name);
  }
});

test("a page of older runs is no filter", () => {
  assert.equal(wanted("?before=12").before, "12");
  assert.equal(isFiltered(wanted("?before=12")), false);
});

test("a status may be asked for several times, a text once", () => {
  assert.deepEqual(wanted("?status=held&status=failed").status, ["held", "failed"]);
  assert.equal(wanted("?flow=a&flow=b").flow, "a");
});

test("what the list does not know is left out", () => {
  assert.deepEqual(wanted("?evil=1&__proto__=2"), NOTHING);
});

test("texts are those that were written, whatever they are", () => {
  assert.equal(wanted("?search=%C3%A9%E4%B8%96%2F%3Cscript%3E").search, "é世/<script>");
  assert.equal(wanted("?tag=a%3Db+c").tag, "a=b c");
  assert.equal(wanted(`?flow=${"x".repeat(10_000)}`).flow.length, 10_000);
});
