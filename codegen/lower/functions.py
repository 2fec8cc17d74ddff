"""Groups that do the same to different tensors share one device function.

An optimiser step over hundreds of parameters packs hundreds of groups into one launch; the layers
of a network and the steps of an unrolled loop are phases that follow each other. Written out one by
one they would overflow the instruction cache and take minutes to compile; as calls of a few
functions, the code stays about as small as that of one tensor, layer or step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.lower.context import Memory
from fusionstitch.codegen.schedule.schedule import GroupPlan
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import Op

#: Groups that are alike from which on they share a function. Two small ones save no time to
#: compile, but what the compiler would keep for them in registers from before a grid barrier:
#: layer norm forward and backward took 43.5 instead of 44.6 us on an H200.
FEWEST = 2
#: Constants inside addresses in which groups that share a function may differ.
MOST_PLACES = 8

#: Addresses: subscripts, and what a vector is loaded from or stored to.
_ADDRESS = re.compile(r"\[[^\[\]]*\]|(?<=_vec)(?:<[^<>]*>)?\((?:[^()]|\([^()]*\))*\)")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")


@dataclass(frozen=True)
class Signature:
    """What a group reads, in order of first use, and what it writes: (op, buffer).

    A `flat` one is told how many grid points there are, a `shared` one where shared memory is.
    """

    loads: tuple[tuple[Op, str], ...]
    stores: tuple[tuple[Op, str], ...]
    flat: bool
    shared: bool = False

    def parameters(self, int_: str) -> list[str]:
        """C parameters: the tile, the grid points there are, the pointers."""
        types = [f"const {t}* in_{i}" for i, t in _types(self.loads)]
        types += [f"{t}* out_{i}" for i, t in _types(self.stores)]
        points = [f"const {int_} points"] if self.flat else []
        shared = ["unsigned char* shared_memory"] if self.shared else []
        return [f"const {int_} tile", *points, *shared, *types]

    def arguments(self, group: GroupPlan) -> list[str]:
        """C arguments of a call for one group, behind the tile."""
        points = [str(group.grid_points)] if self.flat else []
        shared = ["shared_memory"] if self.shared else []
        return [*points, *shared, *(name for _, name in (*self.loads, *self.stores))]


@dataclass(frozen=True)
class Shared:
    """A function for several groups: its text, its name left as `NAME`, and what each group's call
    passes behind the arguments of its signature."""

    text: str
    places: Mapping[GroupPlan, tuple[str, ...]]


def kind_of_group(group: GroupPlan) -> tuple[object, ...]:
    """Equal for groups that may share a function; those of several elements a tile by their
    shapes, too."""
    flat = is_flat(group)
    return tuple(s.op.opcode if flat else (s.op.opcode, s.op.shape) for s in group.group.stages)


def is_flat(group: GroupPlan) -> bool:
    """Whether a group computes with inputs alone, element by element."""
    return group.group.is_flat and not any(s.reads for s in group.group.stages)


def length(groups: Iterable[GroupPlan]) -> int:
    """Ops in the text of a kernel, those of a shared function counted once: what compiling it takes
    grows with."""
    kinds = {kind_of_group(group): group for group in groups}
    return sum(1 + len(s.inlined) for group in kinds.values() for s in group.group.stages)


def signature(group: GroupPlan, memory: Memory) -> Signature:
    """The signature of a group whose values lie in `memory`."""
    stages = group.group.stages
    flat = is_flat(group)
    loads = {op.id: (op, memory.buffer(op)) for stage in stages for op, _ in stage.loads}
    for stage in stages:
        for producer, _ in stage.reads:
            if producer not in stages:
                loads[producer.op.id] = producer.op, memory.buffer(producer.op)
    written = [op for s in stages for op in (s.op, *(cut.output for cut in s.cuts))]
    stores = [(op, name) for op in written for name in memory.written(op)]
    return Signature(tuple(loads.values()), tuple(stores), flat)


def shared_functions(
    bodies: Mapping[GroupPlan, str], signatures: Mapping[GroupPlan, Signature], int_: str
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
    bodies: Mapping[GroupPlan, str],
    numbers: Mapping[GroupPlan, list[str]],
    signature: Signature,
    int_: str,
) -> list[Shared]:
    """One function for groups that differ in the constants of addresses alone."""
    columns = list(zip(*(numbers[group] for group in groups), strict=True))
    places = [i for i, values in enumerate(columns) if len(set(values)) > 1]
    if len(places) > MOST_PLACES:
        return []
    names = {place: f"at_{i}" for i, place in enumerate(places)}
    counter = iter(range(len(columns)))

    def named(match: re.Match[str]) -> str:
        return names.get(next(counter), match[0])

    body = _ADDRESS.sub(lambda found: _NUMBER.sub(named, found[0]), bodies[groups[0]])
    parameters = [*signature.parameters(int_), *(f"const {int_} {n}" for n in names.values())]
    lines = ",\n    ".join(parameters)
    text = f"static __device__ __noinline__ void NAME(\n    {lines}) {{\n{body}\n}}\n"
    return [Shared(text, {g: tuple(numbers[g][i] for i in places) for g in groups})]


def _frame(body: str) -> tuple[str, list[str]]:
    """A text with the constants of its addresses taken out, and these."""
    numbers: list[str] = []

    def taken(match: re.Match[str]) -> str:
        numbers.append(match[0])
        return "#"

    return _ADDRESS.sub(lambda found: _NUMBER.sub(taken, found[0]), body), numbers


def _types(buffers: Sequence[tuple[Op, str]]) -> Iterator[tuple[int, str]]:
    """The C types of what the buffers hold, numbered."""
    return enumerate(c_type(op.dtype).storage for op, _ in buffers)
