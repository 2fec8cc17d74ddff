"""Running reductions: what can be summed while a maximum that the terms depend on still grows.

Seen while a row is walked block by block, the maximum m of a row is a running one. A value is of a

    degree 0     if it does not depend on m                           x, k[j], mask[i, j]
    shift  c     if it is free + c * m                                x - m         (c = -1)
    scale  c     if it is free * exp(c * m)                           exp(x - m)    (c = -1)

and sums, dots, and extrema are homogeneous: those of terms of scale c have scale c. So when m
grows, all that was summed up so far is multiplied by exp(c * (m_new - m_old)), and the sum at the
end is the one with the final maximum in every term. `m` may be any value of the row that extrema
determine: rows of a mask may use select(is-finite(m), m, 0). The rules below say how each op
changes a degree; an op without a rule makes whatever depends on m wait for the end of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.index_maps.index import Var
from fusionstitch.codegen.index_maps.maps import Indices
from fusionstitch.codegen.loops.stages import body_reads, inlined_reads
from fusionstitch.hlo.deciding import EXTREMA
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.rewrite import splat
from fusionstitch.hlo.semantics import Kind, kind_of

#: A value of a row, and where it is read.
Key = tuple[Op, Indices]
#: The exponential of this or less is zero in f32.
VANISHING = -104.0
#: Reductions that are homogeneous under positive factors.
HOMOGENEOUS = EXTREMA | {"add"}


@dataclass(frozen=True)
class Degree:
    """How a value depends on values of its row that still change: not at all, or `kind` "shift" or
    "scale" by the coefficients `by`. A `constant` is what a free value is everywhere."""

    kind: str = "free"
    by: tuple[tuple[Key, float], ...] = ()
    constant: float | None = None

    @property
    def vanishes(self) -> bool:
        """Whether it is zero, and so of any scale."""
        return self.kind == "free" and self.constant == 0

    @property
    def exponential_vanishes(self) -> bool:
        """Whether its exponential is zero, so that it is of any shift."""
        return self.kind == "free" and self.constant is not None and self.constant <= VANISHING


FREE = Degree()


@dataclass(frozen=True)
class Running:
    """The state of a row's reductions while it is walked: the ids of the `extrema` that still
    change, of reductions that are known only after the row (`late`), and of all else that is read
    as a whole (`whole`)."""

    extrema: frozenset[int]
    late: frozenset[int]
    whole: frozenset[int]


def degree(op: Op, dims: Indices, inner: Indices, running: Running) -> Degree | None:
    """The degree of what a reduction or dot `op` sums up at index `dims` along the columns `inner`,
    or of the elements of `op`. None if it must wait for the end of the row. Elements that are
    relative to an extremum must: they are stored once."""
    columns = frozenset[Var]().union(*(i.variables for i in inner))
    walk = _Walk(running, columns, {})
    degrees = walk.degrees(body_reads(op, dims, inner))
    if degrees is None:
        return None
    total = _product(degrees) if op.opcode == "dot" else degrees[0]
    if total is None or total.kind == "free":
        return total
    reducer = "add" if op.opcode == "dot" else op.attrs.get("reducer")
    return total if total.kind == "scale" and reducer in HOMOGENEOUS else None


@dataclass(frozen=True)
class _Walk:
    running: Running
    columns: frozenset[Var]
    known: dict[Key, Degree | None]

    def degrees(self, values: Sequence[Key]) -> list[Degree] | None:
        """The degrees of several values; None if one has none."""
        stack = list(values)
        while stack:
            op, at = stack[-1]
            if (op, at) not in self.known:
                inner = [] if self._is_given(op) else inlined_reads(op, at)
                if waiting := [key for key in inner if key not in self.known]:
                    stack += waiting
                    continue
                self.known[op, at] = self._degree(op, at)
            stack.pop()
        found = [self.known[key] for key in values]
        degrees = [one for one in found if one is not None]
        return degrees if len(degrees) == len(found) else None

    def _is_given(self, op: Op) -> bool:
        """Whether the degree of an op does not follow from those of its operands."""
        running = self.running
        return op.opcode in ("parameter", "constant") or op.id in (
            running.extrema | running.late | running.whole
        )

    def _degree(self, op: Op, at: Indices) -> Degree | None:
        varies = any(self.columns & i.variables for i in at)
        if op.id in self.running.extrema:
            return None if varies else Degree("shift", (((op, at), 1.0),))
        if op.id in self.running.late:
            return None
        if op.opcode == "parameter" or op.id in self.running.whole:
            return FREE
        if op.opcode == "constant":
            value = splat(op)
            return FREE if value is None else Degree(constant=float(value))
        degrees = self.degrees(inlined_reads(op, at))
        if degrees is None:
            return None
        if kind_of(op.opcode) is Kind.MOVEMENT and len(degrees) == 1:
            return degrees[0]
        if all(d.kind == "free" for d in degrees):
            return FREE
        rule = RULES.get(op.opcode)
        result = rule(degrees) if rule is not None else None
        if result is None and not varies:
            return Degree("shift", (((op, at), 1.0),))  # a value of the row like an extremum itself
        return result


def _combined(degrees: Sequence[Degree], signs: Sequence[float], kind: str) -> Degree:
    by: dict[Key, float] = {}
    for degree, sign in zip(degrees, signs, strict=True):
        for key, coefficient in degree.by:
            by[key] = by.get(key, 0.0) + sign * coefficient
    left = tuple((key, c) for key, c in by.items() if c)
    return Degree(kind, left) if left else FREE


def _sum(degrees: Sequence[Degree], signs: Sequence[float] = (1.0, 1.0)) -> Degree | None:
    if all(d.kind in ("free", "shift") for d in degrees):
        return _combined(degrees, signs, "shift")
    return _alike(degrees, "scale")


def _difference(degrees: Sequence[Degree]) -> Degree | None:
    return _sum(degrees, (1.0, -1.0))


def _product(degrees: Sequence[Degree]) -> Degree | None:
    if all(d.kind in ("free", "scale") for d in degrees):
        return _combined(degrees, (1.0,) * len(degrees), "scale")
    return _scaled(*degrees) or _scaled(*reversed(degrees))


def _quotient(degrees: Sequence[Degree]) -> Degree | None:
    if all(d.kind in ("free", "scale") for d in degrees):
        return _combined(degrees, (1.0, -1.0), "scale")
    by = degrees[1]
    return _scaled(degrees[0], Degree(constant=1 / by.constant)) if by.constant else None


def _scaled(value: Degree, factor: Degree) -> Degree | None:
    """A shift times a constant."""
    if value.kind != "shift" or factor.constant is None:
        return None
    return _combined([value], [factor.constant], "shift")


def _negated(degrees: Sequence[Degree]) -> Degree | None:
    if degrees[0].kind == "scale":
        return degrees[0]
    return _combined(degrees, (-1.0,), "shift")


def _exponential(degrees: Sequence[Degree]) -> Degree | None:
    return Degree("scale", degrees[0].by) if degrees[0].kind == "shift" else None


def _same(degrees: Sequence[Degree]) -> Degree | None:
    return degrees[0]


def _selected(degrees: Sequence[Degree]) -> Degree | None:
    """One of two values of like degree. A zero is of any scale, and where the exponential will be
    zero anyway, of any shift."""
    where, *values = degrees
    if where.kind != "free":
        return None
    return _alike(values, "scale") or _alike(values, "shift")


def _alike(degrees: Sequence[Degree], kind: str) -> Degree | None:
    fits = {"scale": lambda d: d.vanishes, "shift": lambda d: d.exponential_vanishes}[kind]
    found = {d.by for d in degrees if not fits(d)}
    whole = all(d.kind == kind or fits(d) for d in degrees)
    return Degree(kind, found.pop()) if whole and len(found) == 1 else None


#: What an op makes of the degrees of its operands, at least one of which is not free; None: it must
#: wait.
RULES: Mapping[str, Callable[[Sequence[Degree]], Degree | None]] = {
    "add": _sum,
    "subtract": _difference,
    "multiply": _product,
    "divide": _quotient,
    "negate": _negated,
    "exponential": _exponential,
    "convert": _same,
    "copy": _same,
    "select": _selected,
}
