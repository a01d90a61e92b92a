// JSON without changes of numbers: JavaScript cannot represent integers beyond 2^53, or 1.0.
//
// Parsed values contain plain numbers. If JavaScript would write a number differently, its source
// text is remembered with the containing object or list, and shown instead.
// @ts-check

/** @type {WeakMap<object, Map<string, string>>} */
const sources = new WeakMap();

/** Parse JSON, and remember the source text of its numbers.
 *  @param {string} text
 *  @returns {any} */
export function read(text) {
  try {
    return JSON.parse(text, noted);
  } catch (error) {
    // Nested too deeply for a parse with a reviver.
    if (error instanceof RangeError) return JSON.parse(text);
    throw error;
  }
}

/**
 * @this {any}
 * @param {string} name
 * @param {any} value
 * @param {{ source?: string }} [context]
 */
function noted(name, value, context) {
  if (typeof value !== "number") return value;
  const source = context?.source;
  if (source !== undefined && source !== String(value)) note(this, name, source);
  return value;
}

/**
 * @param {object} holder
 * @param {string | number} name
 * @param {string} source
 */
function note(holder, name, source) {
  const known = sources.get(holder) ?? new Map();
  sources.set(holder, known.set(String(name), source));
}

/** Return the source text of a number in an object or list, if JavaScript would write it
 *  differently.
 *  @param {any} holder
 *  @param {string | number} name */
export function sourceOf(holder, name) {
  return sources.get(holder)?.get(String(name));
}

/** Return a value as JSON with its original numbers. `source` is the source text of the value
 *  itself.
 *  @param {any} value
 *  @param {{ indent?: number, source?: string }} [options] */
export function written(value, { indent = 2, source = undefined } = {}) {
  if (source !== undefined) return source;
  return JSON.stringify(value, raw, indent) ?? "null";
}

/**
 * @this {any}
 * @param {string} name
 * @param {any} value
 */
function raw(name, value) {
  const source = typeof value === "number" ? sourceOf(this, name) : undefined;
  return source === undefined ? value : JSON.rawJSON(source);
}

/** Return an object with selected fields of another, with their original numbers.
 *  @param {Record<string, any>} value
 *  @param {(name: string) => boolean} isWanted
 *  @returns {Record<string, any>} */
export function part(value, isWanted) {
  const names = Object.keys(value).filter(isWanted);
  const made = Object.fromEntries(names.map((name) => [name, value[name]]));
  for (const name of names) {
    const source = sourceOf(value, name);
    if (source !== undefined) note(made, name, source);
  }
  return made;
}

/** Parse JSON that a person typed, for sending: every number is sent as typed.
 *  @param {string} text
 *  @returns {any} */
export function typed(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" ? sendable(value, context?.source) : value,
  );
}

/** Return a number that is sent as it was typed.
 *  @param {number} value
 *  @param {string | undefined} source
 *  @returns {any} */
export function sendable(value, source) {
  if (source === undefined || source === String(value) || !JSON.rawJSON) return value;
  try {
    return JSON.rawJSON(source);
  } catch {
    return value; // People also type .5, which is not JSON.
  }
}
