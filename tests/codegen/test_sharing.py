"""Functions that are alike become one, and others what they do, where they are called."""

from __future__ import annotations

import numpy as np
import pytest

from fusionstitch.codegen.index_maps.index import Index, variable
from fusionstitch.codegen.ir.expressions import BLOCK, THREAD, Expr, Name, infix, number
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes.sharing import MOST_CONSTANTS, share_functions
from fusionstitch.codegen.ir.printer import function, text
from fusionstitch.codegen.ir.statements import Function, If, Invoke, Let, Statement
from fusionstitch.codegen.ir.types import FLOAT, INT, LONG, PointerTo
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.runtime import emulate
from tests.codegen.synchronised import at as loaded
from tests.codegen.synchronised import printed, put, runs

TILE, T = variable("tile", 2), variable("t", 32)
PARAMETERS = ((INT, "tile"), (PointerTo(FLOAT, constant=True), "in_0"), (PointerTo(FLOAT), "out_0"))
X = np.arange(256, dtype=np.float32)


def doubled(name: str, *indices: int, times: int = 2) -> Function:
    """Makes elements of each of the `places` from those after it."""
    body: list[Statement] = [Let(INT, "t", THREAD)]
    for position in indices:
        value = infix("*", loaded("in_0", TILE * 32 + T + position), times)
        body += [Let(FLOAT, f"v_{position}", value)] if position == -1 else []
        body += [put("out_0", TILE * 32 + T + position, value)]
    return Function(name, PARAMETERS, tuple(body))


def call(name: str, tile: Expr) -> Invoke:
    return Invoke(name, (tile, Name("x"), Name("out")))


def kernel(functions: list[Function], *body: Statement) -> Lowered:
    buffers = (
        Buffer("x", FLOAT, 256, Memory.INPUT),
        Buffer("out", FLOAT, 256, Memory.OUTPUT),
    )
    return Lowered("k", buffers, tuple(functions), body, 32, 1, 2, 0)


def shared(one: Lowered) -> Lowered:
    found = share_functions(one, Names(["x", "out", "t", *(f.name for f in one.functions)]))
    verify(found)
    return found


def test_what_differs_in_places_alone_is_told_them() -> None:
    functions = [doubled("part", 64), doubled("part_1", 128)]
    found = shared(kernel(functions, call("part", BLOCK), call("part_1", infix("-", BLOCK, 0))))
    [one] = found.functions
    assert next(iter(function(one))).endswith(
        "part(\n    const int tile,\n    const float* in_0,\n    float* out_0,"
        "\n    const int at_0,\n    const int at_1) {"
    )
    assert "out_0[tile * 32 + t + at_1] = in_0[tile * 32 + t + at_0] * 2;" in "".join(
        line.strip() for line in function(one)
    )
    assert (
        text(found.body)
        == "part(blockIdx.x, x, out, 64, 64);\npart(blockIdx.x - 0, x, out, 128, 128);"
    )


def test_equal_ones_need_no_more() -> None:
    functions = [doubled("part", 64), doubled("part_1", 64)]
    found = shared(kernel(functions, call("part", BLOCK), call("part_1", BLOCK)))
    assert [f.parameters for f in found.functions] == [PARAMETERS]
    assert text(found.body) == "part(blockIdx.x, x, out);\npart(blockIdx.x, x, out);"


def test_places_beyond_32_bits_are_wider() -> None:
    functions = [doubled("part", 64), doubled("part_1", 1 << 31)]
    one = kernel(functions, call("part", BLOCK), call("part_1", BLOCK))
    [found] = share_functions(one, Names()).functions
    assert [kind for kind, _ in found.parameters[3:]] == [LONG, LONG]


MANY = range(32, 32 * (2 + MOST_CONSTANTS // 2), 32)


@pytest.mark.parametrize(
    "functions",
    [
        [doubled("part", 64)],
        [doubled("part", 64), doubled("part_1", 64, times=3)],
        [doubled("part", *MANY), doubled("part_1", *(position + 1 for position in MANY))],
    ],
)
def test_what_no_other_one_does_stands_where_it_is_called(functions: list[Function]) -> None:
    inside = If(infix("<", BLOCK, 1), None, tuple(call(f.name, BLOCK) for f in functions))
    found = shared(kernel(functions, Let(INT, "t", THREAD), inside))
    assert not found.functions
    message = text(found.body)
    assert "const int tile = blockIdx.x;" in message
    assert "const int t_1 = threadIdx.x;" in message
    assert "out[tile * 32 + t_1 + 64] = x[tile * 32 + t_1 + 64] * 2;" in message


def test_what_is_not_read_is_not_declared() -> None:
    body = (Let(INT, "t", THREAD), put("out_0", T, loaded("in_0", T)))
    found = shared(kernel([Function("part", PARAMETERS, body)], call("part", number(0))))
    assert text(found.body) == "const int t_1 = threadIdx.x;\nout[t_1] = x[t_1];"


def test_values_stay(host_compiler: str) -> None:
    functions = [doubled("part", 64), doubled("part_1", 128), doubled("part_2", 0, 192, times=3)]
    before = kernel(functions, *(call(f.name, BLOCK) for f in functions))
    for one in (before, shared(before)):
        [artifact] = emulate.build([printed(one)], checked=True)
        [out] = runs(printed(one), artifact, X, [("forward", 0)])
        assert (out == X * np.repeat([3, 2, 2, 3], 64)).all()


def test_a_kernel_without_functions_stays_what_it_is() -> None:
    one = kernel([], put("out", Index(), number(1)))
    assert share_functions(one, Names()) is one
