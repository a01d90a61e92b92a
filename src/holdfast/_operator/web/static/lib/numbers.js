// JSON, without changing a number: JavaScript knows no whole number beyond 2^53, and no 1.0.
//
// What is read has plain numbers in it. How a number was written is remembered beside the object or
// list that holds it, where it would be written differently now; that is what people are shown.
// @ts-check

/** @type {WeakMap<object, Map<string, string>>} */
const sources = new WeakMap();

/** Read JSON, and remember how its numbers are written.
 *  @param {string} text
 *  @returns {any} */
export function read(text) {
  try {
    return JSON.parse(text, noted);
  } catch (error) {
    // Nested deeper than a reader with a memory can go.
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

/** Return how a number in an object or list was written, if JavaScript would write it otherwise.
 *  @param {any} holder
 *  @param {string | number} name */
export function sourceOf(holder, name) {
  return sources.get(holder)?.get(String(name));
}

/** Return a value as JSON, its numbers as they were. `source` is that of the value itself.
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

/** Return an object with those fields of another that are wanted, their numbers as they were.
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

/** Read what a person wrote as JSON, to be sent: every number goes as it was written.
 *  @param {string} text
 *  @returns {any} */
export function typed(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" ? sendable(value, context?.source) : value,
  );
}

/** Return a number so that it is sent as it was written.
 *  @param {number} value
 *  @param {string | undefined} source
 *  @returns {any} */
export function sendable(value, source) {
  if (source === undefined || source === String(value) || !JSON.rawJSON) return value;
  try {
    return JSON.rawJSON(source);
  } catch {
    return value; // People write .5 too, which is no JSON.
  }
}
