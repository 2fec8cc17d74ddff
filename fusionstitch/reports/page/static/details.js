// What is said beside the graph of what is chosen.

function describe() {
  const side = byId("graph-details"),
    { chosen } = graphView;
  const graph = currentGraph();
  if (!chosen) side.replaceChildren(...aboutGraph(graph));
  else if (chosen.op !== undefined) side.replaceChildren(...aboutOp(graph, chosen.op));
  else side.replaceChildren(...aboutUnit(graph, chosen.unit));
  side.scrollTop = 0;
  const head = side.querySelector("h2");
  byId("graph-said").textContent = chosen && head ? head.textContent : "";
}

const row = (name, value) =>
  value === "" || value === null || value === undefined
    ? []
    : [el("dt", {}, name), el("dd", {}, value)];
const link = (text, run) =>
  el("button", { type: "button", class: "link", on: { click: run } }, text);

function aboutGraph(graph) {
  const kinds = { stitched: 0, xla: 0, other: 0, control: 0 };
  for (const unit of graph.units) if (unit.kind in kinds) kinds[unit.kind] += 1;
  return [
    el("h2", {}, graph.name),
    el(
      "dl",
      {},
      ...row("ops", counted(graph.ops.length)),
      ...row("runs a call", counted(graph.runs)),
      ...row("stitched kernels", counted(kinds.stitched)),
      ...row("kernels of XLA's", counted(kinds.xla + kinds.other)),
      ...row("loops, branches", kinds.control ? counted(kinds.control) : ""),
    ),
    el("h3", {}, "Moving about"),
    el(
      "ul",
      {},
      el("li", {}, "Drag to move, turn the wheel to zoom, click for what it is."),
      el("li", {}, "Double click, or Enter: unfold a kernel, or open the body of a loop."),
      el("li", {}, "Arrow keys follow edges; + and - zoom; 0 fits all; Escape leaves."),
    ),
  ];
}

function aboutUnit(graph, n) {
  const unit = graph.units[n];
  const kernel = unit.kernel === undefined ? null : data("kernels")[unit.kernel];
  const what = {
    stitched: "stitched into one kernel",
    xla: "one kernel of XLA's, as modelled",
    other: "a kernel of XLA's",
    input: "what the program is given",
    control: "runs other graphs",
    plain: "no kernel",
  }[unit.kind];
  return [
    el("h2", {}, unit.title),
    el("p", { class: "note" }, what),
    el(
      "dl",
      {},
      ...row("scope", unit.scope),
      ...row("loop", unit.times ? unit.times.map(timesOf).join(", ") : ""),
      ...row("form", unit.form),
      ...row("ops", counted(unit.ops.length)),
      ...row("modelled", unit.us === null || unit.us === undefined ? "" : micros(unit.us)),
      ...row("XLA's, modelled", unit.xla_us === undefined ? "" : micros(unit.xla_us)),
      ...(kernel
        ? row("registers", `${kernel.registers}${kernel.registers_built ? "" : " (estimated)"}`)
        : []),
      ...(kernel ? row("occupancy", `${Math.round(100 * kernel.occupancy.share)}%`) : []),
    ),
    actions(graph, n, kernel),
    ...section(
      "From",
      (kernel ? kernel.source : placesOf(graph, unit))
        .slice(0, 12)
        .map((place) => el("li", {}, el("code", {}, place))),
    ),
    ...section(
      "Ops",
      unit.ops.slice(0, 60).map((op) => el("li", {}, opLink(graph, op))),
    ),
    unit.ops.length > 60
      ? el("p", { class: "note" }, `and ${counted(unit.ops.length - 60)} more: unfold it`)
      : "",
  ].filter((one) => one !== "");
}

const timesOf = (times) => (times ? many(times, "iteration") : "as many iterations as its data asks for");

