"""The independent check of a plan. It shares no code with the planner or its bitsets, so that a
defect there cannot hide here."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import GIVE_PARTS, Kind, kind_of
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.plan import Plan

#: Relative difference within which sums count as equal.
_ROUNDING = 1e-6
_NEVER_MEMBERS = frozenset({Kind.STRUCTURE, Kind.PARTITION, Kind.SOURCE})


def check_plan(graph: Graph, patterns: Sequence[Pattern], scores: Sequence[float]) -> Verdict:
    """Whether `patterns` with `scores` are a legal plan of `graph`.

    Members must have legal kinds and not be left to XLA. Patterns must be disjoint and convex, and
    the contracted graph acyclic, including control dependences. Scores must be finite and not
    negative. Values at borders must have instructions in the module.
    """
    if len(patterns) != len(scores):
        return forbid("Patterns and scores differ in number.")
    owner: dict[int, int] = {}
    for number, (pattern, score) in enumerate(zip(patterns, scores, strict=True)):
        if pattern.graph is not graph:
            return forbid("A pattern belongs to another graph.", pattern=number)
        if not math.isfinite(score) or score < 0:
            return forbid("A pattern has a negative score.", pattern=number, score=score)
        members = [graph.ops[i] for i in ids(pattern.bits)]
        if not members:
            return forbid("A pattern has no ops.", pattern=number)
        for op in members:
            outsider = kind_of(op.opcode) in _NEVER_MEMBERS and not _is_of_loop(graph, op, members)
            if outsider and not _is_part(op, pattern.bits):
                return forbid(f"A {op.opcode} can be no member.", pattern=number, op=op.name)
            if op.source.left:
                return forbid("An op that is left to XLA is a member.", pattern=number, op=op.name)
            if op.id in owner:
                return forbid(
                    "Two patterns overlap.", first=owner[op.id], second=number, op=op.name
                )
            owner[op.id] = number
        for op in (*pattern.inputs, *pattern.outputs):
            if op.shape.is_tuple:
                return forbid("A tuple is at the border.", pattern=number, op=op.name)
            if op.origin is None:
                return forbid(
                    "A value at the border has no instruction in the module.",
                    pattern=number,
                    op=op.name,
                )
    if _acyclic(graph, owner):
        return allow()  # a pattern that is not convex would form a cycle
    for number in range(len(patterns)):
        outside = _between(graph, owner, number)
        if outside is not None:
            return forbid("A pattern is not convex.", pattern=number, through=outside.name)
    return forbid("The contracted graph has a cycle.")


def _is_of_loop(graph: Graph, op: Op, members: Sequence[Op]) -> bool:
    """Whether `op` is the only loop among `members`, its operand, or an element of its result."""
    loops = [member for member in members if member.opcode == "while"]
    if len(loops) != 1:
        return False
    [loop] = loops
    if op.opcode == "get-tuple-element":
        return op.operands[0] is loop
    return op is loop or (op is loop.operands[0] and graph.users[op.id] == (loop,))


def _is_part(op: Op, bits: int) -> bool:
    """Whether `op` is one of the results of a reduction, scan or factorization among `bits`."""
    if op.opcode != "get-tuple-element" or op.operands[0].opcode not in GIVE_PARTS:
        return False
    return bool(bits >> op.operands[0].id & 1)


def verify_plan(graph: Graph, patterns: Sequence[Pattern], scores: Sequence[float]) -> None:
    """Raises VerifyError if `check_plan` forbids."""
    verdict = check_plan(graph, patterns, scores)
    if not verdict:
        raise VerifyError(f"The plan of {graph.name} is not legal: {verdict}. Please report this.")


def check_times(plan: Plan) -> Verdict:
    """Whether the times of a plan add up, XLA's and ours: a whole takes at least as long as its
    parts, and what the patterns leave to XLA takes equally long on both sides."""
    left = []
    for whole, parts in (
        (plan.xla_us, [one.spared_us for one in plan.chosen]),
        (plan.modelled_us, [one.modelled_us for one in plan.chosen]),
    ):
        if not all(map(math.isfinite, (whole, *parts))):
            return forbid("A time is no number.", whole=whole)
        left.append(whole - math.fsum(parts))
        if left[-1] < -_ROUNDING * sum(map(abs, parts)):
            return forbid("A plan is modelled to take less than its parts.", us=whole)
    if abs(left[0] - left[1]) > _ROUNDING * max(plan.xla_us, plan.modelled_us):
        return forbid("What is left to XLA differs between both sides.", xla=left[0], ours=left[1])
    return allow()


def verify_times(plan: Plan) -> None:
    """Raises VerifyError if `check_times` forbids."""
    verdict = check_times(plan)
    if not verdict:
        raise VerifyError(
            f"The times of the plan of {plan.graph.name} do not add up: {verdict}. "
            "Please report this."
        )


def _needs(graph: Graph) -> dict[int, list[int]]:
    """op id -> ids of its operands and control predecessors."""
    by_origin = {op.origin: op.id for op in graph if op.origin is not None}
    return {
        op.id: [o.id for o in op.operands]
        + [by_origin[c] for c in op.control if c in by_origin and by_origin[c] != op.id]
        for op in graph
    }


def _between(graph: Graph, owner: dict[int, int], number: int) -> Op | None:
    """An op outside pattern `number` that both depends on it and is needed by it."""
    needs = _needs(graph)
    below: set[int] = set()  # outside, depends on the pattern
    for op in graph:
        before = needs[op.id]
        if owner.get(op.id) == number:
            for i in before:
                if i in below:
                    return graph.ops[i]
        elif any(i in below or owner.get(i) == number for i in before):
            below.add(op.id)
    return None


def _acyclic(graph: Graph, owner: dict[int, int]) -> bool:
    def node(i: int) -> tuple[str, int]:
        return ("pattern", owner[i]) if i in owner else ("op", i)

    needs: dict[tuple[str, int], set[tuple[str, int]]] = {}
    for i, before in _needs(graph).items():
        needs.setdefault(node(i), set()).update(node(b) for b in before if node(b) != node(i))
    users: dict[tuple[str, int], list[tuple[str, int]]] = {n: [] for n in needs}
    for n, before_nodes in needs.items():
        for b in before_nodes:
            users[b].append(n)
    missing = {n: len(before_nodes) for n, before_nodes in needs.items()}
    ready = [n for n, count in missing.items() if count == 0]
    done = 0
    while ready:
        n = ready.pop()
        done += 1
        for user in users[n]:
            missing[user] -= 1
            if missing[user] == 0:
                ready.append(user)
    return done == len(needs)
