"""Which ops may be members of a pattern at all; each rejection has its reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from fusionstitch.codegen.rewrite.banded_products import is_banded
from fusionstitch.codegen.rewrite.bitcasts import regroups
from fusionstitch.codegen.rewrite.complex_pairs import COMPLEX, fits_pairs, is_complex
from fusionstitch.codegen.rewrite.convolutions import narrow
from fusionstitch.codegen.rewrite.few_terms import is_of_few_terms
from fusionstitch.codegen.rewrite.monoids import expressible
from fusionstitch.codegen.rewrite.scans import runnable
from fusionstitch.codegen.rewrite.scatters import stitchable
from fusionstitch.codegen.rewrite.small_matrices import is_small
from fusionstitch.codegen.rewrite.sorts import sortable
from fusionstitch.codegen.rewrite.windows import walkable
from fusionstitch.codegen.text.expressions import supported
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import dot_flops
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import FLOATS, FLOATS8, INTEGERS, Graph, Op
from fusionstitch.hlo.marks import LEAVE, ORIGINAL
from fusionstitch.hlo.semantics import GIVE_PARTS, Kind, kind_of
from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Element types that generated kernels compute with and store.
DTYPES = FLOATS | FLOATS8 | INTEGERS | {"pred"}
#: Those of values that they take apart.
MEMBERS = DTYPES | {COMPLEX}

#: Kinds of ops that become members. Sources are free; structure and partition ops stay outside.
KINDS = frozenset(
    {
        *(Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.UPDATE, Kind.REDUCTION, Kind.WINDOW, Kind.DOT),
        *(Kind.FACTOR, Kind.SORT, Kind.CONVOLUTION),
    }
)


#: Explicit dot algorithms that kernels implement: exact products of operands of these types, summed
#: in f32 or f64.
ALGORITHMS = {
    "dot_any_f8_any_f8_f32": FLOATS8,
    "dot_f16_f16_f32": frozenset({"f16"}),
    "dot_bf16_bf16_f32": frozenset({"bf16"}),
    "dot_f32_f32_f32": frozenset({"f32"}),
    "dot_f64_f64_f64": frozenset({"f64"}),
}


#: Rows of a library's smallest tile, half of which is empty at so few.
FEW_ROWS = 32
#: From this many summed elements per result of a row, a library splits the sums.
LONG_SUM = 4
#: The most arrays that a kernel concatenates. For every element it checks them one after another,
#: where XLA copies each with separate threads.
MOST_JOINED = 32


def gemm_flops(dot: Op) -> int:
    """FLOPs of one batch entry of a dot: 2 m n k."""
    lhs = dot.operands[0]
    k = math.prod(lhs.dims[d] for d in dot.attrs["lhs_contract"])
    batch = math.prod(lhs.dims[d] for d in dot.attrs["lhs_batch"])
    return 2 * dot.shape.size * k // max(1, batch)


def is_large_gemm(op: Op, device: Device) -> bool:
    """Whether a library kernel does this dot better (`Device.large_gemm_flops`).

    A dot with a small matrix, or with few rows or columns that tensor cores are too imprecise for,
    leaves most of a library's tile empty. A batched dot that is bound by memory, however large, is
    better done where it need not go through memory.
    """
    if op.opcode != "dot" or gemm_flops(op) < device.large_gemm_flops:
        return False
    if is_of_few_terms(op) or is_banded(op):
        return False
    if not op.attrs["lhs_batch"]:
        return op.attrs.get("precision") != "highest" or not _has_few_rows(op)
    moved = sum(x.shape.bytes for x in (op, *op.operands))
    intensity = device.tensor_bf16_flops / device.dram_bytes_per_s
    return dot_flops(op) >= moved * intensity


def _has_few_rows(dot: Op) -> bool:
    """Whether a dot without batch dims has few rows or columns, and sums short enough that a
    library does not split them."""
    lhs, contracted = dot.operands[0], dot.attrs["lhs_contract"]
    rank = lhs.shape.rank - len(contracted)
    few, many = sorted((math.prod(dot.dims[:rank]), math.prod(dot.dims[rank:])))
    depth = math.prod(lhs.dims[d] for d in contracted)
    return few <= FEW_ROWS and depth <= LONG_SUM * many


#: By the mark of an op that is left to XLA, why it is.
LEFT = {
    LEAVE: "The program leaves it to XLA (fusionstitch.leave).",
    ORIGINAL: "It is in the original of a loop, which runs only if a faster copy went wrong.",
}


def _left(op: Op, device: Device) -> Verdict:
    return forbid(LEFT[op.source.left]) if op.source.left else allow()


def _kind(op: Op, device: Device) -> Verdict:
    if kind_of(op.opcode) in KINDS:
        return allow()
    return forbid(f"XLA keeps {op.opcode} for itself.")


def _control(op: Op, device: Device) -> Verdict:
    return forbid("It has control dependences.") if op.control else allow()


def _dtypes(op: Op, device: Device) -> Verdict:
    results = op.shape.elements or (op.shape,)
    for shape in (*results, *(o.shape for o in op.operands)):
        if shape.dtype not in MEMBERS:
            return forbid("Kernels have no such element type.", dtype=shape.dtype)
    return allow()


def _not_empty(op: Op, device: Device) -> Verdict:
    if op.shape.size and all(o.shape.size for o in op.operands):
        return allow()
    return forbid("An operand or the result has no elements.")


def _expressible(op: Op, device: Device) -> Verdict:
    if is_complex(op):
        return fits_pairs(op)
    if kind_of(op.opcode) is not Kind.ELEMENTWISE or supported(op) or regroups(op):
        return allow()
    return forbid("Kernels have no expression for it.", dtype=op.dtype)


def _reducer(op: Op, device: Device) -> Verdict:
    if op.opcode == "reduce" and op.attrs["reducer"] is None:
        return expressible(op)
    check = {"reduce-window": walkable, "scan": runnable}.get(op.opcode)
    return check(op) if check else allow()


def _scatter(op: Op, device: Device) -> Verdict:
    return stitchable(op) if op.opcode == "scatter" else allow()


def _small(op: Op, device: Device) -> Verdict:
    checks = {Kind.FACTOR: is_small, Kind.SORT: sortable, Kind.CONVOLUTION: narrow}
    check = checks.get(kind_of(op.opcode))
    return check(op) if check else allow()


def _joined(op: Op, device: Device) -> Verdict:
    if op.opcode == "concatenate" and len(op.operands) > MOST_JOINED:
        return forbid(
            "XLA joins so many arrays faster.", arrays=len(op.operands), limit=MOST_JOINED
        )
    return allow()


def multiplied_as_asked(op: Op, device: Device) -> Verdict:
    """Whether kernels implement the algorithm that a dot requests, if any."""
    algorithm = (
        op.attrs.get("algorithm", "unset") if op.opcode in ("dot", "convolution") else "unset"
    )
    kinds = {o.dtype for o in op.operands}
    if algorithm == "unset" or kinds <= ALGORITHMS.get(algorithm, frozenset()):
        return allow()
    return forbid("Kernels do not multiply by the algorithm it asks for.", algorithm=algorithm)


def _gemm(op: Op, device: Device) -> Verdict:
    if is_large_gemm(op, device):
        return forbid(
            "A library kernel does a GEMM of this size better.",
            flops=gemm_flops(op),
            limit=device.large_gemm_flops,
        )
    return allow()


def is_part(op: Op) -> bool:
    """Whether `op` is one of the results of a reduction, scan, factorization or sort with several
    results."""
    return op.opcode == "get-tuple-element" and op.operands[0].opcode in GIVE_PARTS


#: Checked in this order; the first rejection is the op's verdict.
CHECKS: tuple[Callable[[Op, Device], Verdict], ...] = (
    _left,
    _kind,
    _control,
    _dtypes,
    _not_empty,
    _expressible,
    _reducer,
    _scatter,
    _small,
    _joined,
    multiplied_as_asked,
    _gemm,
)


def fusible(op: Op, device: Device) -> Verdict:
    """Whether `op` may be a member of a pattern on `device`."""
    for check in CHECKS:
        verdict = check(op, device)
        if not verdict:
            return verdict
    return allow()


@dataclass(frozen=True)
class Fusible:
    """The fusible ops of one graph as a bitset, without free ops, and the rejections."""

    bits: int
    refused: tuple[tuple[Op, Verdict], ...]


def fusible_ops(graph: Graph, device: Device) -> Fusible:
    """Sorts the ops of `graph`. An op that others have a control dependence on is rejected as well:
    replacing it would lose the dependence."""
    free = free_bits(graph)
    awaited = {origin for op in graph for origin in op.control}
    bits, refused = 0, []
    for op in graph:
        if free >> op.id & 1:
            continue
        if kind_of(op.opcode) is Kind.STRUCTURE:
            bits |= is_part(op) and bits >> op.operands[0].id & 1 and 1 << op.id
            continue
        verdict = fusible(op, device)
        if verdict and op.origin in awaited:
            verdict = forbid("Other ops have a control dependence on it.")
        if verdict:
            bits |= 1 << op.id
        else:
            refused.append((op, verdict))
    return Fusible(bits, tuple(refused))