function actions(graph, n, kernel) {
  const unit = graph.units[n];
  const all = [];
  if (kernel) all.push(link("Open its kernel", () => showKernelNamed(kernel.name)));
  if (unit.ops.length > 1)
    all.push(
      link(graphView.unfolded.has(n) ? "Fold" : "Unfold", () => {
        toggleUnit(n);
        describe();
      }),
    );
  for (const body of unit.bodies || [])
    all.push(link(`Open ${data("graphs")[body].name}`, () => openGraph(body)));
  return el("p", {}, ...all.flatMap((one, i) => (i ? [" · ", one] : [one])));
}

function section(title, items) {
  return items.length ? [el("h3", {}, title), el("ul", {}, ...items)] : [];
}

function placesOf(graph, unit) {
  const all = new Set();
  for (const op of unit.ops) {
    const [first] = graph.ops[op][5];
    if (first !== undefined) all.add(data("places")[first].at);
  }
  return [...all];
}

function opLink(graph, op) {
  const [name, opcode, type] = graph.ops[op];
  return el(
    "span",
    {},
    link(name, () => chooseOp(graphView.number, op)),
    ` ${opcode} `,
    el("span", { class: "note" }, type),
  );
}

function aboutOp(graph, op) {
  const [name, opcode, type, n, operands, places, scope] = graph.ops[op];
  const unit = graph.units[n];
  const kernel = unit && unit.kernel !== undefined ? data("kernels")[unit.kernel] : null;
  const path = graph.scopes[scope];
  const users = graph.ops.flatMap((other, i) => (other[4].includes(op) ? [i] : []));
  return [
    el("h2", {}, name),
    el(
      "dl",
      {},
      ...row("opcode", opcode),
      ...row("type", type),
      ...row("scope", unit ? unit.scope : ""),
    ),
    unit
      ? el(
          "p",
          {},
          unit.kind === "stitched"
            ? "Stitched into "
            : unit.kind === "xla"
              ? "Left to XLA, in "
              : "In ",
          link(unit.title, () => choose({ unit: n }, true)),
          kernel ? " · " : "",
          kernel ? link("Open its kernel", () => showKernelNamed(kernel.name)) : "",
        )
      : "",
    ...(unit && unit.bodies ? [actions(graph, n, null)] : []),
    ...(places.length
      ? [el("h3", {}, "Your lines, innermost first"), el("ol", {}, ...places.map(frameOf))]
      : []),
    ...(path
      ? [
          el("h3", {}, "JAX name scopes"),
          el("p", { class: "path" }, ...path.split("/").map((part) => el("code", {}, part))),
        ]
      : []),
    ...whyNot(op, unit),
    ...section(
      "Reads",
      [...new Set(operands)].slice(0, 40).map((one) => el("li", {}, opLink(graph, one))),
    ),
    ...section(
      "Read by",
      users.slice(0, 40).map((one) => el("li", {}, opLink(graph, one))),
    ),
  ].filter((one) => one !== "");
}

function frameOf(number) {
  const { at, in: caller, text } = data("places")[number];
  return el(
    "li",
    { class: "frame" },
    el("code", {}, at),
    caller ? el("span", { class: "note" }, ` in ${caller}`) : "",
    text ? el("code", { class: "line" }, text) : "",
  );
}

/** For an op that is not stitched: the reasons of the candidates that held it. */
function whyNot(op, unit) {
  if (!unit || unit.kind === "stitched" || unit.kind === "input") return [];
  const found = new Map();
  for (const { reason, candidates } of data("rejected")) {
    for (const one of candidates) {
      if (one.graph === graphView.number && holds(one.ops, op))
        found.set(reason, (found.get(reason) || 0) + 1);
    }
  }
  return section(
    "Why it is not stitched",
    [...found].map(([reason, count]) =>
      el("li", {}, reason, count > 1 ? el("span", { class: "note" }, ` ${many(count, "candidate")}`) : ""),
    ),
  );
}

function holds(runs, op) {
  for (let i = 0; i < runs.length; i += 2) if (runs[i] <= op && op <= runs[i + 1]) return true;
  return false;
}
