"""Statements that repeat with other buffers, as a loop over the buffers.

The gradient of a weight that an unrolled loop uses is a sum of as many dots as it has steps.
Written out, they would take minutes to compile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

#: Repetitions from which on a loop stands for them.
FEWEST = 4
_TOKEN = re.compile(r"\w+|\W")


@dataclass(frozen=True)
class Repeat:
    """Statements for several sets of buffers, with names for the constants in addresses that
    differ: by name, what stands in its place in each repetition."""

    text: str
    buffers: Mapping[str, Sequence[str]]
    places: Mapping[str, Sequence[str]]


def repeat_of(texts: Sequence[str], types: Mapping[str, str]) -> Repeat | None:
    """`texts` as one, if they differ only in buffers, constants inside addresses and names of
    their own. `types` holds the C types of all buffers."""
    tokens = [_TOKEN.findall(text) for text in texts]
    if len({len(found) for found in tokens}) > 1:
        return None
    stands: dict[str, list[str]] = {}
    places: dict[tuple[str, ...], str] = {}
    words, depth = [], 0
    for column in zip(*tokens, strict=True):
        first, names = column[0], list(column)
        depth += (first == "[") - (first == "]")
        if all(name.isdigit() for name in names):
            same = len(set(names)) == 1
            if not same and not depth:
                return None
            words.append(first if same else places.setdefault(column, f"at_{len(places)}"))
            continue
        if stands.setdefault(first, names) != names:
            return None
        alike = len(set(names)) == 1 or _all_buffers(names, types) or _all_local(names, types)
        if not alike:
            return None
        words.append(first)
    buffers = {b: names for b, names in stands.items() if b in types and len(set(names)) > 1}
    return Repeat("".join(words), buffers, {name: column for column, name in places.items()})


def runs(texts: Sequence[str], types: Mapping[str, str]) -> Iterator[tuple[int, int]]:
    """The longest stretches (first, end) of neighbouring texts that `repeat_of` makes one of."""
    first = 0
    while first < len(texts):
        end = first + 1
        while end < len(texts) and repeat_of((texts[first], texts[end]), types):
            end += 1
        yield first, end
        first = end


def _all_buffers(names: Sequence[str], types: Mapping[str, str]) -> bool:
    return len({types.get(name) for name in names}) == 1 and names[0] in types


def _all_local(names: Sequence[str], types: Mapping[str, str]) -> bool:
    return all(name.isidentifier() and name not in types for name in names)
