"""Statements that repeat with other buffers, as a loop over the buffers.

The gradient of a weight that an unrolled loop uses is a sum of as many dots as it has steps.
Written out, they would take minutes to compile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fusionstitch.codegen.ir.addresses import readdressed
from fusionstitch.codegen.ir.renaming import renamed
from fusionstitch.codegen.ir.statements import Group
from fusionstitch.codegen.ir.types import Type

#: Repetitions from which on a loop stands for them.
FEWEST = 4


@dataclass(frozen=True)
class Repeat:
    """Statements for several sets of buffers, with names for the constants in addresses that
    differ: by name, what stands in its place in each repetition."""

    body: Group
    buffers: Mapping[str, Sequence[str]]
    places: Mapping[str, Sequence[str]]


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
    places: dict[tuple[str, ...], str] = {}
    spelt = []
    for constants in zip(*(one.constants for one in read), strict=True):
        alike = len(set(constants)) == 1
        spelt.append(constants[0] if alike else places.setdefault(constants, f"at_{len(places)}"))
    words = iter(spelt)
    body = readdressed(read[0].body, lambda _: next(words))
    buffers = {b: names for b, names in stands.items() if b in types and len(set(names)) > 1}
    return Repeat(body, buffers, {name: column for column, name in places.items()})


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
