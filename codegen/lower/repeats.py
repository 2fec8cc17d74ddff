"""Statements that repeat with other buffers, as a loop over the buffers.

The gradient of a weight that an unrolled loop uses is a sum of as many dots as it has steps.
Written out, they would take minutes to compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.ir.leaves import Leaf, frame, leaves, with_leaves
from fusionstitch.codegen.ir.statements import Group

#: Repetitions from which on a loop stands for them.
FEWEST = 4
_TOKEN = re.compile(r"\w+|\W")


@dataclass(frozen=True)
class Repeat:
    """Statements for several sets of buffers, with names for the constants in addresses that
    differ: by name, what stands in its place in each repetition."""

    body: Group
    buffers: Mapping[str, Sequence[str]]
    places: Mapping[str, Sequence[str]]


def repeat_of(bodies: Sequence[Group], types: Mapping[str, str]) -> Repeat | None:
    """`bodies` as one, if they differ only in buffers, constants inside addresses and names of
    their own. `types` holds the C types of all buffers."""
    first, *others = bodies
    if any(frame(other) != frame(first) for other in others):
        return None
    stands: dict[str, list[str]] = {}
    places: dict[tuple[str, ...], str] = {}
    texts: list[str] = []
    for column in zip(*map(leaves, bodies), strict=True):
        text = _joined(column, types, stands, places)
        if text is None:
            return None
        texts.append(text)
    buffers = {b: names for b, names in stands.items() if b in types and len(set(names)) > 1}
    body = with_leaves(first, iter(texts))
    return Repeat(body, buffers, {name: column for column, name in places.items()})


def _joined(
    same: Sequence[Leaf],
    types: Mapping[str, str],
    stands: dict[str, list[str]],
    places: dict[tuple[str, ...], str],
) -> str | None:
    """One leaf for those that stand in the same place of several bodies."""
    tokens = [_TOKEN.findall(leaf.text) for leaf in same]
    if len({len(found) for found in tokens}) > 1:
        return None
    words, depth = [], int(same[0].address)
    for column in zip(*tokens, strict=True):
        first, names = column[0], list(column)
        depth += (first == "[") - (first == "]")
        if all(name.isdigit() for name in names):
            alike = len(set(names)) == 1
            if not alike and not depth:
                return None
            words.append(first if alike else places.setdefault(column, f"at_{len(places)}"))
            continue
        if stands.setdefault(first, names) != names:
            return None
        if len(set(names)) > 1 and not (_all_buffers(names, types) or _all_local(names, types)):
            return None
        words.append(first)
    return "".join(words)


def runs(bodies: Sequence[Group], types: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """The longest stretches (first, end) of neighbouring bodies that `repeat_of` makes one of."""
    first = 0
    while first < len(bodies):
        end = first + 1
        while end < len(bodies) and repeat_of((bodies[first], bodies[end]), types):
            end += 1
        yield first, end
        first = end


def _all_buffers(names: Sequence[str], types: Mapping[str, str]) -> bool:
    return len({types.get(name) for name in names}) == 1 and names[0] in types


def _all_local(names: Sequence[str], types: Mapping[str, str]) -> bool:
    return all(name.isidentifier() and name not in types for name in names)
