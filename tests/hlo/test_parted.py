"""Modules cut at custom calls: what the parts compute, and what is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.parted import Call, Part, part
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.runtime.portable import as_function

TARGET = "answered"
X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def call(x: jax.Array, number: int, *more: jax.Array) -> Any:
    given = jax.ffi.ffi_call(TARGET, [jax.ShapeDtypeStruct(x.shape, x.dtype)] * 2)
    return given(x, *more, number=np.int64(number))


def lowered(fun: Any) -> bytes:
    hlo: Any = jax.jit(fun, keep_unused=True).lower(X).compiler_ir("hlo")
    return bytes(hlo.as_serialized_hlo_module_proto())


def answer(number: int, x: Any) -> list[Any]:
    return [x * (number + 1), jnp.sin(x)]


def run(data: bytes, *values: Any) -> tuple[list[Any], list[str]]:
    parted, steps = part(data, TARGET), []
    known: dict[Any, Any] = dict(zip(parted.parameters, values, strict=True))
    for step in parted.steps:
        given = [known[value] for value in step.takes]
        if isinstance(step, Call):
            found = answer(step.number, given[0])
            steps.append(f"call {step.number}")
        else:
            found = as_function(step.module, "part")(*given)
            steps.append("part")
        known.update(zip(step.gives, found, strict=True))
    return [known[value] for value in parted.results], steps


def two_in_a_row(x: jax.Array) -> Any:
    y = jnp.exp(x) + 2.0
    a, b = call(y, 0)
    z = jnp.tanh(a).sum(0) + y
    c, _ = call(z, 1, b)
    return c / y, b, x, jnp.float32(3.0)


def side_by_side(x: jax.Array) -> Any:
    a, _ = call(x + 1.0, 0)
    b, _ = call(x * 2.0, 1)
    return a * b


def around_a_loop(x: jax.Array) -> Any:
    a, _ = call(x, 0)
    return jax.lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) + x, a)


@pytest.mark.parametrize(
    ("fun", "expected"),
    [
        (two_in_a_row, ["part", "call 0", "part", "call 1", "part"]),
        (side_by_side, ["part", "call 0", "call 1", "part"]),
        (around_a_loop, ["call 0", "part"]),
        (lambda x: jnp.tanh(x) @ x.T, ["part"]),
    ],
)
def test_the_parts_and_calls_compute_what_the_module_does(
    fun: Any, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, steps = run(lowered(fun), X)
    assert steps == expected
    monkeypatch.setitem(globals(), "call", lambda x, number, *_: answer(number, x))
    for one, other in zip(found, jax.tree.leaves(fun(jnp.asarray(X))), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


def test_the_same_module_gives_the_same_parts() -> None:
    data = lowered(two_in_a_row)
    one, other = (part(data, TARGET) for _ in range(2))
    assert one == other
    assert sum(isinstance(step, Part) for step in one.steps) == 3


def test_what_cannot_be_cut_is_refused() -> None:
    def inside(x: jax.Array) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, c: call(c, 0)[0], x)

    with pytest.raises(ImportModuleError, match="inside of another computation"):
        part(lowered(inside), TARGET)
    with pytest.raises(ImportModuleError, match="has no number"):
        part(module(f'ROOT c = f32[4] custom-call(p), custom_call_target="{TARGET}"'), TARGET)
    tuples = [
        't = (f32[4], f32[4]) custom-call(p), custom_call_target="other"',
        f'c = f32[4] custom-call(p), custom_call_target="{TARGET}", backend_config={{number = 0}}',
        'ROOT r = f32[4] custom-call(t, c), custom_call_target="other"',
    ]
    with pytest.raises(ImportModuleError, match="tuple t goes from part to part"):
        part(module(*tuples), TARGET)
    with pytest.raises(ImportModuleError, match="results are those of one instruction"):
        part(module(f"ROOT {tuples[0]}"), TARGET)


def module(*lines: str) -> bytes:
    body = "".join(f"  {line}\n" for line in ("p = f32[4] parameter(0)", *lines))
    return text_to_proto(f"HloModule m\n\nENTRY e {{\n{body}}}\n")
