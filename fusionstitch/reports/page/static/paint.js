// The graph on its canvas: boxes and edges of a scene, what is seen of it, and no more.

const OP_SIZE = [172, 40],
  UNIT_SIZE = [214, 58],
  HEAD = 34,
  MARGIN = 16;
const TEXT_FROM = 0.32,
  EDGES_FROM = 0.1;

/** The colours of the page as they are now, as a canvas takes them: it knows no light-dark(). */
function palette() {
  const probe = document.body.appendChild(document.createElement("span"));
  const names = [
    "paper",
    "panel",
    "line",
    "ink",
    "soft",
    "focus",
    "sunken",
    "thread",
    "warp",
    "block",
    "cluster",
    "grid",
    "loop",
    "xla",
    "unfused",
    "inside",
  ];
  const colours = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, getComputedStyle(probe).color];
  });
  probe.remove();
  return Object.fromEntries(colours);
}

/** What a unit's accent is called. */
function accent(unit) {
  if (unit.scope) return unit.scope;
  return unit.kind === "control"
    ? "inside"
    : unit.kind === "xla" || unit.kind === "other"
      ? "xla"
      : "unfused";
}

/** Boxes and edges of a graph with some of its units unfolded. */
function makeScene(graph, unfolded) {
  const insides = new Map();
  const sizes = graph.units.map((unit, n) => {
    if (unfolded.has(n)) {
      const sizesInside = unit.ops.map(() => OP_SIZE);
      const inside = arrange(unit.layers, sizesInside);
      insides.set(n, inside);
      return [Math.max(UNIT_SIZE[0], inside.width + 2 * MARGIN), inside.height + HEAD + MARGIN];
    }
    return unit.ops.length > 1 || unit.kernel !== undefined ? UNIT_SIZE : OP_SIZE;
  });
  const placed = arrange(graph.layers, sizes);
  const units = graph.units.map((unit, n) => {
    const [w, h] = sizes[n];
    return { unit, n, x: placed.x[n] - w / 2, y: placed.y[n] - h / 2, w, h };
  });
  const ops = new Map();
  for (const [n, inside] of insides) {
    const box = units[n],
      unit = graph.units[n];
    const dx = box.x + (box.w - inside.width) / 2,
      dy = box.y + HEAD;
    unit.ops.forEach((op, i) => {
      ops.set(op, {
        op,
        n,
        x: dx + inside.x[i] - OP_SIZE[0] / 2,
        y: dy + inside.y[i] - OP_SIZE[1] / 2,
        w: OP_SIZE[0],
        h: OP_SIZE[1],
      });
    });
  }
  const edges = graph.layers.edges.map((path) =>
    edge(path, placed, graph.layers.nodes, 0, 0, (n) => units[n], [path[0], path[path.length - 1]]),
  );
  const given = graph.given.map(([from, to]) =>
    edge([from, to], placed, graph.layers.nodes, 0, 0, (n) => units[n], [from, to]),
  );
  const inner = [];
  for (const [n, inside] of insides) {
    const box = units[n],
      unit = graph.units[n];
    const dx = box.x + (box.w - inside.width) / 2,
      dy = box.y + HEAD;
    for (const path of unit.layers.edges) {
      const ends = [unit.ops[path[0]], unit.ops[path[path.length - 1]]];
      inner.push(edge(path, inside, unit.layers.nodes, dx, dy, (i) => ops.get(unit.ops[i]), ends));
    }
  }
  return { graph, units, ops, edges, given, inner, width: placed.width, height: placed.height };
}

/** A path as points, from the bottom of a box by bends to the top of another one. */
function edge(path, placed, nodes, dx, dy, box, ends) {
  const points = path.map((n, i) => {
    if (n >= nodes) return [placed.x[n] + dx, placed.y[n] + dy];
    const own = box(n);
    return [own.x + own.w / 2, i === 0 ? own.y + own.h : own.y];
  });
  const xs = points.map((p) => p[0]),
    ys = points.map((p) => p[1]);
  return {
    points,
    ends,
    faint: path.length > 9 || Math.abs(ys[0] - ys[ys.length - 1]) > 900,
    left: Math.min(...xs),
    right: Math.max(...xs),
    top: Math.min(...ys),
    bottom: Math.max(...ys),
  };
}

