// Draws a timeline: axis, bands, bars, names of lanes, legend. Nodes are kept between drawings and
// only moved, so that nothing flickers and the node under the pointer stays.
// @ts-check

import { el, keep, say, set, svg } from "../lib/dom.js";
import { length, ms, number } from "../lib/format.js";
import { all, axisOf, ended, idOf, inWords, span } from "./bars.js";
import { extent, placed, ticks, timed } from "../lib/scale.js";

/** @import { Bar } from "./bars.js" */
/** @import { View } from "./timeline.js" */
/** @typedef {{ id: string, x: number, width: number, folded?: string, text: string }} Mark */

const ROW = 22;
const AXIS = 20;
const GUTTER = 92;
const CHAR = 6.4;
const LANES_HIGH = 14;
const ON_TOP = new Set(["gap", "held", "execution"]);
/** @type {[kind: string, text: string][]} */
const LEGEND = [
  ["kind-step is-completed", "step"],
  ["kind-step is-completed is-effect", "effect"],
  ["kind-step is-failed", "failed"],
  ["kind-attempt is-failed", "failed attempt"],
  ["kind-step is-running", "at work"],
  ["kind-step is-in_doubt", "in doubt"],
  ["kind-wait", "waits"],
  ["kind-held", "held"],
  ["kind-gap is-died", "died some time in here"],
  ["kind-gap is-lease_expired", "not heard of"],
  ["kind-gap is-queued", "not taken yet"],
  ["kind-execution", "a process had it"],
];

/** Draw `view.told` into `view.picture`.
 *  @param {View} view */
export function draw(view) {
  Object.assign(view, axisOf(view.told, view.fold));
  const size = extent(view.axis);
  const range = view.view ?? [0, size];
  const wide = Math.max(200, view.box.clientWidth);
  const left = wide >= 640 ? GUTTER : 0;
  const lanes = Math.max(1, view.told.lanes);
  const row = lanes > LANES_HIGH ? Math.max(5, (ROW * LANES_HIGH) / lanes) : ROW;
  const high = AXIS + ROW + lanes * row + 6;
  const scale = (wide - left - 2) / (range[1] - range[0]);
  const x = (/** @type {number} */ at) => left + (placed(view.axis, at) - range[0]) * scale;
  view.drawn = { wide, left, high, row, lanes, range, size, x };
  set(view.picture, "viewBox", `0 0 ${wide} ${high}`);
  set(view.picture, "height", high);
  set(view.picture, "width", wide);
  drawAxis(view);
  drawBars(view);
  drawNames(view);
  legend(view);
}

/** Set numbers as attributes.
 *  @param {Element} node
 *  @param {Record<string, number>} numbers */
function put(node, numbers) {
  for (const [name, value] of Object.entries(numbers)) set(node, name, round(value));
}

/** @type {(value: number) => number} */
const round = (value) => Math.round(value * 10) / 10;

// -- axis ---------------------------------------------------------------------------------------

/** @param {View} view */
function drawAxis(view) {
  const { wide, left, high, x, range } = view.drawn;
  const start = ms(view.told.start);
  /** @type {Mark[]} */
  const marks = [];
  for (const piece of view.axis) {
    const [a, b] = [x(piece.start), x(piece.end)];
    if (b < left || a > wide) continue;
    if (piece.folded) {
      marks.push({
        id: `fold${piece.start}`,
        x: a,
        width: b - a,
        folded: length((piece.end - piece.start) / 1000),
        text: "",
      });
      continue;
    }
    const shown = [
      Math.max(piece.start, timed(view.axis, range[0])),
      Math.min(piece.end, timed(view.axis, range[1])),
    ];
    const most = Math.max(1, Math.floor((Math.min(b, wide) - Math.max(a, left)) / 90));
    for (const at of ticks(start, shown[0], shown[1], most)) {
      const text = at === start ? "0" : `+${exact((at - start) / 1000)}`;
      marks.push({ id: `tick${at}`, x: x(at), width: text.length * CHAR, text });
    }
  }
  keep(view.layers.axis, spaced(marks, wide), (mark) => mark.id, markNode, (node, mark) =>
    mark.folded ? drawFold(node, mark, high) : drawTick(node, mark, high),
  );
}

