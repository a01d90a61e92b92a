import assert from "node:assert/strict";
import { test } from "node:test";
import { page } from "./static.js";

const { conversationIn, messagesIn, normal } = await page("lib/messages.js");
const user = { role: "user", content: "hello" };
const said = (text) => ({ kind: "text", text });

test("what is no conversation is none", () => {
  for (const value of [null, undefined, 0, "", "user", [], {}, [1], { role: "user" }, { role: "judge", content: "x" }, [user, 1]]) {
    assert.equal(messagesIn(value), null);
  }
});

test("a message, a list of them, and a field that has them are conversations", () => {
  const messages = [{ role: "user", name: null, parts: [said("hello")] }];
  assert.deepEqual(messagesIn(user), messages);
  assert.deepEqual(messagesIn([user]), messages);
  assert.deepEqual(conversationIn({ messages: [user] }), { messages, rest: undefined });
  assert.deepEqual(conversationIn({ n: 1, messages: [user] }), { messages, rest: { n: 1 } });
  assert.deepEqual(conversationIn({ a: { b: { messages: [user] }, c: 1 } }).rest, { a: { c: 1 } });
});

test("what is nested deeper than a reader would look is left", () => {
  const nested = (depth) => (depth ? { inside: nested(depth - 1) } : { messages: [user] });
  assert.notEqual(messagesIn(nested(3)), null);
  assert.equal(messagesIn(nested(5)), null);
});

test("roles of other models have one name", () => {
  const role = (name) => normal({ role: name, content: "x" }).role;
  assert.deepEqual(["human", "ai", "model", "function", "system", "Role.USER"].map(role), [
    "user", "assistant", "assistant", "tool", "system", "user",
  ]);
});

test("calls of tools and their results are found in each shape", () => {
  const call = { kind: "call", name: "search", args: { q: "é" }, id: "1" };
  const shapes = [
    { role: "assistant", content: null, tool_calls: [{ id: "1", function: { name: "search", arguments: '{"q": "é"}' } }] },
    { role: "assistant", content: [{ type: "tool_use", id: "1", name: "search", input: { q: "é" } }] },
    { type: "function_call", call_id: "1", name: "search", arguments: '{"q": "é"}' },
    { type: "ai", content: "", tool_calls: [{ id: "1", name: "search", args: { q: "é" } }] },
  ];
  for (const shape of shapes) assert.deepEqual(normal(shape).parts, [call]);
  const result = { kind: "result", value: "found", id: "1", failed: false };
  assert.deepEqual(normal({ role: "tool", tool_call_id: "1", content: "found" }).parts, [result]);
  assert.deepEqual(normal({ role: "user", content: [{ type: "tool_result", tool_use_id: "1", content: "found" }] }).parts, [result]);
});

test("arguments that are no JSON stay as they are", () => {
  const args = (given) => normal({ type: "function_call", name: "f", call_id: "1", arguments: given }).parts[0].args;
  assert.equal(args("{broken"), "{broken");
  assert.equal(args("plain"), "plain");
  assert.equal(args(undefined), null);
  assert.deepEqual(args("[1]"), [1]);
});

test("a field that is called __proto__ is a field", () => {
  const value = JSON.parse('{"__proto__": {"messages": [{"role": "user", "content": "x"}], "n": 1}}');
  const { rest } = conversationIn(value);
  assert.deepEqual(Object.keys(rest), ["__proto__"]);
  assert.equal({}.n, undefined);
});
