// A run over time, as a picture: its owners, steps and attempts, waits, gaps, held times.
//
// The picture is one tab stop: arrows go from bar to bar, + and - zoom, and a text below describes
// the selected bar. A table has the same data.
// @ts-check

import { all, barTable, idOf, inOrder, inWords, summary } from "./bars.js";
import { el, say, set, svg } from "../lib/dom.js";
import { ms } from "../lib/format.js";
import { draw } from "./timeline-picture.js";
import { placed } from "../lib/scale.js";
import { announce } from "../lib/shell.js";

/** @import { Timeline } from "../lib/api-types.js" */
/** @import { Piece } from "../lib/scale.js" */
/** @import { Bar } from "./bars.js" */
/** @typedef {object} Drawn
 *  @property {number} wide
 *  @property {number} left
 *  @property {number} high
 *  @property {number} row
 *  @property {number} lanes
 *  @property {number[]} range
 *  @property {number} size
 *  @property {(at: number) => number} x */
/** The state of a timeline. `told` and `drawn` are set by the first `show`.
 *  @typedef {object} View
 *  @property {(bar: Bar) => void} open
 *  @property {Timeline} told
 *  @property {number[] | null} view
 *  @property {boolean | null} fold
 *  @property {boolean} folded
 *  @property {Piece[]} axis
 *  @property {string | null} chosen
 *  @property {Bar | null} pointed
 *  @property {Drawn} drawn
 *  @property {(bar: Bar | null) => void} pointAt
 *  @property {(bar: Bar) => void} choose
 *  @property {SVGSVGElement} picture
 *  @property {{ axis: SVGGElement, back: SVGGElement, bars: SVGGElement, front: SVGGElement }} layers
 *  @property {HTMLElement} detail
 *  @property {HTMLDetailsElement} table
 *  @property {{ node: HTMLElement, fold: HTMLButtonElement }} tools
 *  @property {HTMLElement} legend
 *  @property {HTMLElement} box
 *  @property {HTMLElement} node */

const ZOOM = 1.6;
const SMALLEST_MS = 0.05;
const HOW =
  "Left and right: from bar to bar. Enter: the entries of its step. Plus and minus: zoom. " +
  "Shift with left and right: move. Home: all of it.";

/** Return `{node, show(timeline)}`; `open(bar)` is called when a bar is opened.
 *  @param {(bar: Bar) => void} open */
export function timelineView(open) {
  const view = /** @type {View} */ ({ open, view: null, fold: null, chosen: null, pointed: null });
  view.pointAt = (bar) => {
    view.pointed = bar;
    detail(view);
  };
  view.choose = (bar) => {
    choose(view, bar);
    view.picture.focus();
  };
  view.picture = svg("svg", {
    class: "timeline",
    role: "application",
    tabindex: 0,
    "aria-label": "Timeline of the run",
    "aria-describedby": "timeline-how timeline-told",
  });
  view.layers = { axis: svg("g"), back: svg("g"), bars: svg("g"), front: svg("g") };
  view.picture.append(...Object.values(view.layers));
  view.detail = el("p", { id: "timeline-told", class: "timeline-told" });
  view.table = el("details", { class: "as-table" }, el("summary", null, "The same as a table"));
  view.table.addEventListener("toggle", () => table(view));
  view.tools = tools(view);
  view.legend = el("ul", { class: "legend", "aria-label": "Legend" });
  const head = el("div", { class: "spread" }, el("h2", null, "Timeline"), view.tools.node);
  view.box = el("div", { class: "timeline-box" }, view.picture);
  view.node = el(
    "section",
    { class: "sheet", "aria-label": "Timeline" },
    head,
    view.box,
    view.detail,
    el("p", { id: "timeline-how", class: "unseen" }, HOW),
    view.legend,
    view.table,
  );
  listen(view);
  return { node: view.node, show: (/** @type {Timeline} */ told) => show(view, told) };
}

/** @param {View} view */
function tools(view) {
  /**
   * @param {string} text
   * @param {string} name
   * @param {() => void} action
   */
  const button = (text, name, action) => {
    const made = el("button", { type: "button", "aria-label": name, title: name }, text);
    made.addEventListener("click", action);
    return made;
  };
  const fold = button("Fold idle time", "Fold times in which nothing was executed", () => {
    view.fold = !view.folded;
    view.view = null;
    redraw(view);
  });
  const node = el(
    "div",
    { class: "row" },
    fold,
    el(
      "span",
      { class: "segments" },
      button("−", "Zoom out", () => zoom(view, ZOOM)),
      button("+", "Zoom in", () => zoom(view, 1 / ZOOM)),
      button("All", "Show all of it", () => fit(view)),
    ),
  );
  return { node, fold };
}

// -- drawing ------------------------------------------------------------------------------------

/**
 * @param {View} view
 * @param {Timeline} told
 */
function show(view, told) {
  view.told = told;
  redraw(view);
  if (view.table.open) table(view);
}

