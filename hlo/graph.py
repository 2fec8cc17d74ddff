"""The typed graph every floor works on: one node per HLO instruction, regions are graphs too."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fusionstitch.hlo import foreign
from fusionstitch.hlo.brief import MOST, Listed, brief, count

T = TypeVar("T")

#: Bytes of one element by HLO type name. `pred` is stored as one byte.
ITEM_BYTES: Mapping[str, int] = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "s16": 2,
    "u16": 2,
    "s32": 4,
    "u32": 4,
    "s64": 8,
    "u64": 8,
    "f16": 2,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
    "c64": 8,
    "c128": 16,
    "s4": 1,
    "u4": 1,
    "s2": 1,
    "u2": 1,
    "f8e5m2": 1,
    "f8e4m3": 1,
    "f8e4m3fn": 1,
    "f8e4m3b11fnuz": 1,
    "f8e3m4": 1,
    "f8e5m2fnuz": 1,
    "f8e4m3fnuz": 1,
    "f8e8m0fnu": 1,
    "f4e2m1fn": 1,
    "token": 0,
    "opaque": 0,
}

FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
#: Floats of one byte that have a sign: kernels compute with them in f32.
FLOATS8 = frozenset(
    {"f8e5m2", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4", "f8e5m2fnuz", "f8e4m3fnuz"}
)
SIGNED = frozenset({"s8", "s16", "s32", "s64"})
UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
INTEGERS = SIGNED | UNSIGNED


@dataclass(frozen=True, slots=True)
class Shape:
    """The type of a value: an array's, or a tuple's.

    Attributes:
        dtype: element type as in HLO, such as "f32", "bf16", "pred"; or "tuple"
        dims: extents, the slowest first
        elements: the types of a tuple's elements
        size: number of elements of an array
    """

    dtype: str
    dims: tuple[int, ...] = ()
    elements: tuple[Shape, ...] = ()
    size: int = field(init=False, repr=False, compare=False)  # needed again and again

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", math.prod(self.dims))

    @property
    def is_tuple(self) -> bool:
        return self.dtype == "tuple"

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def bytes(self) -> int:
        """Bytes of the array, or of all leaves of the tuple."""
        if self.is_tuple:
            return sum(e.bytes for e in self.elements)
        return self.size * ITEM_BYTES.get(self.dtype, 1)

    def __str__(self) -> str:
        if self.is_tuple:
            return f"({', '.join(map(str, self.elements))})"
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"

    def __repr__(self) -> str:
        return brief(f"Shape {self}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where an op comes from in the user's program.

    Attributes:
        op_name: JAX's name of it, with the scopes that it stands in
        file: the user's
        line: in it, from 1
        left: the scope by whose name it is left to XLA (`hlo/marks.py`), "" for none
    """

    op_name: str = ""
    file: str = ""
    line: int = 0
    left: str = ""

    def __repr__(self) -> str:
        return brief(f"Source {self.file}:{self.line} {foreign.line(self.op_name, MOST // 2)}")


