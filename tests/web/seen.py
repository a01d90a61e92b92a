"""What a test looks for in a page, as functions for the browser."""

HARMLESS = """() => ({
  harmed: window.harmed ?? null,
  made: [...document.querySelectorAll("main *")].filter((node) =>
    ["SCRIPT", "IMG", "IFRAME", "OBJECT", "EMBED", "STYLE", "BASE", "B"].includes(node.tagName) ||
    [...node.attributes].some((one) => one.name.startsWith("on") || one.name === "style") ||
    (node.localName === "a" && !/^https?:$/.test(node.protocol))
  ).map((node) => node.outerHTML.slice(0, 100)),
})"""
"""What was done by text that means harm, and which elements were made of it."""

NAMELESS = """() => [...document.querySelectorAll("button, a, input, select, summary")].filter((node) =>
  node.checkVisibility() &&
  !(node.textContent.trim() || node.ariaLabel || node.labels?.length || node.title)
).map((node) => node.outerHTML)"""
"""Controls that have no name for somebody who does not see them."""
