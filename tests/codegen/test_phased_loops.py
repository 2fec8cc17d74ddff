"""Loops whose threads work together on each iteration, on the emulator, against jax.jit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from tests.codegen.test_whole_loops import from_text
from tests.codegen.whole_loop_programs import stitched
from tests.conftest import Golden
from tests.nearness import assert_near

draw = np.random.default_rng(0)
FIELD = draw.standard_normal((24, 32), np.float32)
ROW = draw.standard_normal(40, np.float32)
MATRIX = draw.standard_normal((24, 24), np.float32) * np.float32(0.1)
SPD = MATRIX @ MATRIX.T + 3 * np.eye(24, dtype=np.float32)


def diffusion(x: jax.Array) -> jax.Array:
    """Neighbours are read: every iteration waits for all of the one before."""

    def step(_: Any, u: jax.Array) -> jax.Array:
        around = sum(jnp.roll(u, s, a) for s in (1, -1) for a in (0, 1))
        return u + 0.1 * (around - 4 * u)

    return lax.fori_loop(0, 7, step, x)


def conjugate_gradients(a: jax.Array, b: jax.Array) -> Any:
    """The condition is a sum that the body makes."""

    def step(s: Any) -> Any:
        x, r, p, rr = s
        ap = a @ p
        alpha = rr / jnp.vdot(p, ap)
        x, r = x + alpha * p, r - alpha * ap
        after = jnp.vdot(r, r)
        return x, r, r + after / rr * p, after

    start = (jnp.zeros_like(b), b, b, jnp.vdot(b, b))
    return lax.while_loop(lambda s: s[3] > 1e-6, step, start)[0]


def jacobi(a: jax.Array, b: jax.Array) -> Any:
    """The condition itself sums up, and a counter is a result."""
    d = jnp.diag(a)

    def step(s: Any) -> Any:
        x, _, i = s
        return (b - (a @ x - d * x)) / d, x, i + 1

    def goes_on(s: Any) -> Any:
        return (jnp.linalg.norm(s[0] - s[1]) > 1e-5) & (s[2] < 50)

    return lax.while_loop(goes_on, step, (jnp.zeros_like(b), jnp.ones_like(b), 0))


def greatest(x: jax.Array) -> Any:
    """A value and its place are found before a loop in the loop and asked for after it: pairs lie
    in memory from piece to piece."""

    def larger(a: Any, b: Any) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        start = np.float32(-np.inf), np.int32(0)
        best, at = lax.reduce((x, lax.iota(jnp.int32, x.size)), start, larger, (0,))
        turn = lambda y: lax.fori_loop(0, at % 3, lambda j, y: 0.9 * jnp.roll(y, 1) + j, y)  # noqa: E731
        y = lax.cond(at % 2 == 0, turn, jnp.negative, x)
        return jnp.where(jnp.arange(x.size) == at, y - best, x + 0.1 * i)

    return lax.fori_loop(0, 5, step, x)


def recurrent(w: jax.Array, xs: jax.Array) -> Any:
    """Stacked inputs and outputs, and a product with the state."""

    def step(h: jax.Array, x: jax.Array) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h * 2

    return lax.scan(step, jnp.zeros(xs.shape[1:]), xs)


def nested(x: jax.Array) -> jax.Array:
    def outer(i: jax.Array, x: jax.Array) -> jax.Array:
        x = x / jnp.linalg.norm(x)
        y = lax.fori_loop(0, 3, lambda j, y: y + 0.1 * jnp.roll(y, 1) * j, x)
        return y + x.sum() * i

    return lax.fori_loop(0, 4, outer, x)


def shifted(x: jax.Array) -> Any:
    """Each carried value becomes the other one; one of them is a constant in the end."""
    step = lambda i, s: (s[1][::-1], s[0] + 1, i)  # noqa: E731
    return lax.fori_loop(0, 5, step, (x, -x, 0))


def branches(x: jax.Array) -> jax.Array:
    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        ways = [lambda x: x + 1, lambda x: jnp.flip(x) * 0.5, lambda x: x - x.mean()]
        x = lax.switch(i % 4, ways, x)
        return lax.cond(x[0] > 0, lambda x: x * 0.9, lambda x: -x, x)

    return lax.fori_loop(0, 9, step, x)


def clusters(x: jax.Array) -> jax.Array:
    """Sums of what belongs to each of a few centres, and how many these are."""

    def step(c: jax.Array, _: None) -> Any:
        nearest = ((x[:, None] - c) ** 2).sum(-1).argmin(1)
        total = jax.ops.segment_sum(x, nearest, len(c))
        count = jax.ops.segment_sum(jnp.ones(len(x)), nearest, len(c))
        return total / jnp.maximum(count, 1)[:, None], None

    return lax.scan(step, x[:3], None, length=2)[0]


def ranks(source: jax.Array, target: jax.Array) -> jax.Array:
    """Each node gives its edges' targets a share of what it has."""
    size = 60
    degree = jnp.zeros(size).at[source].add(1.0)

    def step(_: Any, rank: jax.Array) -> jax.Array:
        share = (rank / jnp.maximum(degree, 1))[source]
        return 0.15 / size + 0.85 * jax.ops.segment_sum(share, target, size)

    return lax.fori_loop(0, 3, step, jnp.full(size, 1 / size))