@dataclass(eq=False, slots=True, weakref_slot=True)
class Op:
    """One HLO instruction.

    Attributes:
        opcode: HLO's name of what it does, such as "multiply" or "reduce"
        shape: the type of its value
        operands: the ops that it reads
        attrs: the opcode's attributes in the typed form that `hlo/semantics.py` documents
        name: as HLO has it, such as "reduce_sum.7"
        origin: id of the HloInstructionProto whose value this op stands for, or None for an op the
            simplifier made: such an op may live only inside a pattern, never at its border
        called: the graphs that it calls: a loop's condition and body, a reduction's function
        source: where it comes from in the user's program
        control: proto ids of control predecessors: kept so that no pattern reorders them
        id: its position in its graph's topological order
    """

    opcode: str
    shape: Shape
    operands: tuple[Op, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    origin: int | None = None
    called: tuple[Graph, ...] = ()
    source: Source = Source()
    control: tuple[int, ...] = ()
    id: int = -1

    @property
    def dtype(self) -> str:
        return self.shape.dtype

    @property
    def dims(self) -> tuple[int, ...]:
        return self.shape.dims

    def __repr__(self) -> str:
        return foreign.line(str(self), MOST)

    def __str__(self) -> str:
        args = ", ".join(o.name or f"%{o.id}" for o in self.operands)
        return f"{self.name or f'%{self.id}'} = {self.shape} {self.opcode}({args})"


class Graph:
    """One computation: ops in a fixed topological order, parameters, one root.

    The order is the input's own order made topological by a depth-first walk from the root and
    then from ops with side effects, operands left to right; `op.id` is the position in it.
    Graphs are immutable after construction: passes build new ones. `len(graph)` is the number of
    ops, iteration gives them.

    Attributes:
        name: the computation's
        ops: in their order
        root: the op whose value the computation returns
        aliases: from the id of an instruction that has no op of its own any more (a removed copy, a
            duplicate) to that of the instruction with the same value and shape that stands for it
    """

    def __init__(
        self,
        name: str,
        ops: Sequence[Op],
        root: Op,
        proto_id: int | None = None,
        aliases: Mapping[int, int] | None = None,
    ):
        self.name = name
        self.aliases: Mapping[int, int] = aliases or {}
        self.ops: tuple[Op, ...] = Listed(ops)
        self.root = root
        self.proto_id = proto_id
        #: what functions of this graph found (see `of_graph`)
        self.facts: dict[Callable[[Graph], Any], Any] = {}
        for i, op in enumerate(self.ops):
            op.id = i

    @functools.cached_property
    def parameters(self) -> tuple[Op, ...]:
        found = [op for op in self.ops if op.opcode == "parameter"]
        return tuple(sorted(found, key=lambda op: op.attrs["index"]))

    @functools.cached_property
    def users(self) -> tuple[tuple[Op, ...], ...]:
        """By `op.id` the ops that read it, in topological order, each once."""
        users: list[list[Op]] = [[] for _ in self.ops]
        for op in self.ops:
            for operand in dict.fromkeys(op.operands):
                users[operand.id].append(op)
        return tuple(map(tuple, users))

    @functools.cached_property
    def reach(self) -> tuple[int, ...]:
        """reach[op.id]: bitset of the ids of all ops op depends on, itself included.

        Control predecessors count as dependences.
        """
        by_origin = {op.origin: op.id for op in self.ops if op.origin is not None}
        reach: list[int] = []
        for op in self.ops:
            bits = 1 << op.id
            for operand in op.operands:
                bits |= reach[operand.id]
            for origin in op.control:
                before = by_origin.get(origin)
                if before is not None and before < op.id:
                    bits |= reach[before]
            reach.append(bits)
        return tuple(reach)

    @functools.cached_property
    def dependents(self) -> tuple[int, ...]:
        """dependents[op.id]: bitset of the ids of all ops that depend on op, itself included."""
        dependents = [1 << op.id for op in self.ops]
        by_origin = {op.origin: op.id for op in self.ops if op.origin is not None}
        for op in reversed(self.ops):
            for operand in op.operands:
                dependents[operand.id] |= dependents[op.id]
            for origin in op.control:
                before = by_origin.get(origin)
                if before is not None and before < op.id:
                    dependents[before] |= dependents[op.id]
        return tuple(dependents)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __len__(self) -> int:
        return len(self.ops)

    def __repr__(self) -> str:
        return brief(f"Graph {self.name}: {count(self.ops, 'op')}")

    def __str__(self) -> str:
        body = "\n".join(f"  {op}" for op in self.ops)
        return f"{self.name} {{\n{body}\n  root {self.root.name}\n}}"


def of_graph(function: Callable[[Graph], T]) -> Callable[[Graph], T]:
    """`function` of a graph, worked out once and kept with the graph, so that it goes when the
    graph goes."""

    @functools.wraps(function)
    def cached(graph: Graph) -> T:
        if function not in graph.facts:
            graph.facts[function] = function(graph)
        found: T = graph.facts[function]
        return found

    return cached


@dataclass
class Module:
    """A whole HLO module: its computations as graphs, and the proto they were read from."""

    name: str
    graphs: tuple[Graph, ...]
    entry: Graph
    proto: Any

    def __repr__(self) -> str:
        return brief(f"Module {self.name}: {count(self.graphs, 'graph')}, entry {self.entry!r}")

    @functools.cached_property
    def loop_bodies(self) -> frozenset[int | None]:
        """The proto ids of the graphs that loops repeat."""
        loops = (op for graph in self.graphs for op in graph if op.opcode == "while")
        return frozenset(op.called[1].proto_id for op in loops)

    @property
    def stitchable(self) -> tuple[Graph, ...]:
        """The graphs that run as sequences of kernels: entry, loop bodies, branches; callees first.

        Reducers, comparators and other scalar bodies called per element are not among them.
        """
        order: dict[int, Graph] = {}

        def visit(graph: Graph) -> None:
            for op in graph:
                if op.opcode in ("while", "conditional", "call"):
                    for called in op.called:
                        if id(called) not in order:
                            visit(called)
            order[id(graph)] = graph

        visit(self.entry)
        return tuple(order.values())


def inside(loop: Op) -> Iterator[Op]:
    """The ops that a loop runs, those of the loops and branches in it included."""
    for graph in loop.called:
        for op in graph:
            yield op
            if op.opcode in ("while", "conditional", "call"):
                yield from inside(op)


def loops_of(graph: Graph) -> Iterator[Op]:
    """The outermost loops that a graph runs, those of its branches and calls included."""
    for op in graph:
        if op.opcode == "while":
            yield op
        elif op.opcode in ("conditional", "call"):
            for called in op.called:
                yield from loops_of(called)


def topological(root: Op, others: Iterable[Op]) -> list[Op]:
    """The ops that `root` and then `others` need, in the order that `Graph` documents.

    A control predecessor comes before its op as an operand does, if it is among `others` or
    needed by them.
    """
    seeds = [root, *others]
    by_origin = {op.origin: op for op in seeds if op.origin is not None}
    order: list[Op] = []
    state: dict[Op, bool] = {}  # False while an op's dependences are walked, True when placed
    stack = seeds[::-1]
    while stack:
        op = stack[-1]
        if op in state:
            stack.pop()
            if not state[op]:
                state[op] = True
                order.append(op)
            continue
        state[op] = False
        before = [by_origin[o] for o in op.control if o in by_origin] if op.control else []
        stack.extend(o for o in (*reversed(before), *reversed(op.operands)) if o not in state)
    return order


def ids(bits: int) -> Iterator[int]:
    """The positions of the set bits of `bits`, ascending."""
    return iter(_positions(bits))


#: From so many bits per set one on, looking for the next one is faster than looking at all.
_SPARSE = 5
_DIGITS = bytes(digit == ord("1") for digit in range(256))


@functools.lru_cache(maxsize=1 << 14)
def _positions(bits: int) -> tuple[int, ...]:
    """Remembered: a candidate is walked again and again while it is scored."""
    first = max(0, (bits & -bits).bit_length() - 1)
    span = bits.bit_length() - first
    digits = bin(bits >> first)[:1:-1]
    if span <= _SPARSE * bits.bit_count():
        every = range(first, first + span)
        return tuple(itertools.compress(every, digits.encode().translate(_DIGITS)))
    found = []
    at = digits.find("1")
    while at >= 0:
        found.append(first + at)
        at = digits.find("1", at + 1)
    return tuple(found)
