"""Which earlier elements a new one depends on, through the arrays that both use.

GrCUDA stores with each element the set of its arrays that later work may depend on, and scans the
elements of the frontier. Here each array stores those elements: its last writer and the readers
since. Both give the same edges, but here a launch costs no more when many elements are pending.
"""

from __future__ import annotations

from operator import attrgetter

from fusionstitch.dag.element import Element

#: Once an array has this many more readers, finished ones are removed.
_MANY_READERS = 64


def connect(element: Element, with_const: bool) -> None:
    """Finds the parents of a new element and adds it to the sets of its arrays.

    With the rule for const arguments, readers of an array do not depend on each other. A parent
    that precedes another parent is dropped.
    """
    found: dict[Element, tuple[str, ...]] = {}
    for storage, const in element.uses.items():
        writer = storage.writer
        if const and with_const:
            if writer is not None:
                found[writer] = (*found.get(writer, ()), storage.label)
            readers = storage.readers
            readers.append(element)
            if len(readers) % _MANY_READERS == 0:
                storage.readers = [reader for reader in readers if not reader.finished]
            continue
        if storage.readers:
            for reader in storage.readers:
                if not reader.finished:
                    writer = None  # they follow it
                    found[reader] = (*found.get(reader, ()), storage.label)
            # once an array is written again, nothing depends on its earlier users
            storage.readers = []
        if writer is not None:
            found[writer] = (*found.get(writer, ()), storage.label)
        storage.writer = element
    if len(found) == 1:
        [(parent, labels)] = found.items()
        element.parents = (parent,)
        element.edges = ((parent.number, labels),)
    elif found:
        parents = sorted(found, key=_number)
        if with_const:
            parents = without_ancestors(parents)
        element.parents = tuple(parents)
        element.edges = tuple((parent.number, found[parent]) for parent in parents)


_number = attrgetter("number")


def without_ancestors(parents: list[Element]) -> list[Element]:
    """Those of `parents`, ordered by number, that precede no other one."""
    if len(parents) == 2 and parents[0] in parents[1].parents:  # the common case after readers
        return parents[1:]
    first = parents[0].number
    stack = [above for parent in parents for above in parent.parents]
    seen: set[Element] = set()
    while stack:
        element = stack.pop()
        if element in seen or element.number < first:
            continue
        seen.add(element)
        stack.extend(element.parents)
    return [parent for parent in parents if parent not in seen]
