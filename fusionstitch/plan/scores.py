"""The value of a pattern, in microseconds (paper 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from fusionstitch.costmodel.bandwidth import memory_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.kernel_time import cost_us, least_us
from fusionstitch.costmodel.work import op_bytes
from fusionstitch.costmodel.xla_fusions import XlaPlan
from fusionstitch.costmodel.xla_saved import (
    covers_kernel,
    saved_by_fusing_again,
    saved_us,
    touched,
)
from fusionstitch.costmodel.xla_truth import MEASURED, MODELLED, SCALED
from fusionstitch.hlo.graph import Graph, Op, ids, of_graph
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.patterns.substitution import Class, partition_class

#: A gain below this, or below this share of XLA's time, is within the model's error.
MARGIN_US = 0.1
MARGIN_SHARE = 0.1
#: The gain required of a pattern that replaces a single kernel, as a share of XLA's modelled time
#: for it: the model of XLA's kernels is often off by half.
ALONE_SHARE = 0.4
#: The gain required of a loop, as a share: nothing measures it.
LOOP_SHARE = 0.2
#: The gain required by measured times, as a share: their noise.
MEASURED_SHARE = 0.02
#: The most ops of XLA's kernels around a pattern that are fused again to confirm its score.
CONFIRMED_OPS = 500


@dataclass(frozen=True)
class Score:
    """The planner maximizes `gain_us`. `ours_us` and `xla_us` are the two sides, if the scorer
    knows them. `reason` says why a gain is not enough. `source` says where XLA's side comes from:
    "modelled", "scaled" to the program's measured time, or "measured"."""

    gain_us: float
    ours_us: float
    xla_us: float
    reason: str = ""
    source: str = MODELLED

    @property
    def wins(self) -> bool:
        return not self.reason


class Scorer(Protocol):
    """The interface of scorers. `bound` is never below the gain of `score`, so that hopeless
    patterns need no inspection. `confirms` takes longer and is called for chosen patterns: whether
    the pattern wins if the ops `others` (a bitset) are stitched as well."""

    def bound(self, pattern: Pattern) -> float: ...

    def score(self, pattern: Pattern, facts: KernelFacts) -> Score: ...

    def confirms(self, pattern: Pattern, score: Score, others: int) -> bool: ...


#: Measured times of a pattern: (stitched microseconds, XLA's for the same ops), or None.
Measure = Callable[[Pattern], tuple[float, float] | None]


@dataclass(frozen=True)
class ModelScorer:
    """XLA's estimated time for the ops, minus the stitched kernel's time by its cost estimate. In
    the body of a while loop, a custom call costs `Device.loop_call_us` more than a kernel of XLA's.
    `margin` is the required gain, as a share of XLA's time."""

    works: GraphWork
    xla: XlaPlan
    in_loop: bool = False
    margin: float = MARGIN_SHARE
    _saved: dict[int, float] = field(default_factory=dict, compare=False)

    @property
    def device(self) -> Device:
        return self.works.device

    @property
    def call_us(self) -> float:
        """The extra cost of a custom call over a kernel of XLA's, where the graph runs."""
        return self.device.loop_call_us if self.in_loop else 0.0

    @property
    def source(self) -> str:
        """Where XLA's times come from."""
        return MODELLED if self.works.scale is None else SCALED

    def saved_us(self, bits: int) -> float:
        """What XLA saves without the ops `bits`."""
        if bits not in self._saved:
            self._saved[bits] = saved_us(self.xla, bits)
        return self._saved[bits]

    def bound(self, pattern: Pattern) -> float:
        bits = pattern.bits
        if is_loop(pattern):
            return self.saved_us(bits)
        if not covers_kernel(self.xla, bits):
            # XLA still needs all of its kernels, so there is no gain
            return 0.0
        work = self.works.fused(bits, self.works.outputs(bits))
        # also estimates the dependent part, so that not every chain must be inspected
        waits = self.device.stage_us * self.works.chain(bits)
        return self.saved_us(bits) - least_us(work, self.device) - waits - self.call_us

    def ties(self, pattern: Pattern, bound_us: float) -> bool:
        """Whether XLA's estimated time for a pattern with this bound is about that of our fastest
        possible kernel, so that only measuring can decide."""
        if abs(bound_us) > MARGIN_SHARE * self.saved_us(pattern.bits) or is_loop(pattern):
            return False
        return covers_kernel(self.xla, pattern.bits)

    def score(self, pattern: Pattern, facts: KernelFacts) -> Score:
        xla = self.saved_us(pattern.bits)
        if is_loop(pattern):
            ours = cost_us(facts.cost, self.device) + self.call_us
            fast = "nearly as fast" if ours < xla else "faster"
            reason = f"XLA's loop is estimated to be {fast}."
            return _against(ours, xla, LOOP_SHARE, reason, self.source)
        missed = self.works.missed(pattern.ops, pattern.inputs, pattern.outputs)
        ours = cost_us(facts.cost, self.device, missed) + self.call_us
        reason = "XLA's own kernels are estimated to be as fast."
        return _against(ours, xla, self._margin(pattern.bits), reason, self.source)

    def _margin(self, bits: int) -> float:
        """The required gain as a share of XLA's time. A pattern that replaces a single kernel saves
        only what XLA is guessed to do worse, unless that was measured."""
        alone = self.works.scale is None and len(touched(self.xla, bits)) == 1
        return max(self.margin, ALONE_SHARE) if alone else self.margin

    def confirms(self, pattern: Pattern, score: Score, others: int) -> bool:
        """Checks XLA's kernels around all stitched patterns: neither their time nor their number
        may rise."""
        bits = pattern.bits
        if is_loop(pattern):
            return True  # XLA fuses nothing with a loop
        us, kernels = saved_by_fusing_again(self.xla, bits, others & ~bits, CONFIRMED_OPS)
        return us > score.ours_us and kernels >= 1


