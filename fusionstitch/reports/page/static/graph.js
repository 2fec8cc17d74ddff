// The part "Graph": which graph, what is unfolded, what is chosen, and how it is moved about.

const LEAST_SCALE = 0.02,
  MOST_SCALE = 3;
/** Units of more ops than this are unfolded one by one only. */
const UNFOLD_ALL = 4000;

const graphView = {
  number: 0,
  scene: null,
  unfolded: new Set(),
  chosen: null,
  view: { x: 0, y: 0, scale: 1 },
  colours: null,
  pending: false,
};

const currentGraph = () => data("graphs")[graphView.number];

function drawGraph() {
  if (graphView.pending || !graphView.scene) return;
  graphView.pending = true;
  requestAnimationFrame(() => {
    graphView.pending = false;
    paint(
      byId("graph-canvas"),
      graphView.scene,
      graphView.view,
      graphView.chosen,
      graphView.colours,
    );
  });
}

/** Opens a graph by its number. */
function openGraph(number) {
  graphView.number = number;
  graphView.unfolded = new Set();
  graphView.chosen = null;
  byId("graph-select").value = String(number);
  rebuild();
  fitGraph();
  describe();
}

function rebuild() {
  graphView.scene = makeScene(currentGraph(), graphView.unfolded);
  drawGraph();
}

function fitGraph() {
  const canvas = byId("graph-canvas"),
    { scene, view } = graphView;
  const width = canvas.clientWidth,
    height = canvas.clientHeight;
  if (!width || !scene) return;
  const fits = Math.min(width / (scene.width + 60), height / (scene.height + 60));
  view.scale = Math.max(LEAST_SCALE, Math.min(1, fits));
  view.x = (scene.width - width / view.scale) / 2;
  view.y = Math.min(-30, (scene.height - height / view.scale) / 2);
  if (fits < 0.45) {
    // too much to read: start where the program starts, and let it be moved
    view.scale = Math.max(view.scale, Math.min(0.45, width / (scene.width + 60)));
    view.x = (scene.width - width / view.scale) / 2;
    view.y = -30;
  }
  drawGraph();
}

/** Zooms about a point of the canvas. */
function zoom(factor, atX, atY) {
  const { view } = graphView;
  const scale = Math.max(LEAST_SCALE, Math.min(MOST_SCALE, view.scale * factor));
  view.x += atX / view.scale - atX / scale;
  view.y += atY / view.scale - atY / scale;
  view.scale = scale;
  drawGraph();
}

function zoomMiddle(factor) {
  const canvas = byId("graph-canvas");
  zoom(factor, canvas.clientWidth / 2, canvas.clientHeight / 2);
}

/** Unfolds or folds a unit, which stays where it is on the canvas. */
function toggleUnit(n) {
  const { scene, unfolded, view } = graphView;
  const unit = scene.graph.units[n],
    before = scene.units[n];
  if (unit.bodies && unit.ops.length === 1) return openGraph(unit.bodies[unit.bodies.length - 1]);
  if (unit.ops.length < 2 && !unfolded.has(n)) return undefined;
  if (!unfolded.delete(n)) unfolded.add(n);
  rebuild();
  const after = graphView.scene.units[n];
  view.x += after.x + after.w / 2 - before.x - before.w / 2;
  view.y += after.y - before.y;
  return drawGraph();
}

function unfoldAll(yes) {
  const graph = currentGraph();
  const able = graph.units
    .map((unit, n) => n)
    .filter((n) => graph.units[n].ops.length > 1 && graph.units[n].ops.length <= UNFOLD_ALL);
  graphView.unfolded = new Set(yes ? able : []);
  rebuild();
  fitGraph();
}

/** Chooses {unit} or {unit, op}; `show` moves it into sight. */
function choose(chosen, show) {
  graphView.chosen = chosen;
  const box = chosen && boxOf(graphView.scene, chosen);
  if (show && box) {
    const canvas = byId("graph-canvas"),
      { view } = graphView;
    if (view.scale < 0.6) view.scale = 0.8;
    view.x = box.x + box.w / 2 - canvas.clientWidth / view.scale / 2;
    view.y = box.y + Math.min(box.h, 80) / 2 - canvas.clientHeight / view.scale / 2;
  }
  drawGraph();
  describe();
}

/** Shows an op, wherever it is. */
function chooseOp(number, op) {
  if (graphView.number !== number) openGraph(number);
  const unit = currentGraph().ops[op][3];
  if (unit >= 0 && currentGraph().units[unit].ops.length > 1 && !graphView.unfolded.has(unit)) {
    graphView.unfolded.add(unit);
    rebuild();
  }
  choose({ unit, op }, true);
}

/** Shows what an address names: the op, or its unit, if the graph has it. */
function showInGraph(number, kind, op) {
  const graph = (data("graphs") || [])[number];
  if (!graph || !graph.ops[op]) return;
  if (kind === "op") chooseOp(number, op);
  else {
    if (graphView.number !== number) openGraph(number);
    choose({ unit: graph.ops[op][3] }, true);
  }
}

/** What lies at a point of the canvas. */
function hit(x, y) {
  const { scene, view } = graphView;
  const at = [view.x + x / view.scale, view.y + y / view.scale];
  const inside = (b) => at[0] >= b.x && at[0] <= b.x + b.w && at[1] >= b.y && at[1] <= b.y + b.h;
  for (const box of scene.ops.values()) if (inside(box)) return { unit: box.n, op: box.op };
  for (const box of scene.units) {
    if (!inside(box)) continue;
    return asChosen(box);
  }
  return null;
}