/** @param {View} view */
function redraw(view) {
  if (!view.told || !view.node.isConnected) return;
  draw(view);
  set(view.tools.fold, "aria-pressed", String(view.folded));
  detail(view);
}

/**
 * @param {View} view
 * @returns {Bar | null}
 */
function chosen(view) {
  return view.chosen === null ? null : (all(view.told).find((bar) => idOf(bar) === view.chosen) ?? null);
}

/** Describe the bar under the pointer, the selected bar, or the whole timeline.
 *  @param {View} view */
function detail(view) {
  const bar = view.pointed ?? chosen(view);
  say(view.detail, bar ? inWords(view.told, bar) : summary(view.told));
}

/** @param {View} view */
function table(view) {
  if (!view.table.open || !view.told) return;
  const made = barTable(view.told);
  const old = view.table.querySelector(".table");
  if (old) old.replaceWith(made);
  else view.table.append(made);
}

// -- zoom and selection ---------------------------------------------------------------------------

/** @param {View} view */
function fit(view) {
  view.view = null;
  redraw(view);
}

/** Zoom around a position: the pointer, the selected bar, or the middle.
 *  @param {View} view
 *  @param {number} factor
 *  @param {number | null} middle */
function zoom(view, factor, middle = null) {
  if (!view.drawn) return;
  const [from, until] = view.drawn.range;
  const bar = chosen(view);
  const start = bar ? placed(view.axis, ms(bar.start)) : -1;
  const isSeen = start >= from && start <= until;
  const centre = middle ?? (isSeen ? start : (from + until) / 2);
  const size = Math.min(view.drawn.size, Math.max(SMALLEST_MS, (until - from) * factor));
  const share = (centre - from) / (until - from);
  range(view, centre - share * size, size);
}

/**
 * @param {View} view
 * @param {number} from
 * @param {number} size
 */
function range(view, from, size) {
  const begin = Math.max(0, Math.min(from, view.drawn.size - size));
  view.view = size >= view.drawn.size * 0.999 ? null : [begin, begin + size];
  redraw(view);
}

/**
 * @param {View} view
 * @param {Bar | null} bar
 */
function choose(view, bar) {
  view.chosen = bar ? idOf(bar) : null;
  redraw(view);
  if (bar) announce(inWords(view.told, bar));
}

/**
 * @param {View} view
 * @param {number} by
 */
function step(view, by) {
  const order = inOrder(view.told);
  const at = order.findIndex((bar) => idOf(bar) === view.chosen);
  const first = by > 0 ? 0 : order.length - 1;
  const next = order[at < 0 ? first : Math.min(order.length - 1, Math.max(0, at + by))];
  if (!next) return;
  const place = placed(view.axis, ms(next.start));
  const [from, until] = view.drawn.range;
  if (place < from || place > until) range(view, place - (until - from) / 4, until - from);
  choose(view, next);
}

/** @param {View} view */
function listen(view) {
  const pan = (/** @type {number} */ share) => {
    const [from, until] = view.drawn.range;
    range(view, from + share * (until - from), until - from);
  };
  /** @type {Record<string, (event: KeyboardEvent) => void>} */
  const keys = {
    "+": () => zoom(view, 1 / ZOOM),
    "=": () => zoom(view, 1 / ZOOM),
    "-": () => zoom(view, ZOOM),
    Home: () => fit(view),
    ArrowRight: (event) => (event.shiftKey ? pan(0.2) : step(view, 1)),
    ArrowLeft: (event) => (event.shiftKey ? pan(-0.2) : step(view, -1)),
    Escape: () => choose(view, null),
  };
  view.picture.addEventListener("keydown", (event) => {
    if (!view.drawn) return;
    const bar = chosen(view);
    if (event.key === "Enter" && bar?.key) return view.open(bar);
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key](event);
  });
  view.picture.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(view, event.deltaY > 0 ? 1.2 : 1 / 1.2, at(view, event));
  }, { passive: false });
  drag(view);
  new ResizeObserver(() => redraw(view)).observe(view.box);
  setInterval(() => view.told?.open && !document.hidden && redraw(view), 1000);
}

/**
 * @param {View} view
 * @param {MouseEvent} event
 */
function at(view, event) {
  const { left, wide, range: [from, until] } = view.drawn;
  const x = event.clientX - view.picture.getBoundingClientRect().left;
  return from + ((x - left) / (wide - left)) * (until - from);
}

/** @param {View} view */
function drag(view) {
  /** @type {{ x: number, range: number[] } | null} */
  let held = null;
  view.picture.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && view.view) held = { x: event.clientX, range: view.drawn.range };
  });
  addEventListener("pointermove", (event) => {
    if (!held) return;
    const [from, until] = held.range;
    range(
      view,
      from - ((event.clientX - held.x) / (view.drawn.wide - view.drawn.left)) * (until - from),
      until - from,
    );
  });
  addEventListener("pointerup", () => (held = null));
}
