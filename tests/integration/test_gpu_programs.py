"""Every program of the table under fs.jit inside XLA on a GPU, next to jax.jit and to float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.accuracy import limit, relative_error
from tests.programs import PROGRAMS, precision, reference, reference64

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("scorer", ["model", "paper"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results(name: str, scorer: str) -> None:
    entry = PROGRAMS[name]
    options = fs.Options(backend="cuda", scorer=scorer, fallback="error")
    # full precision: an error of XLA's own TF32 products would excuse one of ours
    with jax.default_matmul_precision("highest"), precision(entry.args):
        xla, wide = reference(entry.fun, entry.args), reference64(entry.fun, entry.args)
        jitted = fs.jit(entry.fun, options=options, donate_argnums=entry.donate, **entry.keywords())
        args = jax.tree.map(jnp.array, entry.args)
        ours = [np.asarray(leaf) for leaf in jax.tree.leaves(jitted(*args))]
    for number, (mine, theirs, exact) in enumerate(zip(ours, xla, wide, strict=True)):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        if not jnp.issubdtype(mine.dtype, np.floating):
            np.testing.assert_array_equal(mine, theirs)
            continue
        allowed = limit(mine.dtype, relative_error(theirs, exact))
        assert relative_error(mine, exact) <= allowed, f"output {number}"
