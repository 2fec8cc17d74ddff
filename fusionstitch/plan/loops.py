"""Loops of a graph that may become one kernel each, and their times under XLA.

XLA launches the kernels of a loop body from the host in each iteration. A loop takes as long as the
kernels of its body and condition, times its trip count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.unrolled import unrolled
from fusionstitch.costmodel.xla_fusions import fused_into, xla_fusions
from fusionstitch.costmodel.xla_scale import overhead_share, scaled_plan
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op, inside, loops_of
from fusionstitch.hlo.verdict import Verdict, forbid
from fusionstitch.options import Options
from fusionstitch.patterns.candidates import POINTER_BYTES
from fusionstitch.patterns.fusible import LEFT, MEMBERS, fusible_ops, multiplied_as_asked
from fusionstitch.patterns.pattern import Pattern, loop_bits, spread_bits

#: Iterations of a loop and of the loops in its body: (trip count, those of each inner loop in
#: order, whether XLA knows the trip count).
Iterations = tuple[int, tuple["Iterations", ...], bool]


@dataclass(frozen=True)
class Loops:
    """Loops with XLA's microseconds, what is known of them by `Pattern.key`, and the loops that
    stay with XLA, with the reasons."""

    priced: tuple[tuple[Pattern, float], ...] = ()
    facts: Mapping[str, KernelFacts | Verdict] = field(default_factory=dict)
    refused: tuple[tuple[int, str, Verdict], ...] = ()


def become_kernels(options: Options) -> bool:
    """Whether loops may become kernels at all."""
    return options.scorer != "paper" and options.scope == "loop"


def stitchable_loops(
    graph: Graph,
    works: GraphWork,
    options: Options,
    inspect: Callable[[Pattern], KernelFacts | Verdict],
    truth: XlaTruth | None = None,
) -> Loops:
    """The outermost loops of `graph` that code generation can make kernels of. Their times under
    XLA are scaled to `truth`."""
    if not become_kernels(options):
        return Loops()
    priced, refused = [], []
    known: dict[str, KernelFacts | Verdict] = {}
    awaited = {origin for op in graph for origin in op.control}
    for op in graph:
        if op.opcode != "while":
            continue
        bits = loop_bits(graph, op)
        verdict = _legal(graph, op, bits, awaited, works.device)
        if isinstance(verdict, Verdict):
            refused.append((bits, "loop", verdict))
            continue
        if verdict.key not in known:
            known[verdict.key] = inspect(verdict)
        found = known[verdict.key]
        if isinstance(found, Verdict):
            refused.append((bits, "loop", found))
            continue
        iterations = dict(found.facts)["turns"]
        assert isinstance(iterations, tuple)
        priced.append((verdict, xla_loop_us(op, iterations, works.device, truth)))
    return Loops(tuple(priced), known, tuple(refused))


def xla_loop_us(
    loop: Op, iterations: Iterations, device: Device, truth: XlaTruth | None = None
) -> float:
    """Microseconds of a loop under XLA."""
    condition, body = loop.called
    kernels = _graph_us(condition, (), device, truth) + _graph_us(
        body, iterations[1], device, truth
    )
    beside = device.loop_turn_us + (0.0 if iterations[2] else device.loop_wait_us)
    return iterations[0] * (beside * overhead_share(loop, truth) + kernels)


def _graph_us(
    graph: Graph, inner: tuple[Iterations, ...], device: Device, truth: XlaTruth | None
) -> float:
    fusible = fusible_ops(graph, device)
    works = GraphWork(graph, free_bits(graph), device, spread_bits(graph))
    bits = fusible.bits | fused_into(op for op, _ in fusible.refused)
    works.unrolled = unrolled(graph, bits)
    pairs = zip(loops_of(graph), inner, strict=True)
    nested = sum(xla_loop_us(op, iterations, device, truth) for op, iterations in pairs)
    return scaled_plan(xla_fusions(works, bits), truth).us + nested


def _legal(
    graph: Graph, loop: Op, bits: int, awaited: set[int], device: Device
) -> Pattern | Verdict:
    """The loop as a pattern, or why it cannot be one."""
    users = graph.users[loop.id]
    if loop.shape.is_tuple and not bits >> loop.operands[0].id & 1:
        return forbid("What it starts from is a tuple of another's.")
    whole = loop is graph.root or any(u.opcode != "get-tuple-element" for u in users)
    if loop.shape.is_tuple and whole:
        return forbid("Its result is handed on as a tuple.")
    if loop.source.left:
        return forbid(LEFT[loop.source.left])
    if any(op.source.left for op in inside(loop)):
        return forbid("The program leaves a part of it to XLA (fusionstitch.leave).")
    for op in inside(loop):
        if not (verdict := multiplied_as_asked(op, device)):
            return verdict
    if loop.control or loop.origin in awaited:
        return forbid("It has control dependences.")
    pattern = Pattern(graph, bits, "loop")
    border = (*pattern.inputs, *pattern.outputs)
    if not pattern.outputs:
        return forbid("Nobody reads what it computes.")
    for op in border:
        if op.dtype not in MEMBERS:
            return forbid("Kernels have no such element type.", dtype=op.dtype)
        if op.origin is None:
            return forbid("A value at its border was made by the simplifier.", op=op.name)
    if len(border) * POINTER_BYTES > device.parameter_bytes:
        return forbid("It reads and writes more arrays than a kernel has parameters for.")
    return pattern
