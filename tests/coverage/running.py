"""Many cases as one program: what is stitched of each, and how right it is."""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fusionstitch as fs
from fusionstitch import accuracy
from fusionstitch.accuracy import relative_error
from fusionstitch.compiler import builders, core
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of
from tests.coverage.table import Case, groups, large_cases

#: The paper's scorer takes every pattern that saves a kernel, so what is left is left for a reason.
OPTIONS = fs.Options(backend="emulate", scorer="paper")
#: What is too large to be run is planned as it would be by default.
LARGE_OPTIONS = fs.Options(backend="emulate", device="h200")
#: Below the general floor: what a few roundings of f64 may add up to.
F64_FLOOR = 1e-13


class Outcome(enum.Enum):
    """What became of a case, and how the page of limits shows it."""

    STITCHED = "+"  # every op of it is in a kernel
    LEFT = "XLA"  # some op of it is left to XLA
    GONE = ""  # no op of it is left to compute


@dataclass(frozen=True)
class Status:
    """The outcome of a case, why it is left where it is, and the opcodes of its ops in HLO."""

    case: Case
    outcome: Outcome
    reason: str
    opcodes: frozenset[str]


class Group:
    """Cases compiled as one program."""

    def __init__(self, cases: Sequence[Case]):
        self.cases = {case.name: case for case in cases}
        self.family, self.wide = cases[0].family, cases[0].wide
        # arguments of one list: JAX would sort the keys of a dict
        self.args = [case.args for case in cases]

    def program(self, args: Any) -> list[Any]:
        return [case.fun(*own) for case, own in zip(self.cases.values(), args, strict=True)]

    @functools.cache  # noqa: B019 -- groups live as long as the process
    def module(self, platform: str = "cpu") -> bytes:
        """The program lowered for a platform, as HloModuleProto bytes."""
        with jax.enable_x64(self.wide):
            traced = jax.jit(self.program, keep_unused=True).trace(self.args)
            lowered = traced.lower(lowering_platforms=(platform,))
        return lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()

    def statuses(self, options: fs.Options = OPTIONS) -> list[Status]:
        """What planning and code generation make of every case."""
        result = core.stitch(self.module("cuda"), options, builders.profile(options), None)
        left = {name: fallback.reason for fallback in result.fallbacks for name in fallback.ops}
        plan = result.plans[-1]  # callees come first
        inside = {op for chosen in plan.chosen for op in chosen.pattern.ops}
        inside = {op for op in inside if op.name not in left}
        why = dict(left)
        # why an op is in no kernel at all, then why a pattern that holds it is none
        for rejected in sorted(plan.rejected, key=lambda one: len(one.ops)):
            for op in rejected.ops:
                why.setdefault(op.name, rejected.reason)
        root = plan.graph.root
        roots = iter(root.operands if root.opcode == "tuple" else [root])
        found = []
        for case in self.cases.values():
            with jax.enable_x64(self.wide):
                count = len(jax.tree.leaves(jax.eval_shape(case.fun, *case.args)))
            found.append(
                _status(case, plan.graph, [next(roots) for _ in range(count)], inside, why)
            )
        return found

    @functools.cached_property
    def leaves(self) -> list[Any]:
        return jax.tree.leaves(self.args)

    def check(self, options: fs.Options) -> None:
        """Asserts that every case is as right under fs.jit as under jax.jit."""
        with jax.enable_x64(self.wide):
            args = jax.tree.map(jnp.asarray, self.args)
            compiled = fs.jit(self.program, options=options).lower(args).compile()
            assert compiled.kernels or self.family == "others"
            assert not compiled.fallbacks
            ours, xla = compiled(args), jax.jit(self.program)(args)
            reference = accuracy.reference(self.module(), self.leaves)
        if reference is None:  # integers alone need none
            reference = [np.asarray(leaf) for leaf in jax.tree.leaves(xla)]
            assert not any(jnp.issubdtype(x.dtype, np.floating) for x in reference)
        wide = iter(reference)
        wrong = []
        for case, mine, theirs in zip(self.cases, ours, xla, strict=True):
            pairs = zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True)
            for number, (x, y) in enumerate(pairs):
                fault = _fault(np.asarray(x), np.asarray(y), next(wide))
                if fault:
                    wrong.append(f"{case}, result {number}: {fault}")
        assert not wrong, "\n".join(wrong)


def _status(
    case: Case, graph: Graph, roots: Sequence[Op], inside: set[Op], why: dict[str, str]
) -> Status:
    free, seen, todo = free_bits(graph), set(roots), list(roots)
    while todo:
        for operand in todo.pop().operands:
            if operand not in seen:
                seen.add(operand)
                todo.append(operand)
    ops = [
        op
        for op in sorted(seen, key=lambda op: op.id)
        if not free >> op.id & 1 and kind_of(op.opcode) is not Kind.STRUCTURE
    ]
    outside = [op for op in ops if op not in inside]
    reason = ""
    if outside:
        named = [op for op in outside if op.name in why] or outside
        # what an update reads is left with it
        named.sort(key=lambda op: kind_of(op.opcode) is not Kind.UPDATE)
        reason = why.get(named[0].name, "XLA's kernels are as few.")
    outcome = Outcome.LEFT if outside else Outcome.STITCHED if ops else Outcome.GONE
    return Status(case, outcome, reason, frozenset(op.opcode for op in ops))


def _fault(mine: np.ndarray, xla: np.ndarray, wide: np.ndarray) -> str:
    """What is wrong with a result, '' if nothing is."""
    if (mine.dtype, mine.shape) != (xla.dtype, xla.shape):
        return f"{mine.dtype}{mine.shape} where jax.jit gives {xla.dtype}{xla.shape}"
    if not jnp.issubdtype(mine.dtype, np.inexact):
        return "" if np.array_equal(mine, xla) else f"{_where(mine, xla)}"
    error, own = relative_error(mine, wide), relative_error(xla, wide)
    allowed = accuracy.limit(mine.dtype, own)
    if mine.dtype == np.float64:
        allowed = max(accuracy.XLA_FACTOR * own, F64_FLOOR)
    return "" if error <= allowed else f"error {error:.1e}, XLA {own:.1e}, allowed {allowed:.1e}"


def _where(mine: np.ndarray, xla: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(mine != xla)[0])
    return f"{mine[at]} at {at} where jax.jit gives {xla[at]}"


@functools.cache
def all_groups() -> dict[str, Group]:
    return {name: Group(cases) for name, cases in groups()}


@functools.cache
def large_statuses() -> tuple[Status, ...]:
    """What becomes of the cases that are never run, each planned as a program of its own."""
    return tuple(s for c in large_cases().values() for s in Group([c]).statuses(LARGE_OPTIONS))
