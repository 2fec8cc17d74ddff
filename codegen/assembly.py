"""A kernel as a whole: its statements after all passes, verified, printed as a translation unit,
and checked by what the device can launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fusionstitch.codegen.count.kernel_cost import cost
from fusionstitch.codegen.count.tallies import count
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes import LOWERED, PASSES, checked
from fusionstitch.codegen.ir.printer import function, lines
from fusionstitch.codegen.ir.spelling import type_text
from fusionstitch.codegen.ir.types import PointerTo, computed
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.lower.buffers import is_table
from fusionstitch.codegen.rewrite.monoids import functors
from fusionstitch.codegen.text.expressions import literal
from fusionstitch.codegen.text.source import comment
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph, Op, Shape

Facts = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Written:
    """What a schedule becomes.

    Attributes:
        lowered: the statements
        graphs: what they compute, in their order
        names: the identifiers that they have in use
        scratch: the shapes of the kernel's own buffers
        in_place: (output, input) pairs that may share memory
        buffer_names: the names of buffers by what they hold, where a caller needs them
    """

    lowered: Lowered
    graphs: Sequence[Graph]
    names: Names
    scratch: Sequence[Shape] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    buffer_names: Mapping[Any, str] = field(kw_only=True, default_factory=dict)

    def passed(
        self, watch: Watch = NOBODY, left_out: Sequence[str] = (), check: bool = False
    ) -> Written:
        """The same after all passes over statements, but for those that are left out by name. With
        `check`, PassError is raised for the first after which a rule of kernels is broken."""
        lowered, names = self.lowered, self.names.copied()
        if check:
            checked(lowered, LOWERED)
        for one in PASSES:
            if one.name in left_out or not one.applies(lowered):
                continue
            before, lowered = lowered, one.run(lowered, names)
            if lowered is before:
                continue
            watch.lowered(lowered, one.name, one.about)
            if check:
                checked(lowered, one.name)
        return replace(self, lowered=lowered, names=names)

    def cost(self, device: Device, trips: int = 1) -> KernelCost:
        """What the statements do; a loop that the data ends is assumed to have `trips`
        iterations."""
        return cost(count(self.lowered, device, trips), self.lowered)


def assembled(
    region: Graph, written: Written, template: str, summary: str, facts: Facts, device: Device
) -> Kernel:
    """The kernel of a region. `summary` is the first line of its text's comment, its `template` the
    others. Raises VerifyError for statements that break a rule, CodegenError if the device cannot
    launch it."""
    lowered = written.lowered
    verify(lowered)
    about = [f"{region.name}: {summary}", *template.splitlines()]
    kernel = Kernel(
        name=region.name,
        source="\n".join(translation_unit(written.graphs, lowered, about)),
        inputs=tuple(p.shape for p in region.parameters),
        outputs=tuple(op.shape for op in region.root.operands),
        scratch=tuple(written.scratch),
        grid=lowered.grid,
        block=lowered.block,
        shared_bytes=lowered.shared,
        cooperative=lowered.cooperative,
        cluster=lowered.cluster,
        in_place=written.in_place,
        template=template,
        facts=facts,
    )
    if not (verdict := launchable(kernel, device)):
        raise CodegenError(f"{verdict}.")
    return kernel


def ops_after_rewriting(graph: Graph) -> int:
    """How many ops a kernel computes."""
    return sum(1 for op in graph.ops[:-1] if op.opcode != "parameter")


def translation_unit(
    graphs: Sequence[Graph], lowered: Lowered, about: Sequence[str]
) -> Iterator[str]:
    """The lines of a kernel's text, after lines that say what it is `about`."""
    yield from ('#include "fusionstitch.cuh"', "")
    tables = [b.name for b in lowered.buffers if b.memory is Memory.CONSTANT]
    yield from (_table(op, tables.pop(0)) for graph in graphs for op in graph if is_table(op))
    yield from functors(graphs)
    for own in lowered.functions:
        yield from function(own)
    yield from map(comment, about)
    yield f'extern "C" __global__ void {_cluster(lowered)}__launch_bounds__({lowered.bounds})'
    parameters = [_parameter(b) for b in lowered.buffers if b.memory is not Memory.CONSTANT]
    yield from (f"{lowered.name}(", "    " + ",\n    ".join(parameters) + ") {")
    if lowered.shared:
        yield "  FS_DYNAMIC_SHARED(shared_memory);"
    yield from lines(lowered.body, 1)
    yield from ("}", "")


def _parameter(buffer: Buffer) -> str:
    if buffer.memory is not Memory.INPUT:
        return f"{type_text(PointerTo(buffer.type))} {buffer.name}"
    alone = "" if buffer.overwritten else "__restrict__ "
    return f"{type_text(PointerTo(buffer.type, constant=True))} {alone}{buffer.name}"


def _cluster(lowered: Lowered) -> str:
    return f"__cluster_dims__({lowered.cluster}, 1, 1) " if lowered.cluster > 1 else ""


def _table(op: Op, name: str) -> str:
    values = ", ".join(literal(v, op.dtype) for v in op.attrs["value"].flat)
    compute = type_text(computed(op.dtype))
    return f"static __device__ constexpr {compute} {name}[{op.shape.size}] = {{{values}}};\n"
