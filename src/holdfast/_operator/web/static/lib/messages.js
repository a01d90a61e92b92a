// Finds the messages of a conversation in a value, and normalizes the formats of different models
// to { role, name, parts }. A part is a text, a thought, a tool call, its result, or any other
// value. Pure: no nodes.
// @ts-check

import { part as partOf, read } from "./numbers.js";

/** @typedef {{ kind: "text", text: string }} Text */
/** @typedef {{ kind: "thought", text: string }} Thought */
/** @typedef {{ kind: "call", name: string, args: any, id: string | null }} Call */
/** @typedef {{ kind: "result", value: any, id: string | null, failed: boolean }} Result */
/** @typedef {Text | Thought | Call | Result | { kind: "other", value: any }} Part */
/** @typedef {{ role: string, name?: string | null, parts: Part[] }} Message */
/** @typedef {{ messages: Message[], rest?: any }} Conversation */

const DEPTH = 4;
const PLACES = ["messages", "history", "conversation", "input"];
const ROLES = new Map(Object.entries({ human: "user", ai: "assistant", model: "assistant", function: "tool" }));
const KNOWN = new Set([
  "system",
  "developer",
  "user",
  "assistant",
  "tool",
  "human",
  "ai",
  "model",
  "function",
]);
const ITEMS = new Set(["message", "function_call", "function_call_output", "reasoning"]);

/** Return the messages in a value, or null if it is not a conversation.
 *  @param {any} value
 *  @param {number} depth
 *  @returns {Message[] | null} */
export function messagesIn(value, depth = DEPTH) {
  return conversationIn(value, depth)?.messages ?? null;
}

/** Return `{messages, rest}`, with the rest of the value (undefined if there is none), or null if
 *  it is not a conversation.
 *  @param {any} value
 *  @param {number} depth
 *  @returns {Conversation | null} */
export function conversationIn(value, depth = DEPTH) {
  if (isMessage(value)) return { messages: [normal(value)] };
  if (Array.isArray(value)) {
    return value.length && value.every(isMessage) ? { messages: value.map(normal) } : null;
  }
  if (!isObject(value) || depth === 0) return null;
  if (Array.isArray(value.choices)) {
    const made = value.choices.map((/** @type {any} */ choice) => choice?.message);
    const rest = without(value, "choices");
    if (made.length && made.every(isMessage)) return { messages: made.map(normal), rest };
  }
  for (const name of new Set([...PLACES.filter((one) => Object.hasOwn(value, one)), ...Object.keys(value)])) {
    if (value[name] === null || typeof value[name] !== "object") continue;
    const found = conversationIn(value[name], depth - 1);
    if (found) return joined(value, name, found);
  }
  return null;
}

/**
 * @param {any} value
 * @param {string} name
 * @param {Conversation} found
 * @returns {Conversation}
 */
function joined(value, name, { messages, rest }) {
  const isSystem = name === "messages" && typeof value.system === "string";
  const first = isSystem ? [{ role: "system", parts: [text(value.system)] }] : [];
  const left = without(value, name, isSystem ? "system" : null) ?? {};
  if (rest !== undefined) define(left, name, rest);
  return { messages: [...first, ...messages], rest: Object.keys(left).length ? left : undefined };
}

/**
 * @param {any} value
 * @param {...string | null} names
 */
function without(value, ...names) {
  const left = partOf(value, (name) => !names.includes(name));
  return Object.keys(left).length ? left : undefined;
}

/** Set a field, even one with the name __proto__.
 *  @param {any} value
 *  @param {string} name
 *  @param {any} field */
function define(value, name, field) {
  Object.defineProperty(value, name, { value: field, enumerable: true, writable: true, configurable: true });
}

/** @param {any} value */
function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/** Unwrap an object of a class, which the API shows as {"Name": {fields}}.
 *  @param {any} value */
function bare(value) {
  if (!isObject(value)) return value;
  const names = Object.keys(value);
  const isNamed = names.length === 1 && /^[A-Z]/.test(names[0]);
  return isNamed && isObject(value[names[0]]) ? value[names[0]] : value;
}

/**
 * @param {any} value
 * @returns {boolean}
 */
function isMessage(value) {
  const one = bare(value);
  if (!isObject(one)) return false;
  if (ITEMS.has(one.type)) return ["content", "name", "call_id", "summary"].some((name) => Object.hasOwn(one, name));
  const role = roleOf(one);
  return KNOWN.has(role) && ["content", "text", "parts", "tool_calls"].some((name) => Object.hasOwn(one, name));
}

/**
 * @param {any} one
 * @returns {string}
 */
function roleOf(one) {
  const said = one.role ?? (KNOWN.has(one.type) ? one.type : "");
  const role = typeof said === "string" ? said : "";
  return role.includes(".") ? role.slice(role.lastIndexOf(".") + 1).toLowerCase() : role;
}

