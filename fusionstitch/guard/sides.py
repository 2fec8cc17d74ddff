"""The two programs of a comparison: some ops as XLA compiles them, and with patterns stitched."""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler.core import Workpiece
from fusionstitch.guard.groups import Group
from fusionstitch.hlo.detached import attach
from fusionstitch.hlo.edit import entry_of
from fusionstitch.hlo.exporter import Preparation, Replacement, export
from fusionstitch.hlo.extract import extract, instruction_of
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.importer import from_proto
from fusionstitch.measure.places import below
from fusionstitch.measure.side_by_side import Sides
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, Artifact, loading_config


def sides(
    work: Workpiece, group: Group, built: Sequence[tuple[Pattern, Kernel, Artifact]]
) -> Sides:
    """Raises VerifyError where the ops cannot be taken out of the module."""
    near = group.near
    theirs = extract(work.module, near.graph, near.inputs, near.outputs, f"near_{group.key[:8]}")
    part = from_proto(theirs)
    border = {
        instruction_of(op, near.graph.aliases): parameter
        for op, parameter in zip(near.inputs, part.entry.parameters, strict=True)
    }
    there = {i.id for i in entry_of(part.proto).instructions}
    calls = [_call(part.entry, near.graph, border, there, *one) for one in built]
    load = Preparation("load", LOAD_TARGET, loading_config([a for _, _, a in built]))
    ours = export(part, calls, load)
    return Sides(
        theirs=attach(theirs, work.literals),
        ours=attach(ours, work.literals),
        cold=group.cold,
        below=below(part.entry),
        ops=len(near.ops),
        about_us=group.xla_us,
    )


def _call(
    entry: Graph,
    graph: Graph,
    border: dict[int, Op],
    there: set[int],
    pattern: Pattern,
    kernel: Kernel,
    artifact: Artifact,
) -> Replacement:
    """The pattern's call in the part, whose instructions have the ids they had in the whole."""

    def moved(op: Op) -> Op:
        ident = instruction_of(op, graph.aliases)
        return border.get(ident) or Op(op.opcode, op.shape, name=op.name, origin=ident)

    return Replacement(
        graph=entry,
        outputs=tuple(map(moved, pattern.outputs)),
        inputs=tuple(map(moved, pattern.inputs)),
        removed=tuple(op for op in pattern.ops if op.origin in there),
        name=kernel.name,
        target=TARGET,
        config=artifact.config(),
        scratch=kernel.scratch,
    )
