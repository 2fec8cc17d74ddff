"""Functions of the device headers that threads call together: what they do to shared memory, how
often they wait, and what they shuffle (`cuda/reduce.cuh`, `cuda/cluster.cuh`, `cuda/fragments.cuh`,
`cuda/mma.cuh`).

Who has to come to a call is in `ir/exchanges.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.count.kinds import Kind
from fusionstitch.codegen.ir.exchanges import WARP
from fusionstitch.codegen.ir.statements import Scope
from fusionstitch.costmodel.account_time import PRODUCT_FLOPS

#: FLOPs of a thread in one step of tensor cores, of 8 summed floats or 16 halves.
TENSOR_8, TENSOR_16 = PRODUCT_FLOPS // 2, PRODUCT_FLOPS


@dataclass(frozen=True)
class Exchange:
    """What `threads` of them do together. Accesses are of shared memory, by their bytes; but
    `operand` is how many, of how many bytes, each thread reads where its last argument points at.
    `shuffles` and `joins` (values that are joined with others) are per thread, and so are
    `products`, instructions of tensor cores, and the FLOPs that these stand for, `tensor`."""

    threads: int
    loads: tuple[tuple[int, int], ...] = ()
    stores: tuple[tuple[int, int], ...] = ()
    barriers: tuple[tuple[Scope, int], ...] = ()
    shuffles: int = 0
    joins: int = 0
    products: int = 0
    tensor: int = 0
    operand: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Called:
    """A call: template arguments, the types of the values that are joined, threads of a block."""

    given: Sequence[str]
    values: Sequence[Kind]
    block: int

    def number(self, place: int) -> int:
        return int(self.given[place])


def exchange(name: str, called: Called) -> Exchange | None:
    """What a call of a function does; None for one by which threads exchange nothing."""
    rule = RULES.get(name)
    return rule(called) if rule else None


def _lanes(called: Called) -> Exchange:
    levels = called.number(0).bit_length() - 1
    fields = sum(kind.fields for kind in called.values)
    return Exchange(WARP, shuffles=levels * fields, joins=levels * fields)


def _scatter(called: Called) -> Exchange:
    width, count, shuffles = called.number(0), called.number(1), 0
    while width > 1:
        count = max(1, count // 2)
        shuffles += count
        width //= 2
    shuffles *= called.values[0].fields
    return Exchange(WARP, shuffles=shuffles, joins=shuffles)


def _warps(called: Called, threads: int, scope: Scope) -> Exchange:
    """All warps of a team: results of each by its first lane, a barrier, all of them joined."""
    warps, kinds = called.number(0), called.values
    fields = sum(kind.fields for kind in kinds)
    if warps == 1:
        return Exchange(threads, shuffles=5 * fields, joins=5 * fields)
    loads, levels = _joined(warps, threads, kinds)
    return Exchange(
        threads,
        loads=loads,
        stores=tuple((kind.bytes, warps) for kind in kinds),
        barriers=((scope, 1),),
        shuffles=(5 + levels) * fields,
        joins=(5 + (levels or warps - 1)) * fields,
    )


def _joined(
    results: int, threads: int, kinds: Sequence[Kind]
) -> tuple[tuple[tuple[int, int], ...], int]:
    """How so many results are read, and levels of shuffles that join them (fs_join_warps)."""
    if results in (2, 4) and all(results * kind.bytes <= 16 for kind in kinds):
        return tuple((results * kind.bytes, threads) for kind in kinds), 0
    width = 1 << (results - 1).bit_length()
    readers = threads * results // width
    return tuple((kind.bytes, readers) for kind in kinds), width.bit_length() - 1


def _block(called: Called) -> Exchange:
    return _warps(called, called.block, Scope.BLOCK)


def _team(called: Called) -> Exchange:
    return _warps(called, called.number(0) * WARP, Scope.TEAM)


def _cluster(called: Called) -> Exchange:
    own, blocks, kinds = _block(called), called.number(1), called.values
    loads, levels = _joined(blocks, called.block, kinds)
    fields = sum(kind.fields for kind in kinds)
    return Exchange(
        called.block,
        loads=own.loads + loads,
        stores=own.stores + tuple((kind.bytes, blocks) for kind in kinds),
        barriers=(*own.barriers, (Scope.CLUSTER, 1)),
        shuffles=own.shuffles + levels * fields,
        joins=own.joins + (levels or blocks - 1) * fields,
    )


def _strided(called: Called) -> Exchange:
    columns, kind, steps, joins = called.number(0), called.values[0], 0, 0
    rows = called.block // columns
    while rows > 1:
        half = (rows + 1) // 2
        joins += (rows - half) * columns
        steps, rows = steps + 1, half
    return Exchange(
        called.block,
        loads=((kind.bytes, joins + called.block),),
        stores=((kind.bytes, joins + called.block),),
        barriers=((Scope.BLOCK, steps + 1),),
        joins=-(-joins * kind.fields // called.block),
    )


def _teams(called: Called) -> Exchange:
    threads, count, kind = called.number(0), called.number(1), called.values[0]
    teams = called.block // threads
    return Exchange(
        called.block,
        loads=((kind.bytes, count * threads * teams + count * threads),),
        stores=((kind.bytes, count * called.block + count * threads),),
        barriers=((Scope.BLOCK, 2),),
        joins=-(-count * (teams - 1) // teams) * kind.fields,
    )


def _parts(called: Called) -> Exchange:
    """`values` are an array and the type of its elements."""
    threads, shares, unit = map(int, called.given[:3])
    kind = called.values[0]
    units = kind.size // unit
    return Exchange(
        called.block,
        loads=((unit * kind.bytes, units * threads * shares),),
        stores=((unit * kind.bytes, units * called.block),),
        barriers=((Scope.BLOCK, 1),),
        joins=-(-units * unit * (shares - 1) // shares),
    )


def _mma(called: Called) -> Exchange:
    products = 1 + (called.number(0) == 2) + (called.number(1) == 2)
    return Exchange(WARP, products=products, tensor=products * TENSOR_8)


def _along(called: Called) -> Exchange:
    words = called.number(1)
    return _steps(called, words // 2, (1, 4 * words))


def _across(called: Called) -> Exchange:
    words, halves = called.number(1), called.given[0] != "float"
    steps = words * (2 if halves else 1)
    return _steps(called, steps, (4 if halves else 2, 4 * words))


def _steps(called: Called, steps: int, operand: tuple[int, int]) -> Exchange:
    """So many steps of a dot: of floats, each is three products of their parts."""
    floats = called.given[0] == "float"
    products, flops = (3, TENSOR_8) if floats else (1, TENSOR_16)
    flops *= products * steps
    return Exchange(WARP, products=products * steps, tensor=flops, operand=operand)


RULES: Mapping[str, Callable[[Called], Exchange]] = {
    "fs_reduce_lanes": _lanes,
    "fs_scatter_lanes": _scatter,
    "fs_reduce_block": _block,
    "fs_reduce_team": _team,
    "fs_reduce_cluster": _cluster,
    "fs_reduce_strided": _strided,
    "fs_reduce_teams": _teams,
    "fs_join_parts": _parts,
    "fs_mma": _mma,
    "fs_mma_first": _mma,
    "fs_mma_along": _along,
    "fs_mma_across": _across,
}
