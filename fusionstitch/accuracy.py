"""Errors of results against a float64 run of the same program (design rule 5)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusionstitch.hlo.as_xla import as_xla
from fusionstitch.hlo.errors import FusionStitchError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.simplify import simplify_module
from fusionstitch.reports.counting import repeats
from fusionstitch.runtime.outcome import Failed
from fusionstitch.runtime.signals import held
from fusionstitch.supported import xla_version

logger = logging.getLogger(__name__)

#: Relative L2 error allowed for any output of a type, even when XLA's own error is smaller.
FLOORS = {"float16": 5e-4, "bfloat16": 4e-3}
_FLOOR = 1e-6
#: A program's error may be this many times XLA's own.
XLA_FACTOR = 2.0
#: Share of the elements that `difference` ignores.
FLIPPED = 1e-6
#: Above this many computed elements, over all ops, NumPy takes too long.
MAX_ELEMENTS = 2_000_000_000


def reference(module: bytes, leaves: Sequence[Any]) -> list[np.ndarray] | None:
    """The outputs of `module` (HloModuleProto bytes) for its parameters, with floats in float64.

    Random bits are the program's own, since integers are computed unchanged. Returns None if the
    interpreter lacks an op or the program is too large for it.
    """
    try:
        lowered = from_proto(inline_calls(module))
        entry = simplify_module(as_xla(lowered, xla_version())).entry
        if len(entry.parameters) != len(leaves):
            return None
        size = sum(n * sum(op.shape.size for op in g) for g, n in repeats(entry).items())
        if size > MAX_ELEMENTS:
            return None
        return evaluate(entry, [host(leaf) for leaf in leaves], float64=True)
    except FusionStitchError as error:
        logger.info("no float64 reference: %s", error)
        return None


#: Primitives whose bits depend on the float type: in float64 the program would differ.
_RANDOM = re.compile("random_.*|threefry.*|rng_.*")


def rerun(fun: Callable[..., Any], args: Any, kwargs: Any) -> list[np.ndarray] | None:
    """The outputs of the Python function for its arguments in float64; None if it draws random bits
    or does not accept float64."""
    import jax

    from fusionstitch.execution.original import plain_jit

    if _draws(jax.make_jaxpr(fun)(*args, **kwargs).jaxpr):
        return None

    def run() -> list[np.ndarray]:
        with jax.enable_x64(True):
            wide_args, wide_kwargs = jax.tree.map(_wide, (args, kwargs))
            outputs = plain_jit()(fun)(*wide_args, **wide_kwargs)
            return [host(leaf) for leaf in jax.tree.leaves(outputs)]

    found = held(run)
    if isinstance(found, Failed):  # the user's function may require its types
        logger.info("no float64 run: %s", found.error)
        return None
    return found


def _wide(leaf: Any) -> Any:
    import jax.numpy as jnp

    value = host(leaf)
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        return jnp.asarray(value, jnp.complex128)
    return jnp.asarray(value, jnp.float64) if jnp.issubdtype(value.dtype, jnp.floating) else leaf


def _draws(jaxpr: Any) -> bool:
    import jax.extend.core as jax_core

    return any(
        _RANDOM.fullmatch(equation.primitive.name)
        or any(map(_draws, jax_core.jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


def host(leaf: Any) -> np.ndarray:
    """An argument or output as a NumPy array; a PRNG key as its key data."""
    import jax

    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if isinstance(leaf, (bool, int, float, complex)):
        leaf = jax.numpy.asarray(leaf)
    return np.asarray(leaf)


def relative_error(value: np.ndarray, wanted: np.ndarray) -> float:
    """L2 norm of the difference divided by that of `wanted`. For integers: 0 if equal, else
    infinity.

    Elements count as equal where both are the same infinity or both are NaN.
    """
    if not _inexact(wanted.dtype):
        return 0.0 if np.array_equal(value, wanted) else float("inf")
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    with np.errstate(invalid="ignore"):  # some NaNs warn when they are cast
        a, b = value.astype(wide), wanted.astype(wide)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        difference = float(np.linalg.norm(np.where(same, 0, a - b)))
        size = float(np.linalg.norm(np.where(np.isfinite(b), b, 0)))
    if not np.isfinite(difference):
        return float("inf")
    return difference / size if size else difference


def _inexact(dtype: np.dtype[Any]) -> bool:
    """Whether values of the type are rounded. NumPy knows this for its own types only."""
    import jax.numpy as jnp

    return bool(jnp.issubdtype(dtype, jnp.inexact))


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The relative error between two computations of the same values, without the worst elements.

    At most one element in a million is ignored. A program that compares rounded values, as a ReLU
    does, may take the other side for a few elements when a sum is added in another order.
    """
    wide = np.complex128 if one.dtype.kind == "c" else np.float64
    a, b = one.astype(wide).ravel(), other.astype(wide).ravel()
    if count := int(a.size * FLIPPED):
        with np.errstate(all="ignore"):
            apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        farthest = np.argpartition(np.nan_to_num(apart, nan=np.inf), -count)[-count:]
        a[farthest] = b[farthest]
    return relative_error(a, b)


def limit(dtype: np.dtype[Any], xla: float) -> float:
    """The largest error allowed for an output of `dtype` when XLA's own error is `xla`."""
    if dtype.name not in FLOORS and dtype.kind not in "fc":
        return 0.0
    return max(XLA_FACTOR * xla, FLOORS.get(dtype.name, _FLOOR))
