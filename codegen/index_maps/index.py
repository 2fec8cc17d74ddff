"""Index arithmetic: integer expressions in a canonical affine form, simplified by their ranges.

An `Index` is const + sum of coefficient * term, where a term is a loop variable, an opaque run-time
integer, or the quotient or remainder of an index by a constant. Reshapes are quotients and
remainders; ranges make most of them vanish, so two maps that agree print the same text.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionstitch.hlo.graph import Op


@dataclass(frozen=True, slots=True)
class Var:
    """An integer variable of the generated code with 0 <= value < extent."""

    name: str
    extent: int

    @property
    def lo(self) -> int:
        return 0

    @property
    def hi(self) -> int:
        return self.extent - 1

    @property
    def key(self) -> str:
        return self.name


@dataclass(frozen=True)
class Quotient:
    """base / divisor, rounded down; the value read is never negative."""

    base: Index
    divisor: int

    @functools.cached_property
    def key(self) -> str:
        return f"{self.base.key} / {self.divisor}"

    @property
    def lo(self) -> int:
        return max(0, self.base.lo // self.divisor)

    @property
    def hi(self) -> int:
        return max(0, self.base.hi // self.divisor)


@dataclass(frozen=True)
class Remainder:
    """base % divisor; the value read is never negative."""

    base: Index
    divisor: int

    @functools.cached_property
    def key(self) -> str:
        return f"{self.base.key} % {self.divisor}"

    @property
    def lo(self) -> int:
        return 0

    @property
    def hi(self) -> int:
        return min(self.divisor - 1, max(0, self.base.hi))


@dataclass(frozen=True)
class Fetched:
    """An integer the kernel computes: element `at` of `op`, moved into 0 <= value < extent.

    The emitter prints it once and from then on knows it by the `name` of its C variable.
    """

    op: Op
    at: tuple[Index, ...]
    extent: int
    name: str = ""

    @property
    def lo(self) -> int:
        return 0

    @property
    def hi(self) -> int:
        return self.extent - 1

    @functools.cached_property
    def key(self) -> str:
        return f"{self.op.id}[{', '.join(i.key for i in self.at)}] {self.extent}"

    @functools.cached_property
    def variables(self) -> frozenset[Var]:
        """What it depends on, and the variable that holds it."""
        own = {Var(self.name, self.extent)} if self.name else set()
        return frozenset(own.union(*(i.variables for i in self.at)))


Term = Var | Quotient | Remainder | Fetched


@dataclass(frozen=True)
class Index:
    """const + sum(coefficient * term); `terms` hold distinct terms in the order of their keys."""

    terms: tuple[tuple[Term, int], ...] = ()
    const: int = 0

    @functools.cached_property
    def _hash(self) -> int:
        return hash((self.terms, self.const))

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def key(self) -> str:
        """Text that orders terms: equal for equal indices."""
        return " ".join([*(f"{c} ({t.key})" for t, c in self.terms), str(self.const)])

    @functools.cached_property
    def lo(self) -> int:
        return self.const + sum(c * (t.lo if c > 0 else t.hi) for t, c in self.terms)

    @functools.cached_property
    def hi(self) -> int:
        return self.const + sum(c * (t.hi if c > 0 else t.lo) for t, c in self.terms)

    @functools.cached_property
    def is_certain(self) -> bool:
        """Whether `lo` and `hi` hold wherever it is computed: C rounds negative numbers towards
        zero, and only the conditions around a read may say that there are none."""
        for term, _ in self.terms:
            inner = term.at if isinstance(term, Fetched) else ()
            if isinstance(term, (Quotient, Remainder)):
                inner = (term.base,)
                if term.base.lo < 0:
                    return False
            if not all(index.is_certain for index in inner):
                return False
        return True

    @functools.cached_property
    def variables(self) -> frozenset[Var]:
        """The loop variables and opaque integers the expression reads."""
        found: set[Var] = set()
        for term, _ in self.terms:
            if isinstance(term, Var):
                found.add(term)
            elif isinstance(term, Fetched):
                found |= term.variables
            else:
                found |= term.base.variables
        return frozenset(found)

    @functools.cached_property
    def fetched(self) -> tuple[Fetched, ...]:
        """The integers the kernel has to compute to know the index."""
        found: dict[Fetched, None] = {}
        for term, _ in self.terms:
            if isinstance(term, Fetched):
                found[term] = None
            elif not isinstance(term, Var):
                found.update(dict.fromkeys(term.base.fetched))
        return tuple(found)

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other) if other else self
        if not other.terms:
            return self + other.const
        if not self.terms:
            return other + self.const
        return _sum((*self.terms, *other.terms), self.const + other.const)

    def __sub__(self, other: Index | int) -> Index:
        return self + (other * -1 if isinstance(other, Index) else -other)

    def __mul__(self, factor: int) -> Index:
        if factor == 1:
            return self
        if factor == 0:
            return Index()
        return Index(tuple((t, c * factor) for t, c in self.terms), self.const * factor)

    def __floordiv__(self, divisor: int) -> Index:
        return _divide(self, divisor)[0]

    def __mod__(self, divisor: int) -> Index:
        return _divide(self, divisor)[1]

    def __str__(self) -> str:
        return render(self)


def constant(value: int) -> Index:
    """The index that is always `value`."""
    return Index((), value)


@functools.lru_cache(maxsize=1 << 12)
def variable(name: str, extent: int) -> Index:
    """A variable of that name; one of extent 1 is the constant 0."""
    return Index(((Var(name, extent), 1),)) if extent != 1 else Index()


def fetched(op: Op, at: tuple[Index, ...], extent: int) -> Index:
    """Element `at` of an integer op, moved into [0, extent)."""
    return Index(((Fetched(op, at, extent), 1),)) if extent != 1 else Index()


ZERO = Index()


def _sum(terms: Iterable[tuple[Term, int]], const: int) -> Index:
    """Collects equal terms and joins digits that belong together:
    d * (x / d) + x % d = x, and d * (x / d % m) + x % d = x % (d m)."""
    total: dict[Term, int] = {}
    for term, coefficient in terms:
        total[term] = total.get(term, 0) + coefficient
    rest = dict(sorted(((t, c) for t, c in total.items() if c), key=lambda tc: tc[0].key))
    for low, coefficient in rest.items():
        if not isinstance(low, Remainder):
            continue
        quotient = low.base // low.divisor
        for high, factor in rest.items():
            if factor != coefficient * low.divisor:
                continue
            if isinstance(high, Remainder) and high.base == quotient:
                whole = low.base % (low.divisor * high.divisor)
            elif quotient == Index(((high, 1),)):
                whole = low.base
            else:
                continue
            others = [(t, c) for t, c in rest.items() if t != low and t != high]
            joined = whole * coefficient
            return _sum((*others, *joined.terms), const + joined.const)
    return Index(tuple(rest.items()), const)


@functools.lru_cache(maxsize=65536)
def _divide(x: Index, d: int) -> tuple[Index, Index]:
    """(x // d, x % d) for an x whose value is never negative where it is used."""
    if d == 1:
        return x, ZERO
    if x.lo >= 0 and x.hi < d:
        return ZERO, x
    whole = tuple((t, c // d) for t, c in x.terms if c % d == 0)
    part = Index(tuple((t, c) for t, c in x.terms if c % d), x.const % d)
    if part.lo < 0:  # a negative remainder would need floor division; C truncates
        return _quotient(x, d), Index(((Remainder(x, d), 1),))
    quotient = Index(whole, x.const // d)
    if part.hi < d:
        return quotient, part
    for unit in sorted({math.gcd(c, d) for _, c in part.terms} - {1}, reverse=True):
        low = Index(tuple((t, c) for t, c in part.terms if c % unit), part.const % unit)
        if low.lo >= 0 and low.hi < unit:  # (8 i + j) / 24 = i / 3 where j < 8
            high = tuple((t, c // unit) for t, c in part.terms if c % unit == 0)
            q, r = _divide(Index(high, part.const // unit), d // unit)
            return quotient + q, r * unit + low
    return quotient + _quotient(part, d), _remainder(part, d)


def _quotient(x: Index, d: int) -> Index:
    if len(x.terms) == 1 and x.terms[0][1] == 1 and not x.const:
        term = x.terms[0][0]
        if isinstance(term, Quotient):
            return Index(((Quotient(term.base, term.divisor * d), 1),))
        if isinstance(term, Remainder) and term.divisor % d == 0:  # (x % 56) / 7 = (x / 7) % 8
            return term.base // d % (term.divisor // d)
    return Index(((Quotient(x, d), 1),))


def _remainder(x: Index, d: int) -> Index:
    if len(x.terms) == 1 and x.terms[0][1] == 1 and not x.const:
        term = x.terms[0][0]
        if isinstance(term, Remainder) and term.divisor % d == 0:
            return term.base % d
    return Index(((Remainder(x, d), 1),))


def divisions(index: Index) -> int:
    """How many quotients and remainders it takes, one in another counted as well."""
    inner = [t.base for t, _ in index.terms if isinstance(t, Quotient | Remainder)]
    return len(inner) + sum(map(divisions, inner))


def linearize(indices: Sequence[Index], dims: Sequence[int]) -> Index:
    """The row-major position of `indices` in an array of `dims`."""
    return _linear(tuple(indices), tuple(dims))


@functools.lru_cache(maxsize=1 << 14)
def _linear(indices: tuple[Index, ...], dims: tuple[int, ...]) -> Index:
    terms: list[tuple[Term, int]] = []
    const, stride = 0, 1
    for index, dim in zip(reversed(indices), reversed(dims), strict=True):
        terms = [(t, c * stride) for t, c in index.terms] + terms
        const += index.const * stride
        stride *= dim
    return _sum(terms, const)


def delinearize(position: Index, dims: Sequence[int]) -> tuple[Index, ...]:
    """The inverse of `linearize`; the leading digit is not reduced modulo its dim when in range."""
    digits: list[Index] = []
    for dim in reversed(dims):
        if dim == 1:
            digits.append(ZERO)
            continue
        position, digit = _divide(position, dim)
        digits.append(digit)
    return tuple(reversed(digits))


def replaced(index: Index, new: Callable[[Fetched], Fetched]) -> Index:
    """`index` with each fetched integer replaced."""
    if not index.fetched:
        return index
    return _mapped(index, lambda term: new(term) if isinstance(term, Fetched) else term)


def substituted(index: Index, values: Mapping[Var, Index]) -> Index:
    """`index` where variables have these values, also inside of indices that the data decides."""
    if not values.keys() & index.variables:
        return index

    def new(term: Var | Fetched) -> Var | Fetched | Index:
        if isinstance(term, Var):
            return values.get(term, term)
        return replace(term, at=tuple(substituted(i, values) for i in term.at))

    return _mapped(index, new)


def renamed(index: Index, names: Mapping[str, str]) -> Index:
    """`index` in variables of other names, and otherwise as it was written."""

    def new(term: Term) -> Term:
        if isinstance(term, Var):
            return Var(names.get(term.name, term.name), term.extent)
        if isinstance(term, Fetched):
            at, name = tuple(renamed(i, names) for i in term.at), names.get(term.name, term.name)
            return replace(term, at=at, name=name)
        return replace(term, base=renamed(term.base, names))

    terms = [(new(term), coefficient) for term, coefficient in index.terms]
    return Index(tuple(sorted(terms, key=lambda tc: tc[0].key)), index.const)


def bounded_variables(index: Index, limit: int) -> dict[Var, Index]:
    """The variables of which fewer values are possible where `index` is less than `limit`."""
    found: dict[Var, Index] = {}
    for term, coefficient in index.terms:
        if isinstance(term, Var) and coefficient > 0:
            extent = max(1, (limit - 1 - index.lo) // coefficient + 1)
            if extent < term.extent:
                found[term] = variable(term.name, extent)
    return found


def narrowed(index: Index, bounds: Mapping[Var, Index]) -> Index:
    """`index` with the variables of `bounds` replaced, and what that simplifies."""
    if not bounds.keys() & index.variables:
        return index
    return _mapped(index, lambda term: bounds.get(term, term) if isinstance(term, Var) else term)


def _mapped(index: Index, new: Callable[[Var | Fetched], Var | Fetched | Index]) -> Index:
    result = constant(index.const)
    for term, coefficient in index.terms:
        if isinstance(term, Quotient):
            part = _mapped(term.base, new) // term.divisor
        elif isinstance(term, Remainder):
            part = _mapped(term.base, new) % term.divisor
        else:
            found = new(term)
            part = found if isinstance(found, Index) else Index(((found, 1),))
        result += part * coefficient
    return result


#: Numbers of the hardware, which have no sign: what is made of them is not below nothing.
UNSIGNED = ("blockIdx.x", "threadIdx.x")


def render(index: Index) -> str:
    """C text of an index, large strides first."""
    return "".join(map(str, text_parts(index)))


def text_parts(index: Index) -> list[str | int]:
    """The C text of an index part by part: its constants are integers."""
    found: list[str | int] = []
    signed = index.lo < 0
    for term, coefficient in sorted(index.terms, key=lambda tc: -abs(tc[1])):
        negative = coefficient < 0
        found.append((" - " if negative else " + ") if found else ("-" if negative else ""))
        if signed and _has_no_sign(term):
            own = _term_pieces(term)
            found += ["int", *own] if own[0] == "(" else ["int(", *own, ")"]
        else:
            found += _term_pieces(term)
        if abs(coefficient) != 1:
            found += [" * ", abs(coefficient)]
    if not found:
        return ["-", -index.const] if index.const < 0 else [index.const]
    if index.const:
        found += [" - " if index.const < 0 else " + ", abs(index.const)]
    return found


def _has_no_sign(term: Term) -> bool:
    """Whether the C text of a term is made of numbers of the hardware, as they are."""
    if isinstance(term, (Var, Fetched)):
        return isinstance(term, Var) and term.name in UNSIGNED
    return term.base.lo >= 0 and any(_has_no_sign(inner) for inner, _ in term.base.terms)


def _term_pieces(term: Term) -> list[str | int]:
    if isinstance(term, (Var, Fetched)):
        return [term.name]
    base = text_parts(term.base)
    if len(term.base.terms) > 1 or term.base.const or term.base.terms[0][1] != 1:
        base = ["(", *base, ")"]
    return ["(", *base, " / " if isinstance(term, Quotient) else " % ", term.divisor, ")"]
