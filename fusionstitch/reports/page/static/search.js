// Finding ops: by name, opcode, scope or line, with the keyboard.

const MOST_FOUND = 40;

function startSearch() {
  const input = byId("graph-search"),
    list = byId("graph-found");
  let found = [],
    at = -1,
    index = null;
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const mark = (to) => {
    at = (to + found.length) % found.length;
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === at)));
    input.setAttribute("aria-activedescendant", `found-${at}`);
    list.children[at].scrollIntoView({ block: "nearest" });
  };
  const take = (i) => {
    close();
    chooseOp(...found[i]);
    byId("graph-canvas").focus();
  };
  const look = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    index = index || searchIndex();
    found = words.length
      ? index
          .filter(([, , text]) => words.every((word) => text.includes(word)))
          .slice(0, MOST_FOUND)
      : [];
    list.replaceChildren(
      ...found.map(([number, op], i) => {
        const graph = data("graphs")[number];
        const [name, opcode, type, unit] = graph.ops[op];
        const where = graph.units[unit];
        return el(
          "li",
          {
            role: "option",
            id: `found-${i}`,
            "aria-selected": "false",
            on: {
              mousedown: (event) => {
                event.preventDefault();
                take(i);
              },
            },
          },
          `${name} ${opcode}`,
          el("span", { class: "note" }, type, where && where.scope ? `, ${where.scope} scope` : ""),
        );
      }),
    );
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(Boolean(found.length)));
    at = -1;
    if (found.length) mark(0);
  };
  input.addEventListener("input", look);
  input.addEventListener("focus", look);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (!found.length || list.hidden) return;
    if (event.key === "ArrowDown") mark(at + 1);
    else if (event.key === "ArrowUp") mark(at - 1);
    else if (event.key === "Enter") take(Math.max(0, at));
    else return;
    event.preventDefault();
  });
}

/** [graph, op, all its words] of every op. */
function searchIndex() {
  const places = data("places");
  return data("graphs").flatMap((graph, number) =>
    graph.ops.map(([name, opcode, , , , where, scope], op) => {
      const lines = where.map((n) => places[n].at).join(" ");
      return [number, op, `${name} ${opcode} ${graph.scopes[scope]} ${lines}`.toLowerCase()];
    }),
  );
}
