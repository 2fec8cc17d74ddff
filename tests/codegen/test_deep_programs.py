"""Programs thousands of ops deep: what looks at them walks with stacks of its own or stops at a
bound, and no defect is the reason why a pattern is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import CodegenOptions, generate, plan_kernel
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.lower.emit import MOST_STATEMENTS
from fusionstitch.compiler import builders, core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from tests.codegen.regions import whole_of
from tests.programs import reference

X = np.linspace(-1, 1, 96, dtype=np.float32).reshape(8, 12)
SQUARE = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
TABLE = np.arange(100, dtype=np.int32)[::-1].copy()
Fun = Callable[..., Any]
#: More than Python's stack has frames, and than a float has powers of two.
STEPS = 1100


def repeated(step: Fun) -> Callable[[int], Fun]:
    def make(steps: int) -> Fun:
        def fun(x: Any, *others: Any) -> Any:
            for k in range(steps):
                x = step(k, x, *others)
            return x

        return fun

    return make


def _factors(steps: int) -> Fun:
    scaled = repeated(lambda k, y, s: y * s[:, None] if k % 2 else -y)
    return lambda x, s: scaled(steps)(x, s).sum(1)


def _scores(steps: int) -> Fun:
    capped = repeated(lambda k, s: jnp.tanh(s * 0.1) if k % 2 else s * s)

    def fun(q: Any, k: Any, v: Any) -> Any:
        s = jnp.where(jnp.tril(jnp.ones((64, 64), bool)), capped(steps)(q @ k.T), -1e9)
        return jax.nn.softmax(s, -1) @ v

    return fun


def _tuples(steps: int) -> Fun:
    def fun(x: Any) -> Any:
        nested: Any = x * 2
        for _ in range(steps):
            nested = (nested, x + 1)
        return nested

    return fun


def _index(k: int, i: Any, table: Any) -> Any:
    return table[i]


PROGRAMS: dict[str, tuple[Callable[[int], Fun], tuple[Any, ...]]] = {
    "gathers": (repeated(_index), (TABLE[:7], TABLE)),
    "selects": (repeated(lambda k, x: jnp.where(x > k * 1e-3, x * 0.999, x + 0.1)), (X,)),
    "pads": (
        repeated(lambda k, x, i: lax.dynamic_slice(jnp.pad(x, ((0, 1), (0, 0))), (i, 0), X.shape)),
        (X, np.int32(1)),
    ),
    "transposes": (repeated(lambda k, x: jnp.abs(x.T - 0.1)[::-1]), (X,)),
    "factors": (_factors, (X, X[:, 0])),
    "scores": (_scores, (SQUARE, SQUARE, SQUARE)),
}


def stitched(fun: Fun, args: tuple[Any, ...], **options: Any) -> Stitched:
    data = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    chosen = fs.Options(scorer="paper", **options)
    return core.stitch(data, chosen, builders.profile(chosen), None)


def is_sound(result: Stitched) -> bool:
    return not result.fallbacks and not any("Defect" in r.reason for r in result.rejected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_depth_is_no_defect(name: str) -> None:
    make, args = PROGRAMS[name]
    assert is_sound(stitched(make(STEPS), args, device="h200"))


@pytest.mark.parametrize("steps", [40, 60])
def test_places_read_from_places(host_compiler: str, steps: int) -> None:
    fun = repeated(_index)(steps)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(fun, options=options).lower(TABLE[:7], TABLE).compile()
    assert bool(compiled.kernels) == (steps == 40)
    np.testing.assert_array_equal(compiled(TABLE[:7], TABLE), fun(TABLE[:7], TABLE))
    reasons = [r.reason for r in compiled.stitched.rejected]
    assert any("values say that are read" in reason for reason in reasons) == (steps == 60)


def test_one_of_several_values_in_one_of_several() -> None:
    make, args = PROGRAMS["pads"]
    assert stitched(make(150), args, backend="emulate").kernels
    refused = stitched(make(250), args, backend="emulate")
    assert any("reads one of several" in r.reason for r in refused.rejected)


def _nested_calls(depth: int) -> Fun:
    fun: Fun = lambda x: jnp.sin(x) * 1.1  # noqa: E731
    for _ in range(depth):
        fun = jax.jit(lambda x, inner=fun: inner(x) * 1.01 + 0.1)
    return fun


def _nested_loops(depth: int) -> Fun:
    fun: Fun = lambda x: jnp.sin(x) * 1.1  # noqa: E731
    for _ in range(depth):
        fun = lambda x, inner=fun: lax.fori_loop(0, 1, lambda i, y: inner(y) * 1.01 + 0.1, x)  # noqa: E731
    return fun


@pytest.mark.parametrize("fun", [_nested_calls(50), _nested_loops(25), _tuples(50)])
def test_nests(host_compiler: str, fun: Fun) -> None:
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    compiled = fs.jit(fun, options=options).lower(X).compile()
    assert compiled.kernels
    for mine, theirs in zip(jax.tree.leaves(compiled(X)), reference(fun, (X,)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_loop_of_too_many_branches_is_given_up_at_once(monkeypatch: Any) -> None:
    """Gradients of scans read their operands at two indices, level by level: levels are stored
    instead."""

    def loss(x: jax.Array) -> jax.Array:
        pairs = jnp.cos(x), x
        return jnp.sin(lax.associative_scan(_joined, pairs, axis=1)[1]).sum()

    written = []
    add = Writer.add

    def counted(self: Writer, *args: Any) -> None:
        written.append(None)
        add(self, *args)

    monkeypatch.setattr(Writer, "add", counted)
    region = whole_of(jax.grad(loss), jax.ShapeDtypeStruct((4096, 25), jnp.float32))
    with pytest.raises(CodegenError, match=r"in so many branches|of more than 2000 values"):
        Draft.of(plan_kernel(region, device("h200")), CodegenOptions(), device("h200"))
    assert len(written) < 3 * MOST_STATEMENTS
    assert generate(region, device("h200")).shared_bytes > 0


def _joined(left: Any, right: Any) -> Any:
    return left[0] * right[0], right[0] * left[1] + right[1]
