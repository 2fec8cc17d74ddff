// The phases of a kernel as a strip: stages in their order, and who waits in between.

/** Stages of a part that are named, and groups of a phase that are drawn; the rest is counted. */
const MOST_STAGES = 4,
  MOST_GROUPS = 8;

function phasesOf(found, loops) {
  if (!found || !found.phases.some((phase) => phase.groups.length)) return [];
  const { phases, wait_us: costs } = found;
  const box = el("div", { class: "strip", tabindex: 0, role: "group", "aria-label": "Phases" });
  let at = 0;
  while (at < phases.length) {
    const { loop } = phases[at];
    let end = at + 1;
    while (end < phases.length && loop !== null && phases[end].loop === loop) end += 1;
    const drawn = phases.slice(at, end).flatMap((phase, i) => onePhase(phase, at + i, costs));
    if (loop === null) box.append(...drawn);
    else box.append(iterationsBox(loops && loops.loops[loop], drawn));
    at = end;
  }
  return [el("h3", {}, phasesHead(phases)), box];
}

/** Such as "8 phases, 7 waits of the grid", and what dotted lines are. */
function phasesHead(phases) {
  const scopes = new Map();
  for (const { ends } of phases) if (ends) scopes.set(ends, (scopes.get(ends) || 0) + 1);
  const waits = [...scopes].map(([scope, n]) => `, ${many(n, "wait")} of the ${scope}`).join("");
  const inside = phases.some(({ groups }) => groups.flat().some(([, waits]) => waits));
  const dotted = inside ? "; at dotted lines only the threads of a narrower scope wait" : "";
  return `${many(phases.length, "phase")}${waits}${dotted}`;
}

function iterationsBox(loop, drawn) {
  const counts = loop && loop.iterations !== null;
  return el(
    "div",
    { class: "iterations" },
    el("p", { class: "note" }, `↻ ${timesOf(counts ? loop.iterations : null)}`),
    el("div", { class: "strip-row" }, ...drawn),
  );
}

function onePhase({ groups, ends }, number, costs) {
  const more = groups.length - MOST_GROUPS;
  const body = groups.length
    ? el(
        "div",
        { class: "phase" },
        el("p", { class: "note" }, `Phase ${number}`),
        el("div", { class: "groups" }, ...groups.slice(0, MOST_GROUPS).map(oneGroup)),
        more > 0 ? el("p", { class: "note" }, `and ${many(more, "more group")}`) : "",
      )
    : "";
  if (!ends) return [body];
  const cost = costs[ends] ? `, modelled at ${micros(costs[ends])}` : "";
  return [
    body,
    el(
      "div",
      { class: `wait scope-${ends}`, title: `All threads of the ${ends} wait here${cost}.` },
      el("span", {}, ends),
      costs[ends] ? el("span", {}, ` ${micros(costs[ends])}`) : "",
    ),
  ];
}

function oneGroup(parts) {
  return el("div", { class: "group" }, ...parts.map(onePart));
}

function onePart([stages, waits]) {
  const more = stages.length - MOST_STAGES;
  return el(
    "ul",
    { class: waits ? "waits" : null, title: stages.join("\n") },
    ...stages.slice(0, more === 1 ? undefined : MOST_STAGES).map((one) => el("li", {}, one)),
    more > 1 ? el("li", { class: "note" }, `and ${more} more`) : "",
  );
}
