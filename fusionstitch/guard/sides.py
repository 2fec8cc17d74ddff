"""The two programs of a comparison: the same ops as XLA compiles them, and with patterns
stitched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler.workpiece import Workpiece
from fusionstitch.guard.groups import Group
from fusionstitch.hlo.detached import attach
from fusionstitch.hlo.edit import entry_of
from fusionstitch.hlo.exporter import Preparation, Replacement, export
from fusionstitch.hlo.extract import extract, instruction_of
from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.importer import from_proto
from fusionstitch.measure.index_bounds import below
from fusionstitch.measure.side_by_side import Sides
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, Artifact, loading_config


@dataclass(frozen=True, eq=False)
class Stitch:
    """A kernel that replaces the ops `removed` of a group's module."""

    outputs: tuple[Op, ...]
    inputs: tuple[Op, ...]
    removed: tuple[Op, ...]
    kernel: Kernel
    artifact: Artifact


def taken_out(work: Workpiece, group: Group) -> Module:
    """The ops of a group as a separate module. Raises VerifyError if that is impossible."""
    near, name = group.near, f"near_{group.key[:8]}"
    return from_proto(extract(work.module, near.graph, near.inputs, near.outputs, name))


def in_part(
    group: Group, part: Module, built: Sequence[tuple[Pattern, Kernel, Artifact]]
) -> list[Stitch]:
    """The kernels of patterns, placed in the group's module. The patterns are of the whole module
    or of the group's, whose instructions have the same ids."""
    near = group.near
    border = {
        instruction_of(op, near.graph.aliases): parameter
        for op, parameter in zip(near.inputs, part.entry.parameters, strict=True)
    }
    there = {i.id for i in entry_of(part.proto).instructions}

    def moved(op: Op, graph: Graph) -> Op:
        if graph is part.entry:
            return op
        ident = instruction_of(op, graph.aliases)
        return border.get(ident) or Op(op.opcode, op.shape, name=op.name, origin=ident)

    return [
        Stitch(
            outputs=tuple(moved(op, pattern.graph) for op in pattern.outputs),
            inputs=tuple(moved(op, pattern.graph) for op in pattern.inputs),
            removed=tuple(op for op in pattern.ops if op.origin in there),
            kernel=kernel,
            artifact=artifact,
        )
        for pattern, kernel, artifact in built
    ]


def sides(work: Workpiece, group: Group, part: Module, stitches: Sequence[Stitch]) -> Sides:
    """A group's module as XLA compiles it, and with kernels in it. Raises VerifyError if these
    cannot be inserted."""
    calls = [
        Replacement(
            graph=part.entry,
            outputs=one.outputs,
            inputs=one.inputs,
            removed=one.removed,
            name=one.kernel.name,
            target=TARGET,
            config=one.artifact.config(),
            scratch=one.kernel.scratch,
        )
        for one in stitches
    ]
    load = Preparation("load", LOAD_TARGET, loading_config([one.artifact for one in stitches]))
    theirs: bytes = part.proto.SerializeToString(deterministic=True)
    return Sides(
        theirs=attach(theirs, work.literals),
        ours=attach(export(part, calls, load), work.literals),
        cold=group.cold,
        below=below(part.entry),
        ops=len(group.near.ops),
        about_us=group.xla_us,
    )
