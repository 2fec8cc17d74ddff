"""Reductions over windows: what pads an array is no element, whatever the windows start from."""

import jax
import numpy as np
import pytest
from jax import lax

from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto
from tests.numbers.reference import interpreted
from tests.numbers.same import BACKENDS, assert_same_bits, check

X = np.random.default_rng(5).integers(-4, 5, (7, 9)).astype(np.float32)

#: Sizes, strides, padding, base dilation and window dilation.
WINDOWS = {
    "plain": ((2, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    "strides": ((3, 2), (2, 3), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    "padded": ((2, 3), (1, 1), ((1, 1), (2, 0)), (1, 1), (1, 1)),
    "one side": ((3, 1), (2, 1), ((0, 2), (0, 0)), (1, 1), (1, 1)),
    "cut": ((2, 2), (1, 2), ((-1, 1), (0, -2)), (1, 1), (1, 1)),
    "spread": ((3, 2), (1, 1), ((0, 0), (0, 0)), (2, 3), (1, 1)),
    "spread and padded": ((3, 2), (2, 1), ((1, 2), (3, 0)), (2, 1), (1, 1)),
    "dilated": ((2, 3), (1, 2), ((1, 0), (2, 2)), (1, 1), (3, 2)),
    "all": ((2, 2), (2, 1), ((3, 1), (0, 2)), (2, 2), (2, 3)),
    "only padding": ((1, 2), (1, 1), ((0, 0), (3, 3)), (1, 1), (1, 1)),
    "one element": ((1, 1), (1, 1), ((0, 1), (1, 0)), (1, 1), (1, 1)),
}
REDUCERS = {
    "add": (lax.add, 0),
    "multiply": (lax.mul, 1),
    "maximum": (lax.max, -np.inf),
    "minimum": (lax.min, np.inf),
}


def windows(body, init, window):
    size, strides, padding, base, inside = window

    def fun(x):
        init_ = np.asarray(init, x.dtype)
        return lax.reduce_window(
            x * 2, init_, body, size, strides, padding, base_dilation=base, window_dilation=inside
        )

    return fun


def our_reference(fun, *args):
    data = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return evaluate(from_proto(data).entry, args)


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("name", WINDOWS)
def test_reference_is_that_of_stablehlo(name, reducer):
    """From neutral inits alone: StableHLO fills the edges with the init, XLA leaves them out."""
    fun = windows(*REDUCERS[reducer], WINDOWS[name])
    [ours], [theirs] = our_reference(fun, X), interpreted(fun, X)
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize("name", WINDOWS)
def test_reference_of_other_inits_is_a_join_with_them(name):
    """A window from 3 is one from nothing, and 3: by StableHLO's interpreter again."""
    fun = windows(lax.add, 0, WINDOWS[name])
    [ours] = our_reference(windows(lax.add, 3, WINDOWS[name]), X)
    [theirs] = interpreted(lambda x: fun(x) + 3, X)
    assert_same_bits(ours, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reducer", REDUCERS)
def test_inits_count_once(reducer, backend):
    """All windows in one program: as under jax.jit, and as our reference has it."""
    body, _ = REDUCERS[reducer]
    for init in (3, -1):
        funs = [windows(body, init, window) for window in WINDOWS.values()]

        def program(x, funs=funs):
            return [fun(x) for fun in funs]

        results = check(program, X, backend=backend)
        for got, want in zip(results, our_reference(program, X), strict=True):
            assert_same_bits(got, want)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("reducer", REDUCERS)
def test_a_scalar_is_its_only_window(reducer, backend):
    """Of neutral inits alone: XLA leaves others out, where StableHLO's interpreter has them."""
    window = windows(*REDUCERS[reducer], ((), (), (), (), ()))
    check(lambda x: window(x) + x * 5, X[0, 0], backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_bodies_of_ones_own(backend):
    """That ignores what it starts from, as often as it starts; and one whose order counts."""
    absolute = windows(lambda a, b: lax.max(lax.abs(a), lax.abs(b)), 0, WINDOWS["all"])
    check(absolute, X, backend=backend)
    check(windows(lambda a, b: b, 0, WINDOWS["strides"]), X, backend=backend)


def test_padded_windows_of_bodies_whose_order_counts_are_left_to_xla():
    check(windows(lambda a, b: b, 0, WINDOWS["padded"]), X, stitched=False)
