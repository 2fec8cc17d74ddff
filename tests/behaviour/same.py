"""What it means that two functions behave alike: values, types, pytrees, devices, errors,
warnings."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: Relative L2 error between two compilations of one small program.
TOLERANCES = {"float64": 1e-12, "complex64": 1e-5, "float32": 1e-5, "float16": 4e-3}
TOLERANCES |= {"bfloat16": 3e-2}


def assert_same(ours: Any, theirs: Any, committed: bool = True) -> None:
    """Equal pytrees of arrays with equal types on equal devices, and equal values up to rounding.
    Not `committed`: whether arrays are bound to their device may differ."""
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert type(mine) is type(other)
        if isinstance(mine, jax.Array):
            assert mine.aval == other.aval
            assert mine.sharding == other.sharding
            assert not committed or mine.committed == other.committed
        one, two = _values(mine), _values(other)
        tolerance = TOLERANCES.get(one.dtype.name)
        if tolerance is None:
            np.testing.assert_array_equal(one, two)
            continue
        wide = np.complex128 if np.iscomplexobj(one) else np.float64
        error = np.linalg.norm((one.astype(wide) - two.astype(wide)).ravel())
        assert error <= tolerance * max(float(np.linalg.norm(two.astype(wide).ravel())), 1e-30)


def _values(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def plain_text(text: str) -> str:
    """`text` without addresses, who refers to a leaked tracer, numbers of objects, MLIR's
    locations, spaces and angles."""
    text = re.sub(r"(?m)^#loc.*\n| ?loc\(#?\w*\)", "", text)
    text = re.sub(r"(?s)<\w*Tracer \d+> is referred to by .*", "", text)
    text = re.sub(r" at 0x[0-9a-f]+|id=\d+", "", text)
    return re.sub(r"[\s<>]+", "", text)


def outcome(run: Callable[[], Any]) -> tuple[Any, ...]:
    """The exception that `run` raises, as type and message, or None; and the messages of its
    warnings."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            run()
            raised = None
        except Exception as error:
            raised = type(error), plain_text(str(error))
    messages = sorted({(w.category, plain_text(str(w.message))) for w in seen}, key=str)
    return raised, messages
