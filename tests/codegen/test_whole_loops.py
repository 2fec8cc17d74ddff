"""Loop scope: whole loops in one kernel, on the emulator, against jax.jit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.codegen.while_loops.summary import Loops
from fusionstitch.compiler import builders, core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.hlo.text import text_to_proto
from tests.codegen.whole_loop_programs import (
    PROGRAMS,
    ROWS,
    fields,
    nested,
    rows_of,
    stitched,
    two_ends,
)
from tests.conftest import Golden
from tests.nearness import assert_near


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_whole_loop_gives_what_xla_gives(host_compiler: str, name: str) -> None:
    fun, x, rows = PROGRAMS[name]
    assert rows_of(stitched(fun, x, fallback="error")) == rows
    ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))(x)
    theirs = jax.jit(fun)(x)
    assert_near(ours, theirs, 2e-6, rough=8e-3)


def from_text(name: str) -> Stitched:
    """A program as HLO text, in which all versions of JAX call ops alike."""
    data = text_to_proto((Path(__file__).parent / "loops" / f"{name}.hlo").read_text())
    options = fs.Options(backend="emulate")
    return core.stitch(data, options, builders.profile(options), None)


def test_the_text_of_a_loop(golden: Golden) -> None:
    [kernel] = from_text("lorenz").kernels
    golden(kernel.source)


def test_the_earlier_of_two_ends_is_known() -> None:
    [stitch] = stitched(two_ends, ROWS[0]).stitches
    told = dict(stitch.kernel.facts)["loops"]
    assert isinstance(told, Loops)
    assert [loop.iterations for loop in told.loops] == [6]
    assert dict(stitch.chosen.facts.facts)["turns"] == (6, (), False)


def test_bodies_of_whole_loops_are_not_planned() -> None:
    found = stitched(nested, ROWS[0])
    assert [plan.graph.name for plan in found.plans] == [found.plans[-1].graph.name]


def test_a_narrower_scope_leaves_loops_to_xla() -> None:
    assert rows_of(stitched(nested, ROWS[0], scope="grid")) == []


def test_why_a_loop_stays_xlas_is_told() -> None:
    def transformed(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, lambda i, x: jnp.fft.fft(x).real * 0.5, x)

    found = stitched(transformed, ROWS[0])
    assert rows_of(found) == []
    [reason] = [r.reason for r in found.rejected if r.rule == "loop"]
    assert "fft" in reason


def test_a_loop_with_effects_stays_xlas() -> None:
    def told(x: jax.Array) -> jax.Array:
        def step(i: jax.Array, x: jax.Array) -> jax.Array:
            jax.debug.callback(lambda i: None, i)
            return x * 0.5

        return lax.fori_loop(0, 5, step, x)

    found = stitched(told, ROWS[0])
    assert rows_of(found) == []
    assert any("effects" in r.reason for r in found.rejected if r.rule == "loop")


def test_a_long_sum_in_a_thread_is_refused() -> None:
    def asked(x: jax.Array) -> Any:
        more = lambda s: (jnp.sum(s[1]) > 1e9) & (s[0] < 5)  # noqa: E731
        return lax.while_loop(more, lambda s: (s[0] + 1, s[1]), (0, x))[0]

    assert rows_of(stitched(asked, np.ones(1000, np.float32))) in ([], [0])


def previous(x: jax.Array) -> Any:
    """A stacked array whose value of before is carried on, too."""

    def step(i: jax.Array, s: Any) -> Any:
        x, out, _ = s
        return x * 0.5, lax.dynamic_update_index_in_dim(out, x, i, 0), out

    return lax.fori_loop(0, 3, step, (x, jnp.zeros((3, 4)), jnp.zeros((3, 4))))


def masked_writes(x: jax.Array) -> Any:
    """Rows write until they stop, each as often as it likes."""

    def one(x: jax.Array) -> Any:
        def step(s: Any) -> Any:
            i, x, out = s
            return i + 1, x * 0.7, lax.dynamic_update_index_in_dim(out, x, i, 0)

        return lax.while_loop(lambda s: s[1] > 0.2, step, (0, x, jnp.full((16,), 3.0)))

    return jax.vmap(one)(x)


@pytest.mark.parametrize(("fun", "x"), [(previous, ROWS[0, :4]), (masked_writes, np.abs(ROWS[0]))])
def test_arrays_that_are_written_and_read(
    host_compiler: str, fun: Callable[..., Any], x: np.ndarray
) -> None:
    ours = fs.jit(fun, options=fs.Options(backend="emulate"))(x)
    for own, their in zip(jax.tree.leaves(ours), jax.tree.leaves(jax.jit(fun)(x)), strict=True):
        np.testing.assert_allclose(own, their, rtol=1e-6)


def test_fields_of_a_row_are_read_and_written_at_once() -> None:
    [kernel] = (k for k in stitched(fields, PROGRAMS["fields"][1]).kernels if "turn" in k.source)
    assert "fs_load_vec<float, 4>" in kernel.source
    assert "fs_store_vec" in kernel.source


def test_a_long_iteration_is_written_once() -> None:
    def filtered(x: jax.Array) -> Any:
        def step(s: jax.Array, x: jax.Array) -> Any:
            spread = jnp.outer(s, s) + jnp.eye(6) * x
            s = jnp.tanh(spread @ spread @ s)
            return s, s[0]

        return jax.vmap(lambda x: lax.scan(step, jnp.ones(6), x))(x)[1]

    def short(x: jax.Array) -> Any:
        return lax.scan(lambda s, x: (0.5 * s + x, s), 0.0 * x[0], x)[1]

    many = np.ones((2048, 40), np.float32)
    [long, *_] = stitched(filtered, many).kernels
    assert "FS_UNROLL_BY(1) for (int turn = 0; turn < 40; ++turn)" in long.source
    with taken("rows"):
        [brief] = stitched(short, many.T).kernels
    assert "FS_UNROLL_BY(4) for (int turn = 0; turn < 40; ++turn)" in brief.source


def test_an_array_of_a_row_is_assigned_in_part() -> None:
    """One that iterations fill is in registers if they are written out, and begins with nothing if
    they do not read it; of a large one, one element is assigned and not each chosen anew."""
    kernel = loop_of("warped")
    assert "FS_UNROLL for (int turn_1 = 0; turn_1 < 7; ++turn_1)" in kernel
    [filled] = re.findall(r"float (\w+)\[7\];", kernel)
    assert f"{filled}[turn_1] = " in kernel
    assert f"{filled}[0] = " not in kernel
    kernel = loop_of("stages")
    assert "FS_UNROLL for (int turn_1 = 0; turn_1 < 4; ++turn_1)" in kernel
    assert re.search(r"_kept_1\[3\] = 0.0f;", kernel), "the first stage reads zeros"
    kernel = loop_of("filled sometimes")
    assert len(re.findall(r"_kept(_1)?\[17\] = ", kernel)) == 3, "it does not always run"
    kernel = loop_of("ring")
    assert len(re.findall(r"_kept\[\w+_index\] = ", kernel)) == 1


def loop_of(name: str) -> str:
    """The text of the one kernel of a program that is a loop."""
    fun, x, _ = PROGRAMS[name]
    [kernel] = [k for k in stitched(fun, x).kernels if k.template.startswith("loop")]
    return kernel.source
