// A plot over time, as SVG: lines or stacked bars, a readout for pointer and keyboard, and the same
// numbers as a table. It scales with its container; attributes set the geometry, classes the
// colour.
// @ts-check

import { clear, el, inside, say, set, svg } from "./dom.js";

/** @typedef {{ name: string, hue: string, fill?: boolean }} Curve */
/** @typedef {object} About
 *  @property {string} title
 *  @property {string} means
 *  @property {(value: number) => string} format
 *  @property {string} [kind]
 *  @property {number} [top]
 *  @property {string} [nothing]
 *  @property {Curve[]} series */
/** @typedef {object} Scale
 *  @property {number} high
 *  @property {number} step
 *  @property {(at: number) => number} x
 *  @property {(value: number) => number} y
 *  @property {number} bucketMs */
/** @typedef {object} Shown
 *  @property {number[]} times
 *  @property {(number | null)[][]} values
 *  @property {number} bucketMs
 *  @property {string} [sum]
 *  @property {((at: number) => string) | null} [more] */
/** @typedef {object} Numbers
 *  @property {About} of
 *  @property {number[]} times
 *  @property {(number | null)[][]} values
 *  @property {number} bucketMs
 *  @property {number} at
 *  @property {((at: number) => string) | null} more */
/** @typedef {Numbers & { place: HTMLElement, readout: HTMLElement, table: HTMLElement, scale: Scale | null, picture: SVGSVGElement | null }} State */
/** @typedef {State & { scale: Scale }} Drawn */

const HEIGHT = 168;
const LEFT = 52;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 20;
const GRID_LINES = 3;
const LABEL_EVERY_PX = 92;

/** Make a plot. `of` has: title, means, format(value), kind ("line" or "bar"), top (the minimum end
 *  of the axis), series: [{name, hue}]. Show numbers with `plot.show(times, values, more)`: values
 *  has one list per series, `more(at)` returns an additional text for a bucket.
 *  @param {About} of */
export function plot(of) {
  const total = el("span", { class: "total" });
  const place = el("div", { class: "drawing" });
  const readout = el("p", { class: "readout" });
  const table = el("div", { tabindex: 0, role: "region", "aria-label": `${of.title} as a table` });
  const details = el("details", null, el("summary", null, "As a table"), table);
  const node = el(
    "figure",
    { class: "plot" },
    el("figcaption", null, el("h2", null, of.title), total, el("span", { class: "means" }, of.means)),
    place,
    readout,
    details,
  );
  /** @type {State} */
  const state = {
    of,
    times: [],
    values: [],
    bucketMs: 1,
    at: -1,
    more: null,
    place,
    readout,
    table,
    scale: null,
    picture: null,
  };
  details.addEventListener("toggle", () => details.open && fillTable(state));
  new ResizeObserver(() => draw(state)).observe(place);
  return {
    node,
    /** @param {Shown} shown */
    show({ times, values, bucketMs, sum = "", more = null }) {
      Object.assign(state, { times, values, bucketMs, more });
      if (state.at >= times.length) state.at = -1;
      say(total, sum);
      draw(state);
      if (details.open) fillTable(state);
    },
  };
}

// -- drawing ------------------------------------------------------------------------------------

