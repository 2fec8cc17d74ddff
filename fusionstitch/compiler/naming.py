"""Names and keys that depend on content only, so that equal work is done once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.literals import content

#: Opcodes that identify a kernel, the most distinctive first, and their names.
_TELLING = {
    "dot": "dot",
    "convolution": "conv",
    "sort": "sort",
    "topk": "topk",
    "radix-sort": "sort",
    "reduce": "reduce",
    "gather": "gather",
    "concatenate": "concat",
    "exponential": "exp",
    "log": "log",
    "tanh": "tanh",
    "logistic": "sigmoid",
    "erf": "erf",
    "inverse-erf": "erfinv",
    "rsqrt": "rsqrt",
    "sqrt": "sqrt",
    "divide": "div",
    "power": "pow",
    "transpose": "transpose",
    "select": "select",
    "multiply": "mul",
    "add": "add",
    "subtract": "sub",
}
_WORDS = 3


def kernel_name(ops: Sequence[Op], key: str) -> str:
    """A name such as `fs_dot_reduce_exp_1a2b3c4d`: its main ops, and the first digits of `key`."""
    present = {op.opcode for op in ops}
    words = [word for opcode, word in _TELLING.items() if opcode in present][:_WORDS]
    return "_".join(["fs", *words, key[:8]])


def graph_key(graph: Graph) -> str:
    """A hash of a whole graph's structure, without names, source lines and proto ids."""
    position = {op.origin: op.id for op in graph if op.origin is not None}
    digest = hashlib.sha256()
    for op in graph:
        attrs = sorted((name, _text(value)) for name, value in op.attrs.items())
        operands = [o.id for o in op.operands]
        control = [position.get(origin, -1) for origin in op.control]
        called = [graph_key(g) for g in op.called]
        stands = op.origin is not None
        line = (
            op.opcode,
            str(op.shape),
            operands,
            attrs,
            control,
            called,
            stands,
            bool(op.source.left),
        )
        digest.update(repr(line).encode())
    digest.update(repr(graph.root.id).encode())
    return digest.hexdigest()


def _text(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{value.shape}{hashlib.sha256(content(value)).hexdigest()}"
    return repr(value)
