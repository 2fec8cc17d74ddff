"""Of values that one condition chooses again and again, those of one way are computed, and in a
branch those of the other.

    const float a = near ? 1.5f : 2.8f;            float r = (1.5f * (w - 2.5f) + 0.2f) ...;
    const float b = near ? 0.2f : 1.0f;            if (!near) {
    const float t = near ? w - 2.5f : sqrt(w);  ->   r = (2.8f * sqrt(w) + 1.0f) ...;
    const float r = (a * t + b) ...;               }

So lie the polynomials that functions are computed by, of which one is for most numbers: every
thread had to fetch the coefficients of both. With a branch for each, the compiler has the sums in
common again, and chooses coefficients. What takes less is computed always.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from fusionstitch.codegen.ir.exchanges import exchange_of, whom
from fusionstitch.codegen.ir.expressions import (
    Apply,
    Arithmetic,
    Choice,
    Expr,
    Infix,
    Name,
    Number,
    apply,
)
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.renaming import renamed
from fusionstitch.codegen.ir.statements import (
    Assign,
    For,
    Group,
    If,
    Let,
    Statement,
    While,
)
from fusionstitch.codegen.ir.walk import every, names
from fusionstitch.hlo.semantics import spec_of

#: Choices between constants, at least: a branch takes as long as a few of them. What is computed in
#: both ways may take as long as they do, since warps may go both: in FLOPs, of which a multiplier
#: and adder takes two, and a special function as long as so many.
LEAST, FLOPS, SPECIAL = 4, 4, 16
#: What gives the same value wherever it is computed.
_PURE = (Name, Number, Arithmetic, Choice, Infix, Apply)

Body = tuple[Statement, ...]


def part_ways(kernel: Lowered) -> Lowered:
    """The kernel with branches in place of many choices by one condition."""
    changing = {
        name for one in every(kernel.body) if isinstance(one, Assign) for name in names(one.target)
    }
    changing |= {one.name for one in every(kernel.body) if isinstance(one, Let) and one.changes}
    return replace(kernel, body=_Parter(changing).body(kernel.body))


@dataclass(frozen=True)
class _Ways:
    """Statements of a body, by their numbers: `chosen` by a condition, or made of what is, up to
    the `last`, which alone is read by others; `own` are what only one way reads."""

    condition: str
    chosen: frozenset[int]
    last: int
    own: tuple[frozenset[int], frozenset[int]]


class _Parter:
    """Edits bodies of a kernel with variables that are `changing`."""

    def __init__(self, changing: set[str]):
        self.changing = changing

    def body(self, body: Body) -> Body:
        found = tuple(map(self.inside, body))
        for condition in self.conditions(found):
            if (ways := self.ways(found, condition)) is not None:
                found = _parted(found, ways)
        return found

    def inside(self, one: Statement) -> Statement:
        if isinstance(one, If):
            others = tuple(replace(branch, body=self.body(branch.body)) for branch in one.others)
            return replace(one, body=self.body(one.body), others=others)
        if isinstance(one, (For, Group, While)):
            return replace(one, body=self.body(one.body))
        return one

    def conditions(self, body: Body) -> list[str]:
        """Those that choose between enough constants."""
        found = Counter(
            choice[0] for one in body if (choice := _chosen(one)) and _is_of_constants(one)
        )
        return [name for name, count in found.items() if count >= LEAST]

    def ways(self, body: Body, condition: str) -> _Ways | None:
        """What becomes a branch, if one value comes of it."""
        seeds = [n for n, one in enumerate(body) if _chooses(one, condition)]
        if len(seeds) < LEAST:
            return None
        read = [set(names(one)) for one in body]
        readers: dict[str, set[int]] = {}
        for number, found in enumerate(read):
            for name in found:
                readers.setdefault(name, set()).add(number)
        chosen, made = set[int](), set[str]()
        for number in range(seeds[0], len(body)):
            one = body[number]
            if number not in seeds and made.isdisjoint(read[number]):
                continue
            if not isinstance(one, Let) or not self.is_pure(one):
                return None  # it is read before all of it is one value
            chosen.add(number)
            made.add(one.name)
            if number >= seeds[-1] and all(
                n == number or max(readers.get(_name(body[n]), {0})) <= number for n in chosen
            ):
                again = sum(_work(body[n]) for n in chosen.difference(seeds))
                if again > FLOPS * sum(_is_of_constants(body[n]) for n in seeds):
                    return None
                own = (self.own(body, chosen, readers, condition, way) for way in (0, 1))
                return _Ways(condition, frozenset(chosen), number, (next(own), next(own)))
        return None

    def own(
        self,
        body: Body,
        chosen: set[int],
        readers: dict[str, set[int]],
        condition: str,
        way: int,
    ) -> frozenset[int]:
        """What is read where the condition goes one way, and nowhere else."""
        found = set[int]()
        for number in reversed(range(max(chosen))):
            one = body[number]
            if number in chosen or not isinstance(one, Let) or not self.is_pure(one):
                continue
            users = readers.get(one.name, set())
            if users and all(
                u in found or _reads_in(body[u], one.name, condition, way) for u in users
            ):
                found.add(number)
        return frozenset(found)

    def is_pure(self, one: Let) -> bool:
        if one.changes or one.kind == "auto" or not self.changing.isdisjoint(names(one)):
            return False
        return all(
            isinstance(part, _PURE)
            and not (
                isinstance(part, Apply) and (whom(part.function) or exchange_of(part.function))
            )
            for part in every([one.value])
        )


def _chosen(one: Statement) -> tuple[str, tuple[Expr, Expr]] | None:
    """The variable that chooses a value, and what it chooses between."""
    if not isinstance(one, Let) or not isinstance(one.value, Arithmetic) or one.changes:
        return None
    match one.value.op.opcode, one.value.arguments:
        case "select", (Name(condition), yes, no):
            return condition, (yes, no)
    return None


def _is_of_constants(one: Statement) -> bool:
    found = _chosen(one)
    return found is not None and all(isinstance(value, Number) for value in found[1])


def _work(one: Statement) -> int:
    """FLOPs of a value, about."""
    ops = [part.op for part in every([one]) if isinstance(part, Arithmetic)]
    specs = [spec_of(op.opcode) for op in ops]
    return max(1, sum(spec.flops + SPECIAL * spec.special for spec in specs))


def _chooses(one: Statement, condition: str) -> bool:
    found = _chosen(one)
    return found is not None and found[0] == condition


def _reads_in(one: Statement, name: str, condition: str, way: int) -> bool:
    """Whether a statement reads a variable only where the condition goes one way."""
    found = _chosen(one)
    if found is None or found[0] != condition:
        return False
    return name in names(found[1][way]) and name not in names(found[1][1 - way])


def _name(one: Statement) -> str:
    assert isinstance(one, Let)
    return one.name


def _parted(body: Body, ways: _Ways) -> Body:
    last = body[ways.last]
    assert isinstance(last, Let)
    always = 0 if len(ways.own[0]) <= len(ways.own[1]) else 1
    seldom = ways.own[1 - always]
    condition: Expr = Name(ways.condition)
    branch = If(
        apply("!", condition) if always == 0 else condition, None, _side(body, ways, 1 - always)
    )
    before = [
        _taken(one, ways, always) if number in ways.chosen else one
        for number, one in enumerate(body[: ways.last])
        if number not in seldom
    ]
    first = replace(_taken(last, ways, always), changes=True)
    return (*before, first, branch, *body[ways.last + 1 :])


def _side(body: Body, ways: _Ways, way: int) -> Body:
    """What is computed where the condition goes one way, under other names."""
    numbers = sorted(ways.chosen | ways.own[way])
    found = [_taken(body[number], ways, way) for number in numbers]
    last = found.pop()
    own = {one.name: f"{one.name}_otherwise" for one in found}
    side = (*found, Assign(Name(last.name), last.value))
    return tuple(renamed(one, lambda name: own.get(name, name)) for one in side)


def _taken(one: Statement, ways: _Ways, way: int) -> Let:
    """A value where the condition goes one way."""
    assert isinstance(one, Let)
    choice = _chosen(one)
    if choice is None or choice[0] != ways.condition:
        return one
    return replace(one, value=choice[1][way])
