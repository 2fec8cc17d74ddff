"""Terms of a sum that do the same to other buffers, as a loop over the buffers.

    sum += x_1[i + 7] * w[7];     const float* x_terms[4] = {x_1, x_2, x_3, x_4};
    sum += x_2[i + 9] * w[7];     const int at_0_terms[4] = {7, 9, 9, 8};
    sum += x_3[i + 9] * w[7];     for (term = 0; term < 4; ++term)
    sum += x_4[i + 8] * w[7];       sum += x_terms[term][i + at_0_terms[term]] * w[7];

The gradient of a weight that an unrolled loop uses is a sum of as many dots as it has steps.
Written out, they would take minutes to compile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from fusionstitch.codegen.ir.addresses import readdressed
from fusionstitch.codegen.ir.expressions import Element, Name, Number
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.renaming import renamed
from fusionstitch.codegen.ir.statements import (
    Body,
    Function,
    Group,
    Let,
    Shared,
    Statement,
    Table,
    unrolled,
)
from fusionstitch.codegen.ir.types import PointerTo, Raw, Record, Scalar, Type, index_type
from fusionstitch.codegen.ir.walk import declared, statements, with_bodies

#: Terms from which on a loop stands for them.
FEWEST = 4

Elements = Mapping[str, Scalar | Record]


def roll_terms(kernel: Lowered, names: Names) -> Lowered:
    """The kernel with a loop for each stretch of terms that differ in buffers, and in constants
    inside of addresses, alone."""
    if not any(_is_term(one) for body in kernel.bodies for one in statements(body)):
        return kernel
    functions = tuple(map(_rolled_function, kernel.functions))
    types = {buffer.name: buffer.type for buffer in kernel.buffers}
    body = _rolled(kernel.body, types | _pointers(kernel.body), names.new)
    return replace(kernel, functions=functions, body=body)


def _rolled_function(function: Function) -> Function:
    own = [name for _, name in function.parameters]
    own += [name for one in statements(function.body) for name in declared(one)]
    given = {name: kind for kind, name in function.parameters}
    types = _elements(given) | _pointers(function.body)
    return replace(function, body=_rolled(function.body, types, Names(own).new))


def _pointers(body: Body) -> dict[str, Scalar | Record]:
    """The types of the elements of buffers that statements declare, but for those that a term
    chooses for itself: nothing else reads them."""
    kinds: dict[str, Type] = {}
    terms = filter(_is_term, statements(body))
    own = {name for one in statements(terms) for name in declared(one)}
    for one in statements(body):
        if isinstance(one, Shared):
            kinds[one.name] = PointerTo(one.type)
        elif isinstance(one, Let):
            kinds[one.name] = one.type
    return _elements({name: kind for name, kind in kinds.items() if name not in own})


def _elements(kinds: Mapping[str, Type]) -> dict[str, Scalar | Record]:
    return {
        name: kind.element
        for name, kind in kinds.items()
        if isinstance(kind, PointerTo) and not isinstance(kind.element, Raw)
    }


def _is_term(one: Statement) -> bool:
    return isinstance(one, Group) and one.term


def _rolled(body: Body, types: Elements, named: Callable[[str], str]) -> Body:
    found: list[Statement] = []
    for term, some in groupby(body, _is_term):
        if term:
            bodies = [one for one in some if isinstance(one, Group)]
            for first, end, repeat in repeats(bodies, types):
                alone = bodies[first:end]
                found += alone if repeat is None else _loop(repeat, types, end - first, named)
        else:
            found += (with_bodies(one, lambda own: _rolled(own, types, named)) for one in some)
    return tuple(found)


def _loop(
    repeat: Repeat, types: Elements, count: int, named: Callable[[str], str]
) -> Iterator[Statement]:
    """The loop over the buffers of terms that repeat, after the tables of these."""
    term = named("term")
    kinds: dict[str, Type] = {
        name: PointerTo(types[name], constant=True) for name in repeat.buffers
    }
    kinds |= {name: index_type(map(int, values)) for name, values in repeat.constants.items()}
    inside: list[Statement] = []
    for name, values in (*repeat.buffers.items(), *repeat.constants.items()):
        table, kind = named(f"{name}_terms"), kinds[name]
        spelt: type[Name | Number] = Name if name in repeat.buffers else Number
        yield Table(kind, table, tuple(map(spelt, values)))
        inside.append(Let(kind, name, Element(Name(table), Name(term))))
    frame = replace(unrolled(term, count), unroll=2)
    yield replace(frame, body=(*inside, replace(repeat.body, term=False)))


@dataclass(frozen=True)
class Repeat:
    """Statements for several sets of buffers, with names for the constants in addresses that
    differ: by name, what stands for it in each repetition."""

    body: Group
    buffers: Mapping[str, Sequence[str]]
    constants: Mapping[str, Sequence[str]]


@dataclass(eq=False)
class _Read:
    """A body: its names and the constants of its addresses in the order of the program, and the
    same without them."""

    body: Group
    names: list[str] = field(default_factory=list)
    constants: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        bare = renamed(readdressed(self.body, self._constant), self._name)
        self.frame = bare

    def _name(self, name: str) -> str:
        self.names.append(name)
        return "name"

    def _constant(self, constant: str) -> str:
        self.constants.append(constant)
        return "0"


def repeat_of(bodies: Sequence[Group], types: Mapping[str, Type]) -> Repeat | None:
    """`bodies` as one, if they differ only in buffers, constants inside addresses and names of
    their own. `types` holds the types of all buffers."""
    return _joined(list(map(_Read, bodies)), types)


def repeats(
    bodies: Sequence[Group], types: Mapping[str, Type]
) -> Iterator[tuple[int, int, Repeat | None]]:
    """The longest stretches (first, end) of neighbouring bodies that `repeat_of` makes one of, and
    that one where they are enough."""
    read = list(map(_Read, bodies))
    first = 0
    while first < len(read):
        end = first + 1
        while end < len(read) and _names((read[first], read[end]), types) is not None:
            end += 1
        yield first, end, _joined(read[first:end], types) if end - first >= FEWEST else None
        first = end


def _joined(read: Sequence[_Read], types: Mapping[str, Type]) -> Repeat | None:
    stands = _names(read, types)
    if stands is None:
        return None
    parameters: dict[tuple[str, ...], str] = {}
    spelt = []
    for constants in zip(*(one.constants for one in read), strict=True):
        if len(set(constants)) == 1:
            spelt.append(constants[0])
        else:
            spelt.append(parameters.setdefault(constants, f"at_{len(parameters)}"))
    words = iter(spelt)
    body = readdressed(read[0].body, lambda _: next(words))
    buffers = {b: names for b, names in stands.items() if b in types and len(set(names)) > 1}
    return Repeat(body, buffers, {name: column for column, name in parameters.items()})


def _names(read: Sequence[_Read], types: Mapping[str, Type]) -> dict[str, tuple[str, ...]] | None:
    """By name of the first body, what stands for it in each; None where they differ in more."""
    if len({one.frame for one in read}) > 1:
        return None
    stands: dict[str, tuple[str, ...]] = {}
    for names in zip(*(one.names for one in read), strict=True):
        if stands.setdefault(names[0], names) != names:
            return None
        if len(set(names)) > 1 and not (_all_buffers(names, types) or _all_local(names, types)):
            return None
    return stands


def _all_buffers(names: Sequence[str], types: Mapping[str, Type]) -> bool:
    return len({types.get(name) for name in names}) == 1 and names[0] in types


def _all_local(names: Sequence[str], types: Mapping[str, Type]) -> bool:
    return all(name not in types for name in names)