/** @param {Mark} mark */
function markNode(mark) {
  if (mark.folded) return svg("g", { class: "fold" }, svg("rect"), svg("text"), svg("title"));
  return svg("g", { class: "tick" }, svg("line"), svg("text"));
}

/**
 * @param {Element} node
 * @param {Mark} mark
 * @param {number} high
 */
function drawTick(node, mark, high) {
  const [line, text] = node.children;
  put(line, { x1: mark.x, x2: mark.x, y1: AXIS - 4, y2: high });
  put(text, { x: mark.x + 3, y: 12 });
  say(text, mark.text);
}

/**
 * @param {Element} node
 * @param {Mark} mark
 * @param {number} high
 */
function drawFold(node, mark, high) {
  const [rect, text, title] = node.children;
  put(rect, { x: mark.x, y: AXIS - 4, width: Math.max(2, mark.width), height: high - AXIS + 4 });
  put(text, { x: mark.x + mark.width / 2, y: 12 });
  set(text, "text-anchor", "middle");
  say(text, mark.width > 40 ? `⋯ ${mark.folded}` : "⋯");
  say(title, `${mark.folded} in which nothing was executed`);
}

/** Remove texts that would overlap.
 *  @param {Mark[]} marks
 *  @param {number} wide */
function spaced(marks, wide) {
  let until = -Infinity;
  return marks.filter((mark) => {
    const begin = mark.folded ? mark.x : mark.x + 3;
    if (!mark.folded && (begin < until || begin + mark.width > wide)) return false;
    until = begin + mark.width + 4;
    return true;
  });
}

/** @param {number} seconds */
function exact(seconds) {
  if (seconds < 1) return `${number(seconds * 1000)} ms`;
  if (seconds < 120) return `${number(seconds)} s`;
  if (seconds < 7200) return `${number(seconds / 60)} min`;
  return seconds < 172800 ? `${number(seconds / 3600)} h` : `${number(seconds / 86400)} days`;
}

// -- bars ---------------------------------------------------------------------------------------

/** @param {View} view */
function drawBars(view) {
  const { wide, left, x } = view.drawn;
  const { now } = span(view.told);
  const isSeen = (/** @type {Bar} */ bar) => x(ended(bar, now)) >= left - 1 && x(ms(bar.start)) <= wide;
  const seen = all(view.told).filter(isSeen);
  const bands = seen.filter((bar) => bar.kind === "gap" || bar.kind === "held");
  const band = (/** @type {Bar} */ bar) => svg("rect", { class: `band kind-${bar.kind} is-${bar.status}` });
  keep(view.layers.back, bands, idOf, band, (node, bar) =>
    place(view, node, bar, AXIS, view.drawn.high - AXIS),
  );
  keep(view.layers.bars, seen, idOf, () => barNode(view), (node, bar) => drawBar(view, node, bar));
}

/** @param {View} view */
function barNode(view) {
  const node = svg("g", null, svg("rect", { rx: 2.5 }), svg("text"), svg("title"));
  node.addEventListener("pointerenter", () => view.pointAt(node.bar ?? null));
  node.addEventListener("pointerleave", () => view.pointAt(null));
  node.addEventListener("click", () => node.bar && view.choose(node.bar));
  node.addEventListener("dblclick", () => node.bar?.key && view.open(node.bar));
  return node;
}

/**
 * @param {View} view
 * @param {Element} node
 * @param {Bar} bar
 */
