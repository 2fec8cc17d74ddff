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
  const head = ["Ops", "First of them", "From", "Rule", ...one.facts];
  const table = el(
    "table",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        ...head.map((name, i) =>
          el("th", i && i < 4 ? {} : { class: "number" }, name.replaceAll("_", " ")),
        ),
      ),
    ),
    body,
  );
  inSlices(shown, 25, (some) =>
    body.append(...some.map((candidate) => candidateRow(candidate, one.facts))),
  );
  const left = one.count - one.candidates.length;
  details.replaceChildren(
    details.querySelector("summary"),
    el("div", { class: "scroll" }, table),
    left > 0 ? el("p", { class: "note" }, `and ${counted(left)} more`) : "",
  );
}

function candidateRow(one, facts) {
  const open = link(one.first, () => {
    showPart("graph");
    chooseOp(one.graph, one.ops[0]);
  });
  return el(
    "tr",
    {},
    el("td", { class: "number" }, counted(one.count)),
    el("td", {}, one.ops.length ? open : one.first),
    el("td", {}, el("code", {}, one.at)),
    el("td", {}, one.rule),
    ...facts.map((name) =>
      el("td", { class: "number" }, one.facts[name] === undefined ? "" : String(one.facts[name])),
    ),
  );
}
