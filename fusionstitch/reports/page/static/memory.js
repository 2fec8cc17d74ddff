// Shared memory as a map: bytes upwards, the steps of a group of loops to the right.

const MAP = { left: 64, right: 10, top: 8, bottom: 30, width: 860, height: 220 };

function memoryMap(groups, total) {
  const box = el("div", {
    class: "memory",
    tabindex: 0,
    role: "region",
    "aria-label": "Shared memory over lifetimes",
  });
  if (!groups.length) {
    box.append(el("p", { class: "empty" }, "No value of this kernel waits in shared memory."));
    return box;
  }
  box.append(
    el(
      "p",
      { class: "note" },
      `${bytes(total)} a block. A rectangle is a value: as high as its bytes, as long as it is needed. Groups of loops have all of it in turn.`,
    ),
  );
  groups.slice(0, 24).forEach(({ group, lives }) => {
    box.append(el("h3", {}, `Group ${group}`), oneMap(lives, total));
  });
  if (groups.length > 24)
    box.append(el("p", { class: "note" }, `and ${many(groups.length - 24, "more group")}`));
  return box;
}

function oneMap(lives, total) {
  const steps = Math.max(...lives.map(([, , , , last]) => last)) + 1;
  const most = Math.max(total, ...lives.map(([, offset, size]) => offset + size));
  const inner = [MAP.width - MAP.left - MAP.right, MAP.height - MAP.top - MAP.bottom];
  const x = (at) => MAP.left + (at / steps) * inner[0];
  const y = (at) => MAP.top + (1 - at / most) * inner[1];
  const svg = el("svg", {
    viewBox: `0 0 ${MAP.width} ${MAP.height}`,
    width: MAP.width,
    role: "img",
    "aria-label": `${many(lives.length, "value")} in shared memory`,
  });
  for (const share of [0, 0.5, 1]) {
    const at = Math.round(share * most);
    svg.append(
      el("line", { x1: MAP.left, x2: MAP.width - MAP.right, y1: y(at), y2: y(at) }),
      el("text", { x: MAP.left - 8, y: y(at) + 4, "text-anchor": "end" }, bytes(at)),
    );
  }
  for (const [what, offset, size, first, last, exchange] of lives) {
    const place = {
      x: x(first),
      y: y(offset + size),
      width: Math.max(2, x(last + 1) - x(first) - 1),
      height: Math.max(2, y(offset) - y(offset + size)),
    };
    svg.append(
      el(
        "rect",
        { ...place, class: exchange ? "exchange" : "" },
        el(
          "title",
          {},
          `${exchange ? "what threads exchange for " : ""}${what}: bytes ${offset} to ${offset + size - 1}, steps ${first} to ${last}`,
        ),
      ),
    );
    if (place.height > 13 && place.width > 60) {
      svg.append(
        el(
          "text",
          { class: "inside", x: place.x + 5, y: place.y + place.height / 2 + 4 },
          what.slice(0, Math.floor(place.width / 6.5)),
        ),
      );
    }
  }
  svg.append(
    el("text", { x: MAP.left, y: MAP.height - 8 }, "step 0"),
    el(
      "text",
      { x: MAP.width - MAP.right, y: MAP.height - 8, "text-anchor": "end" },
      `step ${steps - 1}`,
    ),
  );
  return svg;
}
