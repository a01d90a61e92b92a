// A run over time, as a picture: who executed it, steps and their attempts, waits, gaps, times held.
//
// The picture is one stop for the keyboard: arrows go from bar to bar, + and - zoom, and what is
// chosen is told in words below. The same stands in a table. Bars keep their nodes between updates.

import { clear, count, el, keep, length, moment, ms, nowMs, number, say, set, svg, time, words } from "/static/dom.js";
import { extent, pieces, placed, ticks, timed } from "/static/scale.js";

const ROW = 22;
const AXIS = 20;
const GUTTER = 92;
const CHAR = 6.4;
const LANES_HIGH = 14;
const HOW = "Left and right: from bar to bar. Plus and minus: zoom. Shift with left and right: move. Home: all of it.";

/** Return `{node, show(timeline)}`; `open(bar)` is called when a bar is opened. */
export function timelineView(open) {
  const view = { open, told: null, view: null, fold: null, chosen: null };
  view.picture = svg("svg", { class: "timeline", role: "application", tabindex: 0, "aria-label": "Timeline of the run", "aria-describedby": "timeline-how timeline-told" });
  view.layers = { back: svg("g"), axis: svg("g"), bars: svg("g"), front: svg("g") };
  view.picture.append(...Object.values(view.layers));
  view.detail = el("p", { id: "timeline-told", class: "timeline-told", role: "status", "aria-live": "polite" });
  view.table = el("details", { class: "as-table" }, el("summary", null, "The same as a table"));
  view.table.addEventListener("toggle", () => table(view));
  view.tools = tools(view);
  view.legend = el("ul", { class: "legend", "aria-label": "Legend" });
  const head = el("div", { class: "spread" }, el("h2", null, "Timeline"), view.tools.node);
  view.box = el("div", { class: "timeline-box" }, view.picture);
  view.node = el("section", { class: "sheet", "aria-label": "Timeline" }, head, view.box, view.detail, el("p", { id: "timeline-how", class: "unseen" }, HOW), view.legend, view.table);
  listen(view);
  return { node: view.node, show: (told) => show(view, told), choose: (key) => chooseKey(view, key) };
}

function tools(view) {
  const button = (text, name, action) => {
    const made = el("button", { type: "button", "aria-label": name, title: name }, text);
    made.addEventListener("click", action);
    return made;
  };
  const fold = button("Fold idle time", "Fold times in which nothing was executed", () => {
    view.fold = !view.folded;
    view.view = null;
    draw(view);
  });
  const node = el("div", { class: "row" }, fold, el("span", { class: "segments" }, button("−", "Zoom out", () => zoom(view, 1.6)), button("+", "Zoom in", () => zoom(view, 1 / 1.6)), button("All", "Show all of it", () => fit(view))));
  return { node, fold };
}

/** What the kinds of bars mean; only those that are there. */
function legend(view) {
  const there = (kind) => [...view.layers.bars.children].some((node) => node.firstChild.matches(`.${kind.replaceAll(" ", ".")}`));
  const item = (kind, text) => there(kind) && el("li", null, svg("svg", { class: "swatch", viewBox: "0 0 14 10", "aria-hidden": "true" }, svg("rect", { class: `bar ${kind}`, x: 0.5, y: 0.5, width: 13, height: 9, rx: 2 })), text);
  clear(view.legend, item("kind-step is-completed", "step"), item("kind-step is-completed is-effect", "effect"), item("kind-attempt is-failed", "failed attempt"), item("kind-step is-running", "at work"), item("kind-step is-in_doubt", "in doubt"), item("kind-wait", "waits"), item("kind-held", "held"), item("kind-gap is-died", "its process had died"), item("kind-gap is-lease_ran_out", "not heard of"), item("kind-gap is-queued", "not taken yet"), item("kind-execution", "a process had it"));
}

// -- what there is --------------------------------------------------------------------------------

function show(view, told) {
  view.told = told;
  view.receivedMs = nowMs();
  draw(view);
  if (view.table.open) table(view);
}

