"""Groups that do the same to different tensors share one device function.

An optimiser step over hundreds of parameters packs hundreds of groups into one launch; the layers
of a network and the steps of an unrolled loop are phases that follow each other. Written out one by
one they would overflow the instruction cache and take minutes to compile; as calls of a few
functions, the code stays about as small as that of one tensor, layer or step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.ir.addresses import readdressed, written_out
from fusionstitch.codegen.ir.expressions import SHARED, Expr, Name, Number, number
from fusionstitch.codegen.ir.statements import Body, Function
from fusionstitch.codegen.ir.types import IndexType, PointerTo, Raw, Record, Scalar, Type, stored
from fusionstitch.codegen.ir.walk import mapped
from fusionstitch.codegen.lower.context import Locations
from fusionstitch.codegen.schedule.outlining import FEWEST, is_flat
from fusionstitch.codegen.schedule.schedule import GroupPlan
from fusionstitch.hlo.graph import Op

#: Constants inside addresses in which groups that share a function may differ.
MOST_PLACES = 8


@dataclass(frozen=True)
class Signature:
    """What a group reads, in order of first use, and what it writes: (op, buffer).

    A `flat` one is told how many grid points there are, a `shared` one where shared memory is.
    """

    loads: tuple[tuple[Op, str], ...]
    stores: tuple[tuple[Op, str], ...]
    flat: bool
    shared: bool = False

    def parameters(self, int_: IndexType) -> list[tuple[Type, str]]:
        """Types and names: the tile, the grid points there are, the pointers."""
        reads = [(PointerTo(t, constant=True), f"in_{i}") for i, t in _types(self.loads)]
        writes = [(PointerTo(t), f"out_{i}") for i, t in _types(self.stores)]
        points = [(int_, "points")] if self.flat else []
        shared = [(PointerTo(Raw.BYTE), SHARED.name)] if self.shared else []
        return [(int_, "tile"), *points, *shared, *reads, *writes]

    def arguments(self, group: GroupPlan) -> list[Expr]:
        """C arguments of a call for one group, after the tile."""
        points = [number(group.grid_points)] if self.flat else []
        shared = [SHARED] if self.shared else []
        return [*points, *shared, *(Name(name) for _, name in (*self.loads, *self.stores))]


@dataclass(frozen=True)
class Shared:
    """A function for several groups, still without a name, and what each group's call passes after
    the arguments of its signature."""

    function: Function
    places: Mapping[GroupPlan, tuple[Number, ...]]


def signature(group: GroupPlan, memory: Locations) -> Signature:
    """The signature of a group whose values lie in `memory`."""
    stages = group.group.stages
    flat = is_flat(group)
    loads = {op.id: (op, memory.buffer(op)) for stage in stages for op, _ in stage.loads}
    for stage in stages:
        for producer, _ in stage.reads:
            if producer not in stages:
                loads[producer.op.id] = producer.op, memory.buffer(producer.op)
    written = [s.op for s in stages if not s.optional]
    written += [cut.output for s in stages for cut in s.cuts]
    stores = [(op, name) for op in written for name in memory.written(op)]
    return Signature(tuple(loads.values()), tuple(stores), flat)


def shared_functions(
    bodies: Mapping[GroupPlan, Body], signatures: Mapping[GroupPlan, Signature], int_: IndexType
) -> list[Shared]:
    """The functions that enough groups have in common, in order of first use; `bodies` are the
    statements of each group."""
    alike: dict[tuple[object, ...], list[GroupPlan]] = {}
    numbers: dict[GroupPlan, list[str]] = {}
    for group, body in bodies.items():
        frame, numbers[group] = _frame(body)
        parameters = tuple(signatures[group].parameters(int_))
        alike.setdefault((frame, parameters), []).append(group)
    found = []
    for groups in alike.values():
        if len(groups) >= FEWEST:
            found += _functions(groups, bodies, numbers, signatures[groups[0]], int_)
    return found


def _functions(
    groups: Sequence[GroupPlan],
    bodies: Mapping[GroupPlan, Body],
    numbers: Mapping[GroupPlan, list[str]],
    signature: Signature,
    int_: IndexType,
) -> list[Shared]:
    """One function for groups that differ in the constants of addresses alone."""
    columns = list(zip(*(numbers[group] for group in groups), strict=True))
    places = [i for i, values in enumerate(columns) if len(set(values)) > 1]
    if len(places) > MOST_PLACES:
        return []
    names = {place: f"at_{i}" for i, place in enumerate(places)}
    counter = iter(range(len(columns)))

    def named(text: str) -> str:
        return names.get(next(counter), text)

    body = [readdressed(one, named) for one in bodies[groups[0]]]
    parameters = [*signature.parameters(int_), *((int_, n) for n in names.values())]
    function = Function("", tuple(parameters), tuple(body))
    return [Shared(function, {g: tuple(Number(numbers[g][i]) for i in places) for g in groups})]


def _frame(body: Body) -> tuple[Body, list[str]]:
    """Statements with the constants of addresses taken out, and these."""
    numbers: list[str] = []

    def taken(text: str) -> str:
        numbers.append(text)
        return "#"

    bare = (readdressed(one, taken) for one in body)
    return tuple(mapped(one, written_out) for one in bare), numbers


def _types(buffers: Sequence[tuple[Op, str]]) -> Iterator[tuple[int, Scalar | Record]]:
    """The types of what the buffers hold, numbered."""
    return enumerate(stored(op.dtype) for op, _ in buffers)
