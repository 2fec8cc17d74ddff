"""Stages: the ops of a region that get a parallel loop of their own (the paper's schedules).

Every other op is inlined into the loops that read it, at whatever index they ask for. Tracing a
stage gives the exact map under which it reads every other stage and every input.
"""

from __future__ import annotations

import functools
import itertools
import math
from array import array
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.index_maps.index import constant, variable
from fusionstitch.codegen.index_maps.maps import Indices, arguments
from fusionstitch.codegen.index_maps.numbers import digits_of
from fusionstitch.codegen.loops.cuts import Cut, find_cuts
from fusionstitch.codegen.loops.once import MOST_AGAIN, materialized, reading_stages
from fusionstitch.codegen.loops.pieces import Piece, find_pieces
from fusionstitch.codegen.loops.stream import NOTHING, Stream
from fusionstitch.codegen.rewrite.extents import (
    LEAST_PAIRED,
    OWN_LOOP,
    inner_extents,
    is_strided,
    reduced_size,
)
from fusionstitch.hlo.dots import SIDES, result_dims
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of

#: Operations per element from which an op counts as a library routine (exp, log, tanh, ...).
LIBRARY_ROUTINE = 8


@dataclass(eq=False)
class Stage:
    """One parallel loop: `op` at index `dims`, sequential or cooperative over `inner`.

    `inner` are the reduced (or contracted) dims as index variables, empty for elementwise ops.
    `reads` are the values of other stages and `loads` the inputs it reads, each with the index in
    terms of `dims` and `inner`. `specials` are values of as many elements as the loop visits that
    it computes on the way, and other loops may compute, too: special functions, and in sums what
    smaller values meet in. Each has the index that it is first met at. An
    optional stage only caches a value its readers could recompute; the others that are `whole` are
    never recomputed, wherever they are read. `cuts` are the outputs that are part of its value, and
    those that it is a piece of. Partial sums may have a `share` of the device to themselves.
    Stages of equal `form` are alike but for which values and inputs they read.
    """

    op: Op
    number: int
    dims: Indices
    inner: Indices
    inner_extents: tuple[int, ...]
    optional: bool = False
    whole: bool = False
    cuts: tuple[Cut | Piece, ...] = ()
    reads: list[tuple[Stage, Indices]] = field(default_factory=list)
    loads: list[tuple[Op, Indices]] = field(default_factory=list)
    inlined: frozenset[int] = frozenset()
    specials: list[tuple[Op, Indices]] = field(default_factory=list)
    form: int = -1
    share: float | None = None

    @functools.cached_property
    def is_reduction(self) -> bool:
        return kind_of(self.op.opcode) in (Kind.REDUCTION, Kind.DOT)

    @property
    def visits(self) -> int:
        """Elements that its loop visits."""
        if self.op.opcode in OWN_LOOP:
            return max(operand.shape.size for operand in self.op.operands)
        return self.op.shape.size * math.prod(self.inner_extents)

    @property
    def visits_pairs(self) -> bool:
        """Whether it is a sum over pairs: all that it reads has far fewer elements than it visits,
        so that none lie closer together in memory along one dim than along another."""
        stored = (stage.op for stage, _ in self.reads if not stage.optional)
        read = (*(op for op, _ in self.loads), *stored)
        few = self.visits // LEAST_PAIRED
        return self.op.opcode == "reduce" and all(op.shape.size <= few for op in read)

    @property
    def in_columns(self) -> bool:
        """Whether neighbouring elements of what it sums up belong to sums of their own."""
        return is_strided(self.op) and not self.visits_pairs

    @property
    def common(self) -> list[tuple[Op, Indices]]:
        """What it may have in common with other stages: inputs that it reads, special functions."""
        return [*self.loads, *self.specials]

    @property
    def joins(self) -> list[Op]:
        """The outputs that it is a piece of."""
        return [cut.output for cut in self.cuts if isinstance(cut, Piece)]

    @property
    def swept(self) -> list[Op]:
        """The inputs it passes over, each once; not those of which the data picks elements."""
        picked = (any(i.fetched for i in index) for _, index in self.loads)
        return list(
            dict.fromkeys(op for (op, _), p in zip(self.loads, picked, strict=True) if not p)
        )

    def __repr__(self) -> str:
        return f"Stage({self.op!r})"


#: What ops inlined at an index read.
Known = dict[tuple[int, Indices], list[tuple[Op, Indices]]]


