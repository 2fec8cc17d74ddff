"""From XLA's final kernels to the ops of the graph that is planned: by how much modeled times are
off.

The compiled module and the graph come from the same lowering. An op is recognized by JAX's name of
it with its opcode and extents, and one of several alike by its HLO name, to which fusing appends
numbers. The time of what is not recognized is spread over all. The graph's own kernels, as the
model fuses them, stay what they are: each gets the time of the final kernels that compute its ops.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fusionstitch.costmodel.scale import Scale
from fusionstitch.costmodel.xla_final import Emitter, FinalKernel, FinalOp
from fusionstitch.costmodel.xla_fusions import Hero, XlaPlan
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import FACTORS, Kind, kind_of

#: What XLA appends to the name of an op that it copies.
_SUFFIX = re.compile(r"\.(\d+|clone|remat\d*)$")
#: Opcodes that replace others: a library's call, a transposition.
_STAND_INS = frozenset({"custom-call", *FACTORS, "convolution", "copy", "transpose", "bitcast"})
#: What an op counts at least, in microseconds, where a kernel's time is dealt to its ops.
LEAST_US = 1e-9
#: Share of the kernels of a computation, or of their time, that has to be known again for the
#: others to be its graph's, too.
_KNOWN_SHARE = 0.5


def scaled_plan(plan: XlaPlan, truth: XlaTruth | None) -> XlaPlan:
    """`plan` with the times of its kernels, and of all others of its graph from now on, scaled to
    `truth`; the plan itself where that says nothing of its ops."""
    scale = scale_of(plan, truth) if truth is not None else None
    if scale is None:
        return plan
    plan.works.scale = scale
    kernels = tuple(
        one if one.hero is Hero.WHILE else replace(one, us=one.us * scale.of(one.bits))
        for one in plan.kernels
    )
    return XlaPlan(plan.works, plan.bits, kernels)


def overhead_share(loop: Op, truth: XlaTruth | None) -> float:
    """Real time over modelled time of what the host adds to an iteration of a loop: 1 where that is
    not known."""
    for kernel in truth.kernels if truth is not None else ():
        if kernel.emitter is Emitter.WHILE and _same(kernel.ops[0], loop):
            return kernel.us / kernel.modelled_us if kernel.modelled_us else 1.0
    return 1.0


def scale_of(plan: XlaPlan, truth: XlaTruth) -> Scale | None:
    """The factors of a plan that is not scaled yet; None where nothing is known."""
    kernels = [k for k in plan.kernels if k.hero is not Hero.WHILE and k.us > 0]
    finals = [one for one in truth.kernels if one.emitter is not Emitter.WHILE]
    if not kernels or not truth.modelled_us:
        return None
    names = Names(plan.graph)
    found = [names.bits(one.ops) for one in finals]
    weights, own = _weights(plan)
    copies = Counter(i for bits in found for i in ids(bits))
    homes: dict[int, list[int]] = {}
    for n, kernel in enumerate(kernels):
        for i in ids(kernel.bits):
            homes.setdefault(i, []).append(n)
    real = dict.fromkeys(range(len(kernels)), 0.0)
    for final, bits in zip(finals, found, strict=True):
        computed = bits & plan.bits
        timed = computed & own or computed
        parts: dict[int, float] = {}
        for i in ids(timed):
            for n in homes.get(i, ()):
                parts[n] = parts.get(n, 0.0) + max(weights[i], LEAST_US) / copies[i]
        total = sum(parts.values())
        for n, part in parts.items():
            real[n] += final.us * part / total
    factors = _factors([k.us for k in kernels], real, _unknown_us(finals, found), truth)
    common = truth.span_us / truth.modelled_us
    each = (
        sum(factors[n] for n in homes[i]) / len(homes[i]) if i in homes else common
        for i in range(len(plan.graph))
    )
    return Scale(tuple(each), tuple(weights))


def _weights(plan: XlaPlan) -> tuple[list[float], int]:
    """The modelled time of each op that one kernel alone computes, by the bytes of its value; and
    the bitset of these."""
    weights, own = [0.0] * len(plan.graph), 0
    for i, numbers in plan.homes.items():
        if len(numbers) == 1:
            own |= 1 << i
    for kernel in plan.kernels:
        sizes = {i: plan.graph.ops[i].shape.bytes + 1 for i in ids(kernel.bits & own)}
        total = sum(sizes.values())
        for i, size in sizes.items():
            weights[i] = kernel.us * size / total
    return weights, own


def _factors(
    modelled: Sequence[float], real: dict[int, float], unknown_us: float, truth: XlaTruth
) -> list[float]:
    """By what each kernel is off. Those of which nothing is known are off as the others are, and
    what XLA launches besides is spread over all."""
    known_us = sum(real.values())
    known = sum(us for n, us in enumerate(modelled) if real[n] > 0)
    if not known:
        return [truth.span_us / truth.modelled_us] * len(modelled)
    usual = known_us / known
    times = [real[n] or usual * us for n, us in enumerate(modelled)]
    share = (known_us + unknown_us) / sum(times)
    return [share * us / of for us, of in zip(times, modelled, strict=True)]


def _unknown_us(finals: Sequence[FinalKernel], found: Sequence[int]) -> float:
    """The time of final kernels without an op of the graph, in computations that are its own."""
    known: dict[str, list[tuple[bool, float]]] = {}
    for final, bits in zip(finals, found, strict=True):
        known.setdefault(final.graph, []).append((bool(bits), final.us))

    def is_own(kernels: Sequence[tuple[bool, float]]) -> bool:
        shares = (sum(one for one, _ in kernels), len(kernels))
        times = (sum(us for one, us in kernels if one), sum(us for _, us in kernels))
        return any(part >= _KNOWN_SHARE * whole for part, whole in (shares, times))

    mine = {name for name, kernels in known.items() if is_own(kernels)}
    pairs = zip(finals, found, strict=True)
    return sum(final.us for final, bits in pairs if not bits and final.graph in mine)


class Names:
    """The ops of a graph by what they are called."""

    def __init__(self, graph: Graph):
        self._by_name: dict[object, int] = {}
        self._by_scope: dict[object, int] = {}
        for op in graph:
            if not _works(op.opcode):
                continue
            bit, scope = 1 << op.id, _scope(op.source.op_name)
            self._by_name[op.name, op.opcode, op.dims] = bit
            for key in ((scope, op.opcode, op.dims), (scope, op.opcode), scope) if scope else ():
                self._by_scope[key] = self._by_scope.get(key, 0) | bit

    def bits(self, ops: Iterable[FinalOp]) -> int:
        """The ops of the graph that ops of a final kernel are, as a bitset. Those of one scope that
        do the same are distinguished by their names alone: without, each stands for all."""
        found = 0
        for op in ops:
            if _works(op.opcode):
                found |= self._one(op)
        return found

    def _one(self, op: FinalOp) -> int:
        names = ((name, op.opcode, op.dims) for name in _names(op.name))
        named = next((self._by_name[key] for key in names if key in self._by_name), 0)
        if not (scope := _scope(op.op_name)):
            return named
        keys: list[object] = [(scope, op.opcode, op.dims), (scope, op.opcode)]
        if op.opcode in _STAND_INS:
            keys.append(scope)
        group = next((self._by_scope[key] for key in keys if key in self._by_scope), 0)
        return group & named or group


def _same(final: FinalOp, op: Op) -> bool:
    """Whether two ops do the same by JAX's name of them."""
    return final.opcode == op.opcode and _scope(final.op_name) == _scope(op.source.op_name)


def _works(opcode: str) -> bool:
    """Whether an op computes or moves elements: it is neither a source nor structural."""
    return kind_of(opcode) not in (Kind.SOURCE, Kind.STRUCTURE)


def _names(name: str) -> Iterator[str]:
    """A name, and what it may have been before it was copied: the longest first."""
    yield name
    while (shorter := _SUFFIX.sub("", name)) != name:
        name = shorter
        yield name


def _scope(op_name: str) -> str:
    """JAX's name of an op without that of the program, under which it is compiled again."""
    return op_name.partition("/")[2] if op_name.startswith("jit(") else op_name
