"""The register tile of a nest that holds dots: rows per thread, and lanes that share a row.

Every operand that a thread reads takes an issue slot of the load pipe, of which a multiprocessor
has a quarter as many as for multiply-adds. A tile of several rows uses what it reads along the
columns once for each row. More rows or fewer lanes take more registers. The choice weighs these by
count alone.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fusionstitch.codegen.index_maps.index import Index
from fusionstitch.codegen.loops.dot_nests import sums_of_dots
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.loops.nests import Nest, Role
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.text.types import c_type, compute_bytes
from fusionstitch.costmodel.devices import WARP
from fusionstitch.hlo.graph import Op

#: 4-byte registers per thread that the values of a tile may take.
TILE_REGISTERS = 84
MOST_ROWS = 8
#: Steps along a row that are unrolled, so that a thread can hold them in registers.
MOST_STEPS = 24
#: Rows, columns and summed elements of one tensor core instruction, and the lanes of a row.
TENSOR_ROWS, TENSOR_COLUMNS, TENSOR_DEPTH, TENSOR_LANES = 16, 8, 8, 4
#: Rows of half a tile of them, each with a group of lanes.
TENSOR_GROUPS = 8
#: Instructions that take an f32 operand apart for the tensor cores.
SPLIT_WORK = 4
#: Bytes of a partial sum; of the shared memory that these take, as much is left to others.
FLOAT_BYTES = 4
#: Summed elements of a thread that are worth joining with another's.
LEAST_PART = 8
#: Neighbouring columns, or summed elements, that a lane may take at once: 16 bytes of floats. On
#: tensor cores these are two instructions' summed elements or one's.
WIDTHS, LONG_RUN = (4, 2, 1), 4
#: Multiply-adds that a multiprocessor issues while it loads one value per lane.
PER_LOAD = 4
#: Instructions of the elementwise work on one element, an exponential among them.
ELEMENT_WORK = 12


class Kind(enum.Enum):
    """How the threads of a register tile multiply."""

    ROWS = "each lane some columns of its rows, one summed element at a time"
    RUNS = "each lane some columns of its rows, runs of summed elements at a time"
    TENSOR = "a warp 16 rows, on tensor cores"
    STREAM = "a warp 16 rows, on tensor cores, the columns block by block"


@dataclass(frozen=True)
class Tile:
    """What one thread holds: `steps` elements of each of `rows` rows, `lanes` lanes to a row.

    On tensor cores (`tensor`) a warp holds 16 rows together, each lane two of them and every fourth
    pair of columns; without, a team of `lanes` neighbouring lanes holds `rows` rows. `shares` sets
    of threads walk a part of the summed elements each, and join what they have; `filled` of the
    parts are not empty. A lane takes `run` neighbouring summed elements, and `lot` neighbouring
    columns, at once (codegen/lower/dot_operands.py). Where `columns` are in registers at a time
    instead of the whole row, their operands take `shared` bytes of shared memory
    (codegen/dots/streams.py); those of its rows are in registers, or read again for each block
    (`rereads`). A `lone` one is that of a single dot, whose operands no other loop
    needs. `registers` counts what its values take; `reason` says what the tile was chosen for.
    """

    rows: int
    lanes: int
    steps: int
    tensor: bool = False
    reason: str = ""
    registers: int = 0
    shares: int = 1
    filled: int = 1
    run: int = 1
    lot: int = 1
    columns: int = 0
    shared: int = 0
    rereads: bool = False
    lone: bool = False

    @property
    def kind(self) -> Kind:
        """How its threads multiply."""
        if self.columns:
            return Kind.STREAM
        if self.tensor:
            return Kind.TENSOR
        return Kind.RUNS if self.lone else Kind.ROWS

    @property
    def pairs(self) -> int:
        """Neighbouring columns of a lane in one step: pairs of an instruction's, or two."""
        return {Kind.TENSOR: 2, Kind.STREAM: 4}.get(self.kind, 1)

    @property
    def rounds(self) -> int:
        """Steps along a row, in each of which a lane takes `pairs` lots of columns."""
        return self.steps // self.pairs // self.lot

    def column_of(self, block: Index, step: Index, lane: Index, pair: Index, near: Index) -> Index:
        """The column of a lane: `near` counts those of a lot, and `block` blocks of a streamed
        row."""
        if self.columns:
            first = block * self.columns + step * (2 * TENSOR_COLUMNS)
            return first + pair // 2 * TENSOR_COLUMNS + lane * 2 + pair % 2
        if self.tensor:
            return (step * TENSOR_COLUMNS + lane * 2 + pair) * self.lot + near
        return (step * self.lanes + lane) * self.lot + near

    def row_of(self, number: Index, group: Index, row: Index) -> Index:
        """The row of a nest that is row `row` of a thread, in the tile of that number of its team;
        on tensor cores, the thread is in that group of its warp."""
        if self.tensor:
            return number * TENSOR_ROWS + group * self.rows + row
        return number * self.rows + row

    @property
    def together(self) -> int:
        """Summed elements that a team takes at once."""
        return TENSOR_LANES * self.run if self.tensor else self.run

    @property
    def unit(self) -> int:
        """Neighbouring elements of a thread that are joined with others' and stored together."""
        return self.lot if self.lot > 1 else 2 if self.tensor else 1

    @property
    def team(self) -> int:
        """Threads that work on the same rows."""
        return WARP if self.tensor else self.lanes

    @property
    def team_columns(self) -> int:
        """Columns for which an element of a row is read once."""
        return self.steps * TENSOR_LANES if self.tensor else self.steps

    @property
    def team_rows(self) -> int:
        """Rows of a team."""
        return TENSOR_ROWS if self.tensor else self.rows


