// Texts of programs, coloured: letters say what a stretch is, everything is written as text.

const ROWS_AT_ONCE = 120;

/** A block of code: rows are made a few at a time. */
function codeBlock({ title, text, runs }) {
  const block = el("pre", { class: "code", tabindex: 0, role: "region", "aria-label": title });
  const lines = [...pieces(text, runs)];
  let number = 0;
  inSlices(lines, ROWS_AT_ONCE, (some) => {
    const chunk = el("span", {
      class: "chunk",
      style: `contain-intrinsic-height: auto ${some.length * 18.75}px`,
    });
    for (const parts of some) {
      number += 1;
      const line = el("span", { class: "row", "data-line": number });
      for (const [kind, part] of parts)
        line.append(kind === "o" ? part : el("span", { class: kind }, part));
      if (!parts.length) line.append(" ");
      chunk.append(line);
    }
    block.append(chunk);
  });
  return block;
}

/** The lines of a text, each a list of [letter, part]. */
function* pieces(text, runs) {
  const stretches = runs
    ? runs.split(" ").map((one) => [Number(one.slice(0, -1)), one.slice(-1)])
    : [[text.length, "o"]];
  let line = [],
    at = 0;
  // what the lexer counts are code points
  const points = /[\ud800-\udfff]/.test(text) ? [...text] : text;
  for (const [size, kind] of stretches) {
    const part = points.slice(at, at + size);
    at += size;
    const parts = (typeof part === "string" ? part : part.join("")).split("\n");
    for (let i = 0; i < parts.length; i++) {
      if (i) {
        yield line;
        line = [];
      }
      if (parts[i]) line.push([kind, parts[i]]);
    }
  }
  if (line.length) yield line;
}
