"""Loops in branches of a loop's body, in every form of kernel, on the emulator, against jax.jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchmarks.loops.forced import taken
from fusionstitch.codegen.while_loops.summary import Loops
from tests.codegen.test_phased_loops import agree
from tests.codegen.whole_loop_programs import stitched

draw = np.random.default_rng(0)
ROW = draw.standard_normal(24, np.float32)
FIELD = draw.standard_normal((8, 12), np.float32)
WEIGHTS = draw.standard_normal((12, 12), np.float32) * np.float32(0.2)
ALL, TOGETHER = ("rows", "dealt", "block", "grid"), ("rows", "block", "grid")


def every_other(x: jax.Array) -> jax.Array:
    """A loop in one branch."""
    more = lambda x: lax.fori_loop(0, 3, lambda j, x: jnp.sin(x) + 0.1 * j, x)  # noqa: E731
    return lax.fori_loop(0, 6, lambda i, x: lax.cond(i % 2 == 0, more, lambda x: x * 0.9, x), x)


def either(x: jax.Array) -> jax.Array:
    """A loop in each branch, of which one sums up what it asks."""

    def halved(x: jax.Array) -> jax.Array:
        return lax.while_loop(lambda x: jnp.sum(x * x) > 1.0, lambda x: x * 0.5, x)

    def grown(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 4, lambda j, x: x + 0.5 * jnp.roll(x, 1), x)

    return lax.fori_loop(0, 5, lambda i, x: lax.cond(jnp.sum(x) > 0.3, halved, grown, x), x)


def switched(x: jax.Array) -> Any:
    """Loops in some of the branches, one of which stacks; indices outside are clamped."""

    def stacked(x: jax.Array) -> jax.Array:
        return lax.scan(lambda c, _: (c * 0.9 + 0.1, c), x, None, length=4)[1].sum(0) * 0.2

    def step(i: jax.Array, s: Any) -> Any:
        x, total = s
        counted = lambda x: lax.fori_loop(0, i, lambda j, x: x * 0.8 + 0.01 * j, x)  # noqa: E731
        x = lax.switch(i - 1, [lambda x: x * 0.5, stacked, jnp.cos, counted], x)
        return x, total + x

    return lax.fori_loop(0, 7, step, (x, jnp.zeros_like(x)))


def collatz(n: jax.Array) -> Any:
    """Whole numbers, and as many iterations as they take."""

    def steps(n: jax.Array) -> jax.Array:
        turn = lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)  # noqa: E731
        return lax.while_loop(lambda s: s[0] != 1, turn, (n, 0))[1]

    def step(i: jax.Array, s: Any) -> Any:
        n, most = s
        own = lax.cond(n % 3 == 1, steps, lambda n: -n, n)
        return n + 1, jnp.maximum(most, own)

    return lax.fori_loop(0, 9, step, (n, 0))


def endless(x: jax.Array) -> jax.Array:
    """A loop that would not end where its branch is not taken."""
    shrunk = lambda x: lax.while_loop(lambda x: x[0] != 0, lambda x: x * 0, x)  # noqa: E731
    same = lambda x: lax.while_loop(lambda x: x[0] == 0, lambda x: x * 1, x)  # noqa: E731

    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        return lax.cond(x[0] == 0, shrunk, same, x) + 1

    return lax.fori_loop(0, 3, step, x)


def no_turns(x: jax.Array) -> jax.Array:
    never = lambda x: lax.while_loop(lambda x: jnp.max(x) > 1e9, lambda x: x * 2, x)  # noqa: E731
    none = lambda x: lax.fori_loop(0, 0, lambda j, x: x * 2, x)  # noqa: E731
    return lax.fori_loop(0, 4, lambda i, x: lax.cond(i < 2, never, none, x) + 0.5, x)


def deep(x: jax.Array) -> jax.Array:
    """Branches in a loop in a branch in a loop, and a branch in a branch."""

    def inner(j: jax.Array, x: jax.Array) -> jax.Array:
        turn = lambda x: lax.fori_loop(0, 2, lambda k, x: jnp.roll(x, 1) * 0.7 + k, x)  # noqa: E731
        return lax.cond(x[1] > 0, turn, lambda x: x + 0.4, x)

    def outer(i: jax.Array, x: jax.Array) -> jax.Array:
        chosen = lambda x: lax.fori_loop(0, 3, inner, x)  # noqa: E731
        nested = lambda x: lax.cond(x[2] > 0.5, chosen, lambda x: x + 0.2, x)  # noqa: E731
        return lax.cond(i % 3 < 2, nested, lambda x: lax.fori_loop(0, i, inner, x), x)

    return lax.fori_loop(0, 5, outer, x)


def one_by_the_other(x: jax.Array) -> Any:
    """What an inner loop counted says which branch is taken, and a norm which is next."""

    def step(s: Any) -> Any:
        i, x, _ = s
        n, x = lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 0.9 + 0.1 * jnp.flip(s[1])), (0, x)
        )
        turned = lambda x: lax.fori_loop(0, n, lambda j, x: jnp.tanh(x) + j, x)  # noqa: E731
        x = lax.cond(n + i > 4, turned, lambda x: x, x)
        norm = jnp.linalg.norm(x)
        more = lambda x: lax.fori_loop(0, 2, lambda j, x: x * 0.5, x)  # noqa: E731
        return i + 1, lax.cond(norm > 2, more, lambda x: x * 1.1, x), norm

    return lax.while_loop(lambda s: s[0] < 5, step, (0, x, 0.0))


def asked_again(x: jax.Array) -> jax.Array:
    """One question for two branches: in a loop that may not iterate, and after it."""

    def step(i: jax.Array, x: jax.Array) -> jax.Array:
        large = x[0] > 0.1
        rolled = lambda y: lax.fori_loop(0, 2, lambda k, y: jnp.roll(y, 1) * 0.9 + k, y)  # noqa: E731
        halved = lambda y: lax.fori_loop(0, 3, lambda k, y: jnp.roll(y, 2) * 0.8, y)  # noqa: E731
        turn = lambda j, y: lax.cond(large, rolled, lambda y: y + 0.1, y)  # noqa: E731
        x = lax.fori_loop(0, 2 * (i % 2), turn, x)
        return jnp.tanh(lax.cond(large, halved, lambda y: y - 0.3, x)) - 0.05

    return lax.fori_loop(0, 7, step, x)


def recurrent(x: jax.Array, w: jax.Array) -> Any:
    """Rows of a batch with nothing to do with each other."""

    def step(h: jax.Array, i: jax.Array) -> Any:
        refined = lambda h: lax.fori_loop(0, 3, lambda j, h: jnp.tanh(h @ w + x), h)  # noqa: E731
        h = lax.cond(i % 3 == 0, refined, lambda h: 0.5 * h + x, h)
        return h, h * 2

    return lax.scan(step, jnp.zeros_like(x), jnp.arange(7))


def gradient(x: jax.Array) -> jax.Array:
    """Of loops in branches, whose steps are kept for the way back."""

    def step(x: jax.Array, i: jax.Array) -> Any:
        more = lambda x: lax.fori_loop(0, 3, lambda j, x: jnp.sin(x) * 1.1, x)  # noqa: E731
        return lax.cond(i % 2 == 0, more, lambda x: x * x, x), None

    return jax.grad(lambda x: jnp.sum(lax.scan(step, x, jnp.arange(4))[0]))(x)


def mapped(x: jax.Array) -> jax.Array:
    """Under vmap: branches that all rows take alike, and a while that each ends for itself."""

    def one(x: jax.Array) -> jax.Array:
        def step(i: jax.Array, x: jax.Array) -> jax.Array:
            halved = lambda x: lax.while_loop(lambda x: x > 0.2, lambda x: x * 0.6, x)  # noqa: E731
            return lax.cond(i % 2 == 0, halved, lambda x: x * x + 0.5, x)

        return lax.fori_loop(0, 5, step, x)

    return jax.vmap(one)(x)


#: Programs, what they are given, and the forms that their loops can have.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[str, ...]]] = {
    "every other": (every_other, (ROW,), ALL),
    "either": (either, (ROW,), TOGETHER),
    "switched": (switched, (ROW,), ALL),
    "collatz": (collatz, (np.int32(7),), TOGETHER),
    "endless": (endless, (ROW,), TOGETHER),
    "no turns": (no_turns, (ROW,), TOGETHER),
    "deep": (deep, (ROW,), TOGETHER),
    "one by the other": (one_by_the_other, (ROW,), TOGETHER),
    "asked again": (asked_again, (ROW,), TOGETHER),
    "recurrent": (recurrent, (FIELD, WEIGHTS), ALL),
    "gradient": (gradient, (ROW,), TOGETHER),
    "mapped": (mapped, (np.abs(ROW),), ALL),
}
CASES = [(name, form) for name, (_, _, forms) in PROGRAMS.items() for form in forms]


@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_loop_in_a_branch_gives_what_xla_gives(
    host_compiler: str, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CHECK", "1")
    fun, args, _ = PROGRAMS[name]
    with taken(form):
        agree(fun, args, form)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "form"), CASES)
def test_a_loop_in_a_branch_on_the_gpu(name: str, form: str) -> None:
    fun, args, _ = PROGRAMS[name]
    with taken(form):
        agree(fun, args, form, backend="cuda", bound=1e-5)


def test_turns_of_loops_in_branches_are_known_where_the_program_says_them() -> None:
    with taken():
        [stitch] = stitched(switched, ROW).stitches
    reported = dict(stitch.kernel.facts)["loops"]
    assert isinstance(reported, Loops)
    [outer] = reported.loops
    assert [inner.iterations for inner in outer.inner] == [4, None]
    trips = dict(stitch.chosen.facts.facts)["turns"]
    assert trips == (7, ((4, (), True), (100, (), False)), True)
