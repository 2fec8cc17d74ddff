"""A scheduled graph as XLA's compiler leaves it, with each fusion replaced by its ops.

    fusion(a, b), calls = { p0, p1, ... }    ->    the ops of the computation, over a and b
    custom-call(a, b), a product of a library    ->    dot(a, b)

Each instruction that launches something is recorded with the ops that it computes and the values
that it writes, so that the model of kernels applies to it as to any set of ops.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.semantics import Kind, kind_of

#: Instructions whose computations run once where they stand.
INLINED = frozenset({"call", "async-start"})
#: Views and marks, which launch nothing.
SILENT = frozenset({"bitcast", "layout-bitcast", "after-all", "partition-id", "replica-id"})
_UNLAUNCHED = frozenset({Kind.STRUCTURE, Kind.SOURCE})
#: What the config of a library's product calls the dims of a dot.
_DOT_DIMS = {
    "lhs_batch": "lhs_batch_dimensions",
    "rhs_batch": "rhs_batch_dimensions",
    "lhs_contract": "lhs_contracting_dimensions",
    "rhs_contract": "rhs_contracting_dimensions",
}


@dataclass(frozen=True, eq=False)
class Launch:
    """An instruction that launches something: itself, the ops that it computes and those of their
    values that it writes, both as bitsets of ids in the graph with the fusions opened."""

    instruction: Op
    bits: int
    written: int


@dataclass(frozen=True, eq=False)
class Opened:
    """A scheduled graph with its fusions opened, and what it launches, in the order of the
    schedule."""

    graph: Graph
    launches: tuple[Launch, ...]


def opened(scheduled: Graph, configs: Mapping[int | None, Any]) -> Opened:
    """`scheduled` with its fusions, and what it calls once, replaced by their ops.

    Loops and conditionals stay instructions that launch what they call. `configs` are those of the
    backend, by `Op.origin` (see `backend_configs`).
    """
    opener = _Opener(configs)
    root = opener.walk(scheduled, {})
    graph = Graph(scheduled.name, opener.ops, root, scheduled.proto_id)
    launches = tuple(
        Launch(one, _bits(ops), _bits(written)) for one, ops, written in opener.launches
    )
    return Opened(graph, launches)


def backend_configs(proto: Any) -> dict[int | None, Any]:
    """What the backend says about instructions of an HloModule message, by their ids; JSON that
    cannot be read says nothing."""
    found: dict[int | None, Any] = {}
    for computation in proto.computations:
        for one in computation.instructions:
            if one.backend_config:
                try:
                    found[one.id] = json.loads(one.backend_config)
                except ValueError:
                    continue
    return found


def trips_of(loop: Op, configs: Mapping[int | None, Any]) -> int | None:
    """How often a compiled loop runs; None where the data decides."""
    config = configs.get(loop.origin)
    known = config.get("known_trip_count") if isinstance(config, dict) else None
    return int(known["n"]) if known else None


class _Opener:
    def __init__(self, configs: Mapping[int | None, Any]) -> None:
        self.configs = configs
        self.ops: list[Op] = []
        self.launches: list[tuple[Op, list[Op], list[Op]]] = []

    def walk(self, graph: Graph, given: Mapping[Op, Op]) -> Op:
        """Puts the ops of a graph whose parameters are `given`; its root."""
        values = dict(given)
        for op in sorted(graph, key=_scheduled_at):
            if op not in values:
                values[op] = self.put(op, [values[o] for o in op.operands])
        return values[graph.root]

    def put(self, op: Op, operands: Sequence[Op]) -> Op:
        """The value of an instruction that may launch something."""
        if op.opcode.endswith("-done") or op.opcode == "async-update":
            return operands[0]  # the end of what another instruction has started
        if op.opcode in INLINED and len(op.called) == 1:
            return self.walk(op.called[0], _given(op.called[0], operands))
        if op.opcode == "copy-start":
            op = replace(op, opcode="copy", shape=operands[0].shape)
        start = len(self.ops)
        value = self.compute(op, operands)
        own = [one for one in self.ops[start:] if kind_of(one.opcode) is not Kind.STRUCTURE]
        if own and op.opcode not in SILENT and kind_of(op.opcode) not in _UNLAUNCHED:
            made = frozenset(own)
            results = value.operands if value.opcode == "tuple" else (value,)
            self.launches.append((op, own, [one for one in results if one in made]))
        return value

    def compute(self, op: Op, operands: Sequence[Op]) -> Op:
        """The value of an op of one kernel."""
        if op.opcode == "get-tuple-element" and (found := _element(op, operands[0])) is not None:
            return found
        if op.opcode != "fusion" or len(op.called) != 1:
            made = self.product(op, operands) or replace(op, operands=tuple(operands))
            self.ops.append(made)
            return made
        inner = op.called[0]
        values = _given(inner, operands)
        for one in inner:
            if one not in values:
                values[one] = self.compute(one, [values[o] for o in one.operands])
        return values[inner.root]

    def product(self, op: Op, operands: Sequence[Op]) -> Op | None:
        """The dot that a call of a library computes; None for any other op. What else it reads, an
        addend or scales, and its workspace are left out."""
        config = self.configs.get(op.origin) if op.opcode == "custom-call" else None
        gemm = config.get("gemm_backend_config") if isinstance(config, dict) else None
        if not gemm or len(operands) < 2:
            return None
        numbers = gemm.get("dot_dimension_numbers", {})
        dims = {key: tuple(map(int, numbers.get(name, ()))) for key, name in _DOT_DIMS.items()}
        precision = gemm.get("precision_config", {}).get("operand_precision", ["DEFAULT"])
        attrs = {**dims, "precision": str(precision[0]).lower(), "algorithm": "unset"}
        shape = op.shape.elements[0] if op.shape.is_tuple else op.shape
        return replace(op, opcode="dot", shape=shape, operands=tuple(operands[:2]), attrs=attrs)


def _scheduled_at(op: Op) -> int:
    """Where an instruction stands in the schedule: a text is read in its order."""
    return op.origin or 0


def _given(graph: Graph, operands: Sequence[Op]) -> dict[Op, Op]:
    return {parameter: operands[parameter.attrs["index"]] for parameter in graph.parameters}


def _element(op: Op, whole: Op) -> Op | None:
    """What an op reads of a tuple that was put together here, or of a library's result."""
    if whole.opcode == "dot":
        return whole
    index: int = op.attrs["index"]
    return whole.operands[index] if whole.opcode == "tuple" else None


def _bits(ops: Iterable[Op]) -> int:
    bits = 0
    for op in ops:
        bits |= 1 << op.id
    return bits
