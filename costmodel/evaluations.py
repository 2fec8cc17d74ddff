"""What the threads of one of XLA's kernels do: how often each of its ops is evaluated.

XLA computes an element of a kernel's result by what it follows from, one thread for one element or
a few neighbours. A value that is read at several indices is computed again at each:

    y = exp(x);  y[1:] - y[:-1]        two exponentials an element

Elementwise ops read their operands at their own index, so they share one evaluation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusionstitch.costmodel.devices import WARP, Device
from fusionstitch.costmodel.work import LONGEST_WALK, arithmetic
from fusionstitch.hlo.graph import Graph, Op, ids

#: Most indices of a value that are distinguished: what is read more often costs no more.
MOST_INDICES = 128
#: Ops that read their operand at an index of their own, an address computed for each element,
INDEXED = frozenset(
    {
        *("slice", "pad", "concatenate", "transpose", "reverse", "gather", "reshape"),
        *("dynamic-slice", "dynamic-update-slice", "broadcast", "reduce", "reduce-window"),
        "scatter",
    }
)
#: and those among them for which threads branch, so that loads wait for each other.
BRANCHING = frozenset({"pad", "concatenate", "gather"})
#: Ops that join many elements into one.
JOINS = frozenset({"reduce", "reduce-window"})
#: Elements of one thread at most; ops for which XLA has a thread for each element.
MOST_UNROLLED = 4
NOT_UNROLLED = frozenset(
    {"reduce-window", "select-and-scatter", "sine", "cosine", "tan", "power", "atan2"}
)


@dataclass(frozen=True)
class Evaluated:
    """What all threads of a kernel do.

    Attributes:
        us: of the arithmetic units, one after the other
        loads: elements that are read, as often as they are
        branches: of all threads, after which a load waits
        steps: of all threads, operations that wait for the one before
    """

    us: float = 0.0
    loads: float = 0.0
    branches: float = 0.0
    steps: float = 0.0


class Evaluations:
    """Of sets of ops of one graph; what an evaluation of each op takes is worked out once.

    `guessed`: XLA may have fused otherwise, as it writes what is dear to compute again. Then each
    element is evaluated once.
    """

    def __init__(self, graph: Graph, free: int, device: Device, guessed: bool = True):
        self.free, self.guessed = free, guessed
        self._sizes = [_result(op) for op in graph]
        self._reads = [_reads(op) for op in graph]
        self._us: list[float] = []
        self._steps: list[float] = []
        for op in graph:
            work, size = arithmetic(op, device.instructions), _result(op)
            flops = (work.flops + 2 * work.flops64) / size
            self._us.append(
                (
                    work.flops / device.fp32_flops
                    + work.flops64 / device.fp64_flops
                    + work.special / device.special_per_s
                    + work.int_ops / device.int32_ops
                )
                / size
                * 1e6
            )
            self._steps.append((flops + work.int_ops / size) / 20 + work.special / size)
        self._branching = [op.opcode in BRANCHING for op in graph]
        self._joins = sum(1 << op.id for op in graph if op.opcode in JOINS)
        self._indexed = sum(1 << op.id for op in graph if op.opcode in INDEXED)

    def of(self, bits: int, written: int) -> Evaluated:
        """What a kernel of the ops `bits` that writes the values `written` evaluates."""
        if not bits & self._indexed:
            return self._alike(bits, written)
        indices: dict[int, dict[int, float]] = {
            i: {0: float(self._sizes[i])} for i in ids(written & bits)
        }
        us = branches = steps = 0.0
        for i in reversed(list(ids(bits))):
            if not (mine := indices.get(i)):
                continue
            times = sum(mine.values())
            if self.guessed and times > self._sizes[i]:
                mine = {index: n * self._sizes[i] / times for index, n in mine.items()}
                times = self._sizes[i]
            us += times * self._us[i]
            steps += times * self._steps[i]
            branches += times * self._branching[i]
            for operand, share, own in self._reads[i]:
                if self.free >> operand & 1 and not bits >> operand & 1:
                    continue
                theirs = indices.setdefault(operand, {})
                for index, n in mine.items():
                    if self._joins >> i & 1:  # threads share what they join
                        n = min(n, self._sizes[i])
                    at = hash((index, own)) if own else index
                    if at in theirs:
                        theirs[at] = max(theirs[at], n * share)
                    elif len(theirs) < MOST_INDICES:
                        theirs[at] = n * share
        loads = sum(
            sum(found.values())
            for i, found in indices.items()
            if not bits >> i & 1 and self._sizes[i] > 1
        )
        return Evaluated(us, loads, branches, steps + loads)

    def _alike(self, bits: int, written: int) -> Evaluated:
        """Of elementwise ops: each once for each element that is written."""
        n = max((self._sizes[i] for i in ids(written & bits)), default=1)
        read = {operand for i in ids(bits) for operand, _, _ in self._reads[i]}
        loads = n * sum(self._sizes[i] > 1 for i in read if not (bits | self.free) >> i & 1)
        us = n * sum(self._us[i] for i in ids(bits))
        return Evaluated(us, loads, 0.0, n * sum(self._steps[i] for i in ids(bits)) + loads)


def _result(op: Op) -> int:
    shape = op.shape.elements[0] if op.shape.is_tuple and op.shape.elements else op.shape
    return max(1, shape.size)


def _reads(op: Op) -> list[tuple[int, float, int]]:
    """(operand, evaluations of it for one of the op, the index map as a number, 0 for the op's own)
    for what an op evaluates."""
    size, inputs = _result(op), len(op.operands)
    if op.opcode in JOINS:
        inputs //= 2
    found = []
    for k, operand in enumerate(op.operands[:inputs]):
        share, own = 1.0, 0
        if op.opcode == "pad":
            share, own = _padded(op, operand, k), _number(op.id, k)
        elif op.opcode == "concatenate":
            d = op.attrs["dimension"]
            run, whole = math.prod(operand.dims[d:]), max(1, math.prod(op.dims[d:]))
            # lanes of a warp that take other branches wait
            share, own = min(1.0, (run + WARP) / whole), _number(op.id, k)
        elif op.opcode == "reduce":
            share, own = operand.shape.size / size, _number(op.id, 0)
        elif op.opcode == "reduce-window":
            steps = math.prod(op.attrs["size"])
            share, own = float(min(steps, LONGEST_WALK)), _number(op.id, 0)
        elif op.opcode == "scatter":
            share = 0.0 if k < inputs // 2 else op.operands[-1].shape.size / size
            own = _number(op.id, k)
        elif op.opcode == "dynamic-update-slice":
            share, own = (0.0 if k == 0 else 1.0), _number(op.id, k)
        elif op.opcode in INDEXED:
            own = _number(op.id, 0)
        if share > 0:
            found.append((operand.id, share, own))
    return found


def _number(op: int, operand: int) -> int:
    return 1 + (op << 8) + operand


def _padded(op: Op, operand: Op, k: int) -> float:
    """The share of the elements of a pad that read what is padded; with gaps along the last dim
    every warp does."""
    if k:
        return 0.0
    gaps = op.attrs["interior"]
    return 1.0 if gaps and gaps[-1] > 0 else min(1.0, operand.shape.size / _result(op))


def unrolled(size: int, device: Device) -> int:
    """Neighbours among `size` elements that a thread of a loop computes: XLA takes several where
    there are more than threads at once, and their number divides."""
    if size < device.sm_count * device.max_threads_per_sm:
        return 1
    return math.gcd(size, MOST_UNROLLED)
