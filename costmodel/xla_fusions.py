"""What today's XLA:GPU would make of a set of ops: its kernels, estimated.

XLA compiles a fusion to one kernel with one hero. The rules here restate what its public passes
do (openxla/xla, xla/service/gpu/transforms); they are a model for scoring, not a copy:

    loop            elementwise and index ops fuse into all their consumers (PriorityFusion), unless
                    computing them again is dear: much arithmetic, or many large arrays to read
    multi-output    a value also needed elsewhere is written by the kernel of its consumer when the
                    shapes agree; siblings that read the same array join, a loop with a reduction
                    of its shape, too (MultiOutputFusion)
    reduction       the hero of its kernel; its producers and an epilogue of its own shape fuse,
                    nothing of another shape after it; reductions beyond ReductionIsRaceFree's
                    bounds take a second kernel (TreeReductionRewriter); sums down long columns
                    by few blocks read what a loop has written
    normalisation   row reductions whose result is broadcast back over the same tensor form one
                    Triton kernel (SoftmaxRewriterTriton): softmax, layer norm forward
    gemm            a library or Triton kernel; transposes and converts of operands fold, a short
                    epilogue of the same shape fuses (GemmRewriter)
    scatter         a kernel of its own: what computes its updates fuses in, nothing after it
    library         factorisations and solves: what a library does takes memory and gives memory
    independent     ops that share nothing stay separate kernels
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field

from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.xla_kernels import kernel_time_us, reduced_extents, sums_what_is_written
from fusionstitch.costmodel.xla_libraries import library_us
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of, spec_of


class Hero(enum.Enum):
    """What decides the schedule of a kernel."""

    LOOP = "loop"
    REDUCTION = "reduction"
    NORMALISATION = "normalisation"
    GEMM = "gemm"
    SCATTER = "scatter"
    WHILE = "while"
    LIBRARY = "library"


#: A value is computed again in each consumer up to so many operations per element,
DEAR_FLOPS = 64
#: and up to so many arrays of its size that it is computed from.
DEAR_SOURCES = 2
#: An array of few elements always is, up to so many operations in all: nothing next to a launch.
FEW_ELEMENTS, FEW_FLOPS = 1024, 1 << 15
#: Ops a gemm takes as its epilogue at most.
EPILOGUE_OPS = 4
#: Ops that fold into a gemm's operand when only gemms read them.
FOLDS = frozenset({"transpose", "convert", "bitcast", "reshape"})
#: Ops that a column reduction computes even where others compute what it reduces.
READ_THROUGH = frozenset({"convert", "bitcast", "reshape"})
#: Operations per element up to which a normalisation computes what it reduces: the random bits of
#: a dropout before a layer norm come from a kernel of their own.
NORMAL_FLOPS = 256
#: What XLA fuses ops into even where no pattern may hold it: library GEMMs, general scatters, many
#: joined arrays, parts of complex numbers;
FUSED_INTO = frozenset({"dot", "scatter", "concatenate", "complex", "real", "imag"})
#: and ops of these kinds, whatever their types.
FUSED_KINDS = frozenset({Kind.ELEMENTWISE, Kind.MOVEMENT})
#: Elements of a row up to which a normalisation takes it. On an H200 softmax and layer norm took
#: 1.1 to 1.3 times as long as a copy with rows of 4096 to 12288 elements, f32 and bf16, 1.4 to 2.5
#: with 16384, 2.0 to 2.9 with longer ones.
LONGEST_NORMAL = 12_288
#: Index ops a normalisation may hold.
NORMAL_MOVEMENT = frozenset({"broadcast", "reshape", "bitcast"})


def fused_into(refused: Iterable[Op]) -> int:
    """Those of the ops that no pattern may hold which XLA fuses others into, as a bitset."""
    return sum(
        1 << op.id
        for op in refused
        if op.opcode in FUSED_INTO or (kind_of(op.opcode) in FUSED_KINDS and not op.shape.is_tuple)
    )


@dataclass(frozen=True)
class XlaKernel:
    """One kernel: its hero, ops (bitset; cheap ops may be in several kernels), the ops whose
    values it writes to memory, microseconds."""

    hero: Hero
    bits: int
    written: int
    us: float


@dataclass(frozen=True)
class XlaPlan:
    """XLA's kernels for the ops `bits` of a graph, each before those that read it."""

    works: GraphWork
    bits: int
    kernels: tuple[XlaKernel, ...]
    #: times of what is left of kernels, filled by `fusionstitch.costmodel.xla_saved`
    remainders: dict[tuple[int, ...], float] = field(default_factory=dict, compare=False)

    @property
    def graph(self) -> Graph:
        return self.works.graph

    @property
    def us(self) -> float:
        return sum(kernel.us for kernel in self.kernels)

    @functools.cached_property
    def homes(self) -> dict[int, tuple[int, ...]]:
        """op id -> indices of the kernels that compute it."""
        return _numbers(kernel.bits for kernel in self.kernels)

    @functools.cached_property
    def writers(self) -> dict[int, tuple[int, ...]]:
        """op id -> indices of the kernels that write it to memory."""
        return _numbers(kernel.written for kernel in self.kernels)