def find_stages(
    graph: Graph,
    stream: Stream = NOTHING,
    stored: frozenset[int] | None = None,
    joined: Container[int] = (),
) -> list[Stage]:
    """The mandatory stages of a region in topological order: outputs, reductions and dots. An
    output that is cut from another value has no stage, but that value has; one that is `joined` has
    none, but its pieces have. `stored` are the ids of the ops that are computed once, by default
    those of `materialized`."""
    stored = materialized(graph, stream) if stored is None else stored
    cuts: dict[int, tuple[Cut | Piece, ...]] = {**_cuts(graph, stored)}
    for value, pieces in find_pieces(graph, joined, stored).items():
        cuts[value] = (*cuts.get(value, ()), *pieces)
    outputs = {o.id for o in graph.root.operands} | cuts.keys()
    outputs -= {cut.output.id for value in cuts for cut in cuts[value]}
    stages: list[Stage] = []
    by_op: dict[int, Stage] = {}
    for op in graph.ops[:-1]:
        whole = op.id in stored
        if op.opcode == "parameter" or not (op.id in outputs or whole):
            continue
        stage = new_stage(op, len(stages))
        stage.whole, stage.cuts = whole, cuts.get(op.id, ())
        stages.append(stage)
        if whole:  # a cheap elementwise output is recomputed by its readers
            by_op[op.id] = stage
    known: Known = {}
    for stage in stages:
        trace(stage, by_op, known)
    return stages


def _cuts(graph: Graph, stored: frozenset[int]) -> dict[int, tuple[Cut, ...]]:
    """The outputs that are cut from a value, by its id."""
    readers = functools.cache(lambda: reading_stages(graph))

    def swept(op: Op) -> bool:
        """Whether some loop reads all of `op`."""
        loops = [graph.ops[i] for i in readers()[op.id]]
        return any(loop.shape.size * reduced_size(loop) >= op.shape.size for loop in loops)

    return find_cuts(graph, stored, swept)


def new_stage(op: Op, number: int, optional: bool = False) -> Stage:
    """A stage with index variables of its own, not traced yet."""
    dims = tuple(variable(f"d{d}", extent) for d, extent in enumerate(op.dims))
    extents = inner_extents(op)
    inner = tuple(variable(f"k{d}", extent) for d, extent in enumerate(extents))
    return Stage(op, number, dims, inner, extents, optional)


def body_reads(op: Op, dims: Indices, inner: Indices) -> list[tuple[Op, Indices]]:
    """The operands a stage reads per step of its loop: index `dims`, summed index `inner`."""
    if op.opcode == "reduce":
        reduced = sorted(op.attrs["dimensions"])
        kept_dims, summed = iter(dims), dict(zip(reduced, inner, strict=True))
        source = op.operands[0]
        index = tuple(
            summed[d] if d in summed else next(kept_dims) for d in range(source.shape.rank)
        )
        return [(source, index)]
    if op.opcode == "dot":
        return _dot_reads(op, dims, inner)
    if op.opcode == "bins":
        keys, values, _ = op.operands
        row, _, column = dims
        return [(keys, (row, *inner)), (values, (row, *inner, column))]
    if op.opcode == "sort-rows":
        return [(op.operands[0], (dims[0], *inner))]
    return arguments(op, dims)


def _dot_reads(op: Op, dims: Indices, inner: Indices) -> list[tuple[Op, Indices]]:
    found = []
    for side, operand in enumerate(op.operands):
        at = {d: dims[n] for d, n in result_dims(op, side).items()}
        at |= zip(op.attrs[f"{SIDES[side]}_contract"], inner, strict=True)
        found.append((operand, tuple(at[d] for d in range(operand.shape.rank))))
    return found


def trace(stage: Stage, by_op: Mapping[int, Stage], known: Known | None = None) -> None:
    """Fills `reads`, `loads`, `inlined`, `specials` and `form`; `by_op` are the stages that are
    read whole. What ops read is `known` from stage to stage."""
    op = stage.op
    leaves, passed = closure(op, stage.dims, stage.inner, by_op, known)
    stage.inlined = frozenset(other.id for other, _ in passed)
    size = stage.visits
    stage.specials = [
        (other, index)
        for other, index in passed
        if other.shape.size == size
        and (spec_of(other.opcode).special or (stage.inner and _meeting(other)))
    ]
    stage.reads = [(by_op[leaf.id], index) for leaf, index in leaves if leaf.id in by_op]
    stage.loads = [(leaf, index) for leaf, index in leaves if leaf.id not in by_op]
    stage.form = _form(
        op.opcode,
        op.shape,
        (op.operands[0].dims, tuple(op.attrs["dimensions"])) if op.opcode == "reduce" else (),
        annotations_of(op),
        stage.inner_extents,
        stage.optional,
        tuple((producer.op.shape, _axes_of(index)) for producer, index in stage.reads),
        tuple((source.shape, _axes_of(index)) for source, index in stage.common),
        tuple(output.shape for output in stage.joins),
    )


