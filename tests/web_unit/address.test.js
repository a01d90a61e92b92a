import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { ApiError, address } = await page("lib/api.js");

test("an address stands below the API", () => {
  assert.equal(address("runs"), "/api/v1/runs");
  assert.equal(address("/runs"), "/api/v1/runs");
  assert.equal(address("/api/v1/runs"), "/api/v1/runs");
  assert.equal(address("runs", null), "/api/v1/runs");
});

test("what is not given is left out, and nought and no are given", () => {
  assert.equal(address("run", { id: "a", full: null, seq: undefined, path: "" }), "/api/v1/run?id=a");
  assert.equal(address("run", { after: 0, full: false }), "/api/v1/run?after=0&full=false");
});

test("an id may hold anything", () => {
  assert.equal(address("run", { id: "a&b=c/../d?#é" }), "/api/v1/run?id=a%26b%3Dc%2F..%2Fd%3F%23%C3%A9");
});

test("a list is given one by one", () => {
  assert.equal(address("runs", { status: ["held", "failed"] }), "/api/v1/runs?status=held&status=failed");
  assert.equal(address("runs", { status: [] }), "/api/v1/runs");
});

test("an error carries what the server said, and always some data", () => {
  const error = new ApiError("Conflict", "it changed", 409);
  assert.deepEqual([error.type, error.message, error.status, error.data], ["Conflict", "it changed", 409, {}]);
  assert.ok(error instanceof Error);
});
