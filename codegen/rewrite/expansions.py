"""Ops that code generation knows in terms of other ops: rewritten before anything is scheduled."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from fusionstitch.codegen.rewrite.bitcasts import expand_bitcast
from fusionstitch.codegen.rewrite.convolutions import expand_convolution
from fusionstitch.codegen.rewrite.monoids import Monoids
from fusionstitch.codegen.rewrite.region import rewrite
from fusionstitch.codegen.rewrite.scans import expand_scan_part
from fusionstitch.codegen.rewrite.short_windows import separate, shift, start_later
from fusionstitch.codegen.rewrite.small_matrices import (
    expand_factor_part,
    expand_permutation,
    expand_solve,
)
from fusionstitch.codegen.rewrite.sorts import expand_sort, expand_sorted_part, keys_alone
from fusionstitch.codegen.rewrite.windows import expand_window
from fusionstitch.hlo.graph import Graph, Op

#: opcode -> a rule that gives the ops to replace it, or None where the op stays as it is.
Rules = Mapping[str, Callable[[Op], list[Op] | None]]


def expand(graph: Graph, numerics: str) -> Graph:
    """A region without the ops that rules can take apart. Small matrices are factorized element by
    element, short rows are sorted so, and scans become reductions over windows. Those become joins
    of shifted slices, or reductions by functors of the kernel."""
    monoids = Monoids(numerics)
    short: tuple[Rules, ...] = tuple(
        {"reduce-window": rule} for rule in (start_later, separate, shift)
    )
    strict = numerics == "strict"
    alone = keys_alone(graph)
    passes: tuple[Rules, ...] = (
        {
            "get-tuple-element": lambda op: _expand_part(op, alone, strict),
            "convolution": expand_convolution,
            "sort": lambda op: expand_sort(op, strict),
            "lu-permutation": expand_permutation,
            "triangular-solve": expand_solve,
        },
        *(short if not strict else ()),
        {"reduce-window": expand_window},
        {
            "bitcast-convert": expand_bitcast,
            "reduce": monoids.expand_reduce,
            "get-tuple-element": monoids.expand_member,
        },
    )
    for rules in passes:
        graph = _rewritten(graph, rules)
    return graph


def _expand_part(op: Op, alone: Container[int], strict: bool) -> list[Op] | None:
    found = expand_scan_part(op) or expand_factor_part(op)
    return found or expand_sorted_part(op, alone, strict)


def _rewritten(graph: Graph, rules: Rules) -> Graph:
    if not any(op.opcode in rules for op in graph):
        return graph
    return rewrite(graph, lambda op: rules[op.opcode](op) if op.opcode in rules else None)
