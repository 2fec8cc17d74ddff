"""Grown graphs as HLO text, and as StableHLO files that replay them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import jax.extend.mlir as extend_mlir
import numpy as np
from jax.extend.lowering import JaxIrContext, upstream_dialects
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo

from fusionstitch.hlo.graph import Graph, Op, Shape
from fusionstitch.hlo.text import text_to_proto

_GATHER = (
    *("offset_dims", "collapsed_slice_dims", "start_index_map", "index_vector_dim"),
    *("operand_batching_dims", "start_indices_batching_dims", "slice_sizes"),
)
_SCATTER = (
    *("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
    *("index_vector_dim", "input_batching_dims", "scatter_indices_batching_dims"),
)
_DOT = {
    "lhs_batch": "lhs_batch_dims",
    "rhs_batch": "rhs_batch_dims",
    "lhs_contract": "lhs_contracting_dims",
    "rhs_contract": "rhs_contracting_dims",
}


def to_proto(graph: Graph) -> bytes:
    """A module of the graph as HloModuleProto bytes, read from its text."""
    return text_to_proto(to_text(graph))


def to_stablehlo(graph: Graph) -> str:
    """The graph as a StableHLO module."""
    context = JaxIrContext()
    context.append_dialect_registry(upstream_dialects)
    context.load_all_available_dialects()
    stablehlo.register_dialect(context)
    with context:
        return str(ir.Module.parse(extend_mlir.hlo_to_stablehlo(to_proto(graph))))


def to_text(graph: Graph) -> str:
    """The graph as HLO text."""
    return _Printer().module(graph)


class _Printer:
    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.numbers = itertools.count()

    def module(self, graph: Graph) -> str:
        entry = self.computation(graph, "ENTRY main")
        return "\n\n".join([f"HloModule {graph.name}", *self.blocks, entry]) + "\n"

    def called(self, graph: Graph) -> str:
        name = f"body_{next(self.numbers)}"
        self.blocks.append(self.computation(graph, name))
        return name

    def computation(self, graph: Graph, title: str) -> str:
        names = {op: f"v{next(self.numbers)}" for op in graph}
        lines = [
            f"  {'ROOT ' if op is graph.root else ''}{names[op]} = {self.instruction(op, names)}"
            for op in graph
        ]
        takes = ", ".join(f"{names[p]}: {_shape(p.shape)}" for p in graph.parameters)
        return "\n".join([f"{title} ({takes}) -> {_shape(graph.root.shape)} {{", *lines, "}"])

    def instruction(self, op: Op, names: Mapping[Op, str]) -> str:
        operands = ", ".join(f"{_shape(o.shape)} {names[o]}" for o in op.operands)
        if op.opcode == "parameter":
            operands = str(op.attrs["index"])
        elif op.opcode == "constant":
            operands = _literal(op.attrs["value"])
        extra = "".join(f", {text}" for text in self.attributes(op))
        return f"{_shape(op.shape)} {op.opcode}({operands}){extra}"

    def attributes(self, op: Op) -> list[str]:
        found = _ATTRIBUTES.get(op.opcode, lambda attrs: [])(op.attrs)
        if op.opcode in ("reduce", "reduce-window", "scatter"):
            body = op.called[0] if op.called else reducer_body(op)
            found.append(f"to_apply={self.called(body)}")
        return found


def reducer_body(op: Op) -> Graph:
    """The body that the reducer of a reduction or scatter names."""
    shape = Shape(op.dtype)
    a, b = (Op("parameter", shape, attrs={"index": i}, name="ab"[i]) for i in range(2))
    if op.attrs["reducer"] == "replace":
        return Graph("replace", [a, b], b)
    root = Op(op.attrs["reducer"], shape, (a, b), name="joined")
    return Graph(root.opcode, [a, b, root], root)


def _shape(shape: Shape) -> str:
    if shape.is_tuple:
        return f"({', '.join(map(_shape, shape.elements))})"
    order = ",".join(str(d) for d in reversed(range(shape.rank)))
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]{{{order}}}"


def _literal(value: np.ndarray) -> str:
    if value.ndim:
        return "{" + ", ".join(map(_literal, value)) + "}"
    if value.dtype == bool:
        return str(bool(value)).lower()
    if value.dtype.kind in "iu":
        return str(int(value))
    return repr(float(value)).replace("infinity", "inf")


def _dims(name: str, values: Any) -> str:
    return f"{name}={{{','.join(map(str, values))}}}"


def _slice(attrs: Mapping[str, Any]) -> list[str]:
    bounds = zip(attrs["start"], attrs["limit"], attrs["stride"], strict=True)
    return ["slice={" + ", ".join(f"[{a}:{b}:{c}]" for a, b, c in bounds) + "}"]


def _pad(attrs: Mapping[str, Any]) -> list[str]:
    edges = zip(attrs["low"], attrs["high"], attrs["interior"], strict=True)
    return ["padding=" + "x".join(f"{a}_{b}_{c}" for a, b, c in edges)]


def _window(attrs: Mapping[str, Any]) -> list[str]:
    def by(key: str) -> str:
        return "x".join(map(str, attrs[key]))

    pads = "x".join(f"{a}_{b}" for a, b in zip(attrs["low"], attrs["high"], strict=True))
    fields = f"size={by('size')} stride={by('stride')} pad={pads}"
    return [
        f"window={{{fields} lhs_dilate={by('base_dilation')} rhs_dilate={by('window_dilation')}}}"
    ]


def _numbers(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], list[str]]:
    def write(attrs: Mapping[str, Any]) -> list[str]:
        return [
            f"{name}={attrs[name]}" if isinstance(attrs[name], int) else _dims(name, attrs[name])
            for name in names
        ]

    return write


def _compare(attrs: Mapping[str, Any]) -> list[str]:
    order = ["type=TOTALORDER"] if attrs["total_order"] else []
    return [f"direction={attrs['direction']}", *order]


_ATTRIBUTES: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "iota": lambda attrs: [f"iota_dimension={attrs['dimension']}"],
    "concatenate": lambda attrs: [_dims("dimensions", (attrs["dimension"],))],
    "get-tuple-element": lambda attrs: [f"index={attrs['index']}"],
    "dynamic-slice": lambda attrs: [_dims("dynamic_slice_sizes", attrs["sizes"])],
    **{
        opcode: lambda attrs: [_dims("dimensions", attrs["dimensions"])]
        for opcode in ("broadcast", "transpose", "reverse", "reduce")
    },
    "slice": _slice,
    "pad": _pad,
    "compare": _compare,
    "reduce-window": _window,
    "gather": _numbers(_GATHER),
    "scatter": _numbers(_SCATTER),
    "dot": lambda attrs: [_dims(name, attrs[key]) for key, name in _DOT.items()],
}
