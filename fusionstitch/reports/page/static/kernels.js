// The table of kernels, and one kernel in full.

function startKernels() {
  const table = byId("kernel-table");
  if (!table) return;
  sortable(table);
  table.tBodies[0].addEventListener("click", (event) => {
    const found = event.target.closest("tr");
    if (found) showKernel(Number(found.dataset.kernel));
  });
  if (data("kernels").length === 1) showKernel(0);
}

/** Columns sort by the values of their cells: numbers downwards first. */
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const numbers = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const up = before === "descending" || (!numbers && before !== "ascending");
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const value = (tr) => tr.cells[column].dataset.value;
      const rows = [...table.tBodies[0].rows].sort(
        (a, b) =>
          (numbers ? value(a) - value(b) : value(a).localeCompare(value(b))) * (up ? 1 : -1),
      );
      table.tBodies[0].append(...rows);
    });
  });
}

/** Opens a kernel by its name, from anywhere. */
function showKernelNamed(name) {
  const at = (data("kernels") || []).findIndex((one) => one.name === name);
  if (at < 0) return;
  showPart("kernels");
  showKernel(at);
  history.replaceState(null, "", `#kernels/${encodeURIComponent(name)}`);
  byId("kernel-details").scrollIntoView({ block: "start" });
}

function showKernel(number) {
  for (const tr of byId("kernel-table").tBodies[0].rows) {
    const chosen = Number(tr.dataset.kernel) === number;
    tr.classList.toggle("chosen", chosen);
    tr.querySelector("button").setAttribute("aria-expanded", String(chosen));
  }
  const kernel = data("kernels")[number];
  const { texts, memory, phases } = data(`kernel-${number}`);
  byId("kernel-details").replaceChildren(
    el("h2", {}, kernel.name),
    numbersOf(kernel, number),
    ...loopsOf(kernel.loops),
    ...phasesOf(phases, kernel.loops),
    ...textsOf(texts, memory, kernel),
  );
}

function numbersOf(kernel, number) {
  const { occupancy } = kernel;
  const saved = kernel.xla_us - kernel.modelled_us;
  const pairs = [
    [
      "Launch",
      `${many(kernel.grid, "block")} of ${many(kernel.block, "thread")}${kernel.cooperative ? ", together" : ""}${kernel.cluster > 1 ? `, clusters of ${kernel.cluster}` : ""}`,
    ],
    [
      "Occupancy",
      `${Math.round(100 * occupancy.share)}%, ${many(occupancy.blocks, "block")} an SM, bounded by ${occupancy.bound}`,
    ],
    [
      "Registers a thread",
      `${kernel.registers}${kernel.registers_built ? "" : " (estimated)"}${kernel.spilled_bytes ? `, ${many(kernel.spilled_bytes, "byte")} spilled` : ""}`,
    ],
    ["Shared memory a block", bytes(kernel.shared_bytes)],
    ["DRAM traffic", bytes(kernel.bytes)],
    ["Found by", `${kernel.rule}, ${kernel.kind}`],
    [
      "Modelled, of a call",
      `${micros(kernel.modelled_us)} against ${micros(kernel.xla_us)}, wins ${micros(saved)}`,
    ],
    [
      "Floor, of a call",
      `${micros(kernel.floor_us)}, bound by ${kernel.bound_by}`,
    ],
    ...(kernel.measured_us
      ? [["Measured", kernel.measured_us.map(micros).join(" against ")]]
      : []),
    [
      "Reads, writes",
      `${many(kernel.inputs.length, "input")}, ${many(kernel.outputs.length, "output")}${kernel.scratch.length ? `, ${many(kernel.scratch.length, "scratch buffer")}` : ""}`,
    ],
    ...kernel.facts
      .filter(([name]) => name !== "scope")
      .map(([name, value]) => [name.replaceAll("_", " "), value]),
  ];
  const where = data("graphs").findIndex((graph) =>
    graph.units.some((unit) => unit.kernel === number),
  );
  return el(
    "div",
    {},
    where < 0
      ? ""
      : el(
          "p",
          {},
          link("Show it in the graph", () => {
            showPart("graph");
            if (graphView.number !== where) openGraph(where);
            choose(
              { unit: currentGraph().units.findIndex((unit) => unit.kernel === number) },
              true,
            );
          }),
          kernel.source.length
            ? el(
                "span",
                { class: "note" },
                ` from ${kernel.source.slice(0, 4).join(", ")}${kernel.source.length > 4 ? `, and ${many(kernel.source.length - 4, "more line")}` : ""}`,
              )
            : "",
        ),
    el(
      "dl",
      { class: "numbers" },
      ...pairs.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    ),
  );
}

function textsOf(texts, memory, kernel) {
  const all = texts.map((one) => [one.title, () => codeBlock(one)]);
  all.splice(2, 0, ["Shared memory", () => memoryMap(memory, kernel.shared_bytes)]);
  const list = el(
    "div",
    { class: "subtabs", role: "tablist", "aria-label": "Texts of the kernel" },
    ...all.map(([title], i) =>
      el(
        "button",
        {
          type: "button",
          role: "tab",
          id: `text-${i}`,
          "aria-controls": "kernel-text",
          "aria-selected": String(i === 0),
          tabindex: i ? -1 : 0,
        },
        title,
      ),
    ),
  );
  const panel = el("div", {
    id: "kernel-text",
    role: "tabpanel",
    "aria-labelledby": "text-0",
    style: "padding: 0",
  });
  tabs(list, (tab) => {
    const i = Number(tab.id.slice(5));
    panel.setAttribute("aria-labelledby", tab.id);
    panel.replaceChildren(all[i][1]());
  });
  panel.replaceChildren(all[0][1]());
  return [list, panel];
}