/** Draws a scene. `view` is {x, y, scale}: what lies in the canvas's corner, pixels a unit. */
function paint(canvas, scene, view, chosen, colours) {
  const dots = devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
    canvas.width = Math.round(width * dots);
    canvas.height = Math.round(height * dots);
  }
  const g = canvas.getContext("2d");
  g.setTransform(dots, 0, 0, dots, 0, 0);
  g.fillStyle = colours.paper;
  g.fillRect(0, 0, width, height);
  g.setTransform(
    dots * view.scale,
    0,
    0,
    dots * view.scale,
    -view.x * view.scale * dots,
    -view.y * view.scale * dots,
  );
  const seen = {
    left: view.x,
    top: view.y,
    right: view.x + width / view.scale,
    bottom: view.y + height / view.scale,
  };
  const visible = (b) =>
    b.x < seen.right && b.x + b.w > seen.left && b.y < seen.bottom && b.y + b.h > seen.top;
  const crosses = (e) =>
    e.left < seen.right && e.right > seen.left && e.top < seen.bottom && e.bottom > seen.top;
  const near =
    chosen && chosen.op !== undefined
      ? [scene.inner, chosen.op]
      : chosen
        ? [[...scene.edges, ...scene.given], chosen.unit]
        : null;

  paintEdges(g, scene.edges.filter(crosses), colours, view.scale);
  for (const box of scene.units) if (visible(box)) paintUnit(g, scene, box, view.scale, colours);
  if (view.scale > EDGES_FROM) paintEdges(g, scene.inner.filter(crosses), colours, view.scale);
  for (const box of scene.ops.values())
    if (visible(box)) paintOp(g, scene, box, view.scale, colours);
  if (near) {
    const [all, id] = near;
    g.globalAlpha = 1;
    g.strokeStyle = colours.focus;
    g.lineWidth = 1.6 / Math.min(1, view.scale);
    for (const one of all) if (one.ends.includes(id) && crosses(one)) strokeEdge(g, one);
  }
  const box = chosen && boxOf(scene, chosen);
  if (box) {
    g.strokeStyle = colours.focus;
    g.lineWidth = 2.5 / Math.min(1, view.scale);
    g.strokeRect(box.x - 3, box.y - 3, box.w + 6, box.h + 6);
  }
}

/** The box of what is chosen: of an op if its unit is unfolded, else of the unit. */
function boxOf(scene, chosen) {
  if (chosen.op !== undefined && scene.ops.has(chosen.op)) return scene.ops.get(chosen.op);
  return chosen.unit >= 0 ? scene.units[chosen.unit] : null;
}

function paintEdges(g, edges, colours, scale) {
  g.strokeStyle = colours.soft;
  g.lineWidth = 1 / Math.min(1, Math.max(scale, 0.3));
  for (const one of edges) {
    g.globalAlpha = one.faint ? 0.18 : 0.6;
    strokeEdge(g, one);
  }
  g.globalAlpha = 1;
}

function strokeEdge(g, one) {
  g.beginPath();
  const [start, ...rest] = one.points;
  g.moveTo(start[0], start[1]);
  let [x, y] = start;
  for (const [toX, toY] of rest) {
    const half = (toY - y) / 2;
    g.bezierCurveTo(x, y + half, toX, toY - half, toX, toY);
    [x, y] = [toX, toY];
  }
  g.stroke();
}

