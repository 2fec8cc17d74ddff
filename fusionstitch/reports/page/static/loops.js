// The loops that a kernel runs: who runs an iteration, what it carries, and where that lives.

function loopsOf(made) {
  if (!made) return [];
  const along = made.axes.length ? `, along an axis of ${made.axes.join(" × ")}` : "";
  return [
    el("h3", {}, "Loops"),
    el(
      "p",
      {},
      el("span", { class: "scope scope-loop" }, made.form),
      ` ${made.workers}${along}; one iteration is modelled at ${micros(made.iteration_us)}.`,
    ),
    ...made.loops.map((loop) => oneLoop(loop)),
  ];
}

/** Roles of what iterations only read. */
const READ = ["invariant", "stacked input"];

const iterationsOf = (loop) =>
  loop.iterations === null
    ? "A loop whose data decides how often it iterates"
    : `A loop of ${many(loop.iterations, "iteration")}`;

function oneLoop(loop) {
  const changing = loop.carried.filter((one) => !READ.includes(one.role));
  const read = loop.carried.filter((one) => READ.includes(one.role));
  return el(
    "figure",
    { class: "loop" },
    el(
      "figcaption",
      {},
      `${iterationsOf(loop)}: ${many(changing.length, "carried value")} ${changing.length === 1 ? "changes" : "change"}`,
    ),
    carriedTable(changing),
    read.length
      ? el(
          "details",
          {},
          el("summary", {}, `${many(read.length, "value")} that its iterations only read`),
          carriedTable(read),
        )
      : "",
    ...loop.inner.map((inner) => oneLoop(inner)),
  );
}

function carriedTable(carried) {
  if (!carried.length) return "";
  const columns = [
    ["Element", (one) => (one.number === null ? "the kernel's" : String(one.number))],
    ["Type", (one) => one.type, true],
    ["Role", (one) => one.role],
    ["Lives in", (one) => one.place],
    ["Next value made at", (one) => one.made, true],
  ].filter(([, value]) => carried.some(value));
  const cell = (value, code) => el("td", {}, code && value ? el("code", {}, value) : value);
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      {},
      el("thead", {}, el("tr", {}, ...columns.map(([name]) => el("th", {}, name)))),
      el(
        "tbody",
        {},
        ...carried.map((one) =>
          el("tr", {}, ...columns.map(([, value, code]) => cell(value(one), code))),
        ),
      ),
    ),
  );
}