const ended = (bar, now) => (bar.end ? ms(bar.end) : now);

function idOf(bar) {
  return [bar.kind, bar.key, bar.attempt, bar.generation, bar.start].join("|");
}

function all(view) {
  const { bars, executions } = view.told;
  const had = executions.map((one) => ({ kind: "execution", key: "", name: one.owner, status: one.how, start: one.start, end: one.end, attempt: 0, generation: 0, lane: -1 }));
  return [...had, ...bars];
}

function span(view) {
  const start = ms(view.told.start);
  const now = view.told.open ? Math.max(nowMs(), ms(view.told.end)) : ms(view.told.end);
  return { start, now: Math.max(now, start + 1) };
}

/** Idle time is folded by itself when it is most of the time. */
function axis(view) {
  const { start, now } = span(view);
  const busy = view.told.bars.filter((bar) => bar.kind === "attempt" || bar.kind === "step" || bar.kind === "joined").map((bar) => [ms(bar.start), stepEnd(view, bar, now)]);
  const worked = extent(pieces(start, now, busy, true));
  view.folded = view.fold ?? worked < (now - start) * 0.5;
  return pieces(start, now, busy, view.folded);
}

/** A step in doubt works no longer once the run is held: it waits for a person. */
function stepEnd(view, bar, now) {
  if (bar.end) return ms(bar.end);
  const held = view.told.bars.find((one) => one.kind === "held" && ms(one.start) >= ms(bar.start));
  return held ? ms(held.start) : now;
}

// -- drawing --------------------------------------------------------------------------------------

function draw(view) {
  if (!view.told || !view.node.isConnected) return;
  view.axis = axis(view);
  const size = extent(view.axis);
  const range = view.view ?? [0, size];
  const wide = Math.max(200, view.box.clientWidth);
  const left = wide >= 640 ? GUTTER : 0;
  const lanes = Math.max(1, view.told.lanes);
  const row = lanes > LANES_HIGH ? Math.max(5, (ROW * LANES_HIGH) / lanes) : ROW;
  const high = AXIS + ROW + lanes * row + 6;
  const x = (at) => left + ((placed(view.axis, at) - range[0]) / (range[1] - range[0])) * (wide - left - 2);
  view.drawn = { wide, left, high, row, lanes, range, size, x };
  set(view.picture, "viewBox", `0 0 ${wide} ${high}`);
  set(view.picture, "height", high);
  set(view.picture, "width", wide);
  drawAxis(view);
  drawBars(view);
  drawNames(view);
  legend(view);
  set(view.tools.fold, "aria-pressed", String(view.folded));
  detail(view);
}

function drawAxis(view) {
  const { wide, left, high, x, range } = view.drawn;
  const start = ms(view.told.start);
  const marks = [];
  for (const piece of view.axis) {
    const [a, b] = [x(piece.start), x(piece.end)];
    if (b < left || a > wide) continue;
    if (piece.folded) {
      marks.push({ id: `fold${piece.start}`, x: a, width: b - a, folded: length((piece.end - piece.start) / 1000) });
      continue;
    }
    const shown = [Math.max(piece.start, timed(view.axis, range[0])), Math.min(piece.end, timed(view.axis, range[1]))];
    const most = Math.max(1, Math.floor((Math.min(b, wide) - Math.max(a, left)) / 90));
    for (const at of ticks(start, shown[0], shown[1], most)) marks.push({ id: `tick${at}`, x: x(at), text: at === start ? "0" : `+${exact((at - start) / 1000)}` });
  }
  keep(view.layers.axis, spaced(marks, wide), (mark) => mark.id, (mark) => (mark.folded ? svg("g", { class: "fold" }, svg("rect"), svg("text"), svg("title")) : svg("g", { class: "tick" }, svg("line"), svg("text"))), (node, mark) => {
    if (mark.folded) return drawFold(node, mark, high);
    const [line, text] = node.children;
    for (const [name, value] of Object.entries({ x1: mark.x, x2: mark.x, y1: AXIS - 4, y2: high })) set(line, name, round(value));
    set(text, "x", round(mark.x + 3));
    set(text, "y", 12);
    say(text, mark.text);
  });
}

