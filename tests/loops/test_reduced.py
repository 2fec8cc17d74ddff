"""What grown loops have found, reduced, in every form of kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.runtime import emulate
from tests.loops.forms import DEVICES, cases, run, wholes
from tests.loops.growth import Grown

pytestmark = pytest.mark.usefixtures("host_compiler")


def repeated(x: Any) -> Any:
    """What a condition sums up is written where it is read, while teams without a row of their own
    read it too."""
    start = jnp.broadcast_to(x, (3, 1, 4))
    body = lambda x: jnp.maximum(x % 7, x + 3)  # noqa: E731
    return lax.while_loop(lambda x: jnp.max(x) < 25, body, start)


def tabled(x: Any) -> Any:
    """The last iteration along 33 columns has no element of a table for most of its lanes."""
    table = np.arange(33, dtype=np.int32) % 7

    def body(_: Any, x: Any) -> Any:
        taken = jnp.broadcast_to(x.max(2)[:, table][:, None], x.shape)
        return x * 0.5 + jnp.prod(jnp.tanh(jnp.maximum(taken, x)), 1)[:, None] * 0.5

    return lax.fori_loop(0, 3, body, x)


def moved(x: Any) -> Any:
    """A part of an array is written elsewhere in it: where the data says, and from there."""

    def body(_: Any, s: Any) -> Any:
        x, at = s
        part = lax.dynamic_slice(x, (at, at - 3), (2, 3))
        return lax.dynamic_update_slice(x, part * 0.5, (at - 5, 6 - at)), (at * 3 + 1) % 8

    return lax.fori_loop(0, 5, body, (x, 3))


def looked_up(x: Any, at: Any) -> Any:
    """Rows have their own indices in a table that the loop carries, in one that it does not, and in
    what they have themselves."""
    table = jnp.cos(jnp.arange(9, dtype=jnp.float32))

    def body(i: Any, s: Any) -> Any:
        x, at, more = s
        own = jax.vmap(lambda x, at: lax.dynamic_slice(x, (at,), (2,)))(x, at)
        x = x * 0.5 + own[:, :1] * table[at + i][:, None] + own[:, 1:] * more[7 - at][:, None]
        return x, (at * 3 + i) % 5, more * 0.75

    return lax.fori_loop(0, 5, body, (x, at, table[:8]))


def shortest(n: Any, x: Any) -> Any:
    """Rows that stop on their own along an axis too short to be dealt: a thread has all of them,
    and goes on while one does."""
    iterations = lambda n, x: lax.fori_loop(0, n, lambda i, x: x + 1, x)  # noqa: E731
    return jax.vmap(iterations)(n, x)


def kept_in_part(t: Any) -> Any:
    """Rows that stop by masks that only fall, keep what is read after the loop and nothing else;
    a thread has several of them."""

    def body(s: Any) -> Any:
        t, going, has, count, i = s
        less = jnp.where(going, has & (t % 5 != 0), has)
        more = count + (has & going).astype(jnp.int32)
        return (t * 3 + 1) % 31, going & (t % 7 != 0), less, more, i + 1

    start = t, t < 28, jnp.ones(t.shape, bool), jnp.zeros_like(t), 0
    more = lambda s: jnp.any(s[2] & s[1]) & (s[4] < 12)  # noqa: E731
    return lax.while_loop(more, body, start)[2:4]


#: Each with what it is given.
REDUCED: dict[Callable[..., Any], tuple[np.ndarray, ...]] = {
    looked_up: (
        np.linspace(-1, 1, 12 * 6, dtype=np.float32).reshape(12, 6),
        np.arange(12, dtype=np.int32) % 5,
    ),
    moved: (np.linspace(-1, 1, 5 * 7, dtype=np.float32).reshape(5, 7),),
    kept_in_part: (np.arange(3 * 4 * 5 * 6 * 7, dtype=np.int32).reshape(3, 4, 5, 6, 7) % 31,),
    repeated: (np.asarray(2, np.uint8),),
    shortest: (np.asarray([0, 1, 3], np.int32), np.zeros((3, 4, 5, 6, 7), np.int32)),
    tabled: (np.linspace(-1, 1, 2 * 7 * 33, dtype=np.float32).reshape(2, 7, 33),),
}


@pytest.mark.parametrize("program", REDUCED, ids=lambda program: program.__name__)
def test_reduced_loops_give_what_numpy_gives(program: Callable[..., Any]) -> None:
    [whole] = wholes(Grown(program, REDUCED[program]))
    found = [case for name in DEVICES for case in cases(whole, name)]
    artifacts = emulate.build([case.kernel for case in found], checked=True)
    printed = [run(case, artifact, 1) for case, artifact in zip(found, artifacts, strict=True)]
    assert printed == [""] * len(found)
    assert len({case.form for case in found}) > 1


def pairs(x: Any) -> Any:
    """Windows of which each gives two values: XLA makes such of a gradient of max-pooling."""

    def larger(a: Any, b: Any) -> Any:
        return tuple(jnp.where(a[0] >= b[0], x, y) for x, y in zip(a, b, strict=True))

    def body(_: Any, state: Any) -> Any:
        inits = -np.float32(np.inf), np.int32(0)
        return tuple(lax.reduce_window(state, inits, larger, (3,), (1,), "SAME"))

    return lax.fori_loop(0, 3, body, (x, jnp.arange(8, dtype=jnp.int32)))


def decaying(x: Any) -> Any:
    """Windows with edges that a reducer would count as elements."""
    halved = lambda a, b: a * 0.5 + b  # noqa: E731
    body = lambda _, x: lax.reduce_window(x, np.float32(0.25), halved, (3,), (1,), "SAME")  # noqa: E731
    return lax.fori_loop(0, 3, body, x)


def rounded(x: Any) -> Any:
    """A product that rounds its operands, because the program says so."""
    requested = lax.DotAlgorithmPreset.BF16_BF16_F32
    return lax.fori_loop(0, 3, lambda _, x: x + lax.dot(x, x, precision=requested), x)


@pytest.mark.parametrize("fun", [pairs, decaying, rounded])
def test_a_loop_is_left_to_xla_where_kernels_would_compute_something_else(
    fun: Callable[..., Any],
) -> None:
    grown = Grown(fun, (np.arange(8, dtype=np.float32),))
    found = [case for whole in wholes(grown) for case in cases(whole, next(iter(DEVICES)))]
    assert not found
