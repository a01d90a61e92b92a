// How much of something is in use: a bar, drawn, and the numbers beside it.

import { el, svg } from "/static/dom.js";

const WIDTH = 92;

/** A share between 0 and 1 (more is shown as full), with a name for those who do not see it. */
export function meter(share, text, name) {
  const known = typeof share === "number";
  const part = known ? Math.max(0, Math.min(1, share)) : 0;
  const kind = part >= 1 ? "is-full" : part >= 0.8 ? "is-high" : "";
  const told = known ? `${Math.round(share * 100)} %` : "–";
  return el(
    "span",
    { class: `meter ${kind}`.trim(), role: "img", "aria-label": `${name}: ${text ? `${text}, ` : ""}${told}` },
    svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} 8`, "aria-hidden": "true" },
      svg("rect", { class: "track", width: WIDTH, height: 8, rx: 4 }),
      part > 0 ? svg("rect", { class: "part", width: Math.max(4, part * WIDTH), height: 8, rx: 4 }) : null,
    ),
    el("b", { "aria-hidden": "true" }, told),
    text ? el("span", { class: "faint", "aria-hidden": "true" }, text) : null,
  );
}