function drawFold(node, mark, high) {
  const [rect, text, title] = node.children;
  for (const [name, value] of Object.entries({ x: mark.x, y: AXIS - 4, width: Math.max(2, mark.width), height: high - AXIS + 4 })) set(rect, name, round(value));
  set(text, "x", round(mark.x + mark.width / 2));
  set(text, "y", 12);
  set(text, "text-anchor", "middle");
  say(text, mark.width > 40 ? `⋯ ${mark.folded}` : "⋯");
  say(title, `${mark.folded} in which nothing was executed`);
}

/** Leave out texts that would stand on each other. */
function spaced(marks, wide) {
  let until = -Infinity;
  return marks.filter((mark) => {
    const begin = mark.folded ? mark.x : mark.x + 3;
    const width = mark.folded ? mark.width : mark.text.length * CHAR;
    if (!mark.folded && (begin < until || begin + width > wide)) return false;
    until = begin + width + 4;
    return true;
  });
}

function exact(seconds) {
  if (seconds < 1) return `${number(Math.round(seconds * 1000))} ms`;
  if (seconds < 120) return `${number(seconds)} s`;
  if (seconds < 7200) return `${number(seconds / 60)} min`;
  return seconds < 172800 ? `${number(seconds / 3600)} h` : `${number(seconds / 86400)} days`;
}

const round = (value) => Math.round(value * 10) / 10;

function drawBars(view) {
  const { wide, left } = view.drawn;
  const { now } = span(view);
  const seen = all(view).filter((bar) => view.drawn.x(ended(bar, now)) >= left - 1 && view.drawn.x(ms(bar.start)) <= wide);
  view.seen = seen;
  const bands = seen.filter((bar) => bar.kind === "gap" || bar.kind === "held");
  keep(view.layers.back, bands, idOf, (bar) => svg("rect", { class: `band kind-${bar.kind} is-${bar.status}` }), (node, bar) => place(view, node, bar, AXIS, view.drawn.high - AXIS));
  keep(view.layers.bars, seen, idOf, (bar) => barNode(view, bar), (node, bar) => updateBar(view, node, bar));
}

function barNode(view, bar) {
  const node = svg("g", null, svg("rect", { rx: 2.5 }), svg("text"), svg("title"));
  node.addEventListener("pointerenter", () => detail(view, node.bar));
  node.addEventListener("pointerleave", () => detail(view));
  node.addEventListener("click", () => {
    choose(view, node.bar);
    view.picture.focus();
  });
  node.addEventListener("dblclick", () => node.bar.key && view.open(node.bar));
  return node;
}

function updateBar(view, node, bar) {
  node.bar = bar;
  const [rect, text, title] = node.children;
  const { row } = view.drawn;
  const isBand = bar.kind === "gap" || bar.kind === "held" || bar.kind === "execution";
  const y = isBand ? AXIS + 3 : AXIS + ROW + bar.lane * row + (bar.kind === "attempt" ? row * 0.62 : 0);
  const high = isBand ? ROW - 6 : bar.kind === "attempt" ? Math.max(2, row * 0.24) : Math.max(3, row - 3);
  const width = place(view, rect, bar, y, high);
  const kinds = ["bar", `kind-${bar.kind}`, `is-${bar.status}`, bar.effect && "is-effect", bar.superseded && "is-superseded", width < 5 && "is-thin", idOf(bar) === view.chosen && "is-chosen"];
  set(rect, "class", kinds.filter(Boolean).join(" "));
  const chars = Math.floor((width - 8) / CHAR);
  const label = bar.kind === "attempt" ? "" : bar.count > 1 ? `${number(bar.count)} ${bar.name}` : bar.name;
  say(text, row < 14 || chars < 3 ? "" : label.length <= chars ? label : `${label.slice(0, chars - 1)}…`);
  set(text, "x", round(Number(rect.getAttribute("x")) + 4));
  set(text, "y", round(y + (isBand ? 12 : row * 0.5 + 1.5)));
  say(title, inWords(view, bar));
}

