"""Large arrays that a loop reads, and of which it replaces parts: in place in every form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen.while_loops import segments
from fusionstitch.codegen.while_loops.segments import Moves, Program
from fusionstitch.runtime import emulate
from tests.loops.forms import cases, run, wholes
from tests.loops.growth import Grown

pytestmark = pytest.mark.usefixtures("host_compiler")
draw = np.random.default_rng(0)
TABLE = draw.standard_normal((9, 40), np.float32)
ROW = draw.standard_normal(40, np.float32)


def row_by_row(table: Any, x: Any) -> Any:
    """Each row is made of the one before, as in dynamic programming."""

    def step(i: Any, table: Any) -> Any:
        before = lax.dynamic_index_in_dim(table, i, keepdims=False)
        row = jnp.minimum(jnp.roll(before, 1), before * 0.5) + x
        return lax.dynamic_update_index_in_dim(table, row, i + 1, 0)

    return lax.fori_loop(0, 7, step, table)


def ring(table: Any, x: Any) -> Any:
    """A history that is read some steps back, and a state that all of it meets in."""

    def step(i: Any, c: Any) -> Any:
        table, x = c
        back = lax.dynamic_index_in_dim(table, (i + 3) % 9, keepdims=False)
        x = jnp.roll(x, 1) * 0.5 + back + jnp.mean(x)
        return lax.dynamic_update_index_in_dim(table, x, i % 9, 0), x

    return lax.fori_loop(0, 13, step, (table, x))


def where_the_data_says(table: Any, x: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        table, x = c
        index = jnp.argmax(jnp.abs(x)).astype(jnp.int32) % 9
        x = jnp.roll(x, 1) * 0.9 + lax.dynamic_index_in_dim(table, index, keepdims=False) * 0.1
        return lax.dynamic_update_index_in_dim(table, x * 0.5, index, 0), x

    return lax.fori_loop(0, 7, step, (table, x))


def sometimes(table: Any, x: Any) -> Any:
    """Only some iterations write."""

    def step(i: Any, c: Any) -> Any:
        table, x = c
        x = jnp.roll(x, 1) * 0.9 + table.sum(0) * 0.01
        put = lambda t: lax.dynamic_update_index_in_dim(t, x, i, 0)  # noqa: E731
        return jnp.where(x[0] > 0, put(table), table), x

    return lax.fori_loop(0, 7, step, (table, x))


def in_a_branch(table: Any, x: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        table, x = c
        x = jnp.roll(x, 1) * 0.9 + table.sum(0) * 0.01
        put = lambda t: lax.dynamic_update_index_in_dim(t, x, i, 0)  # noqa: E731
        return lax.cond(x[0] > 0, put, lambda t: t, table), x

    return lax.fori_loop(0, 7, step, (table, x))


def two_parts(table: Any, x: Any) -> Any:
    """Two parts that overlap where they meet: the second one stays."""

    def step(i: Any, c: Any) -> Any:
        table, x = c
        x = jnp.roll(x, 1) * 0.9 + table.sum(0) * 0.01
        table = lax.dynamic_update_slice(table, x[None, :30], (i, 0))
        return lax.dynamic_update_slice(table, x[None, 10:30] + 1, (i, 15)), x

    return lax.fori_loop(0, 7, step, (table, x))


def two_tables(table: Any, x: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        a, b, x = c
        y = jnp.roll(x, 1) * 0.9 + (a * b).sum(0) * 0.01
        at = lambda t, v: lax.dynamic_update_index_in_dim(t, v, i, 0)  # noqa: E731
        return at(a, y), at(b, x), y

    return lax.fori_loop(0, 7, step, (table, table * 0.5, x))


def beyond_the_end(table: Any, x: Any) -> Any:
    """Indices outside are clamped, as by XLA."""

    def step(i: Any, c: Any) -> Any:
        table, x = c
        x = jnp.roll(x, 1) * 0.9 + table.sum(0) * 0.01
        return lax.dynamic_update_slice(table, x[None], (i * 3 - 4, 7)), x

    return lax.fori_loop(0, 7, step, (table, x))


def nested(table: Any, x: Any) -> Any:
    """A loop inside reads what the one around it writes."""

    def step(i: Any, c: Any) -> Any:
        table, x = c
        inner = lambda j, x: jnp.roll(x, 1) * 0.5 + table[0] * 0.1 + table.sum(0) * 0.01  # noqa: E731
        x = lax.fori_loop(0, 3, inner, x)
        return lax.dynamic_update_index_in_dim(table, x, i % 4, 0), x

    return lax.fori_loop(0, 6, step, (table, x))


def batched(table: Any, x: Any) -> Any:
    """Rows that have nothing to do with each other, with a history each."""
    tables = jnp.stack([table * n for n in range(1, 17)])
    mixing = jnp.eye(40) * 0.5 + 0.01

    def step(i: Any, c: Any) -> Any:
        tables, x = c
        back = lax.dynamic_index_in_dim(tables, (i * 2) % 9, 1, keepdims=False)
        x = jnp.tanh(x @ mixing + back)
        return lax.dynamic_update_index_in_dim(tables, x, i, 1), x

    return lax.fori_loop(0, 7, step, (tables, jnp.broadcast_to(x, (16, 40))))


def read_afterwards(table: Any, x: Any) -> Any:
    """What comes of a table is read: it is copied."""

    def step(i: Any, c: Any) -> Any:
        table, x = c
        table = lax.dynamic_update_index_in_dim(table, jnp.roll(x, 1), i, 0)
        return table, x * 0.5 + table.sum(0) * 0.1

    return lax.fori_loop(0, 7, step, (table, x))


IN_PLACE = (
    *(row_by_row, ring, where_the_data_says, sometimes, two_parts, two_tables),
    *(beyond_the_end, nested, batched),
)


@pytest.mark.parametrize("fun", [*IN_PLACE, in_a_branch, read_afterwards])
def test_only_parts_are_written(fun: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[Moves] = []

    def eager(self: Any, flat: Any, table: float) -> None:
        made(self, flat, 0.0)

    def noted(self: Any) -> Program:
        found = whole(self)
        inside = [one for r in segments.repeats(found.segments) for one in r.body]
        moved.extend(one for one in inside if isinstance(one, Moves))
        return found

    made, whole = segments._Cutter.__init__, segments._Cutter.program
    monkeypatch.setattr(segments._Cutter, "__init__", eager)
    monkeypatch.setattr(segments._Cutter, "program", noted)
    [loop] = wholes(Grown(fun, (TABLE, ROW), fun.__name__))
    found = [c for c in cases(loop, "132 multiprocessors") if c.form != "rows"]
    alone = {"dealt", "cluster"} if fun is batched else set()
    assert {"block", "grid", *alone} <= {case.form for case in found}
    assert bool(moved) is (fun in IN_PLACE)
    artifacts = emulate.build([case.kernel for case in found], checked=True)
    for case, artifact in zip(found, artifacts, strict=True):
        for seed in range(4):
            assert not run(case, artifact, seed), case.kernel.template


def test_small_tables_are_copied() -> None:
    """A barrier takes longer."""
    [loop] = wholes(Grown(ring, (TABLE, ROW), "ring"))
    small = {case.form: case.kernel.source for case in cases(loop, "132 multiprocessors")}
    assert all("fs_swap(carried_1" in source or form == "rows" for form, source in small.items())
