"""What became of each op of a program: in which kernel it is, or why in none, and what it costs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusionstitch.compiler.stitched import Stitch, Stitched
from fusionstitch.costmodel.unrolled import noted
from fusionstitch.costmodel.xla_fusions import xla_fusions
from fusionstitch.costmodel.xla_truth import MODELLED, SCALED
from fusionstitch.hlo.brief import brief
from fusionstitch.hlo.frames import Frame
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Graph, Op, ids
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.plan.plan import Chosen, Plan, Rejected
from fusionstitch.reports import called
from fusionstitch.reports.counting import fusable

SIMPLIFIED = "It was simplified away: what it computes is computed otherwise, or nobody reads it."
FREE = "It costs nothing: whoever reads it computes it for itself."
STRUCTURE = "It computes nothing."
CONTROL = "It runs other ops, which are looked at one by one."
ALONE = "No candidate pattern holds it."


@dataclass(frozen=True)
class Candidate:
    """A candidate pattern that would have held an op and was turned down, with the reason."""

    rule: str
    ops: int
    reason: str
    facts: Mapping[str, object]


@dataclass(frozen=True)
class XlaKernel:
    """The kernel that XLA is estimated to make of an op that is left to it: how many ops it has
    and the microseconds of one run, "modelled" or "scaled" to what the program took."""

    ops: int
    us: float
    source: str = MODELLED


@dataclass(frozen=True)
class Answer:
    """What became of one op.

    `name`, `opcode`, `shape` and `graph` are those of the HLO, `scope` is JAX's name with its
    scopes, `frames` the user's lines that called it, innermost first, `functions` the names of
    those it was called through, JAX's and libraries' among them. `kernels` are those that compute
    it: more than one where each reader computes it for itself. Without one, `reason` says why, and
    `xla` what XLA is estimated to make of it. `candidates` are patterns that would have held it,
    the most promising first. `equal` names the op that stands for it: one that the simplifier
    found to be equal, or its first copy where its loop was unrolled.
    """

    name: str
    opcode: str
    shape: str
    graph: str
    scope: str
    frames: tuple[Frame, ...]
    functions: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    reason: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    xla: XlaKernel | None = None
    equal: str = ""

    def __repr__(self) -> str:
        where = f"in {self.kernels[0]}" if self.kernels else f"in no kernel. {self.reason}"
        return brief(f"Answer: {self.name} of {self.graph} {where}")

    @property
    def lines(self) -> tuple[str, ...]:
        """The user's lines as "file:line"."""
        return tuple(dict.fromkeys(f"{frame.file}:{frame.line}" for frame in self.frames))


#: Ops that run graphs.
_RUN = ("while", "conditional", "call")
#: What an op is, whatever became of it.
_OWN = ("name", "opcode", "shape", "graph", "scope", "frames", "functions")


@dataclass(frozen=True, eq=False)
class _Asked:
    """An op with its plan, or without one: then the `kernel` of the loop that it is in, or why it
    is in none."""

    op: Op
    graph: Graph
    plan: Plan | None = None
    kernel: str = ""
    why: str = SIMPLIFIED
    #: who stands for it
    equal: _Asked | None = None


class Answers:
    """The ops of a stitched program, and what became of each."""

    def __init__(self, stitched: Stitched):
        self.stitched = stitched
        self.given, self._called = called.read(stitched.given)
        self._stitch = {id(one.chosen): one for one in stitched.stitches}
        self._told: dict[int, _Told] = {}
        self.asked = tuple(self._all())

    def __iter__(self) -> Iterator[Answer]:
        return map(self.answer, self.asked)

    def answer(self, asked: _Asked) -> Answer:
        """What became of an op."""
        named = self.named(asked)
        if self.whole:
            return replace(named, reason=self.whole)
        if asked.equal is not None:
            other = self.answer(asked.equal)
            own = {name: getattr(named, name) for name in _OWN}
            return replace(other, **own, equal=other.name)
        if asked.plan is not None:
            return self._of_plan(asked.plan).answer(asked.op, named)
        if asked.kernel:
            return replace(named, kernels=(asked.kernel,))
        return replace(named, reason=asked.why)

    def named(self, asked: _Asked) -> Answer:
        """An op without what became of it."""
        op, place = asked.op, _written(asked)
        frames, functions = self._called.get(place, called.Called())
        if not frames and op.source.file:
            frames = (Frame(op.source.file, "", op.source.line),)
        scope = op.source.op_name
        return Answer(
            op.name or op.opcode,
            op.opcode,
            str(op.shape),
            asked.graph.name,
            scope,
            frames,
            functions,
        )

    @property
    def whole(self) -> str:
        """Why the whole program was left to XLA, "" where it was not."""
        found = (one.reason for one in self.stitched.fallbacks if not one.ops)
        return " ".join(dict.fromkeys(found))

    def _of_plan(self, plan: Plan) -> _Told:
        if id(plan) not in self._told:
            self._told[id(plan)] = _Told(plan, self.stitched, self._stitch)
        return self._told[id(plan)]

    def _all(self) -> Iterator[_Asked]:
        """The ops of the plans, then those of the given program that none of them stands for."""
        stood: dict[called.Place, _Asked] = {}
        copied: dict[called.Place, _Asked] = {}
        aliases: dict[int | None, Mapping[int, int]] = {}
        for asked in self._planned():
            stood[asked.graph.proto_id, asked.op.origin] = asked
            copied.setdefault(_written(asked), asked)
            aliases[asked.graph.proto_id] = asked.graph.aliases
            yield asked
        for graph in self.given.stitchable if self.given else ():
            equal = aliases.get(graph.proto_id, {})
            for op in graph:
                place = graph.proto_id, op.origin
                if place not in stood:
                    other = equal.get(op.origin) if op.origin is not None else None
                    stands = copied.get(place) or stood.get((graph.proto_id, other))
                    yield _Asked(op, graph, equal=stands)

    def _planned(self) -> Iterator[_Asked]:
        """The ops of the plans, and those of the loops in them that are one kernel."""
        for plan in self.stitched.plans:
            for op in plan.graph:
                yield _Asked(op, plan.graph, plan)
            for chosen in plan.chosen:
                one = self._stitch.get(id(chosen))
                kernel = one.kernel.name if one else ""
                why = self._of_plan(plan).left_out(chosen)
                for graph in _inside(chosen.pattern.ops):
                    for op in graph:
                        yield _Asked(op, graph, kernel=kernel, why=why)