/** A message in the normal form.
 *  @param {any} value
 *  @returns {Message} */
export function normal(value) {
  const one = bare(value);
  if (one.type === "function_call") return {
    role: "assistant",
    parts: [call(one.name, one.arguments, one.call_id)],
  };
  if (one.type === "function_call_output") return {
    role: "tool",
    parts: [result(one.output, one.call_id)],
  };
  if (one.type === "reasoning") return {
    role: "assistant",
    parts: content(one.summary ?? one.content).map(asThought),
  };
  const role = roleOf(one);
  let parts = [...content(one.content), ...content(one.parts)];
  if (!parts.length && one.text) parts = content(one.text);
  if (typeof one.reasoning_content === "string") parts.unshift({
    kind: "thought",
    text: one.reasoning_content,
  });
  if (typeof one.refusal === "string") parts.push(text(one.refusal));
  for (const made of list(one.tool_calls)) parts.push(toolCall(bare(made)));
  if (isObject(one.function_call)) parts.push(call(
    one.function_call.name,
    one.function_call.arguments,
  ));
  const isResult = ROLES.get(role) === "tool" || role === "tool";
  if (isResult) {
    const told = (/** @type {Part} */ part) => (part.kind === "text" ? result(part.text, one.tool_call_id) : part);
    parts = parts.map(told);
  }
  return { role: ROLES.get(role) ?? role, name: word(one.name), parts };
}

// -- parts --------------------------------------------------------------------------------------

/** @type {(said: string) => Part} */
const text = (said) => ({ kind: "text", text: said });
/** @type {(value: any) => any[]} */
const list = (value) => (Array.isArray(value) ? value : []);
/** @type {(part: Part) => Part} */
const asThought = (part) => (part.kind === "text" ? { kind: "thought", text: part.text } : part);

/** A name or an id as a string; null if it is neither a string nor a number.
 *  @param {any} value
 *  @returns {string | null} */
function word(value) {
  return typeof value === "string" ? value : typeof value === "number" ? String(value) : null;
}

/**
 * @param {any} name
 * @param {any} given
 * @param {any} id
 * @returns {Part}
 */
function call(name, given, id = null) {
  return { kind: "call", name: word(name) ?? "tool", args: parsed(given), id: word(id) };
}

/**
 * @param {any} value
 * @param {any} id
 * @param {boolean} failed
 * @returns {Part}
 */
function result(value, id = null, failed = false) {
  return { kind: "result", value: parsed(value), id: word(id), failed };
}

/**
 * @param {any} made
 * @returns {Part}
 */
function toolCall(made) {
  if (!isObject(made)) return { kind: "other", value: made };
  const inside = isObject(made.function) ? made.function : made;
  return call(
    inside.name ?? inside.tool,
    inside.arguments ?? inside.args ?? inside.input,
    made.id ?? made.call_id,
  );
}

/** Parse arguments, which often are JSON in a string.
 *  @param {any} value */
function parsed(value) {
  if (typeof value !== "string" || !/^\s*[[{]/.test(value)) return value ?? null;
  try {
    return read(value);
  } catch {
    return value;
  }
}

/**
 * @param {any} value
 * @returns {Part[]}
 */
function content(value) {
  if (typeof value === "string") return value ? [text(value)] : [];
  if (Array.isArray(value)) return value.flatMap(part);
  return isObject(value) ? part(value) : [];
}

/**
 * @param {any} value
 * @returns {Part[]}
 */
function part(value) {
  const one = bare(value);
  if (typeof one === "string") return [text(one)];
  if (!isObject(one)) return [{ kind: "other", value: one }];
  const inner = READERS.get(one.type)?.(one);
  if (inner) return [inner];
  if (typeof one.text === "string") return [text(one.text)];
  if (isObject(one.functionCall)) return [call(one.functionCall.name, one.functionCall.args)];
  if (isObject(one.functionResponse)) return [result(one.functionResponse.response)];
  return [{ kind: "other", value: one }];
}

/** @type {Map<string, (one: any) => Part | false>} */
const READERS = new Map([
  ["tool_use", (one) => call(one.name, one.input, one.id)],
  ["tool_call", (one) => call(one.name, one.args ?? one.arguments, one.id)],
  ["tool_result", (one) => result(plain(one.content), one.tool_use_id, one.is_error === true)],
  ["thinking", (one) => typeof one.thinking === "string" && asThought(text(one.thinking))],
  ["refusal", (one) => typeof one.refusal === "string" && text(one.refusal)],
]);

/** The content of a result: a string, or a list of strings.
 *  @param {any} value */
function plain(value) {
  const parts = Array.isArray(value) ? value : null;
  if (!parts?.every((one) => isObject(one) && typeof one.text === "string")) return value;
  return parts.map((one) => one.text).join("\n");
}
