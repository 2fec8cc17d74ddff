"""Loops whose results lie in the memory of what they start from, in every form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.compiler import core
from fusionstitch.hlo.importer import from_proto
from fusionstitch.options import Options
from fusionstitch.runtime import emulate
from tests.api.test_reuse import fake
from tests.loops.forms import BIG, FORMS, cases, run, wholes
from tests.loops.growth import Grown

draw = np.random.default_rng(0)


def numbers(*dims: int) -> np.ndarray:
    return draw.standard_normal(dims, np.float32)


def ensemble(x: Any) -> Any:
    return lax.fori_loop(0, 21, lambda i, x: jnp.sin(x) + x[:, ::-1], x)


def recurrent(h: Any, xs: Any, w: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, xs)[0]


def stencil(x: Any) -> Any:
    return lax.fori_loop(0, 20, lambda i, x: (jnp.roll(x, 1) + jnp.roll(x, -1)) * 0.5, x)


def odd(x: Any) -> Any:
    """The last iteration writes to the other one of two buffers."""
    return lax.fori_loop(0, 21, lambda i, x: (jnp.roll(x, 1) + jnp.roll(x, -1)) * 0.5, x)


def two_states(x: Any, y: Any) -> Any:
    step = lambda i, c: (c[0] * 0.9 + jnp.sum(c[1]), c[1] * c[0])  # noqa: E731
    return lax.fori_loop(0, 7, step, (x, y))


def recorded(into: Any, x: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        x = jnp.roll(c[1], 1) * 1.1
        return c[0].at[i + 3].set(x), x

    return lax.fori_loop(0, 5, step, (into, x))


def ended_by_data(x: Any) -> Any:
    """The condition of the first iteration reads the input, too."""
    step = lambda x: (jnp.roll(x, 1) + x) * 0.4  # noqa: E731
    return lax.while_loop(lambda x: jnp.sum(x * x) > 1e-2, step, x)


def read_again(x: Any) -> Any:
    """Every iteration reads what the loop starts from."""
    return lax.fori_loop(0, 4, lambda i, y: jnp.roll(y, 1) * 0.5 + x, x)


def turned(x: Any) -> Any:
    """What a row starts from does not lie where its result does."""
    return lax.fori_loop(0, 4, lambda i, y: y * 0.5 + jnp.sin(y), x.T).T


WIDE = numbers(1500)
#: By program, its arguments, and by form the outputs that may lie where an input does.
PROGRAMS: dict[Callable[..., Any], tuple[tuple[np.ndarray, ...], dict[str, list[int]]]] = {
    ensemble: (
        (numbers(640, 3),),
        {form: [0] for form in FORMS},
    ),
    recurrent: (
        (numbers(64, 32), numbers(9, 64, 32), numbers(32, 32)),
        {form: [0] for form in FORMS},
    ),
    stencil: ((WIDE,), {"block": [0], "grid": [0]}),
    odd: ((WIDE,), {"block": [0], "grid": [0]}),
    two_states: ((WIDE, WIDE), {"block": [0, 1], "grid": [0, 1]}),
    recorded: (
        (numbers(10, 1500), WIDE),
        {"block": [0, 1], "grid": [0, 1]},
    ),
    ended_by_data: ((WIDE,), {"block": [0], "grid": [0]}),
    read_again: ((WIDE,), {"block": [0], "grid": []}),
    turned: (
        (numbers(40, 40),),
        {"rows": [0], "dealt": [0], "cluster": [0], "block": [0]},
    ),
}


@pytest.mark.parametrize("fun", PROGRAMS)
@pytest.mark.usefixtures("host_compiler")
def test_results_lie_where_the_loop_starts_from(fun: Callable[..., Any]) -> None:
    args, expected = PROGRAMS[fun]
    [whole] = wholes(Grown(fun, args, fun.__name__))
    found = list(cases(whole, "132 multiprocessors"))
    outputs = {case.form: sorted(o for o, _ in case.kernel.in_place) for case in found}
    assert {form: outputs[form] for form in expected} == expected
    artifacts = emulate.build([case.kernel for case in found], checked=True)
    for case, artifact in zip(found, artifacts, strict=True):
        for seed in range(1, 9, 2):  # odd: in place
            assert not run(case, artifact, seed), case.kernel.template


def test_donated_carries_are_overwritten() -> None:
    assert aliases(module(stencil, donate_argnums=0)) == [(0, 0)]
    assert aliases(module(stencil)) == []


def module(fun: Callable[..., Any], **keywords: Any) -> bytes:
    spec = jax.ShapeDtypeStruct((1 << 14,), jnp.float32)
    lowered = jax.jit(fun, **keywords).lower(spec)
    data: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


def aliases(data: bytes) -> list[tuple[int, int]]:
    """The (output, input) pairs of the calls in a stitched module."""
    result = core.stitch(data, Options(backend="emulate"), BIG, fake, aliasing=True)
    assert [k for k in result.kernels if dict(k.facts).get("scope") == "loop"]
    return [
        (pair.output_shape_index[0], pair.operand_index)
        for computation in from_proto(result.module).proto.computations
        for instruction in computation.instructions
        for pair in instruction.output_operand_aliasing
    ]
