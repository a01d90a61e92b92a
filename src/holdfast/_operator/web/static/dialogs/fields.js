// Fields of a form: each has a node, and a `read()` that returns the value or throws a Misfit. The
// label is above the field; help and errors are below.
// @ts-check

import { el, say, set, visible } from "../lib/dom.js";
import { sendable, sourceOf, typed, written } from "../lib/numbers.js";

/** @typedef {HTMLInputElement | HTMLTextAreaElement} Control */
/** @typedef {{ node: HTMLElement, control: Control, wrong: (text: string) => void }} Frame */
/** @typedef {(text: string) => Misfit} Complain */
/** @typedef {Frame & { name: string, read: () => any }} Field */
/** @typedef {{ name: string, label: string, help?: string, required?: boolean }} About */

/** An invalid input; `field` is its field. */
export class Misfit extends Error {
  /**
   * @param {string} message
   * @param {Frame} field
   */
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

let made = 0;

/**
 * @param {string} label
 * @param {Control} control
 * @param {string} [help]
 * @param {{ inline?: boolean }} [options]
 * @returns {Frame}
 */
function framed(label, control, help, { inline = false } = {}) {
  const id = `field-${++made}`;
  const wrong = el("p", { class: "wrong", id: `${id}-wrong` });
  const told = help ? el("p", { class: "help", id: `${id}-help` }, help) : null;
  set(control, "id", id);
  set(control, "aria-describedby", [told && told.id, wrong.id].filter(Boolean).join(" "));
  const named = el("label", { for: id }, label);
  const node = el("div", { class: inline ? "field inline" : "field" });
  node.append(...(inline ? [control, named] : [named, control]), ...(told ? [told] : []), wrong);
  const frame = {
    node,
    control,
    wrong(/** @type {string} */ text) {
      say(wrong, text);
      set(control, "aria-invalid", text ? "true" : null);
    },
  };
  control.addEventListener("input", () => frame.wrong(""));
  return frame;
}

/**
 * @param {Frame} frame
 * @param {(misfit: Complain) => any} read
 * @param {string} name
 * @returns {Field}
 */
function field(frame, read, name) {
  return {
    name,
    node: frame.node,
    control: frame.control,
    wrong: frame.wrong,
    read() {
      frame.wrong("");
      return read((text) => new Misfit(text, frame));
    },
  };
}

/** A line of text; null if it is empty and optional.
 *  @param {About & { value?: string, list?: string[] | null, mono?: boolean }} about */
export function text({ name, label, help, value = "", required = false, list = null, mono = false }) {
  const control = el("input", {
    type: "text",
    value: visible(value),
    autocomplete: "off",
    spellcheck: "false",
    class: mono ? "mono" : null,
    required,
  });
  const frame = framed(label, control, help);
  if (list?.length) {
    const known = el("datalist", { id: `${control.id}-list` }, list.map((one) => el("option", { value: one })));
    set(control, "list", known.id);
    frame.node.append(known);
  }
  return field(
    frame,
    (misfit) => {
      const said = control.value.trim();
      if (required && !said) throw misfit("This is required.");
      return said || null;
    },
    name,
  );
}

/** Several lines of text.
 *  @param {About & { rows?: number }} about */
export function area({ name, label, help, required = false, rows = 3 }) {
  const control = el("textarea", { rows, required, spellcheck: "false" });
  return field(
    framed(label, control, help),
    (misfit) => {
      if (required && !control.value.trim()) throw misfit("This is required.");
      return control.value;
    },
    name,
  );
}

/** A value as JSON; undefined if it is empty and optional.
 *  @param {About & { value?: any, object?: boolean, rows?: number }} about */
export function json({ name, label, help, value, required = false, object = false, rows = 4 }) {
  const control = el("textarea", { rows, class: "mono", spellcheck: "false", required });
  if (value !== undefined) control.value = visible(written(value), { lines: true });
  return field(
    framed(label, control, help),
    (misfit) => {
      const said = control.value.trim();
      if (!said && !required) return undefined;
      if (!said) throw misfit('This is required: JSON, such as "a string", 42, null or {"ok": true}.');
      const read = parsed(said, misfit);
      const isObject = read instanceof Object && !Array.isArray(read);
      if (object && !isObject) throw misfit('An object is needed, such as {"topic": "refunds"}.');
      return read;
    },
    name,
  );
}

/**
 * @param {string} said
 * @param {Complain} misfit
 */
function parsed(said, misfit) {
  try {
    return typed(said);
  } catch (error) {
    throw misfit(`This is not JSON: ${/** @type {Error} */ (error).message}. A string needs "quotes".`);
  }
}

/** A number; null if it is empty and optional.
 *  @param {About & { value?: number | null, whole?: boolean, min?: number, max?: number }} about */
export function number({ name, label, help, value, required = false, whole = false, min, max }) {
  const control = el("input", {
    type: "number",
    step: whole ? 1 : "any",
    min,
    max,
    value: value ?? null,
    inputmode: whole ? "numeric" : "decimal",
    required,
  });
  return field(
    framed(label, control, help),
    (misfit) => {
      if (control.validity.badInput) throw misfit("This is not a number.");
      if (!control.value) {
        if (required) throw misfit("This is required.");
        return null;
      }
      if (!control.checkValidity()) throw misfit(control.validationMessage);
      const said = Number(control.value);
      return /^-?[1-9]\d+$/.test(control.value) ? sendable(said, control.value) : said;
    },
    name,
  );
}

/** A choice of a few `options` {value, label, help}, shown side by side or in a column.
 *  @param {{ name: string, label: string, options: { value: any, label: string, help?: string }[], value?: any, onchange?: (value: any) => void }} about */
export function choice({ name, label, options, value, onchange }) {
  const id = `field-${++made}`;
  const wrong = el("p", { class: "wrong", id: `${id}-wrong` });
  const inputs = options.map((one, at) => {
    const control = el("input", { type: "radio", name: id, id: `${id}-${at}`, value: at });
    control.checked = one.value === value && value !== undefined;
    control.addEventListener("change", () => {
      say(wrong, "");
      onchange?.(one.value);
    });
    return control;
  });
  const rows = options.map((one, at) => {
    const help = one.help ? el("span", { class: "help", id: `${id}-${at}-help` }, one.help) : null;
    if (help) set(inputs[at], "aria-describedby", help.id);
    return el("div", { class: "option" }, inputs[at], el("label", { for: inputs[at].id }, one.label), help);
  });
  const node = el(
    "fieldset",
    { class: "field choice", "aria-describedby": wrong.id },
    el("legend", null, label),
    rows,
    wrong,
  );
  const frame = { node, control: inputs[0], wrong: (/** @type {string} */ said) => say(wrong, said) };
  return field(
    frame,
    (misfit) => {
      const at = inputs.findIndex((control) => control.checked);
      if (at < 0) throw misfit("Choose one.");
      return options[at].value;
    },
    name,
  );
}

/** A checkbox; with `required`, it must be checked.
 *  @param {About & { checked?: boolean }} about */
export function tick({ name, label, help, required = false, checked = false }) {
  const control = el("input", { type: "checkbox" });
  control.checked = checked;
  return field(
    framed(label, control, help, { inline: true }),
    (misfit) => {
      if (required && !control.checked) throw misfit("Check this to confirm.");
      return control.checked;
    },
    name,
  );
}

/** A checkbox whose state is the value.
 *  @param {About & { value: any }} about */
export function tickFor({ name, label, help, value }) {
  return tick({ name, label, help, checked: Boolean(value) });
}

/** The field for the answer to a question: its choices, or the JSON schema of its type.
 *  @param {{ choices?: any[] | null, schema?: Record<string, any> | null }} question
 *  @param {string} label */
export function answer({ choices, schema }, label = "Answer") {
  const name = "answer";
  const inner = resolved(schema);
  const values = choices ?? inner.enum ?? (inner.type === "boolean" ? [true, false] : null);
  if (values) {
    const shown = (/** @type {any} */ value, /** @type {string | undefined} */ source) =>
      typeof value === "boolean" ? (value ? "Yes" : "No") : typeof value === "string" ? value : written(value, { indent: 0, source });
    const option = (/** @type {any} */ value, /** @type {number} */ at) => {
      const source = sourceOf(values, at);
      return { value: sendable(value, source), label: shown(value, source) };
    };
    return choice({ name, label, options: values.map(option) });
  }
  const [min, max] = [inner.minimum, inner.maximum];
  if (inner.type === "integer") return number({ name, label, required: true, whole: true, min, max });
  if (inner.type === "number") return number({ name, label, required: true, min, max });
  if (inner.type === "string") return worded(inner, name, label);
  const help = schema ? 'As JSON; its schema is below.' : 'As JSON: "a string", 42, true, {"a": 1}.';
  return json({ name, label, help, required: true });
}

/** @type {Record<string, string | undefined>} */
const FORMATS = {
  date: "A date, such as 2026-12-01.",
  time: "A time of day, such as 09:30:00.",
  "date-time": "A date and time, such as 2026-12-01T09:30:00Z.",
  duration: "A duration, such as PT90M.",
  uuid: "A UUID.",
};

/**
 * @param {Record<string, any>} schema
 * @param {string} name
 * @param {string} label
 */
function worded(schema, name, label) {
  const help = FORMATS[schema.format];
  return help ? text({ name, label, help, required: true, mono: true }) : area({ name, label, required: true });
}

/**
 * @param {Record<string, any> | null | undefined} schema
 * @returns {Record<string, any>}
 */
function resolved(schema) {
  if (!schema) return {};
  const at = schema.$ref?.match(/^#\/\$defs\/(.+)$/)?.[1];
  return at ? (schema.$defs?.[at] ?? {}) : schema;
}
