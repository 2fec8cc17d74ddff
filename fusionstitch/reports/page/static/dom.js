"use strict";
// Elements made of text, never of markup: what a module says stays text.

/** An element; attributes by name, `on` holds handlers, children are elements or text. */
function el(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "text", "line", "g", "title"].includes(tag);
  const made = svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, run] of Object.entries(value)) made.addEventListener(event, run);
    } else if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

const byId = (id) => document.getElementById(id);

const parsed = new Map();

/** The data block of that name, parsed when it is first needed; null if the page has none. */
function data(name) {
  if (!parsed.has(name)) {
    const block = byId(`data-${name}`);
    parsed.set(name, block ? JSON.parse(block.textContent) : null);
  }
  return parsed.get(name);
}

/** Microseconds as the tables write them. */
function micros(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 10000)
    return `${(value / 1000).toLocaleString("en", { maximumFractionDigits: 1 })} ms`;
  if (value >= 100) return `${Math.round(value).toLocaleString("en")} µs`;
  return `${Number(value.toPrecision(3))} µs`;
}

function bytes(value) {
  for (const [least, unit] of [
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "KB"],
  ]) {
    if (value >= least) return `${(value / least).toFixed(1)} ${unit}`;
  }
  return `${value} B`;
}

const counted = (number) => number.toLocaleString("en");

/** Such as "1 op", "7 ops". */
const many = (number, noun) => `${counted(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Calls `run` with slices of `items`, a few at a time, so that the page answers meanwhile. */
function inSlices(items, size, run) {
  let at = 0;
  const next = () => {
    run(items.slice(at, at + size), at);
    at += size;
    if (at < items.length) setTimeout(next, 0);
  };
  if (items.length) next();
}