function place(view, node, bar, y, high) {
  const { x, left, wide } = view.drawn;
  const { now } = span(view);
  const from = Math.max(left, x(ms(bar.start)));
  const width = Math.max(2, Math.min(wide, x(ended(bar, now))) - from);
  for (const [name, value] of Object.entries({ x: from, y, width, height: high })) set(node, name, round(value));
  return width;
}

function drawNames(view) {
  const { left, row, lanes } = view.drawn;
  const branches = new Map(view.told.bars.filter((bar) => bar.branch).map((bar) => [bar.lane, bar.branch]));
  const names = [{ y: AXIS + 15, text: "executed by" }];
  if (row >= 14) for (let lane = 0; lane < lanes; lane++) names.push({ y: AXIS + ROW + lane * row + 14, text: lane ? branches.get(lane) ?? "branch" : "steps" });
  const short = (text) => (text.length > 14 ? `…${text.slice(-13)}` : text);
  keep(view.layers.front, left ? names : [], (one) => one.y, () => svg("text", { class: "lane-name" }), (node, one) => {
    set(node, "x", 0);
    set(node, "y", one.y);
    say(node, short(one.text));
  });
}

// -- words ----------------------------------------------------------------------------------------

function inWords(view, bar) {
  const { start, now } = span(view);
  const took = length((ended(bar, now) - ms(bar.start)) / 1000);
  const when = `${moment(bar.start)} (+${length((ms(bar.start) - start) / 1000)}), ${bar.end ? took : `${took} so far`}`;
  if (bar.kind === "execution") return `${bar.name} had the run: ${words(bar.status)}. ${when}`;
  if (bar.kind === "gap") return `Nobody had the run: ${bar.name}. ${when}`;
  if (bar.kind === "held") return `Held: ${words(bar.status)}. ${when}`;
  if (bar.kind === "joined") return `${count(bar.count, "earlier bar")}, joined. ${when}`;
  if (bar.kind === "wait") return `${bar.key} waits for: ${bar.name}, ${words(bar.status)}. ${when}`;
  const what = bar.kind === "attempt" ? `attempt ${bar.attempt} of ${bar.key}` : bar.key;
  const more = bar.kind === "step" && bar.attempt > 1 ? `, ${count(bar.attempt, "attempt")}` : "";
  const left = bar.superseded ? `, superseded (generation ${bar.generation})` : "";
  return `${bar.effect ? "effect " : ""}${what}: ${words(bar.status)}${more}${left}. ${when}`;
}

function detail(view, bar = null) {
  const told = bar ?? view.seen?.find((one) => idOf(one) === view.chosen);
  say(view.detail, told ? inWords(view, told) : summary(view));
}

function summary(view) {
  const { told } = view;
  const steps = told.bars.filter((bar) => bar.kind === "step").length;
  const gaps = told.bars.filter((bar) => bar.kind === "gap" && bar.status !== "queued").length;
  const parts = [count(steps, "step"), `executed ${count(told.executions.length, "time")}`];
  if (gaps) parts.push(count(gaps, "gap"));
  if (told.joined) parts.push(`the oldest ${number(told.joined)} bars are joined into one`);
  if (told.borrowed) parts.push(`${count(told.borrowed, "outcome")} borrowed from the run that it was forked from`);
  return `${parts.join(" · ")}. Point at a bar, or use the arrow keys.`;
}

// -- the same as a table --------------------------------------------------------------------------