function startGraph() {
  const graphs = data("graphs");
  const canvas = byId("graph-canvas"),
    select = byId("graph-select");
  if (!graphs || !graphs.length) {
    byId("graph").replaceChildren(el("p", { class: "empty" }, "There is no graph in this report."));
    return;
  }
  graphs.forEach((graph, n) => {
    const often = graph.runs > 1 ? `, ${many(graph.runs, "run")}` : "";
    select.append(
      el("option", { value: n }, `${graph.name} (${many(graph.ops.length, "op")}${often})`),
    );
  });
  graphView.colours = palette();
  legend();
  select.addEventListener("change", () => openGraph(Number(select.value)));
  byId("graph-fit").addEventListener("click", fitGraph);
  byId("graph-in").addEventListener("click", () => zoomMiddle(1.3));
  byId("graph-out").addEventListener("click", () => zoomMiddle(1 / 1.3));
  byId("graph-unfold").addEventListener("click", () => unfoldAll(true));
  byId("graph-fold").addEventListener("click", () => unfoldAll(false));
  themeListeners.push(() => {
    graphView.colours = palette();
    drawGraph();
  });
  new ResizeObserver(drawGraph).observe(canvas);
  pointing(canvas);
  canvas.addEventListener("keydown", keyOnGraph);
  startSearch();
  openGraph(0);
}

/** Dragging, the wheel, clicks and double clicks. */
function pointing(canvas) {
  let from = null,
    moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    from = [event.clientX, event.clientY];
    moved = false;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!from) return;
    const dx = event.clientX - from[0],
      dy = event.clientY - from[1];
    if (!moved && Math.hypot(dx, dy) < 4) return;
    moved = true;
    graphView.view.x -= dx / graphView.view.scale;
    graphView.view.y -= dy / graphView.view.scale;
    from = [event.clientX, event.clientY];
    drawGraph();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (from && !moved) choose(hit(event.offsetX, event.offsetY), false);
    from = null;
  });
  canvas.addEventListener("dblclick", (event) => {
    const found = hit(event.offsetX, event.offsetY);
    if (found && found.unit >= 0) toggleUnit(found.unit);
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY * 0.0015), event.offsetX, event.offsetY);
    },
    { passive: false },
  );
}

/** Arrows go along edges and rows; Enter unfolds; + - 0 zoom. */
function keyOnGraph(event) {
  const keys = {
    "+": () => zoomMiddle(1.3),
    "=": () => zoomMiddle(1.3),
    "-": () => zoomMiddle(1 / 1.3),
    0: fitGraph,
  };
  const moves = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
  if (event.key === "Enter" && graphView.chosen) toggleUnit(graphView.chosen.unit);
  else if (event.key === "Escape") choose(null, false);
  else if (keys[event.key]) keys[event.key]();
  else if (moves[event.key]) step(...moves[event.key]);
  else return;
  event.preventDefault();
}

/** Chooses the nearest box in a direction: along an edge if there is one. */
function step(dx, dy) {
  const { scene, chosen } = graphView;
  const inOps = chosen && chosen.op !== undefined && scene.ops.has(chosen.op);
  const from = chosen && boxOf(scene, chosen);
  const pick = (box) => choose(inOps ? { unit: box.n, op: box.op } : asChosen(box), true);
  if (!from) return scene.units.length ? pick(scene.units[0]) : undefined;
  const all = inOps ? [...scene.ops.values()].filter((box) => box.n === chosen.unit) : scene.units;
  const joined = new Set();
  if (dy) {
    const id = inOps ? chosen.op : chosen.unit;
    for (const one of inOps ? scene.inner : scene.edges) {
      if (dy > 0 && one.ends[0] === id) joined.add(one.ends[1]);
      if (dy < 0 && one.ends[1] === id) joined.add(one.ends[0]);
    }
  }
  const middle = (box) => [box.x + box.w / 2, box.y + box.h / 2];
  const [x, y] = middle(from);
  let best = null,
    least = Infinity;
  for (const box of all) {
    if (box === from) continue;
    const [toX, toY] = middle(box);
    const along = (toX - x) * dx + (toY - y) * dy,
      across = Math.abs((toX - x) * dy) + Math.abs((toY - y) * dx);
    if (along <= 1) continue;
    const cost = along + 2 * across - (joined.has(inOps ? box.op : box.n) ? 1e7 : 0);
    if (cost < least) [best, least] = [box, cost];
  }
  return best ? pick(best) : undefined;
}

/** A unit as what is chosen: of one op, that op. */
function asChosen(box) {
  const { unit } = box;
  return unit.ops.length === 1 && unit.kernel === undefined
    ? { unit: box.n, op: unit.ops[0] }
    : { unit: box.n };
}

function legend() {
  const scopes = new Set(
    data("graphs").flatMap((graph) => graph.units.map((unit) => unit.scope).filter(Boolean)),
  );
  const order = ["thread", "warp", "block", "cluster", "grid", "loop"];
  const keys = order.filter((name) => scopes.has(name)).map((name) => [name, `${name} scope`]);
  for (const [name, text] of [...keys, ["xla", "left to XLA"]]) {
    byId("graph-legend").append(
      el("span", {}, el("span", { class: `key key-${name}` }), ` ${text}`),
    );
  }
}