/** @param {State} state */
function draw(state) {
  const { place, of, values } = state;
  const width = Math.floor(place.clientWidth);
  const found = values.flat().some((value) => value !== null && (of.kind !== "bar" || value > 0));
  if (!width) return;
  if (!found) {
    clear(place, el("p", { class: "nothing" }, of.nothing ?? "No measures in this time."));
    clear(state.readout);
    state.picture = null;
    return;
  }
  const focused = place.contains(document.activeElement);
  const drawn = Object.assign(state, { scale: scales(state, width) });
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${HEIGHT}`,
    tabindex: 0,
    role: "slider",
    "aria-label": `${of.title}: ${of.means} Arrow keys read the values.`,
    "aria-valuemin": 0,
    "aria-valuemax": state.times.length - 1,
  });
  picture.append(grid(drawn, width), of.kind === "bar" ? bars(drawn) : curves(drawn), svg("g", { class: "mark" }));
  listen(picture, drawn);
  clear(place, picture);
  state.picture = picture;
  if (focused) picture.focus();
  point(state, state.at);
}

/**
 * @param {Numbers} numbers
 * @param {number} width
 * @returns {Scale}
 */
export function scales({ of, times, values, bucketMs }, width) {
  const sums = of.kind === "bar" ? times.map((_, at) => stacked(values, at)) : values.flat();
  const largest = Math.max(of.top ?? 0, ...sums.map((value) => value ?? 0));
  const high = of.top === largest ? largest : nice(largest);
  const step = (width - LEFT - RIGHT) / Math.max(1, times.length);
  return {
    high,
    step,
    x: (at) => LEFT + (at + 0.5) * step,
    y: (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / high),
    bucketMs,
  };
}

/**
 * @param {(number | null)[][]} values
 * @param {number} at
 */
export function stacked(values, at) {
  return values.reduce((sum, series) => sum + (series[at] ?? 0), 0);
}

/** The next round number: 1, 2, 2.5, 5 or 10 times a power of ten.
 *  @param {number} value */
export function nice(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 2.5, 5].find((one) => one * power >= value * 0.999) ?? 10) * power;
}

/**
 * @param {Drawn} state
 * @param {number} width
 */
function grid(state, width) {
  const { of, times, scale } = state;
  const group = svg("g", { "aria-hidden": "true" });
  for (let line = 0; line < GRID_LINES; line++) {
    const value = (scale.high * line) / (GRID_LINES - 1);
    const y = Math.round(scale.y(value)) + 0.5;
    group.append(
      svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }),
      svg("text", { class: "axis", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, of.format(value)),
    );
  }
  const days = times.length * state.bucketMs > 36 * 3600 * 1000;
  const every = roundTime((LABEL_EVERY_PX / scale.step) * state.bucketMs);
  times.forEach((time, at) => {
    // The first bucket of each round time, in the reader's zone.
    const local = time - new Date(time).getTimezoneOffset() * 60000;
    if (local % every >= state.bucketMs || scale.x(at) > width - 24) return;
    group.append(svg("text", { class: "axis", x: scale.x(at), y: HEIGHT - 5, "text-anchor": "middle" }, hour(time, days)));
  });
  return group;
}

const MINUTE_MS = 60000;
const ROUND_MIN = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440, 2880];

/** @param {number} atLeastMs */
export function roundTime(atLeastMs) {
  return MINUTE_MS * (ROUND_MIN.find((one) => one * MINUTE_MS >= atLeastMs) ?? 10080);
}

/** @type {(value: number) => string} */
const two = (value) => String(value).padStart(2, "0");

/**
 * @param {number} at
 * @param {boolean} withDay
 */
function hour(at, withDay) {
  const date = new Date(at);
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return withDay ? `${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}` : clock;
}

/** Lines with gaps where there are no measures; a single value is a dot.
 *  @param {Drawn} state */
function curves({ of, values, scale }) {
  const group = svg("g", { "aria-hidden": "true" });
  values.forEach((series, number) => {
    const { hue, fill } = of.series[number];
    for (const part of pieces(series)) {
      const points = part.map((at) => `${scale.x(at).toFixed(1)},${scale.y(series[at] ?? 0).toFixed(1)}`);
      if (part.length === 1) {
        group.append(svg("circle", { class: `dot ${hue}`, cx: scale.x(part[0]), cy: scale.y(series[part[0]] ?? 0), r: 3 }));
        continue;
      }
      if (fill) {
        const ground = scale.y(0).toFixed(1);
        const [from, to] = [scale.x(part[0]).toFixed(1), scale.x(part[part.length - 1]).toFixed(1)];
        group.append(svg("polygon", { class: `fill ${hue}`, points: `${from},${ground} ${points.join(" ")} ${to},${ground}` }));
      }
      group.append(svg("polyline", { class: `line ${hue}`, points: points.join(" ") }));
    }
  });
  return group;
}

/** @param {(number | null)[]} series */
export function pieces(series) {
  /** @type {number[][]} */
  const found = [];
  /** @type {number[]} */
  let part = [];
  series.forEach((value, at) => {
    if (value !== null) part.push(at);
    else if (part.length) found.push(part), (part = []);
  });
  if (part.length) found.push(part);
  return found;
}

/** @param {Drawn} state */
function bars({ of, times, values, scale }) {
  const group = svg("g", { "aria-hidden": "true" });
  const width = Math.max(1, scale.step - (scale.step > 4 ? 1.5 : 0.3));
  times.forEach((_, at) => {
    let below = 0;
    values.forEach((series, number) => {
      const value = series[at] ?? 0;
      if (!value) return;
      const [y, ground] = [scale.y(below + value), scale.y(below)];
      const height = Math.max(1.5, ground - y);
      group.append(
        svg("rect", { class: `bar ${of.series[number].hue}`, x: scale.x(at) - width / 2, y: ground - height, width, height }),
      );
      below += value;
    });
  });
  return group;
}

// -- readout ------------------------------------------------------------------------------------

/**
 * @param {SVGSVGElement} picture
 * @param {Drawn} state
 */
function listen(picture, state) {
  const under = (/** @type {PointerEvent} */ event) => {
    const box = picture.getBoundingClientRect();
    return Math.floor((event.clientX - box.left - LEFT) / state.scale.step);
  };
  picture.addEventListener("pointermove", (event) => point(state, limited(state, under(event))));
  picture.addEventListener("pointerdown", (event) => point(state, limited(state, under(event))));
  picture.addEventListener("pointerleave", () => document.activeElement === picture || point(state, -1));
  picture.addEventListener("focus", () => state.at < 0 && point(state, lastKnown(state)));
  picture.addEventListener("blur", () => point(state, -1));
  picture.addEventListener("keydown", (event) => {
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
    /** @type {Record<string, number>} */
    const ends = { Home: 0, End: state.times.length - 1 };
    if (!(event.key in moves) && !(event.key in ends)) return;
    event.preventDefault();
    point(state, limited(state, ends[event.key] ?? state.at + moves[event.key]));
  });
}

/**
 * @param {Numbers} numbers
 * @param {number} at
 */
export function limited({ times }, at) {
  return Math.max(0, Math.min(times.length - 1, at));
}

/** @param {Numbers} numbers */
export function lastKnown({ values, times }) {
  for (let at = times.length - 1; at > 0; at--) {
    if (values.some((series) => series[at] !== null && series[at] !== 0)) return at;
  }
  return times.length - 1;
}

/** Show the values of one bucket; -1 shows only the legend.
 *  @param {State} state
 *  @param {number} at */
function point(state, at) {
  const { of, values, times, scale, readout, picture } = state;
  if (!picture || !scale) return;
  state.at = at;
  const mark = inside(picture, ".mark", SVGElement);
  clear(mark);
  const named = of.series.map((one, number) => {
    const value = at < 0 ? null : values[number][at];
    return /** @type {[Curve, number | null]} */ ([one, value]);
  });
  if (at >= 0) {
    mark.append(svg("line", { class: "now", x1: scale.x(at), x2: scale.x(at), y1: TOP, y2: HEIGHT - BOTTOM }));
    if (of.kind !== "bar") {
      for (const [one, value] of named) {
        if (value !== null) mark.append(svg("circle", { class: `dot ${one.hue}`, cx: scale.x(at), cy: scale.y(value), r: 3.5 }));
      }
    }
  }
  clear(
    readout,
    named.map(([one, value]) => el("span", null, swatch(one.hue), one.name, at < 0 ? "" : ` ${formatted(of, value, "–")}`)),
    at < 0 ? null : el("span", { class: "at" }, span(times[at], state.bucketMs)),
    at < 0 || !state.more ? null : el("span", { class: "at" }, state.more(at)),
  );
  set(picture, "aria-valuenow", Math.max(0, at));
  set(picture, "aria-valuetext", at < 0 ? "no time chosen" : told(state, at));
}

/**
 * @param {Numbers} numbers
 * @param {number} at
 */
function told({ of, values, times, bucketMs }, at) {
  const parts = of.series.map((one, number) => `${one.name} ${formatted(of, values[number][at], "not known")}`);
  return `${span(times[at], bucketMs)}: ${parts.join(", ")}`;
}

/**
 * @param {About} of
 * @param {number | null} value
 * @param {string} unknown
 */
function formatted(of, value, unknown) {
  return value === null ? unknown : of.format(value);
}

/**
 * @param {number} at
 * @param {number} bucketMs
 */
function span(at, bucketMs) {
  return `${hour(at, true)} to ${hour(at + bucketMs, false)}`;
}

/** @param {string} hue */
function swatch(hue) {
  const line = svg("line", { class: `line ${hue}`, x1: 0, x2: 14, y1: 4, y2: 4 });
  return el("span", { class: "swatch" }, svg("svg", { viewBox: "0 0 14 8", "aria-hidden": "true" }, line));
}

// -- table --------------------------------------------------------------------------------------

/** @param {State} state */
function fillTable({ of, times, values, bucketMs, table }) {
  const head = ["Time", ...of.series.map((one) => one.name)];
  const rows = [];
  for (let at = times.length - 1; at >= 0; at--) {
    if (values.every((series) => !series[at])) continue;
    const cells = values.map((series) => el("td", { class: "num" }, formatted(of, series[at], "–")));
    rows.push(el("tr", null, el("th", { scope: "row", class: "nowrap" }, span(times[at], bucketMs)), cells));
  }
  clear(
    table,
    el(
      "table",
      null,
      el("caption", { class: "unseen" }, `${of.title}; times without a value are omitted`),
      el("thead", null, el("tr", null, head.map((name, at) => el("th", { scope: "col", class: at ? "num" : null }, name)))),
      el("tbody", null, rows),
    ),
  );
}
