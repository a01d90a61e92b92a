import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { EventParser } = await page("lib/events.js");

/** What a stream says, however it is cut into pieces. */
function heard(text) {
  const found = [1, 2, 3, 7, text.length || 1].map((size) => {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.push(text.slice(at, at + size)));
    return { events, retryMs: parser.retryMs, id: parser.id };
  });
  for (const one of found) assert.deepEqual(one, found[0]);
  return found[0];
}

test("an event has a name, data and an id", () => {
  assert.deepEqual(heard("event: entry\ndata: {}\nid: 7\n\n").events, [{ event: "entry", data: "{}", id: "7" }]);
  assert.deepEqual(heard("data: a\ndata: b\n\n").events, [{ event: "message", data: "a\nb", id: "" }]);
  assert.deepEqual(heard("data\n\n").events, [{ event: "message", data: "", id: "" }]);
});

test("an event that is not complete, or has no data, is none", () => {
  assert.deepEqual(heard("").events, []);
  assert.deepEqual(heard("data: a").events, []);
  assert.deepEqual(heard("data: a\n").events, []);
  assert.deepEqual(heard("event: x\n\n").events, []);
  assert.deepEqual(heard(": a comment\n\n").events, []);
});

test("all three kinds of breaks end a line", () => {
  for (const end of ["\n", "\r\n"]) {
    assert.deepEqual(heard(`data: a${end}data: b${end}${end}data: c${end}${end}`).events.map((one) => one.data), ["a\nb", "c"]);
  }
  assert.deepEqual(heard("data: a\r\rdata: b\n\n").events.map((one) => one.data), ["a", "b"]);
});

test("an id stays until the next, and one with a null is not taken", () => {
  const { events, id } = heard("id: 1\ndata: a\n\ndata: b\n\nid: 2\0\ndata: c\n\n");
  assert.deepEqual(events.map((one) => one.id), ["1", "1", "1"]);
  assert.equal(id, "1");
});

test("the time to wait is a whole number, or left as it was", () => {
  assert.equal(heard("retry: 250\n\n").retryMs, 250);
  assert.equal(heard("retry: 0\n").retryMs, 0);
  assert.equal(heard("retry: soon\nretry: -1\nretry: 1.5\n").retryMs, null);
});

test("only one space behind the colon is left out", () => {
  assert.deepEqual(heard("data:  a: b\n\ndata:c\n\n").events.map((one) => one.data), [" a: b", "c"]);
  assert.deepEqual(heard("data: é世👩\n\n").events.map((one) => one.data), ["é世👩"]);
});