function drawBar(view, node, bar) {
  node.bar = bar;
  const [rect, text, title] = node.children;
  const { row } = view.drawn;
  const isTop = ON_TOP.has(bar.kind);
  const [y, high] = heights(bar, row, isTop);
  const width = place(view, rect, bar, y, high);
  set(rect, "class", classes(view, bar, width));
  say(text, row < 14 ? "" : label(bar, Math.floor((width - 8) / CHAR)));
  put(text, { x: Number(rect.getAttribute("x")) + 4, y: y + (isTop ? 12 : row * 0.5 + 1.5) });
  say(title, inWords(view.told, bar));
}

/**
 * @param {Bar} bar
 * @param {number} row
 * @param {boolean} isTop
 */
function heights(bar, row, isTop) {
  if (isTop) return [AXIS + 3, ROW - 6];
  const y = AXIS + ROW + bar.lane * row;
  return bar.kind === "attempt" ? [y + row * 0.62, Math.max(2, row * 0.24)] : [y, Math.max(3, row - 3)];
}

/**
 * @param {View} view
 * @param {Bar} bar
 * @param {number} width
 */
function classes(view, bar, width) {
  const kinds = [
    "bar",
    `kind-${bar.kind}`,
    `is-${bar.status}`,
    bar.effect && "is-effect",
    bar.superseded && "is-superseded",
    bar.known_until && "is-unsure",
    width < 5 && "is-thin",
    idOf(bar) === view.chosen && "is-chosen",
  ];
  return kinds.filter(Boolean).join(" ");
}

/** The part of a bar's name that fits in it.
 *  @param {Bar} bar
 *  @param {number} chars */
function label(bar, chars) {
  if (bar.kind === "attempt" || chars < 3) return "";
  const name = bar.count && bar.count > 1 ? `${number(bar.count)} ${bar.name}` : bar.name;
  return name.length <= chars ? name : `${name.slice(0, chars - 1)}…`;
}

/**
 * @param {View} view
 * @param {Element} node
 * @param {Bar} bar
 * @param {number} y
 * @param {number} high
 */
function place(view, node, bar, y, high) {
  const { x, left, wide } = view.drawn;
  const from = Math.max(left, x(ms(bar.start)));
  const width = Math.max(2, Math.min(wide, x(ended(bar, span(view.told).now))) - from);
  put(node, { x: from, y, width, height: high });
  return width;
}

/** @param {View} view */
function drawNames(view) {
  const { left, row, lanes } = view.drawn;
  const inside = view.told.bars.filter((bar) => bar.branch);
  const branches = new Map(inside.map((bar) => [bar.lane, bar.branch]));
  const names = [{ y: AXIS + 15, text: "executed by" }];
  for (let lane = 0; lane < lanes && row >= 14; lane++) {
    const text = lane ? branches.get(lane) ?? "branch" : "steps";
    names.push({ y: AXIS + ROW + lane * row + 14, text });
  }
  const short = (/** @type {string} */ text) => (text.length > 14 ? `…${text.slice(-13)}` : text);
  const name = () => svg("text", { class: "lane-name", x: 0 });
  keep(view.layers.front, left ? names : [], (one) => one.y, name, (node, one) => {
    set(node, "y", one.y);
    say(node, short(one.text));
  });
}

/** The legend: the meaning of the kinds of bars in the picture.
 *  @param {View} view */
function legend(view) {
  const bars = [...view.layers.bars.children].map((node) => node.children[0]);
  const isThere = (/** @type {[string, string]} */ [kind]) => bars.some((bar) => bar.matches(`.${kind.replaceAll(" ", ".")}`));
  const swatch = (/** @type {string} */ kind) =>
    svg(
      "svg",
      { class: "swatch", viewBox: "0 0 14 10", "aria-hidden": "true" },
      svg("rect", { class: `bar ${kind}`, x: 0.5, y: 0.5, width: 13, height: 9, rx: 2 }),
    );
  const item = (/** @type {[string, string]} */ [kind, text]) => el("li", null, swatch(kind), text);
  keep(view.legend, LEGEND.filter(isThere), ([kind]) => kind, item);
}