def borders(x: jax.Array) -> jax.Array:
    """An update of a slice, by a scatter of one window."""
    step = lambda _, u: u.at[1:-1].add(0.2 * (u[2:] - 2 * u[1:-1] + u[:-2]))  # noqa: E731
    return lax.fori_loop(0, 5, step, x)


def beyond(x: jax.Array) -> jax.Array:
    """Windows at the edge are dropped, or moved inside, as XLA does."""

    def step(i: jax.Array, u: jax.Array) -> jax.Array:
        dropped = u.at[lax.dynamic_slice(jnp.array([-1, 3, 39, 40]), (i,), (1,))].multiply(2.0)
        return lax.dynamic_update_slice(dropped, jnp.sum(u)[None] * 0.1, (30 + 5 * i,))

    return lax.fori_loop(0, 4, step, x)


def halves(x: jax.Array) -> jax.Array:
    step = lambda _, x: x * 1.5 - jnp.roll(x, 1) * x  # noqa: E731
    return lax.fori_loop(0, 4, step, x.astype(jnp.bfloat16))


def best_of(x: jax.Array) -> Any:
    """Argument and value of a maximum: a record goes from phase to phase."""

    def step(x: jax.Array, _: None) -> Any:
        at = jnp.argmax(x)
        return x.at[at].set(x[at] - 1) + 0.01 * x.sum(), at

    return lax.scan(step, x, None, length=6)


def never(x: jax.Array) -> jax.Array:
    return lax.while_loop(lambda x: x.max() > 1e9, lambda x: jnp.roll(x, 1), x)


def read_and_written(x: jax.Array) -> jax.Array:
    """A table of which each iteration reads what the one before wrote."""

    def step(i: jax.Array, table: jax.Array) -> jax.Array:
        row = lax.dynamic_index_in_dim(table, i, keepdims=False)
        return lax.dynamic_update_index_in_dim(table, jnp.tanh(row + jnp.roll(row, 1)), i + 1, 0)

    return lax.fori_loop(0, 5, step, jnp.zeros((6, 40)).at[0].set(x))


def updated_by_itself(x: jax.Array) -> jax.Array:
    """What replaces a part is made of the array."""

    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice(x, jnp.tanh(x[:1]) + i, (i,))

    return lax.fori_loop(0, 5, step, x)


def only_counted(x: jax.Array) -> Any:
    """Nothing but a counter is carried."""
    return lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 2, s[1]), (0, x))[0]


def blindly(x: jax.Array, tables: jax.Array) -> Any:
    """What no iteration reads is written anew by each, by other threads than before."""
    return lax.scan(lambda _, table: (table.sum(1), None), x, tables)[0]


