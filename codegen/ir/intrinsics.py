"""The functions that kernels call: one record each, of what it is for all passes, the verifier and
the cost model. A new function is one record here, and its text in `codegen/cuda/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fusionstitch.codegen.ir.intrinsic import (
    ALL,
    FIRST,
    REST,
    Called,
    Cost,
    Holds,
    Intrinsic,
    Parameter,
    Pointed,
    Some,
    Step,
    Value,
)
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.types import FLOAT
from fusionstitch.costmodel.devices import WARP
from fusionstitch.costmodel.kernel_time import PRODUCT_FLOPS
from fusionstitch.costmodel.prices import APPROXIMATE

#: FLOPs of a thread in one step of tensor cores, of 8 summed floats or 16 halves.
TENSOR_8, TENSOR_16 = PRODUCT_FLOPS // 2, PRODUCT_FLOPS
#: The least bytes that a warp's result of one value takes (fs_slot).
SLOT_BYTES = 8
#: Levels of shuffles in which a warp joins what its lanes have.
LEVELS = WARP.bit_length() - 1


def _integers(*names: str) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, Holds.INTEGER) for name in names)


_ELEMENT = Parameter("element", Holds.TYPE)
_REDUCER = Parameter("reducer", Holds.REDUCER)
_REDUCERS = Parameter("reducers", Holds.REDUCER, repeated=True)

# ---- elements -----------------------------------------------------------------------------------

LOAD = Intrinsic("fs_load")
STORE_AS = Intrinsic("fs_store_as", (_ELEMENT,))
ROUND_BF16 = Intrinsic("fs_round_bf16")
ROUND_F16 = Intrinsic("fs_round_f16")
ROUND = Intrinsic("fs_round", (_ELEMENT,))
_OF_INTEGERS = (Parameter("type", Holds.TYPE, optional=True),)
MINIMUM = Intrinsic("fs_min", _OF_INTEGERS)
MAXIMUM = Intrinsic("fs_max", _OF_INTEGERS)
#: The least value, a value, the greatest value.
CLAMP = Intrinsic("fs_clamp", _OF_INTEGERS)
EXP = Intrinsic("expf", priced_as=(("exponential", "f32"),))
APPROXIMATE_EXP = Intrinsic("fs_approximate_exp", priced_as=(("exponential", APPROXIMATE),))
ROTATE_LEFT = Intrinsic(
    "fs_rotate_left",
    priced_as=(("shift-left", "u32"), ("shift-right-logical", "u32"), ("or", "u32")),
)

# ---- memory -------------------------------------------------------------------------------------

ALIGNED = Intrinsic("fs_aligned")
LOAD_VECTOR = Intrinsic("fs_load_vec", (_ELEMENT, *_integers("width")))
STORE_VECTOR = Intrinsic("fs_store_vec")
STORE_ALL = Intrinsic("fs_store_all", _integers("blocks"))
STORE_VECTOR_ALL = Intrinsic("fs_store_vec_all", _integers("blocks"))
SWAP = Intrinsic("fs_swap", changes=ALL)
PREFETCH = Intrinsic("fs_prefetch")
ANNOUNCE = Intrinsic("fs_announce")
_WORDS_OF = (_ELEMENT, *_integers("elements"))
PACK = Intrinsic("fs_pack", _WORDS_OF, changes=FIRST)


def _stores_packed(called: Called) -> Cost:
    width = called.type("element").bytes * called["elements"]
    return Cost(1, pointed=(Pointed(0, 1, width, writes=True),))


STORE_PACKED = Intrinsic(
    "fs_store_packed",
    _WORDS_OF,
    through=0,
    steps=(Step(True, Scope.BLOCK),),
    cost=_stores_packed,
)

# ---- barriers and votes -------------------------------------------------------------------------

TEAM_BARRIER = Intrinsic("fs_team_barrier", _integers("threads"), Scope.TEAM)
BLOCK_BARRIER = Intrinsic("__syncthreads", (), Scope.BLOCK)
CLUSTER_BARRIER = Intrinsic("fs_cluster_barrier", (), Scope.CLUSTER)
GRID_BARRIER = Intrinsic("fs_grid_barrier", (), Scope.GRID)
#: A counter of the grid at which the block arrives; one that it waits for, and until which value.
GRID_ARRIVE = Intrinsic("fs_arrive", (), Scope.BLOCK)
GRID_WAIT = Intrinsic("fs_wait", (), Scope.BLOCK)
#: Which lanes vote, as a mask, and what each votes for.
ALL_LANES = Intrinsic("__all_sync", together=Scope.WARP, alike=WARP)
#: What each thread of the block votes for. No access relies on it as a barrier.
ALL_THREADS = Intrinsic(
    "__syncthreads_and",
    together=Scope.BLOCK,
    alike=0,
    cost=lambda called: Cost(called.block, barriers=((Scope.BLOCK, 1),)),
)

# ---- reductions ---------------------------------------------------------------------------------


def _fields(values: Sequence[Value]) -> int:
    return sum(value.fields for value in values)


def _joins_two(called: Called) -> Cost:
    return Cost(1, joins=_fields(called.values))


JOIN = Intrinsic("apply", (_REDUCER,), exchanged=FIRST, cost=_joins_two, method=True)


def _joins_lanes(called: Called) -> Cost:
    joins = (called["lanes"].bit_length() - 1) * _fields(called.values)
    return Cost(WARP, shuffles=joins, joins=joins)


REDUCE_LANES = Intrinsic(
    "fs_reduce_lanes",
    (*_integers("lanes"), _REDUCER),
    Scope.WARP,
    exchanged=ALL,
    alike="lanes",
    cost=_joins_lanes,
)


def _scatters(called: Called) -> Cost:
    lanes, left, shuffles = called["lanes"], called["values"], 0
    while lanes > 1:
        left = max(1, left // 2)
        shuffles += left
        lanes //= 2
    shuffles *= called.values[0].fields
    return Cost(WARP, shuffles=shuffles, joins=shuffles)


SCATTER_LANES = Intrinsic(
    "fs_scatter_lanes",
    (
        *_integers("lanes", "values"),
        _REDUCER,
        Parameter("apart", Holds.INTEGER, optional=True),
    ),
    Scope.WARP,
    changes=ALL,
    exchanged=ALL,
    cost=_scatters,
)


def _within(
    scope: Scope, part: int | None = None, by_warps: bool = False
) -> tuple[Step | Scope, ...]:
    """Values are written, and read after a barrier."""
    return Step(True, scope, part, by_warps), scope, Step(False, scope, part, by_warps)


def _slots(called: Called) -> int:
    """Bytes of one result for each warp of each value."""
    return sum(WARP * max(SLOT_BYTES, one.bytes) * one.size for one in called.values)


def _read_by_all(
    results: int, threads: int, values: Sequence[Value]
) -> tuple[tuple[tuple[int, int], ...], int]:
    """How so many results are read, and levels of shuffles that join them (fs_join_warps)."""
    if results in (2, 4) and all(results * one.bytes <= 16 for one in values):
        return tuple((results * one.bytes, threads) for one in values), 0
    width = 1 << (results - 1).bit_length()
    readers = threads * results // width
    return tuple((one.bytes, readers) for one in values), width.bit_length() - 1


def _joins_warps(called: Called, threads: int, scope: Scope) -> Cost:
    """All warps of a team: results of each by its first lane, a barrier, all of them joined."""
    warps, values, fields = called["warps"], called.values, _fields(called.values)
    if warps == 1:
        return Cost(threads, shuffles=LEVELS * fields, joins=LEVELS * fields)
    loads, levels = _read_by_all(warps, threads, values)
    return Cost(
        threads,
        loads=loads,
        stores=tuple((one.bytes, warps) for one in values),
        barriers=((scope, 1),),
        shuffles=(LEVELS + levels) * fields,
        joins=(LEVELS + (levels or warps - 1)) * fields,
    )


def _joins_block(called: Called) -> Cost:
    return _joins_warps(called, called.block, Scope.BLOCK)


def _joins_team(called: Called) -> Cost:
    return _joins_warps(called, called["warps"] * WARP, Scope.TEAM)


def _joins_cluster(called: Called) -> Cost:
    own, blocks, fields = _joins_block(called), called["blocks"], _fields(called.values)
    loads, levels = _read_by_all(blocks, called.block, called.values)
    return Cost(
        called.block,
        loads=own.loads + loads,
        stores=own.stores + tuple((one.bytes, blocks) for one in called.values),
        barriers=(*own.barriers, (Scope.CLUSTER, 1)),
        shuffles=own.shuffles + levels * fields,
        joins=own.joins + (levels or blocks - 1) * fields,
    )


def _reduces_by_warps(
    name: str,
    sizes: tuple[Parameter, ...],
    steps: tuple[Step | Scope, ...],
    scratch: Callable[[Called], int],
    cost: Callable[[Called], Cost],
) -> Intrinsic:
    """A sum of warps, or another reduction, by those who wait at the last of its barriers."""
    [*_, together] = (step for step in steps if isinstance(step, Scope))
    return Intrinsic(
        name,
        (*sizes, _REDUCERS),
        together,
        changes=REST,
        through=0,
        steps=steps,
        exchanged=REST,
        scratch=scratch,
        cost=cost,
    )


_WARPS = _integers("warps")
REDUCE_BLOCK = _reduces_by_warps(
    "fs_reduce_block", _WARPS, _within(Scope.BLOCK, by_warps=True), _slots, _joins_block
)
REDUCE_TEAM = _reduces_by_warps(
    "fs_reduce_team", _WARPS, _within(Scope.TEAM, by_warps=True), _slots, _joins_team
)
REDUCE_CLUSTER = _reduces_by_warps(
    "fs_reduce_cluster",
    _integers("warps", "blocks"),
    (*_within(Scope.BLOCK, 0, by_warps=True), *_within(Scope.CLUSTER, 1)),
    lambda called: 2 * _slots(called),
    _joins_cluster,
)


def _joins_strided(called: Called) -> Cost:
    columns, [value], steps, joins = called["columns"], called.values, 0, 0
    rows = called.block // columns
    while rows > 1:
        half = (rows + 1) // 2
        joins += (rows - half) * columns
        steps, rows = steps + 1, half
    return Cost(
        called.block,
        loads=((value.bytes, joins + called.block),),
        stores=((value.bytes, joins + called.block),),
        barriers=((Scope.BLOCK, steps + 1),),
        joins=-(-joins * value.fields // called.block),
    )


REDUCE_STRIDED = Intrinsic(
    "fs_reduce_strided",
    (*_integers("columns"), _REDUCER),
    Scope.BLOCK,
    through=1,
    steps=_within(Scope.BLOCK),
    exchanged=FIRST,
    scratch=lambda called: called.block * called.values[0].bytes,
    cost=_joins_strided,
)


def _joins_teams(called: Called) -> Cost:
    threads, each, [value] = called["threads"], called["values"], called.values
    teams = called.block // threads
    return Cost(
        called.block,
        loads=((value.bytes, each * threads * teams + each * threads),),
        stores=((value.bytes, each * called.block + each * threads),),
        barriers=((Scope.BLOCK, 2),),
        joins=-(-each * (teams - 1) // teams) * value.fields,
    )


REDUCE_TEAMS = Intrinsic(
    "fs_reduce_teams",
    (*_integers("threads", "values"), _REDUCER),
    Scope.BLOCK,
    changes=FIRST,
    through=1,
    steps=_within(Scope.BLOCK),
    exchanged=FIRST,
    scratch=lambda called: called.block * called["values"] * called.values[0].bytes,
    cost=_joins_teams,
)


def _joins_parts(called: Called) -> Cost:
    threads, shares, unit = (called[name] for name in _PARTS)
    [values] = called.values
    units = values.size // unit
    return Cost(
        called.block,
        loads=((unit * values.bytes, units * threads * shares),),
        stores=((unit * values.bytes, units * called.block),),
        barriers=((Scope.BLOCK, 1),),
        joins=-(-units * unit * (shares - 1) // shares),
    )


def _parts(called: Called) -> int:
    [values] = called.values
    return called.block * (values.size + called["unit"]) * values.bytes


_PARTS = ("threads", "shares", "unit")
JOIN_PARTS = Intrinsic(
    "fs_join_parts",
    _integers(*_PARTS),
    Scope.BLOCK,
    changes=Some(1, 2),
    through=2,
    steps=_within(Scope.BLOCK),
    exchanged=FIRST,
    scratch=_parts,
    cost=_joins_parts,
)

# ---- bins: elements that warps of a block have of their own --------------------------------------

#: Elements, warps that have them, and the reducer. The first argument points to them.
_OWNED = _integers("size", "owners")
_BINS = (*_OWNED, _REDUCER)


def _begins(called: Called) -> Cost:
    [element], size = called.values, called["size"] * called["owners"]
    return Cost(called.block, stores=((element.bytes, size),))


def _joins_bins(called: Called) -> Cost:
    [value] = called.values
    access = ((value.bytes, WARP),)
    votes = (called["size"] - 1).bit_length() + 1
    joins, rounds = LEVELS * value.fields, 2 * LEVELS  # where all lanes have the same element
    return Cost(
        WARP, loads=access, stores=access, shuffles=votes + rounds, joins=joins, at_most=True
    )


def _totals(called: Called) -> Cost:
    [element], owners = called.values, called["owners"]
    return Cost(1, loads=((element.bytes, owners),), joins=(owners - 1) * element.fields)


#: The second argument is what is in all of them.
BINS_START = Intrinsic(
    "fs_bins_start",
    _OWNED,
    Scope.WARP,
    through=0,
    steps=(Step(True, Scope.BLOCK),),
    exchanged=FIRST,
    cost=_begins,
)
#: The element that a lane's value belongs to, none if that is negative, and the value.
BINS_JOIN = Intrinsic(
    "fs_bins_join",
    _BINS,
    Scope.WARP,
    through=0,
    steps=(Step(True, Scope.BLOCK),),
    exchanged=Some(2, 3),
    cost=_joins_bins,
)
BINS_TOTAL = Intrinsic(
    "fs_bins_total",
    _BINS,
    through=0,
    steps=(Step(False, Scope.BLOCK),),
    exchanged=FIRST,
    cost=_totals,
)

# ---- sorts: rows whose elements lie in lanes, or in the threads of a block -----------------------

#: Instructions of a comparator of two elements, and of keeping one of two, for each 4 bytes of one:
#: a comparison, and selections.
COMPARATOR, KEPT = 3, 2


def _sorts(called: Called, threads: int) -> Cost:
    """What threads do with the elements of their own, with those of other lanes, and with those of
    other warps."""
    [own], lanes, each, kept = called.values, called["lanes"], called["each"], called["kept"]
    words, left = own.bytes // FLOAT.bytes, min(each, kept)
    levels, owners = _log2(lanes), _log2(kept // left)
    alone = each // 2 * _log2(each) * (_log2(each) + 1) // 2 + levels * left // 2 * _log2(left)
    # of each level: exchanges, and those of them between warps
    exchanges = [level if level <= owners else 1 + owners for level in range(1, levels + 1)]
    beyond = range(LEVELS + 1, levels + 1)
    between = sum(level - LEVELS if level <= owners else 1 for level in beyond)
    among = sum(exchanges) - between
    joins = (COMPARATOR * alone + KEPT * left * (among + between)) * words
    striped = each if lanes > WARP and kept == lanes * each else 0
    accesses = (own.bytes, threads * (left * between + striped))
    meetings = 2 * between + (striped > 0)
    return Cost(
        threads,
        loads=(accesses,) if meetings else (),
        stores=(accesses,) if meetings else (),
        barriers=((Scope.BLOCK, meetings),) if meetings else (),
        shuffles=left * words * among,
        joins=joins,
    )


def _log2(n: int) -> int:
    return n.bit_length() - 1


def _exchanged(called: Called) -> int:
    """Bytes of what the threads of a block exchange: in the end all of it, with gaps."""
    each, kept = called["each"], called["kept"]
    whole = kept == called["lanes"] * each
    return called["lanes"] * (each + 1 if whole else min(each, kept)) * called.values[0].bytes


_ROWS = _integers("lanes", "each", "kept")
SORT_LANES = Intrinsic(
    "fs_sort_lanes",
    _ROWS,
    Scope.WARP,
    changes=FIRST,
    exchanged=FIRST,
    cost=lambda called: _sorts(called, WARP),
)


def _merges(called: Called) -> Cost:
    """One level of these, from what threads have of their own to what neighbours exchange."""
    [own], each, levels = called.values, called["each"], _log2(called["lanes"])
    words, between = own.bytes // FLOAT.bytes, max(0, levels - LEVELS)
    accesses = (own.bytes, called["lanes"] * each * between)
    return Cost(
        called["lanes"],
        loads=(accesses,) if between else (),
        stores=(accesses,) if between else (),
        barriers=((Scope.BLOCK, 2 * between),) if between else (),
        shuffles=each * words * min(levels, LEVELS),
        joins=(COMPARATOR * (each // 2) * _log2(each) + KEPT * each * levels) * words,
    )


#: What is merged, and shared memory.
MERGE_BLOCK = Intrinsic(
    "fs_merge_block",
    _integers("lanes", "each"),
    Scope.BLOCK,
    changes=FIRST,
    through=1,
    steps=_within(Scope.BLOCK),
    exchanged=FIRST,
    scratch=lambda called: called["lanes"] * called["each"] * called.values[0].bytes,
    cost=_merges,
)
#: What is sorted, and shared memory.
SORT_BLOCK = Intrinsic(
    "fs_sort_block",
    _ROWS,
    Scope.BLOCK,
    changes=FIRST,
    through=1,
    steps=_within(Scope.BLOCK),
    exchanged=FIRST,
    scratch=_exchanged,
    cost=lambda called: _sorts(called, called.block),
)

# ---- products on tensor cores -------------------------------------------------------------------


def _multiplies(called: Called) -> Cost:
    products = 1 + (called["left"] == 2) + (called["right"] == 2)
    return Cost(WARP, products=products, tensor=products * TENSOR_8)


_OF_FLOATS = (*_integers("left", "right"), Parameter("pair", Holds.INTEGER, optional=True))
_SUMS = Some(0, 2)
MMA = Intrinsic("fs_mma", _OF_FLOATS, Scope.WARP, changes=_SUMS, cost=_multiplies)
MMA_FIRST = Intrinsic("fs_mma_first", _OF_FLOATS, Scope.WARP, changes=_SUMS, cost=_multiplies)


def _steps(called: Called, steps: int, reads: int) -> Cost:
    """So many steps of a dot, whose right operand is read in so many accesses: of floats that are
    not rounded, each is three products of their parts."""
    element = called.type("element")
    products, flops = 3 if element == FLOAT else 1, TENSOR_16 if element.bytes == 2 else TENSOR_8
    return Cost(
        WARP,
        products=products * steps,
        tensor=flops * products * steps,
        pointed=(Pointed(4, reads, 4 * called["words"]),),
    )


def _multiplies_along(called: Called) -> Cost:
    return _steps(called, called["words"] // 2, 1)


def _multiplies_across(called: Called) -> Cost:
    halves = called.type("element").bytes == 2
    return _steps(called, called["words"] * (2 if halves else 1), 4 if halves else 2)


MMA_ALONG = Intrinsic(
    "fs_mma_along",
    (_ELEMENT, *_integers("words")),
    Scope.WARP,
    changes=_SUMS,
    cost=_multiplies_along,
)
MMA_ACROSS = Intrinsic(
    "fs_mma_across",
    (_ELEMENT, *_integers("words", "stride")),
    Scope.WARP,
    changes=_SUMS,
    cost=_multiplies_across,
)


def _multiplies_down(called: Called) -> Cost:
    element, across = called.type("element"), _multiplies_across(called)
    slots = 8 // element.bytes
    left = Pointed(2, 2 * slots, element.bytes)
    [right] = across.pointed
    return replace(across, pointed=(left, replace(right, argument=3)))


MMA_DOWN = Intrinsic(
    "fs_mma_down",
    (_ELEMENT, *_integers("words", "left", "right")),
    Scope.WARP,
    changes=_SUMS,
    cost=_multiplies_down,
)
