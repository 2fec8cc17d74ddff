// Where nodes of layers lie: rows and their orders are given, sizes depend on what is unfolded.

const GAP_X = 26,
  GAP_Y = 44,
  BEND = 12;
const PASSES = 6;

/**
 * Places of all nodes and bends of `layers`, whose nodes have `sizes[n]` = [width, height].
 * Returns {x, y, width, height, top}: centres by number, the whole, and the top of each row.
 */
function arrange(layers, sizes) {
  const total = layers.rows.reduce((sum, row) => sum + row.length, 0);
  const x = new Float64Array(total),
    y = new Float64Array(total);
  const wide = (n) => (n < layers.nodes ? sizes[n][0] : BEND);
  const above = Array.from({ length: total }, () => []);
  const below = Array.from({ length: total }, () => []);
  for (const path of layers.edges) {
    for (let i = 1; i < path.length; i++) {
      above[path[i]].push(path[i - 1]);
      below[path[i - 1]].push(path[i]);
    }
  }
  for (const row of layers.rows) pack(row, x, wide);
  for (let pass = 0; pass < PASSES; pass++) {
    const down = pass % 2 === 0;
    const order = down ? layers.rows : [...layers.rows].reverse();
    for (const row of order) settle(row, x, wide, down ? above : below);
  }
  return { x, y, ...heights(layers, sizes, x, y, wide) };
}

/** Side by side, in the middle. */
function pack(row, x, wide) {
  let at = 0;
  for (const n of row) {
    x[n] = at + wide(n) / 2;
    at += wide(n) + GAP_X;
  }
  const half = (at - GAP_X) / 2;
  for (const n of row) x[n] -= half;
}

/** Each node to the median of its neighbours, as far as the order of the row allows. */
function settle(row, x, wide, joined) {
  const wanted = row.map((n) => median(joined[n], x, x[n]));
  // blocks of nodes that touch: each lies where the mean of its members' wishes is
  const blocks = [];
  row.forEach((n, i) => {
    const distance = i ? (wide(row[i - 1]) + wide(n)) / 2 + GAP_X : 0;
    let block = { members: [[n, 0]], sum: wanted[i], count: 1, length: 0, lead: distance };
    while (blocks.length) {
      const before = blocks[blocks.length - 1];
      const start = before.sum / before.count + before.length + block.lead;
      if (block.sum / block.count >= start) break;
      const shift = before.length + block.lead;
      for (const [member, offset] of block.members) before.members.push([member, offset + shift]);
      before.sum += block.sum - shift * block.count;
      before.count += block.count;
      before.length += block.lead + block.length;
      block = before;
      blocks.pop();
    }
    blocks.push(block);
  });
  for (const block of blocks) {
    const start = block.sum / block.count;
    for (const [n, offset] of block.members) x[n] = start + offset;
  }
}

function median(nodes, x, otherwise) {
  if (!nodes.length) return otherwise;
  const places = nodes.map((n) => x[n]).sort((a, b) => a - b);
  const half = places.length >> 1;
  return places.length % 2 ? places[half] : (places[half - 1] + places[half]) / 2;
}

/** Rows below each other, everything moved to start at 0. */
function heights(layers, sizes, x, y, wide) {
  let left = Infinity,
    right = -Infinity,
    top = 0;
  for (const row of layers.rows) {
    let high = 0;
    for (const n of row) {
      if (n < layers.nodes) high = Math.max(high, sizes[n][1]);
      left = Math.min(left, x[n] - wide(n) / 2);
      right = Math.max(right, x[n] + wide(n) / 2);
    }
    for (const n of row) y[n] = top + high / 2;
    top += high + GAP_Y;
  }
  if (!layers.rows.length) left = right = 0;
  for (let i = 0; i < x.length; i++) x[i] -= left;
  return { width: right - left, height: Math.max(0, top - GAP_Y) };
}
