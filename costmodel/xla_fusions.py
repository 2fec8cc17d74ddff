"""What today's XLA:GPU would make of a set of ops: its kernels, estimated.

XLA compiles a fusion to one kernel with one hero. The rules here restate what its public passes
do (openxla/xla, xla/service/gpu/transforms); they are a model for scoring, not a copy:

    loop            elementwise and index ops fuse into all their consumers (PriorityFusion), unless
                    recomputing is dear: special functions, or more than one large operand
    multi-output    a value also needed elsewhere is written by the kernel of its consumer when the
                    shapes agree; siblings that read the same array join (MultiOutputFusion)
    reduction       the hero of its kernel; its producers and an epilogue of its own shape fuse,
                    nothing of another shape behind it; reductions beyond ReductionIsRaceFree's
                    bounds take a second kernel (TreeReductionRewriter)
    normalisation   row reductions whose result is broadcast back over the same tensor form one
                    Triton kernel (SoftmaxRewriterTriton): softmax, layer norm forward
    gemm            a library or Triton kernel; transposes and converts of operands fold, a short
                    epilogue of the same shape fuses (GemmRewriter)
    independent     ops that share nothing stay separate kernels
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable
from dataclasses import dataclass

from costmodel.graph_work import GraphWork
from costmodel.xla_kernels import kernel_time_us
from hlo.graph import Graph, Op, ids
from hlo.semantics import Kind, kind_of, spec_of


class Hero(enum.Enum):
    """What decides the schedule of a kernel."""

    LOOP = "loop"
    REDUCTION = "reduction"
    NORMALISATION = "normalisation"
    GEMM = "gemm"


#: Elementwise ops of at least this many operations per element are not recomputed.
DEAR_FLOPS = 8
#: Ops a gemm takes as its epilogue at most.
EPILOGUE_OPS = 4
#: Ops that fold into a gemm's operand when only gemms read them.
FOLDS = frozenset({"transpose", "convert", "bitcast", "reshape"})
#: Index ops a normalisation may hold.
NORMAL_MOVEMENT = frozenset({"broadcast", "reshape", "bitcast"})


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

    @property
    def graph(self) -> Graph:
        return self.works.graph

    @property
    def us(self) -> float:
        return sum(kernel.us for kernel in self.kernels)

    @functools.cached_property
    def homes(self) -> dict[int, tuple[int, ...]]:
        """op id -> indices of the kernels that compute it."""
        found: dict[int, list[int]] = {}
        for number, kernel in enumerate(self.kernels):
            for i in ids(kernel.bits):
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

    @property
    def size(self) -> int:
        """Elements of the loop nest."""
        op = self.reduction.operands[0] if self.reduction is not None else self.root
        return op.shape.size


def xla_fusions(works: GraphWork, bits: int) -> XlaPlan:
    """XLA's kernels for the ops `bits` of `works.graph` (no structure, source or partition ops).

    A value read by an op outside `bits`, or the graph's result, is written to memory.
    """

    def priced(kernel: _Kernel) -> XlaKernel:
        us = kernel_time_us(works, kernel.bits, kernel.written)
        return XlaKernel(kernel.hero, kernel.bits, kernel.written, us)

    kernels = _Fuser(works.graph, bits).run()
    return XlaPlan(works, bits, tuple(map(priced, kernels)))


class _Fuser:
    """Walks from the results to the inputs and puts each op into the kernels of its users."""

    def __init__(self, graph: Graph, bits: int):
        self.graph = graph
        self.bits = bits
        self.homes: dict[int, list[_Kernel]] = {}
        self.kernels: list[_Kernel] = []

    def run(self) -> list[_Kernel]:
        for i in reversed(list(ids(self.bits))):
            self._place(self.graph.ops[i])
        live = [k for k in self.kernels if k.bits]
        live.reverse()
        return _join_siblings(self.graph, live)

    def _place(self, op: Op) -> None:
        users = self.graph.users[op.id]
        inside = [u for u in users if self.bits >> u.id & 1]
        escapes = op is self.graph.root or len(inside) < len(users)
        kernels = _distinct(k for u in inside for k in self.homes[u.id])
        kind = kind_of(op.opcode)
        if kind is Kind.DOT:
            self._place_gemm(op, kernels, escapes)
        elif kind is Kind.REDUCTION:
            self._place_reduction(op, kernels, escapes)
        else:
            self._place_loop(op, inside, kernels, escapes)

    def _start(self, op: Op, hero: Hero) -> _Kernel:
        kernel = _Kernel(hero, op, written=1 << op.id)
        self.kernels.append(kernel)
        self._join(op, [kernel])
        return kernel

    def _join(self, op: Op, kernels: list[_Kernel]) -> None:
        for kernel in kernels:
            kernel.bits |= 1 << op.id
        self.homes[op.id] = kernels

    def _place_gemm(self, op: Op, kernels: list[_Kernel], escapes: bool) -> None:
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

    def _place_reduction(self, op: Op, kernels: list[_Kernel], escapes: bool) -> None:
        only = kernels[0] if len(kernels) == 1 and not escapes else None
        if only is not None and self._normalises(op, only):
            only.hero = Hero.NORMALISATION
            self._join(op, [only])
        elif (
            only is not None
            and only.hero is Hero.LOOP
            and only.root.shape.size == op.shape.size
            and not self._would_cycle(op, only)
        ):
            only.hero, only.reduction = Hero.REDUCTION, op
            self._join(op, [only])
        else:
            self._start(op, Hero.REDUCTION).reduction = op

    def _normalises(self, op: Op, kernel: _Kernel) -> bool:
        """A diamond: a row reduction whose result meets the rows it was computed from."""
        source = op.operands[0]
        if kernel.hero not in (Hero.LOOP, Hero.NORMALISATION) or not is_row(op):
            return False
        if kernel.root.dims != source.dims:
            return False
        ops = [self.graph.ops[i] for i in ids(kernel.bits)]
        if any(kind_of(o.opcode) is Kind.MOVEMENT and o.opcode not in NORMAL_MOVEMENT for o in ops):
            return False
        rows = {o.id for member in ops for o in member.operands if o.dims == source.dims}
        return any(self.graph.reach[source.id] >> i & 1 for i in rows)

    def _place_loop(self, op: Op, inside: list[Op], kernels: list[_Kernel], escapes: bool) -> None:
        by_gemm = [u for u in inside if kind_of(u.opcode) is Kind.DOT]
        if by_gemm and len(by_gemm) == len(inside) and op.opcode in FOLDS and not escapes:
            self._join(op, kernels)
            return
        hosts = _distinct(k for u in inside if u not in by_gemm for k in self.homes[u.id])
        written = escapes or bool(by_gemm)
        if not written and (len(hosts) == 1 or _cheap(op)):
            self._join(op, hosts)
            return
        for kernel in hosts:
            if kernel.size == op.shape.size and not self._would_cycle(op, kernel):
                kernel.written |= 1 << op.id
                self._join(op, [kernel])
                return
        self._start(op, Hero.LOOP)

    def _would_cycle(self, op: Op, kernel: _Kernel) -> bool:
        """Whether `kernel` already waits for `op` through something outside it."""
        for i in ids(kernel.bits):
            for operand in self.graph.ops[i].operands:
                outside = operand is not op and not kernel.bits >> operand.id & 1
                if outside and self.graph.reach[operand.id] >> op.id & 1:
                    return True
        return False


def is_row(reduce: Op) -> bool:
    """A reduction over the last dims, others kept (dims of extent one do not matter)."""
    dims = reduce.operands[0].dims
    reduced = [d in reduce.attrs["dimensions"] for d, n in enumerate(dims) if n > 1]
    return bool(reduced) and reduced[-1] and reduced == sorted(reduced) and not all(reduced)


def _cheap(op: Op) -> bool:
    large = {o.id for o in op.operands if o.shape.size == op.shape.size and o.shape.size > 1}
    return spec_of(op.opcode).flops < DEAR_FLOPS and len(large) <= 1


def _distinct(kernels: Iterable[_Kernel]) -> list[_Kernel]:
    return list(dict.fromkeys(kernels))


def _join_siblings(graph: Graph, kernels: list[_Kernel]) -> list[_Kernel]:
    """Independent loop or reduction kernels of one shape that read the same array become one."""
    by_input: dict[tuple[object, int], list[_Kernel]] = {}
    for kernel in kernels:
        if kernel.hero not in (Hero.LOOP, Hero.REDUCTION):
            continue
        reduction = kernel.reduction
        shape: object = (
            (reduction.operands[0].dims, reduction.attrs["dimensions"])
            if reduction is not None
            else kernel.root.dims
        )
        read = {
            operand.id
            for i in ids(kernel.bits)
            for operand in graph.ops[i].operands
            if operand.shape.size > 1
        }
        for i in sorted(read):
            by_input.setdefault((shape, i), []).append(kernel)
    into: dict[_Kernel, _Kernel] = {}

    def final(kernel: _Kernel) -> _Kernel:
        while kernel in into:
            kernel = into[kernel]
        return kernel

    for group in by_input.values():
        first = final(group[0])
        for other in group[1:]:
            other = final(other)
            if other is not first and _independent(graph, first, other):
                first.bits |= other.bits
                first.written |= other.written
                into[other] = first
    return [k for k in kernels if k not in into]


def _independent(graph: Graph, a: _Kernel, b: _Kernel) -> bool:
    return not any(graph.reach[i] & b.written for i in ids(a.bits)) and not any(
        graph.reach[i] & a.written for i in ids(b.bits)
    )