def part_by_part(x: jax.Array) -> Any:
    """A window is written over what was there before, by other threads."""
    step = lambda out, row: (lax.dynamic_update_slice(out, row, (20,)), None)  # noqa: E731
    return lax.scan(step, x, jnp.reshape(x[:36], (3, 12)))[0]


def selected_addresses(x: jax.Array) -> Any:
    """An element is read through a pointer, into what was carried or into an input."""
    step = lambda c, rows: (rows[0], jnp.stack([rows[1], c]))  # noqa: E731
    return lax.scan(step, x[:3], jnp.reshape(x[3:9], (1, 2, 3)))


def three_deep(x: jax.Array) -> jax.Array:
    """What a loop in a loop in a loop makes is summed in the middle one."""

    def turns(body: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
        return lambda x: lax.scan(lambda x, _: (body(x), None), x, None, length=2)[0]

    inner = turns(lambda x: jnp.roll(x, 1) * 0.5)
    middle = turns(lambda x: jnp.tanh(x + inner(x).sum()))
    return turns(turns(middle))(x)


def over_itself(x: jax.Array, at: jax.Array) -> Any:
    """The beginning of an array is written over its own middle."""
    step = lambda u, _: (lax.dynamic_update_slice(u, u[:-4], (at,)), None)  # noqa: E731
    return lax.scan(step, x, None, length=3)[0]


def sources(x: jax.Array, f: jax.Array) -> Any:
    """Every iteration reads neighbours of an array that stays as it is, borders left out."""

    def step(_: Any, u: jax.Array) -> jax.Array:
        return 0.5 * u + jnp.pad(f[1:], ((0, 1), (0, 0))) - jnp.pad(f[:-1], ((1, 0), (0, 0)))

    return lax.fori_loop(0, 4, step, x)


def asked_twice(x: jax.Array) -> jax.Array:
    """An inner loop asks for what another one left, and the next iteration writes that."""

    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        more = lambda s: (s[0] >= 3) & (s[1] < 9)  # noqa: E731
        _, n = lax.while_loop(more, lambda s: (s[0] + 2, s[1] + 1), (i, 0))
        inner = lambda s: (s[0] + 1, jnp.tanh(s[1] + s[0].astype(x.dtype)))  # noqa: E731
        return lax.while_loop(lambda s: s[0] < n, inner, (1, x))[1]

    return lax.fori_loop(0, 5, step, x)


def begun_twice(x: jax.Array) -> jax.Array:
    """Two loops begin with a sum that is read after the loop around them, which may not iterate."""

    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        total = jnp.sum(x)

        def turn(j: jax.Array, y: jax.Array) -> jax.Array:
            a = lax.fori_loop(0, 3, lambda k, s: s * 0.5 + jnp.roll(y, 1).sum(), total)
            return y * 0.5 + lax.fori_loop(0, 2, lambda k, s: s * 0.25 + y[0], total) * 0.02 + a

        return jnp.tanh(lax.fori_loop(0, 2 * (i % 2), turn, x) * 0.1 + x + total * 0.1)

    return lax.fori_loop(0, 5, step, x)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "diffusion": (diffusion, (FIELD,)),
    "conjugate gradients": (conjugate_gradients, (SPD, FIELD[:, 0])),
    "jacobi": (jacobi, (SPD, FIELD[:, 0])),
    "recurrent": (recurrent, (MATRIX, draw.standard_normal((9, 8, 24), np.float32))),
    "nested": (nested, (ROW,)),
    "greatest": (greatest, (ROW,)),
    "shifted": (shifted, (ROW,)),
    "branches": (branches, (ROW,)),
    "clusters": (clusters, (draw.standard_normal((1 << 14, 2), np.float32),)),
    "ranks": (ranks, tuple(draw.integers(0, 60, (2, 1 << 14)).astype(np.int32))),
    "borders": (borders, (ROW,)),
    "beyond": (beyond, (ROW,)),
    "halves": (halves, (ROW * np.float32(0.1),)),
    "best of": (best_of, (ROW,)),
    "never": (never, (ROW,)),
    "updated by itself": (updated_by_itself, (ROW,)),
    "read and written": (read_and_written, (ROW,)),
    "only counted": (only_counted, (ROW,)),
    "blindly": (blindly, (ROW[:8], FIELD.reshape(3, 8, 32))),
    "part by part": (part_by_part, (ROW,)),
    "selected addresses": (selected_addresses, (ROW,)),
    "three deep": (three_deep, (ROW,)),
    "over itself": (over_itself, (ROW, np.int32(2))),
    "sources": (sources, (FIELD.repeat(4, 0), FIELD.repeat(4, 0) + 1)),
    "asked twice": (asked_twice, (ROW,)),
    "begun twice": (begun_twice, (ROW,)),
}


