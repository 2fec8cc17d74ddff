"""JAX functions: arrays stay with JAX until someone else needs or writes them."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.dag import ArrayError
from tests.dag.eager import Eager
from tests.dag.programs import scheduler


def adder(d: Any) -> Any:
    return d.library(lambda a: np.add(a, 1, out=a), "pointer", name="add")


@pytest.fixture
def backend() -> Eager:
    return Eager()


@pytest.fixture
def d(backend: Eager) -> Any:
    return scheduler(backend=backend)


def test_calls_on_results_exchange_nothing(d: Any, backend: Eager) -> None:
    f = d.function(jax.jit(lambda a, b: a + b))
    x, y = d.array(np.ones(4, np.float32)), d.array(np.ones(4, np.float32))
    for _ in range(5):
        x = f(x, y)
    assert (backend.lent, backend.taken) == (2, 0)
    assert np.asarray(x).tolist() == [6] * 4
    assert (x[1], float(x[0])) == (6, 6)
    assert (backend.lent, backend.taken) == (2, 0)
    adder(d)(x)
    assert (backend.lent, backend.taken) == (2, 1)
    assert x[1] == 7


@pytest.mark.parametrize("part", [False, True])
def test_much_that_jax_made_is_read_through_pinned_memory(
    part: bool, d: Any, backend: Eager
) -> None:
    x = d.function(jax.jit(lambda a: a + 1))(d.array(1 << 17))
    found = x[-1:] if part else np.asarray(x)
    assert found[-1] == 1
    assert backend.taken == 1


def test_what_a_kernel_writes_is_given_to_jax_anew(d: Any, backend: Eager) -> None:
    f = d.function(jax.jit(lambda a: a * 2))
    x = d.array(np.ones(4, np.float32))
    assert f(x)[0] == f(x)[0] == 2
    assert backend.lent == 1
    adder(d)(x)
    assert f(x)[0] == 4
    x[0] = 7
    assert f(x)[0] == 14
    assert backend.lent == 3


def test_what_a_kernel_writes_into_a_result_is_seen(d: Any) -> None:
    f = d.function(jax.jit(lambda a: a * 2))
    y = f(d.array(np.ones(4, np.float32)))
    adder(d)(y)
    assert f(y)[0] == 6
    assert y[0] == 3


def test_a_function_sees_what_was_written_before_it_in_every_order() -> None:
    for seed in range(30):
        d = scheduler(seed=seed)
        f = d.function(jax.jit(lambda a: a * 2))
        x = d.array(np.ones(4, np.float32))
        seen = []
        for _ in range(3):
            seen.append(f(x))
            adder(d)(x)
        assert [int(y[0]) for y in seen] == [2, 4, 6]


def test_what_jax_hands_on_is_copied(d: Any) -> None:
    x = d.array(np.ones(3, np.float32))
    same, again, other = d.function(lambda a: (a, a, a + 1))(x)
    for array in (x, same, same):
        adder(d)(array)
    assert [int(a[0]) for a in (x, same, again, other)] == [2, 3, 1, 2]


def test_one_result_of_one_execution_is_waited_for(d: Any, backend: Eager) -> None:
    x = d.array(np.ones(3, np.float32))

    def two(a: Any) -> Any:
        return a + 1, a + 2

    d.function(jax.jit(two))(x)
    assert backend.joined == 1
    d.function(two)(x)  # of two executions
    assert backend.joined == 2


def test_memory_of_jax_alone_is_donated(d: Any) -> None:
    step = d.function(jax.jit(lambda a: a + 1, donate_argnums=0), donate=(0,), name="step")
    x = d.array(np.zeros(8, np.float32))
    first = step(x)  # the scheduler's memory: JAX gets a copy to destroy
    given = first.storage.lent
    second = step(first)
    assert given.is_deleted()
    assert np.asarray(second).tolist() == [2] * 8
    for gone in (x, first):
        with pytest.raises(ArrayError, match="donated to step"):
            gone[0]


def test_memory_that_others_use_is_not_donated(d: Any) -> None:
    step = d.function(jax.jit(lambda a: a + 1, donate_argnums=0), donate=(0,))
    y = d.function(jax.jit(lambda a: a + 1))(d.array(np.zeros(8, np.float32)))
    into = d.library(lambda a, b: np.copyto(b, a), "const pointer, pointer")
    z = d.array(8)
    into(y, z)  # may run later
    assert step(y)[0] == 2
    assert z[0] == 1


def test_an_array_may_be_donated_and_read_in_one_call(d: Any) -> None:
    f = d.function(jax.jit(lambda a: a + 1))
    both = d.function(jax.jit(lambda a, b: a + b, donate_argnums=0), donate=(0,))
    y = f(d.array(np.zeros(8, np.float32)))
    assert both(y, y)[0] == 2


def test_memory_of_jax_alone_is_not_held_until_the_work_is_done(d: Any) -> None:
    f = d.function(jax.jit(lambda a: a + 1))
    x = f(d.array(np.zeros(8, np.float32)))
    memory = weakref.ref(x.storage.lent)
    x = f(x)
    f(x)  # lets go of what nobody names
    gc.collect()
    assert memory() is None


def test_a_function_that_raises_leaves_all_as_it_was(d: Any) -> None:
    def bad(a: Any) -> Any:
        raise ZeroDivisionError

    x = d.array(np.ones(3, np.float32))
    with pytest.raises(ZeroDivisionError):
        d.function(bad, donate=(0,))(x)
    adder(d)(x)
    assert x[0] == 2
    assert [vertex.name for vertex in d.graph().vertices] == ["add"]


def test_an_array_of_jax_is_passed_on_as_it_is(d: Any, backend: Eager) -> None:
    x = d.from_dlpack(jnp.ones(4))
    assert d.function(jax.jit(lambda a: a * 2))(x)[0] == 2
    assert backend.lent == 0


def test_arguments_may_all_be_of_others() -> None:
    f = scheduler().function(jax.jit(lambda a, b: a + b))
    assert np.asarray(f(jnp.ones(3), np.ones(3, np.float32))).tolist() == [2] * 3


def test_a_tree_is_donated_with_all_its_leaves(d: Any) -> None:
    step = d.function(lambda t: {"a": t["a"] + t["b"]}, donate=(0,))
    x, y = d.array(np.ones(3, np.float32)), d.array(np.ones(3, np.float32))
    assert step({"a": x, "b": y})["a"][0] == 2
    for gone in (x, y):
        with pytest.raises(ArrayError, match="was donated"):
            gone[0]