def _numbers(sets: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """op id -> the indices of the `sets` that hold it, ascending."""
    found: dict[int, list[int]] = {}
    for number, bits in enumerate(sets):
        for i in ids(bits):
            found.setdefault(i, []).append(number)
    return {i: tuple(numbers) for i, numbers in found.items()}


@dataclass(eq=False)
class _Kernel:
    hero: Hero
    root: Op
    bits: int = 0
    written: int = 0
    #: the reduction that decides the schedule, if there is one
    reduction: Op | None = None
    #: whether other kernels compute what it reads
    closed: bool = False

    @property
    def dims(self) -> tuple[int, ...]:
        """Extents of the loop nest of a loop or a reduction."""
        return self.root.dims if self.reduction is None else self.reduction.operands[0].dims

    def take(self, other: _Kernel) -> None:
        """Also do what `other` does, whose reduction is over the same dims if both have one."""
        self.bits |= other.bits
        self.written |= other.written
        if self.reduction is None:
            self.hero, self.reduction = other.hero, other.reduction

    @property
    def size(self) -> int:
        """Elements of the loop nest."""
        op = self.reduction.operands[0] if self.reduction is not None else self.root
        return op.operands[-1].shape.size if self.hero is Hero.SCATTER else op.shape.size


def xla_fusions(works: GraphWork, bits: int) -> XlaPlan:
    """XLA's kernels for the ops `bits` of `works.graph` (no structure, source or partition ops but
    those of whole loops, each of which counts as one kernel). So does a loop that was unrolled
    before planning, if all of its ops are among them: XLA runs the loop itself.

    A value read by an op outside `bits`, or the graph's result, is written to memory.
    """

    def priced(kernel: _Kernel) -> XlaKernel:
        us = kernel_time_us(works, kernel.bits, kernel.written)
        if kernel.hero is Hero.LIBRARY:
            known = library_us(kernel.root, works.device)
            scale = 1.0 if works.scale is None else works.scale.of(kernel.bits)
            us = us if known is None else known * scale
        return XlaKernel(kernel.hero, kernel.bits, kernel.written, us)

    loops = [XlaKernel(Hero.WHILE, own, own, us) for own, us in works.loops.items() if own & bits]
    loops += [
        XlaKernel(Hero.WHILE, own, works.outputs(own), us)
        for own, us in works.unrolled.items()
        if not own & ~bits
    ]
    plain = functools.reduce(lambda rest, loop: rest & ~loop.bits, loops, bits)
    kernels = _Fuser(works, plain).run()
    return XlaPlan(works, bits, (*loops, *map(priced, kernels)))


class _Fuser:
    """Walks from the results to the inputs and puts each op into the kernels of its users."""

    def __init__(self, works: GraphWork, bits: int):
        self.works = works
        self.graph = graph = works.graph
        self.bits = bits
        self.homes: dict[int, list[_Kernel]] = {}
        self.kernels: list[_Kernel] = []
        #: reductions of several values of which one is read outside
        self.parts_escape = 0
        self.cheap, self.flops = _cheap(graph, bits)
        ops = (graph.ops[i] for i in ids(bits))
        self.reductions = sum(1 << o.id for o in ops if kind_of(o.opcode) is Kind.REDUCTION)

    def run(self) -> list[_Kernel]:
        for i in reversed(list(ids(self.bits))):
            self._assign(self.graph.ops[i])
        live = [k for k in self.kernels if k.bits]
        live.reverse()
        return _join_siblings(self.graph, self.works.free, live)

    def _assign(self, op: Op) -> None:
        users = self.graph.users[op.id]
        inside = [u for u in users if self.bits >> u.id & 1]
        escapes = op is self.graph.root or len(inside) < len(users)
        escapes = escapes or bool(self.parts_escape >> op.id & 1)
        kernels = _distinct(k for u in inside for k in self.homes[u.id])
        kind = kind_of(op.opcode)
        if kind is Kind.STRUCTURE:  # a part of what a reduction gives: no work of its own
            self.homes[op.id] = kernels
            self.parts_escape |= escapes << op.operands[0].id
            return
        if kind is Kind.DOT:
            self._assign_gemm(op, kernels, escapes)
        elif kind is Kind.REDUCTION:
            self._assign_reduction(op, kernels, escapes)
        elif op.opcode == "scatter":
            self._start(op, Hero.SCATTER)
        elif kind in (Kind.FACTOR, Kind.SORT, Kind.CONVOLUTION):
            self._start(op, Hero.LIBRARY)
        else:
            self._assign_loop(op, inside, kernels, escapes)

    def _start(self, op: Op, hero: Hero) -> _Kernel:
        kernel = _Kernel(hero, op, written=1 << op.id)
        self.kernels.append(kernel)
        self._join(op, [kernel])
        return kernel

    def _join(self, op: Op, kernels: list[_Kernel]) -> None:
        for kernel in kernels:
            kernel.bits |= 1 << op.id
        self.homes[op.id] = kernels

    def _assign_gemm(self, op: Op, kernels: list[_Kernel], escapes: bool) -> None:
        only = kernels[0] if len(kernels) == 1 and not escapes else None
        if (
            only is not None
            and only.hero is Hero.LOOP
            and only.root.shape.size == op.shape.size
            and only.bits.bit_count() <= EPILOGUE_OPS
            and not self._would_cycle(op, only)
        ):
            only.hero = Hero.GEMM
            self._join(op, [only])
        else:
            self._start(op, Hero.GEMM)

    def _assign_reduction(self, op: Op, kernels: list[_Kernel], escapes: bool) -> None:
        only = kernels[0] if len(kernels) == 1 and not escapes else None
        if only is not None and self._normalises(op, only):
            only.hero = Hero.NORMALISATION
            self._join(op, [only])
        elif (
            only is not None
            and only.hero is Hero.LOOP
            and only.root.shape.size == (op.shape.elements or (op.shape,))[0].size
            and not self._would_cycle(op, only)
        ):
            only.hero, only.reduction = Hero.REDUCTION, op
            self._join(op, [only])
        else:
            only = self._start(op, Hero.REDUCTION)
            only.reduction = op
        only.closed = sums_what_is_written(op, self.works.device)

    def _normalises(self, op: Op, kernel: _Kernel) -> bool:
        """A diamond: a row reduction whose result meets the rows it was computed from."""
        source = op.operands[0]
        if kernel.hero not in (Hero.LOOP, Hero.NORMALISATION) or not is_row(op):
            return False
        if reduced_extents(op)[1] > LONGEST_NORMAL:
            return False
        if kernel.root.dims != source.dims:
            return False
        ops = [self.graph.ops[i] for i in ids(kernel.bits)]
        if any(kind_of(o.opcode) is Kind.MOVEMENT and o.opcode not in NORMAL_MOVEMENT for o in ops):
            return False
        rows = {o.id for member in ops for o in member.operands if o.dims == source.dims}
        return any(self.graph.reach[source.id] >> i & 1 for i in rows)

    def _assign_loop(self, op: Op, inside: list[Op], kernels: list[_Kernel], escapes: bool) -> None:
        by_gemm = [u for u in inside if kind_of(u.opcode) is Kind.DOT]
        if by_gemm and len(by_gemm) == len(inside) and op.opcode in FOLDS and not escapes:
            self._join(op, kernels)
            return
        homes = _distinct(k for u in inside if u not in by_gemm for k in self.homes[u.id])
        hosts = [kernel for kernel in homes if not _closed_to(kernel, op)]
        written = escapes or bool(by_gemm) or len(hosts) < len(homes)
        hosts_take_it = len(hosts) == 1 and not self._overloads(op, hosts[0])
        if not written and (hosts_take_it or self.cheap >> op.id & 1):
            self._join(op, hosts)
            return
        for kernel in hosts:
            if kernel.hero is Hero.GEMM or kernel.closed or self._overloads(op, kernel):
                continue  # these write their result alone
            if kernel.size == op.shape.size and not self._would_cycle(op, kernel):
                kernel.written |= 1 << op.id
                self._join(op, [kernel])
                return
        self._start(op, Hero.LOOP)

    def _overloads(self, op: Op, kernel: _Kernel) -> bool:
        """Whether a normalisation reads `op` rather than compute so much before it reduces."""
        if kernel.hero is not Hero.NORMALISATION or self.flops.get(op.id, 0) < NORMAL_FLOPS:
            return False
        reach = self.graph.reach
        if reach[op.id] & self.reductions:
            return False
        return any(reach[i] >> op.id & 1 for i in ids(kernel.bits & self.reductions))

    def _would_cycle(self, op: Op, kernel: _Kernel) -> bool:
        """Whether `kernel` already waits for `op` through something outside it."""
        for i in ids(kernel.bits):
            for operand in self.graph.ops[i].operands:
                outside = operand is not op and not kernel.bits >> operand.id & 1
                if outside and self.graph.reach[operand.id] >> op.id & 1:
                    return True
        return False


def _closed_to(kernel: _Kernel, op: Op) -> bool:
    """Whether `kernel` reads what `op` computes, rather than compute it."""
    if kernel.hero is Hero.LIBRARY:
        return True
    return kernel.closed and op.shape.size >= kernel.size and op.opcode not in READ_THROUGH


def is_row(reduce: Op) -> bool:
    """A reduction over the last dims, others kept (dims of extent one do not matter)."""
    dims = reduce.operands[0].dims
    reduced = [d in reduce.attrs["dimensions"] for d, n in enumerate(dims) if n > 1]
    return bool(reduced) and reduced[-1] and reduced == sorted(reduced) and not all(reduced)


#: More than any threshold. What reads a value by two ways doubles its arithmetic, op after op.
_MANY_FLOPS = 1 << 60


def _cheap(graph: Graph, bits: int) -> tuple[int, dict[int, int]]:
    """The loop ops worth computing again instead of reading, by the arithmetic from memory to
    their value and the arrays of their size that are read on the way; and that arithmetic."""
    found = 0
    flops: dict[int, int] = {}
    sources: dict[int, frozenset[int]] = {}
    few: dict[int, int] = {}  # bitsets of ops: computed from memory with little, each once
    alike: dict[int, int] = {}  # by their arithmetic, bitsets of ops
    for i in ids(bits):
        op = graph.ops[i]
        if kind_of(op.opcode) in (Kind.REDUCTION, Kind.DOT):
            continue
        size = op.shape.size
        own = spec_of(op.opcode).flops
        alike[own] = alike.get(own, 0) | 1 << i
        flops[i] = min(own + sum(flops.get(o.id, 0) for o in set(op.operands)), _MANY_FLOPS)
        read = frozenset[int]()
        for o in op.operands:
            read |= sources.get(o.id, frozenset((o.id,)))
        sources[i] = read if len(read) <= 2 * DEAR_SOURCES else frozenset(sorted(read)[:5])
        large = sum(graph.ops[j].shape.size >= size > 1 for j in read)
        if 1 < size <= FEW_ELEMENTS:
            made = 1 << i
            for o in op.operands:
                made |= few.get(o.id, 0)
            if (
                size * sum(n * (made & those).bit_count() for n, those in alike.items())
                <= FEW_FLOPS
            ):
                few[i] = made
        if i in few or (flops[i] < DEAR_FLOPS and large <= DEAR_SOURCES):
            found |= 1 << i
    return found, flops


def _distinct(kernels: Iterable[_Kernel]) -> list[_Kernel]:
    return list(dict.fromkeys(kernels))


def _join_siblings(graph: Graph, free: int, kernels: list[_Kernel]) -> list[_Kernel]:
    """Loop and reduction kernels with loops of one shape that read the same array become one, with
    reductions over the same dims; loop kernels also where one reads what the other writes."""
    by_value: dict[tuple[object, int], list[_Kernel]] = {}
    for kernel in kernels:
        if kernel.hero not in (Hero.LOOP, Hero.REDUCTION):
            continue
        shared = _read(graph, free, kernel)
        if kernel.reduction is None:
            shared |= set(ids(kernel.written))
        for i in sorted(shared):
            by_value.setdefault((kernel.dims, i), []).append(kernel)
    into: dict[_Kernel, _Kernel] = {}

    def final(kernel: _Kernel) -> _Kernel:
        while kernel in into:
            kernel = into[kernel]
        return kernel

    for group in by_value.values():
        first = final(group[0])
        for other in map(final, group[1:]):
            if other is not first and _may_join(graph, first, other):
                first.take(other)
                into[other] = first
    return [k for k in kernels if k not in into]


def _read(graph: Graph, free: int, kernel: _Kernel) -> set[int]:
    """The arrays, not scalars, that a kernel reads from memory."""
    inside = kernel.bits | free
    return {
        operand.id
        for i in ids(kernel.bits)
        for operand in graph.ops[i].operands
        if operand.shape.size > 1 and not inside >> operand.id & 1
    }


def _may_join(graph: Graph, a: _Kernel, b: _Kernel) -> bool:
    """Whether nothing between the two, or in them if they hold reductions, keeps them apart."""
    reductions = [kernel.reduction for kernel in (a, b) if kernel.reduction is not None]
    if len({reduction.attrs["dimensions"] for reduction in reductions}) > 1:
        return False
    apart = 0 if reductions else a.bits | b.bits
    for kernel, other in ((a, b), (b, a)):
        for i in ids(kernel.bits):
            for operand in graph.ops[i].operands:
                if not apart >> operand.id & 1 and graph.reach[operand.id] & other.written:
                    return False
    return True