def adaptive(x: jax.Array, w: jax.Array) -> Any:
    """Rows stop on their own, those of a block together."""

    def one(x: jax.Array) -> Any:
        step = lambda s: (s[0] @ w + s[0] * 0.5, s[1] + 1)  # noqa: E731
        return lax.while_loop(lambda s: (s[0] @ s[0] > 0.5) & (s[1] < 30), step, (x, 0))

    return jax.vmap(one)(x)


def stopping(x: jax.Array, w: jax.Array) -> Any:
    """The same with a condition of one number a row."""

    def one(x: jax.Array) -> Any:
        step = lambda s: (jnp.tanh(s[0] @ w + 0.9 * s[0]), s[1] * 0.7)  # noqa: E731
        return lax.while_loop(lambda s: s[1] > 0.2, step, (x, x[0]))

    return jax.vmap(one)(x)


def numbered(x: jax.Array, w: jax.Array) -> jax.Array:
    """Rows know their numbers, and have constants of their own."""
    scale = jnp.asarray(np.arange(8, dtype=np.float32))[:, None]

    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        row = lax.broadcasted_iota(jnp.float32, (8, 1), 0)
        return jnp.tanh(x @ w) + 0.1 * row + scale * i

    return lax.fori_loop(0, 5, step, x)


def spaced(x: jax.Array, w: jax.Array) -> jax.Array:
    """What rows have of their own is joined before the loop."""
    indices = jnp.linspace(0.1, x[0, 0], 8)[::-1, None]
    return lax.fori_loop(0, 5, lambda i, x: jnp.tanh(x @ w) + indices * i, x)


def joined(x: jax.Array) -> jax.Array:
    """Each row has another array's number."""

    def step(i: jax.Array, k: jax.Array) -> jax.Array:
        return jnp.tanh(k) + jnp.concatenate([x[:1], x[4:5]]) * i

    return lax.fori_loop(0, 3, step, x[:2])


def upside_down(x: jax.Array, w: jax.Array) -> jax.Array:
    """What iterations do not change sums up, and turns round, rows that other blocks have."""

    def step(_: Any, s: jax.Array) -> jax.Array:
        own = jnp.exp(x)
        return jnp.tanh(s @ w) + own * jnp.max(own, axis=0) + jnp.tile(own[::-1][:2, :1], (4, 1))

    return lax.fori_loop(0, 5, step, x)


def above(x: jax.Array) -> jax.Array:
    """Rows read what those above them began with, where there are any."""
    moved = lambda: jnp.pad(x, ((2, 0), (0, 0)))[:4] + jnp.cumsum(x, 0)  # noqa: E731
    return lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y + moved() * i), x)


def picked(x: jax.Array) -> Any:
    """Gathers and updates inside of rows."""

    def step(x: jax.Array, i: jax.Array) -> Any:
        at = jnp.argmax(x, axis=1)
        best = jnp.take_along_axis(x, at[:, None], axis=1)
        return x - 0.5 * best + x[:, ::-1] * 0.1, (at, best[:, 0])

    return lax.scan(step, x, jnp.arange(6), reverse=True)


