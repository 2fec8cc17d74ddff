"""Parts of programs as modules of their own, run by the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from fusionstitch.hlo.errors import VerifyError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.extract import extract
from fusionstitch.hlo.graph import Graph, Module, Op
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.simplify import simplify_module
from fusionstitch.hlo.verify import verify_module
from tests.hlo.conftest import Program


def _module(program: Program) -> Module:
    return simplify_module(from_proto(inline_calls(program.hlo)))


def _run(module: Module, inputs: list[Op], outputs: list[Op], values: list) -> list[np.ndarray]:
    data = extract(module, module.entry, inputs, outputs, "part")
    verify_module(data)
    part = from_proto(data)
    assert part.name == "part"
    assert [p.shape for p in part.entry.parameters] == [op.shape for op in inputs]
    return evaluate(part.entry, values)


def _results(graph: Graph) -> list[Op]:
    return list(graph.root.operands) if graph.root.opcode == "tuple" else [graph.root]


@pytest.mark.parametrize("name", ["mlp", "transformer", "half", "movement", "integers"])
def test_two_halves_are_the_whole(programs: dict[str, Program], name: str) -> None:
    module = _module(programs[name])
    graph, leaves = module.entry, programs[name].leaves
    whole = evaluate(graph, leaves)
    computed = [op for op in graph if op.opcode not in ("parameter", "tuple", "constant")]
    first = {op.id for op in computed[: len(computed) // 2]}
    crossing = [
        op
        for op in graph
        if op.id in first
        and op.origin is not None
        and any(user.id not in first for user in graph.users[op.id])
    ]
    middle = _run(module, list(graph.parameters), crossing, leaves)
    inputs = [*graph.parameters, *crossing]
    again = _run(module, inputs, _results(graph), [*leaves, *middle])
    for one, other in zip(again, whole, strict=True):
        if name == "half":  # what crosses is rounded to bf16 once more, and so is every result
            assert _ulps_of_bf16(one, other) <= 1
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def _ulps_of_bf16(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, in units of the last of bf16's eight digits of the larger value."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    _, exponent = np.frexp(np.maximum(abs(a), abs(b)))
    return float((abs(a - b) / np.ldexp(1.0, exponent - 8)).max())


def test_what_the_outputs_need_must_be_among_the_inputs(programs: dict[str, Program]) -> None:
    module = _module(programs["mlp"])
    with pytest.raises(VerifyError, match="is no input of the pattern"):
        extract(module, module.entry, [], _results(module.entry), "part")
