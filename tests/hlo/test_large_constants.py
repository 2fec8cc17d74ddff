"""Large constants: no pass reads their elements, kernels take them as operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.hlo import schema
from fusionstitch.hlo.detached import LEAST, attach, detach
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.literals import MAX_READ, NUMPY_DTYPES, fill_literal, only_element, to_numpy

X = np.linspace(-2, 2, 64 * 300, dtype=np.float32).reshape(64, 300)
TABLE = np.sin(np.arange(64 * 300, dtype=np.float32)).reshape(64, 300)


def lowered(fun: Callable[..., Any], *args: Any) -> bytes:
    data: bytes = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


def literal_of(value: np.ndarray) -> Any:
    literal = schema.Literal()
    fill_literal(literal, value, schema.Shape())
    return literal


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_a_large_constant_is_read_only_where_all_elements_are_one(dtype: str) -> None:
    size = 2 * MAX_READ
    shape = Shape(dtype, (2, size // 2))
    one = np.ones((), NUMPY_DTYPES[dtype])
    splat = to_numpy(literal_of(np.full(shape.dims, one)), shape)
    assert splat is not None
    assert splat.shape == shape.dims
    assert not any(splat.strides)
    assert only_element(splat) == one
    for index in ((0, 0), (0, 5), (1, 0), (1, size // 2 - 1)):  # wherever the other one is
        value = np.full(shape.dims, one)
        value[index] = np.zeros((), NUMPY_DTYPES[dtype])
        assert to_numpy(literal_of(value), shape) is None
        with pytest.raises(ValueError, match="elements"):
            to_numpy(literal_of(value), Shape(dtype, (size + 1,)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_zeros_of_two_signs_are_two_values(dtype: Any) -> None:
    for size in (4, 4 * MAX_READ):
        value = np.zeros(size, dtype)
        value[size - 2] = -0.0
        read = to_numpy(
            literal_of(value),
            Shape(
                "bf16" if dtype is ml_dtypes.bfloat16 else f"f{np.dtype(dtype).itemsize * 8}",
                (size,),
            ),
        )
        assert read is None if size > 4 else only_element(read) is None


def test_large_literals_come_off_and_back() -> None:
    table = np.arange(LEAST, dtype=np.int32) ** 2
    data = lowered(lambda x: (x + table, jax.lax.fori_loop(0, 3, lambda _, y: y * table, x)), table)
    rest, literals = detach(data)
    assert len(rest) < LEAST <= len(data)
    assert literals
    assert parse(attach(rest, literals)) == parse(data)
    opaque = [op for g in from_proto(rest).graphs for op in g if op.opcode == "opaque-constant"]
    assert {op.dims for op in opaque} == {table.shape}
    assert not any(op.attrs for op in opaque)


def test_what_the_importer_reads_or_refuses_stays() -> None:
    module = parse(lowered(lambda x: x + np.arange(LEAST, dtype=np.float32), np.ones(LEAST, "f")))
    [constant] = [i for c in module.computations for i in c.instructions if i.opcode == "constant"]
    del constant.literal.f32s[7]
    data = module.SerializeToString()
    assert detach(data) == (data, ())
    with pytest.raises(ImportModuleError, match="elements"):
        from_proto(data)
    del constant.literal.f32s[:]
    constant.literal.f32s.extend([2.5] * LEAST)
    data = module.SerializeToString()
    assert detach(data) == (data, ())
    assert detach(b"\xff" * LEAST) == (b"\xff" * LEAST, ())


def _softmax(x: Any, table: Any) -> Any:
    return jax.nn.softmax(x * table, -1) + table.sum(0)


def _loop(x: Any, table: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, y: jax.nn.softmax(y + table) * table, x)


@pytest.mark.parametrize("fun", [_softmax, _loop])
def test_a_constant_is_an_operand(host_compiler: str, fun: Callable[..., Any]) -> None:
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    closed = fs.jit(lambda x: fun(x, TABLE), options=options).lower(X).compile()
    other = fs.jit(lambda x: fun(x, TABLE[::-1] + 1), options=options).lower(X).compile()
    assert closed.kernels
    for kernel in closed.kernels:
        assert len(kernel.source) < 20_000
        assert "static __device__ const" not in kernel.source
    assert [k.source for k in closed.kernels] == [k.source for k in other.kernels]
    np.testing.assert_allclose(closed(X), jax.jit(fun)(X, TABLE), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(other(X), jax.jit(fun)(X, TABLE[::-1] + 1), rtol=1e-5, atol=1e-6)


def test_a_very_large_one_is_an_argument_of_what_is_stitched(host_compiler: str) -> None:
    table = np.cos(np.arange(1 << 18, dtype=np.float32)).reshape(256, 1024)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")

    def fun(x: dict[str, Any], scale: float) -> dict[str, Any]:
        return {"y": jax.nn.softmax(x["a"] * table * scale) + jnp.asarray(table) * 2}

    jitted = fs.jit(fun, options=options, static_argnums=1)
    compiled = jitted.lower({"a": table}, 0.5).compile()
    assert compiled.kernels
    assert len(compiled.stitched.module) < table.nbytes
    expected = jax.jit(fun, static_argnums=1)({"a": table}, 0.5)
    np.testing.assert_allclose(jitted({"a": table}, 0.5)["y"], expected["y"], rtol=1e-5, atol=1e-6)


def test_kernels_do_not_write_over_constants() -> None:
    from fusionstitch.compiler import builders, core

    def fun(x: Any) -> Any:
        return jax.nn.softmax(x.sum() + TABLE)

    options = fs.Options(device="h200", scorer="paper")
    result = core.stitch(lowered(fun, X), options, builders.profile(options), None, aliasing=True)
    from fusionstitch.compiler.reuse import in_place
    from fusionstitch.hlo.inline import inline_calls
    from fusionstitch.hlo.simplify import simplify_module

    module = simplify_module(from_proto(inline_calls(lowered(fun, X))))
    taken = [
        s
        for s in result.stitches
        if any(op.opcode == "opaque-constant" for op in s.chosen.pattern.inputs)
    ]
    assert taken
    for one in taken:
        inputs = one.chosen.pattern.inputs
        for _, operand in in_place(module, one.chosen.pattern, one.kernel):
            assert inputs[operand].opcode != "opaque-constant"