function table(view) {
  if (!view.table.open || !view.told) return;
  const { start, now } = span(view);
  const rows = all(view).toSorted((one, other) => ms(one.start) - ms(other.start)).map((bar) =>
    el("tr", null, el("td", null, words(bar.kind)), el("td", { class: "mono" }, bar.key || bar.name), el("td", null, words(bar.status)), el("td", { class: "num" }, bar.attempt || ""), el("td", { class: "nowrap" }, time(bar.start)), el("td", { class: "num" }, `+${length((ms(bar.start) - start) / 1000)}`), el("td", { class: "num" }, length((ended(bar, now) - ms(bar.start)) / 1000) + (bar.end ? "" : " so far"))),
  );
  const heads = ["What", "Which", "Status", "Attempt", "Start", "After", "Took"].map((name) => el("th", { scope: "col" }, name));
  const old = view.table.querySelector(".table");
  const made = el("div", { class: "table" }, el("table", null, el("thead", null, el("tr", null, heads)), el("tbody", null, rows)));
  if (old) old.replaceWith(made);
  else view.table.append(made);
}

// -- moving ---------------------------------------------------------------------------------------

function fit(view) {
  view.view = null;
  draw(view);
}

function zoom(view, factor, middle = null) {
  if (!view.drawn) return;
  const [from, until] = view.drawn.range;
  const centre = middle ?? (from + until) / 2;
  const size = Math.min(view.drawn.size, Math.max(2, (until - from) * factor));
  const share = (centre - from) / (until - from);
  range(view, centre - share * size, size);
}

function range(view, from, size) {
  const begin = Math.max(0, Math.min(from, view.drawn.size - size));
  view.view = size >= view.drawn.size * 0.999 ? null : [begin, begin + size];
  draw(view);
}

function choose(view, bar) {
  view.chosen = bar ? idOf(bar) : null;
  draw(view);
}

function chooseKey(view, key) {
  choose(view, view.told?.bars.find((bar) => bar.key === key && bar.kind !== "attempt"));
}

function step(view, by) {
  const order = all(view).toSorted((one, other) => ms(one.start) - ms(other.start));
  const at = order.findIndex((bar) => idOf(bar) === view.chosen);
  const next = order[at < 0 ? (by > 0 ? 0 : order.length - 1) : Math.min(order.length - 1, Math.max(0, at + by))];
  if (!next) return;
  const place = placed(view.axis, ms(next.start));
  const [from, until] = view.drawn.range;
  if (place < from || place > until) range(view, place - (until - from) / 4, until - from);
  choose(view, next);
}

function listen(view) {
  const pan = (share) => view.drawn && range(view, view.drawn.range[0] + share * (view.drawn.range[1] - view.drawn.range[0]), view.drawn.range[1] - view.drawn.range[0]);
  const keys = { "+": () => zoom(view, 1 / 1.6), "=": () => zoom(view, 1 / 1.6), "-": () => zoom(view, 1.6), Home: () => fit(view), ArrowRight: (event) => (event.shiftKey ? pan(0.2) : step(view, 1)), ArrowLeft: (event) => (event.shiftKey ? pan(-0.2) : step(view, -1)), Escape: () => choose(view, null) };
  view.picture.addEventListener("keydown", (event) => {
    const bar = all(view).find((one) => idOf(one) === view.chosen);
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
  new ResizeObserver(() => draw(view)).observe(view.box);
  setInterval(() => view.told?.open && !document.hidden && draw(view), 1000);
}

function at(view, event) {
  const { left, wide, range: [from, until] } = view.drawn;
  const x = event.clientX - view.picture.getBoundingClientRect().left;
  return from + ((x - left) / (wide - left)) * (until - from);
}

function drag(view) {
  let held = null;
  view.picture.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && view.view) held = { x: event.clientX, range: view.drawn.range };
  });
  addEventListener("pointermove", (event) => {
    if (!held) return;
    const [from, until] = held.range;
    range(view, from - ((event.clientX - held.x) / (view.drawn.wide - view.drawn.left)) * (until - from), until - from);
  });
  addEventListener("pointerup", () => (held = null));
}
