"""Tables of what iterations make of their numbers: which loops read some, and that programs give
what they gave."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.tabulating import LoopTables, tabulate
from fusionstitch.patterns.loop_tables import MOST_ELEMENTS, loop_tables
from tests.nearness import assert_near
from tests.patterns.edits import edited, module_of

STEPS, ROWS = 6, 40
#: Where launches cost nothing: every table that an iteration gains by.
FREE = dataclasses.replace(device("h200"), launch_us=0.0, dram_bytes_per_s=1e30)
STATE = np.linspace(0.5, 1.5, ROWS, dtype=np.float32)
KEYS = np.arange(3, 3 + 2 * STEPS, dtype=np.uint32).reshape(STEPS, 2)
SEED = np.uint32(12345)


def mixed(*words: Any) -> Any:
    """A hash of integers, which takes many instructions."""
    made = jnp.uint32(0x9E3779B9)
    for _ in range(10):
        for word in words:
            made = (made ^ word.astype(jnp.uint32)) * jnp.uint32(0x85EBCA6B)
            made ^= made >> 13
    return made


def noise(word: Any, x: Any) -> Any:
    rows = lax.iota(jnp.uint32, x.shape[0])
    return ((word ^ rows) & 255).astype(jnp.float32) / 256


def by_number(start: int, stop: int, step: int = 1) -> Callable[..., Any]:
    """A loop whose noise is made of a seed and the number of the iteration."""

    def run(seed: Any, x: Any) -> Any:
        def go(carry: Any) -> Any:
            n, x = carry
            return n + step, x * 0.5 + noise(mixed(seed, n), x)

        goes_on = (lambda c: c[0] < stop) if step > 0 else (lambda c: c[0] > stop)
        return lax.while_loop(goes_on, go, (jnp.int32(start), x))[1]

    return run


def by_part(reverse: bool, numbered: bool) -> Callable[..., Any]:
    """A scan over keys, each of which is split, with the number of the iteration or without."""

    def run(keys: Any, x: Any) -> Any:
        def step(carry: Any, key: Any) -> tuple[Any, Any]:
            n, x = carry
            words = [mixed(key[0], key[1], *([n] if numbered else [])), mixed(key[1], key[0])]
            x = x * 0.5 + noise(words[0], x) - noise(words[1], x)
            return (n + 1, x), x[0]

        return lax.scan(step, (jnp.int32(0), x), keys, reverse=reverse)

    return run


def tables(fun: Callable[..., Any], *args: Any) -> list[LoopTables]:
    """Those of a program, after a look at what it gives with them."""
    module = module_of(fun, *args)
    found = loop_tables(module, FREE)
    if found:
        after = edited(module, lambda module: tabulate(module, found), *args)
        assert not loop_tables(after, FREE), "a table is not made into another one"
    return found


@pytest.mark.parametrize(
    "bounds", [(0, STEPS), (4, 4 + STEPS), (3, 3 + 2 * STEPS, 2), (STEPS - 1, -1, -1), (9, -3, -2)]
)
def test_numbers_wherever_they_begin(bounds: tuple[int, ...]) -> None:
    [found] = tables(by_number(*bounds), SEED, STATE)
    assert [len(table.ops) for table in found.tables] == [1]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("numbered", [False, True])
def test_parts_of_stacks(reverse: bool, numbered: bool) -> None:
    [found] = tables(by_part(reverse, numbered), KEYS, STATE)
    assert sum(len(table.ops) for table in found.tables) == 2


def with_counter(start: Any, step: Any, trips: int, down: bool = False) -> Callable[..., Any]:
    """A loop whose hash is also of another element, to which iterations add a number."""

    def run(seed: Any, x: Any) -> Any:
        def go(carry: Any) -> Any:
            n, m, x = carry
            m_after = m - step if down else m + step
            return n + 1, m_after, x * 0.5 + noise(mixed(seed, n, m), x)

        zero = jnp.int32(0)
        return lax.while_loop(lambda c: c[0] < trips, go, (zero, start, x))[1:]

    return run


@pytest.mark.parametrize(
    ("start", "step", "down"),
    [
        (np.uint32(7), np.uint32(3), True),
        (np.uint32(0xFFFFFFF0), np.uint32(9), False),
        (np.int32(-(2**31) + 2), np.int32(-(2**31)), True),
        (np.int32(5), np.int32(-4), False),
    ],
)
def test_elements_that_pass_the_end_of_their_type(start: Any, step: Any, down: bool) -> None:
    fun = with_counter(start, step, STEPS, down)
    assert tables(fun, SEED, STATE)
    both = lambda seed, x, keys: (fun(seed, x), by_part(True, True)(keys, x))  # noqa: E731
    assert len(tables(both, SEED, STATE, KEYS)) == 2


def counted_by(dtype: Any, start: int, stop: int, down: bool = False) -> Callable[..., Any]:
    def run(seed: Any, x: Any) -> Any:
        def go(carry: Any) -> Any:
            n, x = carry
            after = n - dtype(1) if down else n + dtype(1)
            return after, x * 0.5 + noise(mixed(seed, n), x)

        goes_on = lambda c: c[0] > dtype(stop) if down else c[0] < dtype(stop)  # noqa: E731
        return lax.while_loop(goes_on, go, (dtype(start), x))[1]

    return run


@pytest.mark.parametrize(
    ("dtype", "start", "stop", "down"),
    [
        (np.int8, -100, 100, False),
        (np.uint8, 0, 200, False),
        (np.uint32, 200, 0, True),
        (np.int32, -(2**31) + 1, -(2**31) + 9, False),
    ],
)
def test_numbers_of_iterations_whatever_counts_them(
    dtype: Any, start: int, stop: int, down: bool
) -> None:
    """The number of one may not fit in the type of what counts them."""
    fun = counted_by(dtype, start, stop, down)
    assert bool(tables(fun, SEED, STATE)) == (dtype is np.int32)
    ours = fs.jit(fun, options=fs.Options(backend="emulate", fallback="error"))
    assert_near(ours(SEED, STATE), jax.jit(fun)(SEED, STATE), 2e-6, rough=2e-6)


def test_a_position_that_overflows_its_type_is_no_order() -> None:
    def run(stack: Any, x: Any) -> Any:
        def go(carry: Any) -> Any:
            n, place, x = carry
            key = lax.dynamic_index_in_dim(stack, place, keepdims=False)
            return n + 1, place + np.uint8(1), x * 0.5 + noise(mixed(key, n), x)

        start = jnp.int32(0), jnp.uint8(0), x
        return lax.while_loop(lambda c: c[0] < 300, go, start)[2]

    stack = np.arange(300, dtype=np.uint32) * 7
    tables(run, stack, STATE)


def test_a_schedule() -> None:
    def run(x: Any) -> Any:
        def step(n: Any, x: Any) -> Any:
            t = n.astype(jnp.float32) / STEPS
            rate = jnp.exp(-t) * jnp.cos(t) * jnp.sqrt(1 + t) * jnp.tanh(t + 1) / jnp.log(t + 2)
            return x - rate * jnp.sin(t * 2) * jnp.expm1(t) * jnp.cosh(t) * x

        return lax.fori_loop(0, STEPS, step, x)

    assert tables(run, STATE)


def large(seed: Any, x: Any) -> Any:
    """Noise of all rows, of the number alone: a table would have it of all iterations."""

    def step(n: Any, x: Any) -> Any:
        return x + mixed(lax.iota(jnp.uint32, x.shape[0]) ^ seed, n.astype(jnp.uint32)).astype(
            jnp.float32
        )

    return lax.fori_loop(0, STEPS, step, x)


def cheap(seed: Any, x: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda n, x: x + (n * 3 + seed.astype(jnp.int32)), x)


def of_the_state(seed: Any, x: Any) -> Any:
    """A seed that each iteration changes."""
    step = lambda n, c: (mixed(c[0]), c[1] + noise(c[0], c[1]))  # noqa: E731
    return lax.fori_loop(0, STEPS, step, (seed, x))


def in_a_loop(seed: Any, x: Any) -> Any:
    """A table in each iteration of the outer loop would be made by each row."""

    def outer(n: Any, x: Any) -> Any:
        inner = lambda m, x: x * 0.5 + noise(mixed(seed, n, m), x)  # noqa: E731
        return lax.fori_loop(0, STEPS, inner, x)

    return lax.fori_loop(0, STEPS, outer, x)


@pytest.mark.parametrize("fun", [large, cheap, of_the_state, in_a_loop])
def test_what_an_iteration_makes_itself(fun: Callable[..., Any]) -> None:
    assert not tables(fun, SEED, STATE)


def test_a_table_is_small() -> None:
    for size, some in ((MOST_ELEMENTS, True), (MOST_ELEMENTS + 1, False)):
        assert bool(tables(large, SEED, np.zeros(size, np.float32))) == some


def test_what_pays() -> None:
    """Few rows and iterations gain less than a launch takes."""
    target = device("h200")
    assert not loop_tables(module_of(by_number(0, STEPS), SEED, STATE), target)
    assert loop_tables(module_of(by_number(0, 1000), SEED, STATE), target)


@pytest.mark.parametrize(
    ("fun", "args"),
    [
        (by_number(0, 1000), (SEED, STATE)),
        (by_number(1500, -3, -2), (SEED, STATE)),
        (by_part(reverse=True, numbered=True), (np.resize(KEYS, (500, 2)), STATE)),
    ],
)
def test_kernels_read_their_tables(
    fun: Callable[..., Any], args: tuple[Any, ...], host_compiler: str
) -> None:
    ours = fs.jit(fun, options=fs.Options(backend="emulate", device="h200", fallback="error"))
    assert_near(ours(*args), jax.jit(fun)(*args), 2e-6, rough=2e-6)
    [kernel] = [k for k in ours.lower(*args).compile().kernels if k.template.startswith("loop")]
    trips = {500, 750, 751, 752, 1000}
    assert [s for s in kernel.inputs if s.dtype == "u32" and s.rank == 1 and s.dims[0] in trips]