function paintUnit(g, scene, box, scale, colours) {
  const { unit } = box,
    colour = colours[accent(unit)];
  const open = [...unit.ops].some((op) => scene.ops.has(op));
  const ours = Boolean(unit.scope);
  frame(g, box, colour, colours.panel, ours ? 0.16 : 0.06, ours ? 1.5 : 1);
  g.fillStyle = colour;
  g.fillRect(box.x, box.y, ours ? 6 : 3, box.h);
  if (scale < TEXT_FROM && !(open && scale > 0.12)) return;
  const room = box.w - 24;
  if (unit.times) paintTurns(g, box, colour);
  g.fillStyle = colours.ink;
  g.font = "600 13px system-ui, sans-serif";
  g.textBaseline = "middle";
  const small = !open && unit.ops.length === 1 && unit.kernel === undefined;
  g.fillText(fit(g, unit.title, unit.times ? room - 20 : room), box.x + 14, box.y + (small || open ? 14 : 20));
  g.fillStyle = colours.soft;
  g.font = "12px system-ui, sans-serif";
  if (!open)
    g.fillText(fit(g, about(scene.graph, unit), room), box.x + 14, box.y + (small ? 29 : 39));
}

/** The mark of a loop, in a corner: an arrow that goes round. */
function paintTurns(g, { x, y, w }, colour) {
  const [atX, atY, radius] = [x + w - 15, y + 16, 6];
  g.strokeStyle = colour;
  g.fillStyle = colour;
  g.lineWidth = 1.8;
  g.beginPath();
  g.arc(atX, atY, radius, 0, 1.55 * Math.PI);
  g.stroke();
  g.beginPath();
  g.moveTo(atX + 5, atY - radius);
  g.lineTo(atX - 1, atY - radius - 4);
  g.lineTo(atX - 1, atY - radius + 4);
  g.fill();
}

/** The second line of a folded unit. */
function about(graph, unit) {
  if (unit.kind === "control")
    return unit.times && unit.times[0]
      ? `loop of ${counted(unit.times[0])}, folded`
      : "runs other graphs";
  if (unit.ops.length === 1 && unit.kernel === undefined) return graph.ops[unit.ops[0]][2];
  const us = unit.us === null || unit.kind === "input" ? "" : `, ${micros(unit.us)}`;
  const times = unit.times && unit.times[0] ? ` of ${counted(unit.times[0])}` : "";
  const scope =
    unit.scope === "loop" ? `${unit.form ? `${unit.form} ` : ""}loop${times}, ` : unit.scope ? `${unit.scope} scope, ` : "";
  return `${scope}${many(unit.ops.length, "op")}${us}`;
}

function paintOp(g, scene, box, scale, colours) {
  const unit = scene.graph.units[box.n],
    colour = colours[accent(unit)];
  frame(g, box, colour, colours.panel, 0, 1);
  if (scale < TEXT_FROM) {
    g.fillStyle = colour;
    g.globalAlpha = 0.35;
    g.fillRect(box.x, box.y, box.w, box.h);
    g.globalAlpha = 1;
    return;
  }
  const [name, opcode, type] = scene.graph.ops[box.op];
  g.textBaseline = "middle";
  g.fillStyle = colours.ink;
  g.font = "600 12px system-ui, sans-serif";
  g.fillText(fit(g, opcode, box.w - 16), box.x + 8, box.y + 13);
  g.fillStyle = colours.soft;
  g.font = "11px system-ui, sans-serif";
  g.fillText(fit(g, `${type}  ${name}`, box.w - 16), box.x + 8, box.y + 28);
}

function frame(g, box, colour, under, tint, line) {
  g.beginPath();
  g.roundRect(box.x, box.y, box.w, box.h, 5);
  g.fillStyle = under;
  g.fill();
  if (tint) {
    g.globalAlpha = tint;
    g.fillStyle = colour;
    g.fill();
    g.globalAlpha = 1;
  }
  g.strokeStyle = colour;
  g.lineWidth = line;
  g.stroke();
}

const fitted = new Map();

/** The text, cut to a width; remembered, as measuring costs more than drawing. */
function fit(g, text, width) {
  const key = `${g.font}|${Math.round(width)}|${text}`;
  let found = fitted.get(key);
  if (found === undefined) {
    found = text;
    if (g.measureText(text).width > width) {
      let low = 0,
        high = text.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (g.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
        else high = middle - 1;
      }
      found = `${text.slice(0, low)}…`;
    }
    fitted.set(key, found);
  }
  return found;
}
