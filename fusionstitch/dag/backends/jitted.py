"""How backends call JAX functions.

Each function returns the arrays of the results, and their pytree structure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from fusionstitch.dag.backends.backend import JaxCall
from fusionstitch.dag.errors import LaunchError


class Unversioned:
    """A JAX array for DLPack, without the read-only flag, which other libraries reject."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        return self._array.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def at_once(call: JaxCall, values: list[Any], lent: Set[int]) -> tuple[list[Any], Any, list[Any]]:
    """Results with memory of their own, their pytree structure, and those to be waited for."""
    import jax.numpy as jnp

    for number in call.copied:
        values[number] = jnp.copy(values[number])
    taken = {values[i].unsafe_buffer_pointer() for i in lent - call.donated}
    leaves, tree = _leaves(call(values))
    fresh: list[Any] = []
    copies: list[Any] = []
    for i, leaf in enumerate(leaves):
        if (pointer := leaf.unsafe_buffer_pointer()) in taken:
            # JAX may return an argument, or one array twice
            leaves[i] = jnp.copy(leaf)
            copies.append(leaves[i])
        else:
            taken.add(pointer)
            fresh.append(leaf)
    return leaves, tree, copies + (fresh[:1] if call.one else fresh)


def later(
    call: JaxCall, values: Sequence[Any], lent: Set[int]
) -> tuple[list[np.ndarray], Any, Callable[[], None]]:
    """Empty arrays for the results, and a function that fills them when their turn comes."""
    import jax
    import jax.numpy as jnp

    shapes = list(values)
    for number in lent:
        shapes[number] = jax.ShapeDtypeStruct(values[number].shape, values[number].dtype)
    structs, tree = _leaves(_shapes(call, shapes, lent))
    results = [np.empty(struct.shape, struct.dtype) for struct in structs]

    def fill() -> None:
        given = [jnp.asarray(np.array(v)) if i in lent else v for i, v in enumerate(values)]
        for result, leaf in zip(results, jax.tree.leaves(call(given)), strict=True):
            result[...] = leaf

    return results, tree, fill


def _shapes(call: JaxCall, values: list[Any], lent: Set[int]) -> Any:
    import jax

    numbers = sorted(lent)

    def of_arrays(*given: Any) -> Any:
        whole = list(values)
        for number, value in zip(numbers, given, strict=True):
            whole[number] = value
        return call(whole)

    return jax.eval_shape(of_arrays, *(values[number] for number in numbers))


def _leaves(results: Any) -> tuple[list[Any], Any]:
    import jax
    import jax.numpy as jnp

    leaves, tree = jax.tree.flatten(results)
    if not leaves:
        raise LaunchError(
            "A function that a scheduler calls returns at least one array: nothing else tells when "
            "it has run."
        )
    known = (jax.Array, jax.ShapeDtypeStruct)
    return [leaf if isinstance(leaf, known) else jnp.asarray(leaf) for leaf in leaves], tree