@dataclass(frozen=True)
class Demand:
    """The cost of one element, row or column of a nest, whatever its tile.

    `depth` multiply-adds make an element, and `results` sums per row add it up. `arrays` values per
    element are live at once, of `words` registers each. `loads` are read per element, and `joins`
    values per row are joined over the lanes.
    """

    depths: tuple[int, ...]
    results: tuple[int, ...]
    arrays: int
    words: int
    loads: int
    joins: int


def demand(group: Group, nest: Nest) -> Demand:
    """What the stages of a nest take."""
    dots = [s for s in nest.stages if nest.role[s] is Role.DOT]
    reduces = [s for s in nest.stages if nest.role[s] is Role.REDUCE]
    return Demand(
        depths=tuple(group.inner_size(s) for s in nest.products),
        results=tuple(results_per_row(group, nest, s) for s in dots),
        arrays=max(len(_sums(nest)), int(nest.levels > 1)),
        words=max(1, max(compute_bytes(s.op.dtype) for s in nest.stages) // 4),
        loads=sum(_loads_per_element(s, nest) for s in nest.stages if s not in nest.products),
        joins=len(reduces),
    )


def _sums(nest: Nest) -> list[tuple[list[Stage], Op]]:
    return sums_of_dots(nest.products, [s for s in nest.stages if not s.is_reduction])


def results_per_row(group: Group, nest: Nest, dot: Stage) -> int:
    """Results per row of a dot along the columns."""
    return group.axes.size([x for x in group.in_block(dot) if x not in nest.rows])


def register_results(tile: Tile, results: int) -> int:
    """Sums per row that a lane adds up for a dot of `results` results per row."""
    if tile.tensor:
        return -(-results // TENSOR_COLUMNS) * TENSOR_COLUMNS // TENSOR_LANES
    return 1 << (results - 1).bit_length() if tile.lanes > 1 else results


def choose_tile(group: Group, nest: Nest, points: int, block: int) -> Tile:
    """The tile with the least loads and instructions for `points` grid points per block."""
    need = demand(group, nest)
    rows = points * group.axes.size(nest.rows)
    best: tuple[float, Tile] | None = None
    for tile in _candidates(group, nest, points):
        if registers_of(need, tile) > TILE_REGISTERS and best is not None:
            continue  # the first candidate has the fewest
        teams = -(-rows // tile.team_rows)
        passes = -(-teams * tile.team // block)
        tile = _accesses(group, nest, tile, 4 // need.words)
        shares, filled = _shares(group, nest, tile, points, block)
        cost = passes * (_tensor_cost if tile.tensor else _thread_cost)(need, tile) / filled
        cost += _join_cost(tile, filled)
        if best is None or cost < best[0]:
            tile = replace(tile, shares=shares, filled=filled)
            best = cost, replace(tile, registers=registers_of(need, tile))
    assert best is not None
    return best[1]


def registers_of(need: Demand, tile: Tile) -> int:
    """4-byte registers per thread that the values of a tile take."""
    results = sum(register_results(tile, r) for r in need.results)
    registers = need.words * tile.rows * (tile.steps * need.arrays + results + 2)
    if tile.run > 1:
        registers += need.words * tile.run * (tile.rows + tile.lot)
    return registers


def possible_tiles(group: Group, nest: Nest, points: int, block: int) -> Iterator[Tile]:
    """All tiles that a nest may have, whatever they cost. What the lanes of a lone dot take at once
    must leave nothing over; its summed elements are shared by all the threads that its rows leave
    idle, or by none."""
    need = demand(group, nest)
    most = 4 // need.words
    for tile in _candidates(group, nest, points):
        default = _accesses(group, nest, tile, most)
        lone = group.dot_axes is not None
        for run in _divisors(default.run, 2) if tile.tensor else _divisors(default.run, 1):
            for lot in _divisors(default.lot, 1) if lone else (default.lot,):
                found = replace(tile, run=run, lot=lot)
                for shares, filled in dict.fromkeys(
                    (_shares(group, nest, found, points, block), (1, 1))
                ):
                    made = replace(found, shares=shares, filled=filled)
                    yield replace(made, registers=registers_of(need, made))


def _divisors(most: int, least: int) -> list[int]:
    """Powers of two from `most` down to `least`."""
    return [1 << i for i in reversed(range(most.bit_length())) if least <= 1 << i <= most]


def _accesses(group: Group, nest: Nest, tile: Tile, most: int) -> Tile:
    """`tile` with the neighbors that its lanes take at once, at most `most`. The columns of a lone
    dot, whose elements no other dot sums up, come in lots. Summed elements come in runs, where
    there are many and none is left over."""
    depths = [group.inner_size(s) for s in nest.products]
    inner = group.axes.size(nest.inner)
    columns = TENSOR_COLUMNS if tile.tensor else tile.lanes
    lone = group.dot_axes is not None
    widths = [n for n in WIDTHS if n <= most]
    lot = next(n for n in widths if inner % (n * columns) == 0 or n == 1) if lone else 1
    if tile.tensor:
        long = depths and all(d % LONG_RUN == 0 and d >= LONG_RUN * LEAST_PART for d in depths)
        return replace(tile, run=LONG_RUN if long else 2, lot=lot)
    if not lone:
        return tile
    run = next(n for n in widths if n == 1 or all(d % n == 0 for d in depths))
    return replace(tile, run=run, lot=lot)


def _shares(group: Group, nest: Nest, tile: Tile, points: int, block: int) -> tuple[int, int]:
    """Parts of the summed elements that the threads which a lone dot's tiles leave idle can walk:
    loads of one part wait one after the other, those of several do not. And those that are not
    empty."""
    teams = -(-points * group.axes.size(nest.rows) // tile.team_rows)
    threads = teams * tile.team
    scratch = block * (tile.rows * tile.steps + tile.unit) * 2 * FLOAT_BYTES
    fits = scratch <= group.device.shared_per_block
    if group.dot_axes is None or group.tiles % points or block % threads or not fits:
        return 1, 1
    shares = block // threads
    depths = [group.inner_size(s) for s in nest.products]
    if tile.tensor:
        filled = max(-(-d // tile.together) for d in depths)
        return (shares, min(shares, filled)) if filled > 1 else (1, 1)
    even = all(d % (shares * tile.run) == 0 and d // shares >= LEAST_PART for d in depths)
    return (shares, shares) if even else (1, 1)


def _candidates(group: Group, nest: Nest, points: int) -> Iterator[Tile]:
    inner, lone = group.axes.size(nest.inner), group.dot_axes is not None
    for lanes in (32, 16, 8, 4, 2, 1):
        steps = -(-inner // lanes)
        if lanes >= 2 * inner or steps > MOST_STEPS:
            continue
        for rows in range(1, MOST_ROWS + 1):
            if _differ_in_one_axis(group, nest, points, rows):
                reason = f"{rows} x {steps} elements a thread"
                yield Tile(rows, lanes, steps, reason=reason, lone=lone)
    if _differ_in_one_axis(group, nest, points, TENSOR_ROWS) and suits_tensor(group, nest):
        steps = -(-inner // TENSOR_COLUMNS) * TENSOR_COLUMNS // TENSOR_LANES
        reason = f"16 x {inner} elements a warp on tensor cores"
        yield Tile(TENSOR_ROWS // 8, TENSOR_LANES, steps, True, reason, lone=lone)


def suits_tensor(group: Group, nest: Nest) -> bool:
    """True if every dot of the nest multiplies floats, one operand by rows, the other not, and the
    device has tensor cores for that."""
    if not group.device.float_tensors:
        return False
    inner = group.axes.size(nest.inner)
    longest = MOST_STEPS * TENSOR_LANES * 4 // 3
    if not TENSOR_DEPTH <= inner <= (inner if group.streamed else longest):
        return False
    for stage in nest.stages:
        if stage.op.opcode == "dot" and nest.role[stage] is not Role.REDUCE:
            floats = all(c_type(o.dtype).compute == "float" for o in (stage.op, *stage.op.operands))
            exact = stage.op.attrs.get("precision") == "highest"
            if not floats or exact or row_operand(group, nest, stage) is None:
                return False
    return bool(nest.products) or Role.DOT in nest.role.values()


def row_operand(group: Group, nest: Nest, dot: Stage) -> int | None:
    """The operand of a dot (0 or 1) that alone follows the minor-most row, the other following
    what is no row; None if the operands do not part like that."""
    axes, dims = group.axes, group.axes.dims[dot.number]
    batch = len(dot.op.attrs["lhs_batch"])
    left = dot.op.operands[0].shape.rank - len(dot.inner)
    chains = dims[:batch], dims[batch:left], dims[left:]
    shared, first, second = (
        {x for a in chain for x in axes.set.leaves(a) if axes.extent(x) != 1} for chain in chains
    )
    rows = set(nest.rows) or set(group.grid)
    minor = (nest.rows or tuple(group.grid))[-1:]
    if shared & set(minor):
        return None
    for number, (own, other) in enumerate(((first, second), (second, first))):
        if set(minor) <= own and not other & rows and own <= rows | set(group.grid):
            return number
    return None


def _differ_in_one_axis(group: Group, nest: Nest, points: int, rows: int) -> bool:
    """True if `rows` neighbouring rows differ in one axis alone, so that they share operands."""
    if rows == 1 or (points == 1 and len(nest.rows) == 1):
        return True
    if nest.rows:
        return group.axes.extent(nest.rows[-1]) % rows == 0
    whole = group.tiles % points == 0 and points % rows == 0
    return whole and bool(group.grid) and group.axes.extent(group.grid[-1]) % rows == 0


def _thread_cost(need: Demand, tile: Tile) -> float:
    """Load slots of one thread for one tile."""
    elements = tile.rows * tile.steps
    joined = tile.lanes.bit_length() - 1
    depth, results = sum(need.depths), sum(need.results)
    loads = (tile.rows + tile.steps) * depth + tile.steps * results + elements * need.loads
    shuffles = tile.rows * (need.joins * joined + (results + joined if joined else 0))
    work = elements * (depth + results + ELEMENT_WORK)
    return loads + shuffles + work / PER_LOAD


def _join_cost(tile: Tile, shares: int) -> int:
    """Load slots of one thread for joining what `shares` sets of threads added up: what it has
    goes to shared memory, and the parts of its own elements come from there."""
    if shares == 1:
        return 0
    units = tile.rows * tile.steps // tile.unit
    return tile.unit * (units + -(-units // shares) * shares)


def _tensor_cost(need: Demand, tile: Tile) -> float:
    """The same on tensor cores: an operand is loaded, and taken apart, once per instruction."""
    elements = tile.rows * tile.steps
    columns = tile.steps * TENSOR_LANES // TENSOR_COLUMNS
    products = columns * sum(-(-d // TENSOR_DEPTH) for d in need.depths)
    sums = columns * sum(-(-r // TENSOR_COLUMNS) for r in need.results)
    operands = 2 * (products + sums) + 4 * sum(-(-d // TENSOR_DEPTH) for d in need.depths)
    shuffles = 2 * tile.rows * need.joins
    parts = operands + (elements if need.results else 0)
    work = elements * ELEMENT_WORK + parts * SPLIT_WORK + 2 * 3 * (products + sums)
    return operands + elements * need.loads + shuffles + work / PER_LOAD


def _loads_per_element(stage: Stage, nest: Nest) -> int:
    """Inputs that change with the row and the column of an element."""
    if nest.role[stage] not in (Role.SWEEP, Role.REDUCE):
        return 0
    along = {v for i in stage.inner for v in i.variables}
    if nest.role[stage] is Role.SWEEP:
        along = {v for i in stage.dims for v in i.variables}
    return sum(any(along & i.variables for i in index) for _, index in stage.loads)
