"""Pads inside of kernels: most of their elements are computed without a branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.loops.stages import inlined_reads
from fusionstitch.codegen.lower import pads
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.while_loops.generate import plan_loops
from fusionstitch.compiler import core
from fusionstitch.options import Options
from tests.codegen.regions import H200, whole_of

draw = np.random.default_rng(7)
X = draw.standard_normal((9, 37), np.float32)
WHERE = draw.integers(0, 37, (9, 37))


def padded(x: Any, *edges: tuple[int, int, int], value: float = 0.5) -> Any:
    return lax.pad(x, np.float32(value), edges)


#: Pads of values that are computed where they are read, all of them of X.
PADS: dict[str, Callable[[Any], Any]] = {
    "above": lambda x: padded(jnp.sin(x), (0, 2, 0), (0, 3, 0)),
    "below": lambda x: padded(jnp.sin(x), (1, 0, 0), (2, 0, 0)),
    "around": lambda x: padded(jnp.sin(x), (1, 1, 0), (1, 1, 0)),
    "cut": lambda x: padded(jnp.sin(x), (-1, 2, 0), (3, -4, 0)),
    "one row": lambda x: padded(jnp.sin(x[:1]), (0, 0, 0), (2, 2, 0)) * 2,
    "of one": lambda x: padded(jnp.sin(x[:, :1]), (1, 0, 0), (0, 1, 0)),
    "mostly padding": lambda x: padded(jnp.sin(x), (9, 9, 0), (37, 9, 0)),
    "between": lambda x: padded(jnp.sin(x), (0, 0, 1), (1, 1, 0)),
    "of a pad": lambda x: padded(jnp.sin(padded(x * 2, (1, 1, 0), (1, 1, 0))), *[(1, 1, 0)] * 2),
    "of what is joined": lambda x: padded(
        jnp.sin(jnp.concatenate([x * 2, x + 1], 1)), (0, 0, 0), (3, 3, 0)
    ),
    "of what is picked": lambda x: padded(
        jnp.sin(jnp.take_along_axis(x, jnp.asarray(WHERE), 1)), (1, 0, 0), (0, 5, 0)
    ),
    "the diagonal": lambda x: padded(jnp.sin(x[:, :9] * x[:, :9].T), (1, 1, 0), (1, 1, 0)),
    "one index in two": lambda x: jnp.diagonal(padded(jnp.sin(x[:, :7]), (0, 1, 0), (0, 3, 0))),
    "all of it padding inside": lambda x: lax.pad(
        jnp.sin(lax.pad(jnp.arange(37.0) * x.max(), np.float32(1), [(15, 14, 0)])),
        np.float32(2),
        [(2, -59, 0)],
    ),
    "of a mean": lambda x: padded(x - x.mean(1, keepdims=True), (1, 1, 0), (1, 1, 0)),
    "by what is computed": lambda x: lax.pad(jnp.sin(x), x[0, 0] * 2, [(1, 1, 0), (0, 2, 0)]),
    "not a number": lambda x: padded(jnp.log(x), (1, 0, 0), (0, 1, 0), value=np.nan),
    "summed": lambda x: padded(jnp.sin(x), (1, 1, 0), (1, 1, 0)).sum(0),
    "stencil": lambda x: sum(
        padded(jnp.sin(x), (1, 1, 0), (0, 0, 0))[k : k + 9] * (k + 1) for k in range(3)
    ),
}


@pytest.mark.parametrize("name", PADS)
def test_pads_are_what_xla_gives(
    host_compiler: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CHECK", "1")  # nothing is read outside
    options = fs.Options(backend="emulate", fallback="error", scorer="paper")
    found = fs.jit(PADS[name], options=options)(X)
    np.testing.assert_allclose(found, jax.jit(PADS[name])(X), rtol=2e-6, atol=1e-6)


def test_most_elements_take_no_branch() -> None:
    def source(fun: Callable[[Any], Any]) -> str:
        return generate(whole_of(fun, X), H200).source

    computed = source(PADS["around"])
    assert "= fs_clamp<int>(0, " in computed
    assert "else {" not in computed
    # compilers leave a load out where it is not needed
    loaded = source(lambda x: padded(x, (1, 1, 0), (1, 1, 0)) * 2)
    assert "fs_clamp" not in loaded
    # what is mostly padding is not computed for that
    assert "fs_clamp" not in source(PADS["mostly padding"])


def test_what_is_overwritten_is_read_by_its_owners_alone() -> None:
    """The carry is updated in place, from its own element where there is one."""

    def step(_: Any, c: Any) -> Any:
        return c * 0.5 + padded(c[:, :30] * 2 + 1, (0, 0, 0), (0, 7, 0), value=0)

    for form in ("block", "dealt", "grid"):
        region = whole_of(lambda x: lax.fori_loop(0, 5, step, x), X)
        settings = Settings(H200, CodegenOptions())
        text = plan_loops(region, settings, template=f"loop {form}").kernel().source
        assert "fs_clamp" not in text


def test_what_nobody_has_is_not_read() -> None:
    """The inner pad is read where it is padding: so its operand is no argument of a function."""

    def pads(x: Any, w: Any) -> Any:
        inner = lax.pad(x * 0.5 + 1, np.float32(1), [(15, 14, 0)])
        found = lax.pad(jnp.sin(inner), np.float32(2), [(2, -59, 0)])
        return found + w, jnp.cos(x), x[:7] * 2, x[:5] + w[:5]

    text = generate(whole_of(pads, np.zeros(37, np.float32), np.ones(9, np.float32)), H200).source
    assert "_out[" in text


def test_parts_of_a_sum_that_do_not_come_out_even_take_none() -> None:
    many = jax.ShapeDtypeStruct((1_000_003,), jnp.float32)
    text = generate(whole_of(lambda x: jnp.sum(jnp.sin(x) * x), many), H200).source
    assert "= fs_clamp<int>(0, " in text
    assert "_padded;" not in text


class Endless(BaseException):
    """No defect that planning goes on from."""


@pytest.mark.slow
def test_what_nested_pads_read_is_looked_at_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans by halves are pads of pads: each doubles the indices that those below are read at."""
    looked = 0

    def counted(op: Any, index: Any) -> Any:
        nonlocal looked
        looked += 1
        if looked > 1_000_000:
            raise Endless
        return inlined_reads(op, index)

    def loss(risk: Any, event: Any) -> Any:
        at_risk = lax.cumlogsumexp(risk, axis=1, reverse=True)
        return -jnp.where(event, risk - at_risk, 0).sum() / jnp.maximum(event.sum(), 1)

    def fun(beta: Any, x: Any, event: Any) -> Any:
        value, slope = jax.value_and_grad(lambda b: loss((x @ b)[None], event))(beta)
        risk = jnp.exp((x @ beta)[None])
        left = jnp.flip(jnp.cumsum(jnp.flip(risk, 1), 1), 1)
        return value, slope, jnp.cumsum(event / left, 1)

    monkeypatch.setattr(pads, "inlined_reads", counted)
    shapes = ((10,), "float32"), ((90_847, 10), "float32"), ((1, 90_847), "bool")
    lowered = jax.jit(fun).lower(*(jax.ShapeDtypeStruct(*one) for one in shapes))
    module: Any = lowered.compiler_ir("hlo")
    data = module.as_serialized_hlo_module_proto()
    assert core.stitch(data, Options(scorer="model"), H200, None).kernels
    assert looked > 20_000  # there is something to look at
