"""How the threads of a register tile go through it: what they keep, unroll and load early."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set

from fusionstitch.codegen.dots.streams import layouts_of, passes
from fusionstitch.codegen.dots.tile import TENSOR_GROUPS, Kind, Tile
from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.index_maps.maps import Indices, in_range
from fusionstitch.codegen.loops.digits import Digits
from fusionstitch.codegen.loops.dot_nests import sums_of_dots
from fusionstitch.codegen.loops.nests import Nest, Role, result_axes
from fusionstitch.codegen.loops.stages import Stage, body_reads, inlined_reads
from fusionstitch.codegen.schedule.registers import words_of
from fusionstitch.codegen.schedule.schedule import GroupPlan, NestPlan
from fusionstitch.codegen.schedule.walk import (
    ALL,
    GROUP,
    POINT,
    RESULT,
    ROW,
    TEAM,
    TILE,
    TILED,
    UNIT,
    Live,
    Walk,
)
from fusionstitch.codegen.text.types import TF32, c_type
from fusionstitch.hlo.graph import Op

#: Registers that values live from one sweep to the next may take beside a dot's own.
LIVE_REGISTERS = 48
#: Summed elements of a dot that are unrolled at once where a lane takes them one by one.
UNROLLED_DEPTH = 16
#: Multiply-adds of a thread in the rounds of a dot that are unrolled together.
UNROLLED_ADDS = 512
#: Instructions of the tensor cores, two to a step, up to which a dot is unrolled as a whole, and
#: the rounds of a longer one that are unrolled together.
UNROLLED_PRODUCTS, TENSOR_ROUNDS = 64, 4
#: Rounds of copies of a thread that are under way at once.
UNROLLED_COPIES = 4

Key = tuple[Op, Indices]


def tiled_walk(
    group: GroupPlan, nest: NestPlan, tile: Tile, block: int, stored: Set[Stage]
) -> Walk:
    """The walk of a nest with a register tile; the values of the stages `stored` go to memory."""
    rule = _DEPTHS[tile.kind]
    sizes = {dot: group.group.inner_size(dot) for dot in nest.nest.products}
    return Walk(
        live=tuple(_live(group, nest, tile, stored)) if nest.nest.levels > 1 else (),
        depth={dot: rule(tile, size) for dot, size in sizes.items()},
        once=frozenset(dot for dot, size in sizes.items() if _is_one_round(tile, size)),
        copies=_copies(group, nest, tile, block),
        early=_loads_early(group, nest, tile),
        narrow=tile.kind is Kind.STREAM and _is_narrow(group, nest, tile, stored),
    )


# ---- loops that are unrolled ---------------------------------------------------------------------


def _rows_depth(tile: Tile, depth: int) -> int:
    """Summed elements that a lane takes at once, of which none may be left over."""
    if depth <= UNROLLED_DEPTH:
        return depth
    return max(d for d in range(1, UNROLLED_DEPTH // 2 + 1) if depth % d == 0)


def _runs_depth(tile: Tile, depth: int) -> int:
    rounds = depth // (tile.run * tile.shares)
    adds = tile.rows * tile.steps * tile.run
    return ALL if (rounds - 1) * adds < UNROLLED_ADDS else max(1, UNROLLED_ADDS // adds)


def _tensor_depth(tile: Tile, depth: int) -> int:
    rounds = -(-depth // (tile.together * tile.shares))
    few = (rounds - 1) * tile.steps * tile.run < 2 * UNROLLED_PRODUCTS
    return ALL if few else TENSOR_ROUNDS


_DEPTHS: Mapping[Kind, Callable[[Tile, int], int]] = {
    Kind.ROWS: _rows_depth,
    Kind.RUNS: _runs_depth,
    Kind.TENSOR: _tensor_depth,
    Kind.STREAM: lambda tile, depth: ALL,
}


def _is_one_round(tile: Tile, depth: int) -> bool:
    """Whether one round of instructions adds up a dot of so many summed elements."""
    tensor = tile.kind is Kind.TENSOR and tile.run == 2
    return tensor and depth <= tile.together * tile.shares


def _copies(group: GroupPlan, nest: NestPlan, tile: Tile, block: int) -> dict[Stage, int]:
    """By streamed dot, the rounds of copies of its columns that are unrolled together."""
    if tile.kind is not Kind.STREAM:
        return {}
    found = {}
    for stage, layout in layouts_of(group.group, nest.nest).items():
        rounds = -(-tile.columns * (layout.row // layout.lot) // block)
        found[stage] = ALL if rounds <= UNROLLED_COPIES else UNROLLED_COPIES
    return found


def _loads_early(group: GroupPlan, nest: NestPlan, tile: Tile) -> bool:
    """Whether a thread loads vectors for the elements that it will have joined before the dots:
    these hide their latency."""
    units = tile.rows * tile.steps // tile.unit
    even = nest.inner % (tile.lanes * tile.steps) == 0 and nest.whole_tiles(group)
    return tile.shares > 1 and units <= tile.shares and tile.unit > 1 and even


def _is_narrow(group: GroupPlan, nest: NestPlan, tile: Tile, stored: Set[Stage]) -> bool:
    """Whether elements that leave a streamed nest are rounded to 16 bits, or have been; or are sums
    of what was rounded to tf32."""
    elements = {layout.element for layout in layouts_of(group.group, nest.nest).values()}
    if "f32" in elements:
        return False
    sums = {Role.REDUCE, Role.DOT, Role.RESULT} if TF32 in elements else {Role.REDUCE}
    own = (s for s in nest.nest.stages if s in stored)
    return all(c_type(s.op.dtype).bytes == 2 or nest.nest.role[s] in sums for s in own)


# ---- values that stay from sweep to sweep --------------------------------------------------------


def _live(group: GroupPlan, nest: NestPlan, tile: Tile, stored: Set[Stage]) -> Iterator[Live]:
    """Elements that a sweep computes and a later one needs: the last values that the two have in
    common, as far as each sweep has registers left. Those of dots stay in registers anyway."""
    streamed = tile.kind is Kind.STREAM
    if not streamed and (tile.shares > 1 or tile.lot > 1):
        return  # all elements are walked at once
    digits = _digits(group, nest, tile)
    for levels in passes(nest.nest) if streamed else [list(range(nest.nest.levels))]:
        common = _common(group, nest, digits, levels)
        known: set[Key] = set()
        for level in levels if common else ():
            known |= _dots(nest, digits, stored, None if streamed else level)
            left = LIVE_REGISTERS
            for key, of in common.items():
                need = tile.rows * tile.steps * words_of(key[0])
                if min(of) == level and key not in known and need <= left:
                    left -= need
                    known.add(key)
                    yield Live(*key, level)


def _digits(group: GroupPlan, nest: NestPlan, tile: Tile) -> Digits:
    """The axes of a nest at a row and an element of a tile that stand for all."""
    teams = -(-nest.rows // tile.team_rows)
    own = variable(GROUP, TENSOR_GROUPS) if tile.tensor else Index()
    row = tile.row_of(variable(TEAM, teams), own, variable(TILED, tile.rows))
    if not nest.whole_tiles(group):
        row = variable(ROW, nest.rows)
    point = variable(TILE, group.tiles) * group.points + row // (nest.rows // group.points)
    if group.ragged:
        point = variable(POINT, group.grid_points)
    digits = Digits(group.group, nest.nest, group.points)
    digits.bind_rows(row, point)
    digits.bind_column(variable(UNIT, nest.inner))
    return digits


def _dots(nest: NestPlan, digits: Digits, stored: Set[Stage], level: int | None) -> set[Key]:
    """The elements that the dots of a level add up, or (None) those of all levels one by one."""
    products = nest.nest.products
    if level is None:
        return {(dot.op, digits.index(dot)) for dot in products}
    readers = [s for s in nest.nest.stages if s not in products or s in stored]
    dots = [s for s in nest.nest.at(level) if s in products]
    return {(total, digits.index(summed[-1])) for summed, total in sums_of_dots(dots, readers)}


def _common(
    group: GroupPlan, nest: NestPlan, digits: Digits, levels: Sequence[int]
) -> dict[Key, set[int]]:
    """Elements needed by sweeps of several of the levels, and by something that only one of them
    computes: what stands after such a value needs no register."""
    whole = {p.op.id for s in group.group.stages for p, _ in s.reads}
    column = variable(UNIT, nest.inner).variables
    found: dict[Key, set[int]] = {}
    users: dict[Key, list[Key | None]] = {}
    for stage in swept(nest.nest):
        level = nest.nest.level[stage]
        if level not in levels:
            continue
        if nest.nest.role[stage] is Role.DOT:
            free = result_axes(group.group, nest.nest, stage)
            digits.bind(free, variable(RESULT, digits.axes.size(free)))
        index, inner = digits.indices(stage)
        start: Key | None = None
        if nest.nest.role[stage] is Role.SWEEP and stage.op.id in whole:
            start = stage.op, index
            found.setdefault(start, set()).add(level)
        for key, user in reached(stage.op, index, inner, whole):
            found.setdefault(key, set()).add(level)
            users.setdefault(key, []).append(start if user is None else user)
    return {
        (op, at): of
        for (op, at), of in found.items()
        if len(of) > 1
        and any(column & i.variables for i in at)
        and not any(v.name == RESULT for i in at for v in i.variables)
        and in_range(op, at)
        and any(u is None or found[u] != of for u in users.get((op, at), [None]))
    }


def swept(nest: Nest) -> list[Stage]:
    """The stages that sweeps along the rows compute, those given by dots left out."""
    apart = (Role.ROW, Role.RESULT)
    return [s for s in nest.stages if s not in nest.products and nest.role[s] not in apart]


def reached(
    op: Op, index: Indices, inner: Indices, whole: Container[int]
) -> Iterator[tuple[Key, Key | None]]:
    """Every value that a stage of `op` computes or reads, with the value that reads it (None: the
    stage). Values of ops that are computed once, `whole`, are read."""
    seen: set[Key] = set()
    todo: list[tuple[Key, Key | None]] = [(read, None) for read in body_reads(op, index, inner)]
    while todo:
        key, user = todo.pop()
        yield key, user
        if key in seen or key[0].id in whole or key[0].opcode == "parameter":
            continue
        seen.add(key)
        todo += [(read, key) for read in inlined_reads(*key)]
