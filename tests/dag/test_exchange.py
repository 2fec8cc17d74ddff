"""Arrays of other libraries, and JAX functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.dag import ArrayError, LaunchError
from tests.dag.programs import Runner, scheduler

#: Of a program of a single fusion every kernel is XLA's, but by the paper's scores.
OPTIONS = fs.Options(backend="emulate", scorer="paper")


def adder(d: Any) -> Any:
    return d.library(lambda a: np.add(a, 1, out=a), "pointer", name="add")


@pytest.mark.parametrize("jit", [jax.jit, fs.jit])
def test_a_jitted_function_runs_in_the_order_of_its_arrays(jit: Any) -> None:
    for seed in range(10):
        d = scheduler(seed=seed)
        x = d.array(np.arange(4, dtype=np.float32))
        double = d.function(jit(lambda a: a * 2), name="double")
        adder(d)(x)
        y = double(x)
        adder(d)(x)
        adder(d)(y)
        z = double(y)
        assert np.asarray(z).tolist() == [6, 10, 14, 18]
        assert np.asarray(x).tolist() == [2, 3, 4, 5]
    pairs = d.graph().pairs()
    assert ("double", "add") in pairs
    assert ("add", "double") in pairs


def test_trees_numbers_and_keywords() -> None:
    d = scheduler()

    def f(tree: Any, scale: Any, *, shift: Any) -> Any:
        return {"sum": tree["a"] + tree["b"][0] * scale, "one": (shift,)}

    x = d.array(np.ones(3, np.float32))
    out = d.function(f)({"a": x, "b": [x]}, 2.0, shift=np.float32(5))
    assert np.asarray(out["sum"]).tolist() == [3, 3, 3]
    assert float(out["one"][0]) == 5
    assert out["sum"].dtype == np.float32


def test_what_is_donated_is_written_and_gone() -> None:
    d = scheduler()
    x, y = d.array(np.ones(3, np.float32)), d.array(3)
    reads = d.library(lambda a, b: np.copyto(b, a), "const pointer, pointer", name="reads")
    reads(x, y)
    step = d.function(jax.jit(lambda a: a + 1, donate_argnums=0), donate=(0,), name="step")
    z = step(x)
    assert ("reads", "step") in d.graph().pairs()
    assert (z[0], y[0]) == (2, 1)
    for use in (lambda: x[0], lambda: adder(d)(x), lambda: step(x)):
        with pytest.raises(ArrayError, match="it was donated to step"):
            use()


def test_results_that_are_arguments_are_copies() -> None:
    d = scheduler()
    x = d.array(np.ones(3, np.float32))
    same, again = d.function(jax.jit(lambda a: (a, a)))(x)
    adder(d)(x)
    adder(d)(same)
    adder(d)(same)
    assert (x[0], same[0], again[0]) == (2, 3, 1)


def test_a_function_without_results_is_refused() -> None:
    d = scheduler()
    with pytest.raises(LaunchError, match="at least one array"):
        d.function(lambda a: None)(d.array(3))


def test_arrays_of_another_scheduler_are_refused() -> None:
    with pytest.raises(ArrayError, match="another scheduler"):
        scheduler().function(lambda a: a)(scheduler().array(3))


def test_an_array_of_jax_is_shared_to_read_and_copied_to_write() -> None:
    d = scheduler()
    theirs = jnp.arange(4.0)
    shared, copied = d.from_dlpack(theirs), d.array(theirs)
    adder(d)(copied)
    assert np.asarray(copied).tolist() == [1, 2, 3, 4]
    into = d.library(lambda a, b: np.copyto(b, a), "const pointer, pointer", name="into")
    into(shared, copied)
    assert np.asarray(copied).tolist() == [0, 1, 2, 3]
    with pytest.raises(ArrayError, match="array that never changes"):
        adder(d)(shared)
    with pytest.raises(ArrayError, match="array that never changes"):
        shared[0] = 1
    assert theirs.tolist() == [0, 1, 2, 3]


def test_memory_is_shared_in_both_directions() -> None:
    d = scheduler()
    theirs = np.zeros(4, np.float32)
    x = d.from_dlpack(theirs)
    adder(d)(x)
    assert np.from_dlpack(x).tolist() == [1, 1, 1, 1]  # waits for the kernel
    assert theirs.tolist() == [1, 1, 1, 1]
    assert jax.dlpack.from_dlpack(x).tolist() == [1, 1, 1, 1]
    with pytest.raises(ArrayError, match="row-major"):
        d.from_dlpack(np.zeros((4, 4), np.float32).T)


def test_a_kernel_of_cupy(host_compiler: str) -> None:
    cupy = pytest.importorskip("cupy")
    raw = cupy.RawKernel(
        'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }', "twice"
    )
    d = scheduler()
    x = d.array(np.ones(4, np.float32))
    d.kernel(raw, "inout pointer float")(1, 4)(x)
    assert np.asarray(x).tolist() == [2] * 4


def test_a_kernel_that_we_emit(host_compiler: str) -> None:
    def softmax(x: Any) -> Any:
        return jax.nn.softmax(x, axis=-1)

    host = np.random.default_rng(0).random((8, 32), np.float32)
    compiled = fs.jit(softmax, options=OPTIONS).lower(host).compile()
    [emitted] = compiled.kernels
    d = scheduler()
    x, y = d.array(host), d.array((8, 32))
    kernel = d.kernel(emitted)
    adder(d)(x)
    kernel(x, y)
    np.testing.assert_allclose(np.asarray(y), softmax(host), rtol=1e-5)
    assert d.graph().pairs() == [("add", emitted.name)]
    with pytest.raises(LaunchError, match="parameters"):
        kernel(x)


def test_a_library_without_a_stream_waits() -> None:
    runner = Runner()
    d = runner.d
    order: list[str] = []
    for name in "ab":
        d.library(lambda _, name=name: order.append(name), "pointer", name=name)(d.array(1))
    d.library(lambda _: order.append("c"), "pointer", name="c", stream=False)(d.array(1))
    assert sorted(order[:2]) == ["a", "b"]
    assert order[2:] == ["c"]
