"""Short loops that compute each element on its own: straight code instead of a loop.

    for n in range(4): m = (low + high) / 2; low, high = pick(x <= table[m], low, m, high)

A search by halving (`jnp.searchsorted`, and with it `jnp.interp`, `jnp.digitize` and histograms) is
such a loop, as are a few Newton steps. A loop is a kernel of its own. Its iterations one after the
other are ops as any others, which fuse with what comes before and after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.semantics import Kind, has_effect, kind_of
from fusionstitch.hlo.trips import carried
from fusionstitch.hlo.tuples import resolved
from fusionstitch.hlo.unrolling import Unrolling
from fusionstitch.patterns.fusible import DTYPES
from fusionstitch.patterns.open_loops import OpenLoop, open_loops

#: The most iterations of a loop, and the most ops that compute something in all of them: planning
#: time and the text of kernels grow with both.
MOST_ITERATIONS, MOST_COMPUTED = 24, 256
#: The most ops of any kind that differ from iteration to iteration, in all of them.
MOST_WRITTEN = 1024
#: Kinds of ops that an iteration may have.
PLAIN = frozenset({Kind.SOURCE, Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.STRUCTURE})
#: What may move the state: all of its elements once, in their order. What reads neighbors of an
#: element, or one element for many, would compute these again and again, iteration by iteration.
KEEPS_ORDER = frozenset({"reshape", "bitcast", "concatenate"})
#: What reads at positions that its other operands give.
READS_AT = frozenset({"gather", "dynamic-slice"})


class _Loop:
    """A loop as its rule sees it."""

    def __init__(self, loop: OpenLoop):
        self.loop = loop
        self.needed = [op for op in loop.body if op in loop.users]

    @cached_property
    def numbers(self) -> dict[int, np.ndarray]:
        """The integers that count, by the index of the element: their values by iteration."""
        found = ((index, self.loop.count_of(index)) for index in self.loop.steps)
        return {index: values for index, values in found if values is not None}

    @cached_property
    def handed(self) -> frozenset[int]:
        """The elements that iterations only hand on: unchanged, or to each other."""
        given = {i: carried(op) for i, op in enumerate(self.loop.results)}
        while strays := [i for i, other in given.items() if other not in given]:
            for index in strays:
                del given[index]
        return frozenset(given)

    @cached_property
    def varying(self) -> frozenset[int]:
        """The ids of ops that differ from iteration to iteration."""
        return self._following(lambda op, _: not self.loop.is_handed_on(op))

    @cached_property
    def state(self) -> frozenset[int]:
        """The ids of ops that depend on what iterations compute."""
        return self._following(lambda _, i: i not in self.handed and i not in self.numbers)

    def _following(self, begins: Callable[[Op, int], bool]) -> frozenset[int]:
        """The ids of the ops of elements, given with their indices, that begin it, and of all that
        is computed from these."""
        found = set[int]()
        for op in self.needed:
            index = carried(op)
            if index is None:
                follows = any(resolved(operand).id in found for operand in op.operands)
            else:
                follows = begins(op, index)
            if follows:
                found.add(op.id)
        return frozenset(found)

    @property
    def computed(self) -> int:
        """The ops of all iterations that compute something."""
        return sum(self.loop.trips if op.id in self.varying else 1 for op in self._arithmetic())

    def _arithmetic(self) -> Iterator[Op]:
        for op in self.needed:
            counts = op.id in self.varying and op.id not in self.state and not op.shape.rank
            if kind_of(op.opcode) is Kind.ELEMENTWISE and not counts:
                yield op

    @property
    def is_short(self) -> bool:
        if self.loop.trips > MOST_ITERATIONS or self.computed > MOST_COMPUTED:
            return False
        return self.loop.trips * len(self.varying) <= MOST_WRITTEN

    @property
    def is_plain(self) -> bool:
        """Whether each element of the results needs one of each array that the loop changes."""
        return all(map(self._is_plain, self.needed))

    @property
    def goes_back(self) -> bool:
        """Whether it reads, iteration by iteration, what another loop stacked, as that of a
        gradient does: the two are made for each other."""
        given = map(resolved, self.loop.op.operands[0].operands)
        return any(
            op.opcode == "get-tuple-element"
            and op.operands[0].opcode == "while"
            and op.dims[:1] == (self.loop.trips,)
            and self.loop.is_handed_on(inside)
            for op, inside in zip(given, self.loop.results, strict=True)
        )

    def _is_plain(self, op: Op) -> bool:
        kind = kind_of(op.opcode)
        if kind not in PLAIN or op.called or op.control:
            return False
        if op.dtype not in DTYPES and op.opcode != "parameter":
            return False
        if kind is not Kind.MOVEMENT:
            return True
        of_state = [resolved(operand).id in self.state for operand in op.operands]
        if not any(of_state) or op.opcode in KEEPS_ORDER:
            return True
        if op.opcode == "broadcast":
            return op.shape.size == op.operands[0].shape.size or not op.operands[0].shape.rank
        return op.opcode in READS_AT and not of_state[0]


def short_loops(module: Module) -> list[Unrolling]:
    """The loops to be unrolled."""
    return [found for loop in open_loops(module) if (found := _short(loop)) is not None]


def _short(loop: OpenLoop) -> Unrolling | None:
    one = _Loop(loop)
    ordered = has_effect(loop.op) or loop.op.control or _is_awaited(loop.graph, loop.op)
    if ordered or one.goes_back or not (one.is_plain and one.is_short):
        return None
    return Unrolling(
        loop.graph,
        loop.op,
        loop.trips,
        tuple(loop.results),
        tuple(one.needed),
        one.varying,
        one.numbers,
    )


def _is_awaited(graph: Graph, loop: Op) -> bool:
    """Whether ops of the graph wait for the loop, other than by reading it."""
    own = {loop.origin, *(user.origin for user in graph.users[loop.id])}
    return any(not own.isdisjoint(op.control) for op in graph)