def _meeting(op: Op) -> bool:
    """Whether smaller values meet in an elementwise op, each at elements of its own: distances of
    all pairs of points."""
    if kind_of(op.opcode) is not Kind.ELEMENTWISE or len(op.operands) < 2:
        return False
    sizes = {operand: _varying(operand) for operand in op.operands}
    return sum(n > 1 for n in sizes.values()) > 1 and max(sizes.values()) < op.shape.size


def _varying(op: Op) -> int:
    """How many elements of a value may differ."""
    while op.opcode in ("broadcast", "reshape"):
        [op] = op.operands
    return op.shape.size


def _axes_of(index: Indices) -> tuple[object, ...]:
    """What axes are found by: not where in an array a slice begins."""
    return tuple(map(digits_of, index))


@functools.lru_cache(maxsize=1 << 14)
def _form(*structure: object) -> int:
    """A number for what decides how a stage is scheduled. No number is ever given twice, so one
    that fell out of the cache is replaced by another, never mistaken for it."""
    return next(_numbers)


_numbers = itertools.count()


def form_of(stages: Sequence[Stage]) -> bytes:
    """Equal for lists of stages that differ in nothing that decides how they are scheduled
    together: their forms, and which of them read the same values and inputs, and join the same
    outputs."""
    numbers = {stage: n for n, stage in enumerate(stages)}
    inputs: dict[int, int] = {}
    found: list[int] = []
    for stage in stages:
        found.append(stage.form)
        found += [numbers.get(producer, -1) for producer, _ in stage.reads]
        met = (*(op for op, _ in stage.common), *stage.joins)
        found += [inputs.setdefault(op.id, len(inputs)) for op in met]
    return array("q", found).tobytes()


def closure(
    root: Op, dims: Indices, inner: Indices, stops: Container[int], known: Known | None = None
) -> tuple[list[tuple[Op, Indices]], list[tuple[Op, Indices]]]:
    """Walks from `root` at (dims, inner) down to inputs and ops in `stops`.

    Returns those leaves, each with the index it is read at, and the ops passed, each with the index
    it is first met at. Raises CodegenError where more than `MOST_AGAIN` of them are passed again,
    at another index.
    """
    leaves: list[tuple[Op, Indices]] = []
    passed: dict[int, tuple[Op, Indices]] = {}
    seen: set[tuple[int, Indices]] = set()
    known = {} if known is None else known
    todo = body_reads(root, dims, inner)
    if root.opcode == "reduce":
        todo += [(init, ()) for init in root.operands[len(root.operands) // 2 :]]
    todo.reverse()
    while todo:
        op, index = todo.pop()
        here = op.id, index
        if here in seen:
            continue
        seen.add(here)
        if len(seen) - len(passed) - len(leaves) > MOST_AGAIN:
            raise CodegenError(
                f"{root.name} would compute values that it reads again at more than {MOST_AGAIN} "
                "other places: leave it to XLA."
            )
        if op.id in stops or op.opcode == "parameter":
            leaves.append((op, index))
        else:
            passed.setdefault(op.id, (op, index))
            if (read := known.get(here)) is None:
                read = known[here] = inlined_reads(op, index)
            todo.extend(reversed(read))
    return leaves, list(passed.values())


def inlined_reads(op: Op, index: Indices) -> list[tuple[Op, Indices]]:
    """What an op inlined at `index` reads; a short reduction is unrolled."""
    if op.opcode in ("reduce", "dot"):
        found = [
            read
            for inner in itertools.product(*(range(e) for e in inner_extents(op)))
            for read in body_reads(op, index, tuple(map(constant, inner)))
        ]
        if op.opcode == "reduce":
            found += [(init, ()) for init in op.operands[len(op.operands) // 2 :]]
        return found
    return arguments(op, index)


def expensive(op: Op) -> bool:
    """Worth keeping rather than computing twice: a library routine, not a few instructions."""
    spec = spec_of(op.opcode)
    return spec.special > 0 and spec.flops >= LIBRARY_ROUTINE
