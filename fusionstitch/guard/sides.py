"""The two programs of a comparison: some ops as XLA compiles them, and with patterns stitched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen.kernel import Kernel
from costmodel.devices import Device
from fusionstitch.guard.groups import Group
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, Artifact, loading_config
from hlo.edit import entry_of
from hlo.exporter import Preparation, Replacement, export
from hlo.extract import extract, instruction
from hlo.graph import Graph, Module, Op
from hlo.importer import from_proto
from hlo.semantics import Kind, kind_of


@dataclass(frozen=True)
class Sides:
    """HloModuleProto bytes of both, with equal parameters and results. The parameters `cold` are
    those of the whole program: what ran before them has most likely put them out of L2."""

    theirs: bytes
    ours: bytes
    cold: frozenset[int]


def sides(
    module: Module,
    group: Group,
    built: Sequence[tuple[Pattern, Kernel, Artifact]],
    device: Device,
) -> Sides:
    """Raises VerifyError where the ops cannot be taken out of `module`."""
    near = group.near
    theirs = extract(module, near.graph, near.inputs, near.outputs, f"near_{group.key[:8]}")
    part = from_proto(theirs)
    border = {
        instruction(op, near.graph.aliases): parameter
        for op, parameter in zip(near.inputs, part.entry.parameters, strict=True)
    }
    there = {i.id for i in entry_of(part.proto).instructions}
    calls = [_call(part.entry, near.graph, border, there, *one) for one in built]
    load = Preparation("load", LOAD_TARGET, loading_config([a for _, _, a in built]))
    cold = _cold(near, device)
    return Sides(theirs, export(part, calls, load), cold)


def _cold(near: Pattern, device: Device) -> frozenset[int]:
    """The inputs that L2 cannot have kept: parameters of a graph that has too many of them."""
    given = [op for op in near.graph if kind_of(op.opcode) is Kind.STRUCTURE]
    if sum(op.shape.bytes for op in given if not op.shape.is_tuple) <= device.l2_bytes:
        return frozenset()
    return frozenset(n for n, op in enumerate(near.inputs) if op in given)


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
        ident = instruction(op, graph.aliases)
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
