// What was turned down: reasons open into tables of their candidates.

function startRejected() {
  const box = byId("rejected-reasons");
  if (!box) return;
  for (const details of box.children) {
    details.addEventListener("toggle", () => {
      if (details.open) fill(details, "");
    });
  }
  const filter = byId("rejected-filter");
  filter.addEventListener("input", () => {
    const word = filter.value.toLowerCase();
    for (const details of box.children) {
      const one = data("rejected")[Number(details.dataset.reason)];
      const found =
        !word ||
        one.reason.toLowerCase().includes(word) ||
        one.candidates.some((c) => candidateWords(c).includes(word));
      details.hidden = !found;
      if (details.open) fill(details, word);
    }
  });
}

const candidateWords = (one) => `${one.first} ${one.at} ${one.rule}`.toLowerCase();

function fill(details, word) {
  const one = data("rejected")[Number(details.dataset.reason)];
  const inReason = one.reason.toLowerCase().includes(word);
  const shown = one.candidates.filter(
    (candidate) => inReason || candidateWords(candidate).includes(word),
  );
  const body = el("tbody");
  const columns = [
    ["Ops", (c) => counted(c.count), "number"],
    ["First of them", (c) => firstOf(c)],
    ["From", (c) => c.at && el("code", {}, c.at)],
    ["Rule", (c) => c.rule],
    ...one.facts.map((fact) => [
      fact.replaceAll("_", " "),
      (c) => (c.facts[fact] === undefined ? "" : String(c.facts[fact])),
      "number",
    ]),
  ].filter(([, value]) => shown.some(value));
  const cell = (tag, kind, ...inside) => el(tag, { class: kind }, ...inside);
  const table = el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ...columns.map(([name, , kind]) => cell("th", kind, name)),
      ),
    ),
    body,
  );
  inSlices(shown, 25, (some) =>
    body.append(
      ...some.map((c) =>
        el("tr", {}, ...columns.map(([, value, kind]) => cell("td", kind, value(c)))),
      ),
    ),
  );
  const left = one.count - one.candidates.length;
  details.replaceChildren(
    details.querySelector("summary"),
    el("div", { class: "scroll" }, table),
    left > 0 ? el("p", { class: "note" }, `and ${counted(left)} more`) : "",
  );
}

/** The first op of a candidate, which the graph shows. */
function firstOf(one) {
  if (!one.ops.length) return one.first;
  return link(one.first, () => {
    showPart("graph");
    chooseOp(one.graph, one.ops[0]);
  });
}