def _written(asked: _Asked) -> called.Place:
    """Where an op stands in the given program: one of a loop that was unrolled is in its body."""
    graph, origin = asked.graph, asked.op.origin
    if origin is not None:
        for loop in noted(graph):
            if origin in loop.copies:
                return loop.copies[origin]
    return graph.proto_id, origin


class _Told:
    """What one plan tells of its ops."""

    def __init__(self, plan: Plan, stitched: Stitched, stitches: Mapping[int, Stitch]):
        self.plan, self.device, self.truth = plan, stitched.device, stitched.truth
        self.free = free_bits(plan.graph)
        self.holders: dict[int, list[Chosen]] = {}
        for chosen in plan.chosen:
            for op in chosen.pattern.ops:
                self.holders.setdefault(op.id, []).append(chosen)
        self.stitches = stitches
        self.left = {one.ops: one.reason for one in stitched.fallbacks}

    @functools.cached_property
    def rejected(self) -> dict[int, list[Rejected]]:
        """By op the candidates that were turned down."""
        found: dict[int, list[Rejected]] = {}
        for one in self.plan.rejected:
            for i in ids(one.bits):
                found.setdefault(i, []).append(one)
        return found

    @functools.cached_property
    def xla(self) -> dict[int, XlaKernel]:
        """By op the kernel of XLA's that the plan leaves it to."""
        works, fused = fusable(self.plan.graph, self.device, self.truth)
        covered = 0
        for chosen in self.plan.chosen:
            covered |= chosen.pattern.bits if id(chosen) in self.stitches else 0
        source = MODELLED if works.scale is None else SCALED
        found: dict[int, XlaKernel] = {}
        for kernel in xla_fusions(works, fused & ~covered).kernels:
            members = list(ids(kernel.bits))
            found |= dict.fromkeys(members, XlaKernel(len(members), kernel.us, source))
        return found

    def left_out(self, chosen: Chosen) -> str:
        """Why a chosen pattern went to XLA, "" for one that did not."""
        return self.left.get(tuple(op.name for op in chosen.pattern.ops), "")

    def answer(self, op: Op, named: Answer) -> Answer:
        """`named` with what became of it."""
        holders = self.holders.get(op.id, ())
        kernels = [
            self.stitches[id(one)].kernel.name for one in holders if id(one) in self.stitches
        ]
        if kernels:
            return replace(named, kernels=tuple(dict.fromkeys(kernels)))
        for one in holders:
            if why := self.left_out(one):
                return replace(named, reason=why, xla=self.xla.get(op.id))
        if self.free >> op.id & 1:
            return replace(named, reason=FREE)
        turned_down = sorted(self.rejected.get(op.id, ()), key=promise, reverse=True)
        # what is said of a loop says more than that XLA keeps `while` for itself
        refused = [one for rule in ("loop", "op") for one in turned_down if one.rule == rule]
        if not turned_down:
            return replace(named, reason=_untried(op), xla=self.xla.get(op.id))
        first = (refused or turned_down)[0]
        return replace(
            named,
            reason=first.reason,
            facts=dict(first.facts),
            candidates=tuple(map(_candidate, turned_down)) if not refused else (),
            xla=self.xla.get(op.id),
        )


def _untried(op: Op) -> str:
    if op.opcode in _RUN:
        return CONTROL
    return STRUCTURE if kind_of(op.opcode) is Kind.STRUCTURE else ALONE


def _candidate(one: Rejected) -> Candidate:
    return Candidate(one.rule, one.bits.bit_count(), one.reason, dict(one.facts))


def promise(one: Rejected) -> float:
    """What a candidate would have won by the last that was found out about it, microseconds."""
    facts = dict(one.facts)
    for won, against in (
        ("score_us", None),
        ("measured_xla_us", "measured_us"),
        ("xla_us", "modelled_us"),
        ("bound_us", None),
    ):
        if isinstance(value := facts.get(won), float):
            less = facts.get(against) if against else 0.0
            return value - (less if isinstance(less, float) else 0.0)
    return float("-inf")


def _inside(ops: Sequence[Op]) -> Iterator[Graph]:
    """The graphs that the loops among `ops` run."""
    stack = [graph for op in ops if op.opcode == "while" for graph in op.called]
    done: set[int] = set()
    while stack:
        graph = stack.pop()
        if id(graph) not in done:
            done.add(id(graph))
            yield graph
            stack += [g for op in graph if op.opcode in _RUN for g in op.called]
