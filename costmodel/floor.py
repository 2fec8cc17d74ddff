"""What a kernel, a component or a whole program cannot go below on a device, whoever compiles it.

The largest of what each unit takes alone, at its peak: DRAM and L2 for the bytes that cross the
border, each arithmetic unit for its operations, and the longest chain of operations that wait for
each other, iterations of loops among them; and a launch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from fusionstitch.costmodel.border import border, free_ops
from fusionstitch.costmodel.chain import chain_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.least_work import iterations, least_units, live, results
from fusionstitch.hlo.brief import brief
from fusionstitch.hlo.graph import Graph, Op, loops_of
from fusionstitch.hlo.semantics import Kind, kind_of

#: Units beside those that compute.
DRAM, L2, CHAIN, LAUNCH = "DRAM", "L2", "longest chain", "a launch"


@dataclass(frozen=True, repr=False)
class Floor:
    """The least time of a set of ops, in microseconds.

    Attributes:
        launch_us: one launch; 0 where nothing is computed
        units: what each unit takes alone, those that have anything to do
        at_least: whether a loop counts once because the data decides how often it iterates
    """

    launch_us: float = 0.0
    units: tuple[tuple[str, float], ...] = ()
    at_least: bool = False

    @property
    def us(self) -> float:
        """The floor."""
        return self.launch_us + max((us for _, us in self.units), default=0.0)

    @property
    def bound_by(self) -> str:
        """The unit that takes longest, "a launch" where even that takes less than one."""
        unit, us = max(self.units, key=lambda one: one[1], default=(LAUNCH, 0.0))
        return unit if us > self.launch_us else LAUNCH

    def over(self, us: float | None) -> float | None:
        """How many times the floor `us` is; None without one of them."""
        return us / self.us if us is not None and self.us else None

    def times(self, runs: int) -> Floor:
        """That of so many runs one after the other."""
        units = tuple((unit, runs * us) for unit, us in self.units)
        return Floor(runs * self.launch_us, units, self.at_least)

    def __repr__(self) -> str:
        parts = ", ".join(f"{unit} {us:.2f}" for unit, us in self.units)
        return brief(f"Floor: {self.us:.2f} us, bound by {self.bound_by} ({parts})")


NONE = Floor()


def floor_of(
    graph: Graph,
    bits: int,
    device: Device,
    inner: bool = False,
    donated: Collection[int] = (),
) -> Floor:
    """The floor of the ops `bits` of `graph`, as one launch.

    Parameters and results of the graph cross DRAM, whatever runs before and after. Other values at
    the border may stay in L2, as far as they fit there, and so may all of a loop's body or a branch
    (`inner`). Parameters whose numbers are `donated` may be overwritten.
    """
    ops = _working(graph, bits)
    if not ops:
        return NONE
    outputs = _escaping(graph, ops)
    crossed = border(graph, ops, outputs, donated)
    given = set(results(graph))
    cold = warm = 0
    for op, size in crossed.read.items():
        outside = op.opcode == "parameter" and not inner
        cold, warm = (cold + size, warm) if outside else (cold, warm + size)
    for op, size in crossed.written.items():
        cold, warm = (cold + size, warm) if op in given and not inner else (cold, warm + size)
    units = least_units(graph, ops, outputs, device)
    units[DRAM] = (cold + max(0, warm - device.l2_bytes)) / device.dram_bytes_per_s * 1e6
    units[L2] = (cold + warm) / device.l2_bytes_per_s * 1e6
    units[CHAIN] = chain_us(ops, device)
    open_ended = any(iterations(loop) is None for op in ops for loop in _loops(op))
    return Floor(device.launch_us, _sorted(units), open_ended)


def program_floor(graph: Graph, device: Device, donated: Collection[int] = ()) -> Floor:
    """The floor of a whole program whose entry is `graph`: all of it as one launch."""
    return floor_of(graph, sum(1 << op.id for op in live(graph)), device, donated=donated)


def _sorted(units: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """The longest first; those of nothing are none."""
    found = [(unit, us) for unit, us in units.items() if us > 0]
    return tuple(sorted(found, key=lambda one: (-one[1], one[0])))


def _working(graph: Graph, bits: int) -> list[Op]:
    """The ops that do anything: no tuples and parameters, no constants and views of them, no
    elements of what others gave."""
    free, found = free_ops(graph), set[Op]()
    for op in graph:
        part = op.opcode == "get-tuple-element" and op.operands[0] in found
        if part or (bits >> op.id & 1 and kind_of(op.opcode) is not Kind.STRUCTURE):
            found.add(op)
    live = graph.reach[graph.root.id]
    return [op for op in graph if op in found and op not in free and live >> op.id & 1]


def _escaping(graph: Graph, ops: Collection[Op]) -> list[Op]:
    """The arrays that others read, or that the graph gives."""
    inside = set(ops)
    given = set(results(graph))
    return [
        op
        for op in ops
        if not op.shape.is_tuple
        and (op in given or any(user not in inside for user in _readers(graph, op)))
    ]


def _readers(graph: Graph, op: Op) -> Iterable[Op]:
    """The ops that read a value, through tuples."""
    for user in graph.users[op.id]:
        if user.opcode == "tuple" and user is not graph.root:
            yield from _readers(graph, user)
        elif user is not graph.root or user.opcode != "tuple":
            yield user


def _loops(op: Op) -> Iterable[Op]:
    if op.opcode == "while":
        yield op
    elif op.opcode in ("conditional", "call"):
        for called in op.called:
            yield from loops_of(called)