@dataclass(frozen=True)
class PaperScorer:
    """f(P) = M(V) + (N - 1) phi: the traffic saved by fusing the N ops compared to one kernel per
    op, plus N - 1 launches at the paper's cost."""

    model: ModelScorer
    _bytes: dict[int, int] = field(default_factory=dict, compare=False)

    def bound(self, pattern: Pattern) -> float:
        return self._gain(pattern)

    def score(self, pattern: Pattern, facts: KernelFacts) -> Score:
        device = self.model.device
        modelled = self.model.score(pattern, facts)
        gain = self._gain(pattern)
        if facts.cost.shared_bytes > device.shared_per_block:
            return replace(modelled, gain_us=-1.0, reason="It needs more shared memory.")
        reason = "" if gain > 0 else "It saves neither traffic nor a launch."
        return replace(modelled, gain_us=gain, reason=reason)

    def confirms(self, pattern: Pattern, score: Score, others: int) -> bool:
        return True

    def _gain(self, pattern: Pattern) -> float:
        device, works = self.model.device, self.model.works
        members = list(ids(pattern.bits))
        unfused = sum(map(self._alone, members))
        fused = works.fused(pattern.bits, works.outputs(pattern.bits))
        saved = max(0, unfused - fused.bytes - fused.l2_bytes)
        traffic = memory_us(device, saved) - memory_us(device, 0)
        return traffic + (len(members) - 1) * device.paper_launch_us

    def _alone(self, ident: int) -> int:
        """Bytes of one op as a separate kernel."""
        if ident not in self._bytes:
            self._bytes[ident] = op_bytes(self.model.works.graph.ops[ident])
        return self._bytes[ident]


@dataclass(frozen=True)
class MeasuredScorer:
    """Times from `measure` where available, else the score of `otherwise`. `extra_us` is the extra
    cost of a stitched kernel over one of XLA's in its program."""

    measure: Measure
    otherwise: ModelScorer | PaperScorer
    extra_us: float = 0.0

    def bound(self, pattern: Pattern) -> float:
        bound = self.otherwise.bound(pattern)
        if not (isinstance(self.otherwise, ModelScorer) and self.otherwise.ties(pattern, bound)):
            return bound
        times = self.measure(pattern)
        return bound if times is None else max(bound, times[1] - times[0] - self.extra_us)

    def score(self, pattern: Pattern, facts: KernelFacts) -> Score:
        times = self.measure(pattern)
        if times is None:
            return self.otherwise.score(pattern, facts)
        ours, xla = times[0] + self.extra_us, times[1]
        reason = "XLA's own kernels were measured to be as fast."
        return _against(ours, xla, MEASURED_SHARE, reason, MEASURED)

    def confirms(self, pattern: Pattern, score: Score, others: int) -> bool:
        known = self.measure(pattern) is not None
        return known or self.otherwise.confirms(pattern, score, others)


def _against(ours: float, xla: float, share: float, reason: str, source: str) -> Score:
    gain = xla - ours
    wins = gain > max(MARGIN_US, share * xla)
    return Score(gain, ours, xla, "" if wins else reason, source)


def is_loop(pattern: Pattern) -> bool:
    """Whether a pattern is a whole loop."""
    return pattern.bits & _loops(pattern.graph) != 0


@of_graph
def _loops(graph: Graph) -> int:
    """Bitset of the loops of a graph."""
    return sum(1 << op.id for op in graph if op.opcode == "while")


def is_complex(pattern: Pattern) -> bool:
    """Whether the paper measures the pattern instead of modelling it (4.3): column or scalar
    reductions together with row reductions, or dots together with reductions."""
    kinds = {partition_class(op) for op in pattern.ops}
    reductions = kinds & {Class.ROW, Class.COLUMN, Class.SCALAR}
    dots = kinds & {Class.DOT, Class.BATCHED_DOT}
    return bool(dots and reductions) or (Class.ROW in reductions and len(reductions) > 1)


def kind_of_pattern(ops: tuple[Op, ...]) -> str:
    """The paper's classes of patterns (6.4): "gemm" with a dot, else "reduction" with a reduction,
    else "elemwise"."""
    classes = {partition_class(op) for op in ops}
    if classes & {Class.DOT, Class.BATCHED_DOT}:
        return "gemm"
    return "reduction" if classes - {None} else "elemwise"