DEALT: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "recurrent": PROGRAMS["recurrent"],
    "stopping": (stopping, (FIELD[:8, :24], MATRIX)),
    "numbered": (numbered, (FIELD[:8, :24], MATRIX)),
    "spaced": (spaced, (FIELD[:8, :24], MATRIX)),
    "joined": (joined, (ROW,)),
    "upside down": (upside_down, (FIELD[:8, :24], MATRIX)),
    "above": (above, (FIELD[:4, :3],)),
}
#: Rows that are not dealt.
PROGRAMS["adaptive"] = adaptive, (FIELD[:8, :24], MATRIX)
PROGRAMS["picked"] = picked, (FIELD[:8],)


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Leaves one form of loops: "block", "grid", "dealt" or "cluster". Races are looked for."""
    monkeypatch.setenv("FUSIONSTITCH_CHECK", "1")
    with ExitStack() as stack:
        yield lambda form: stack.enter_context(taken(form))


@pytest.mark.parametrize("form", ["block", "grid"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_in_phases_gives_what_xla_gives(
    host_compiler: str, only: Callable[[str], None], name: str, form: str
) -> None:
    only(form)
    agree(*PROGRAMS[name], form)


@pytest.mark.parametrize("form", ["dealt", "cluster"])
@pytest.mark.parametrize("name", DEALT)
def test_rows_of_a_loop_are_dealt_to_blocks_or_clusters(
    host_compiler: str, only: Callable[[str], None], name: str, form: str
) -> None:
    only(form)
    agree(*DEALT[name], form)


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["block", "grid"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loop_in_phases_on_the_gpu(only: Callable[[str], None], name: str, form: str) -> None:
    only(form)
    agree(*PROGRAMS[name], form, backend="cuda", bound=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["dealt", "cluster"])
@pytest.mark.parametrize("name", DEALT)
def test_rows_of_a_loop_are_dealt_on_the_gpu(
    only: Callable[[str], None], name: str, form: str
) -> None:
    only(form)
    agree(*DEALT[name], form, backend="cuda", bound=1e-5)


def agree(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    form: str,
    backend: str = "emulate",
    bound: float = 2e-6,
) -> None:
    """A kernel of the form has each loop. Ours are integers equal to XLA's, and floats as near as
    `bound`, in relative L2 error."""
    found = stitched(fun, *args)
    assert not [one.reason for one in found.rejected if one.rule == "loop"]
    assert f"loop {form}" in {kernel.template[: 5 + len(form)] for kernel in found.kernels}
    # reports show what the plan was given
    reported = [one.chosen.facts.cost.shared_bytes for one in found.stitches]
    assert reported == [one.kernel.shared_bytes for one in found.stitches]
    with jax.default_matmul_precision("highest"):
        ours = fs.jit(fun, options=fs.Options(backend=backend, fallback="error"))(*args)
        theirs = jax.jit(fun)(*args)
    assert_near(ours, theirs, bound, rough=2e-2)


@pytest.mark.parametrize("form", ["block", "grid"])
def test_the_text_of_a_loop_in_phases(
    golden: Golden, only: Callable[[str], None], form: str
) -> None:
    only(form)
    [kernel] = from_text("diffusion").kernels
    golden(kernel.source)


def largest_twice(x: jax.Array) -> jax.Array:
    """Two reductions of pairs by the same body, one in a loop of the other's."""

    def marked(x: jax.Array) -> jax.Array:
        indices = lax.broadcasted_iota(jnp.int32, x.shape, 1)
        return x + (indices == jnp.argmax(x, -1, keepdims=True)).astype(x.dtype)

    inner = lambda x: lax.fori_loop(0, 3, lambda _, x: marked(x), x)  # noqa: E731
    return lax.fori_loop(0, 3, lambda _, x: marked(inner(x)), x)


@pytest.mark.parametrize("form", ["block", "dealt", "grid"])
def test_pieces_share_the_definitions_of_what_they_reduce_by(host_compiler: str, form: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (8, 33)).astype(np.int32)
    with taken(form):
        ours = fs.jit(largest_twice, options=fs.Options(backend="emulate", fallback="error"))
        [kernel] = ours.lower(x).compile().kernels
        assert kernel.source.count("struct FsJoin") == 1
        np.testing.assert_array_equal(ours(x), jax.jit(largest_twice)(x))
