"""How backends call functions of JAX on their arrays.

Each gives the device arrays of the results, and the tree that they are leaves of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusionstitch.dag.errors import LaunchError

#: A function of a flat list of arguments.
Flat = Callable[[list[Any]], Any]


class Unversioned:
    """An array of JAX for DLPack, without the mark that it is read-only, which others refuse."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        return self._array.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def on_cuda(
    call: Flat, values: Sequence[Any], arrays: frozenset[int], donated: frozenset[int]
) -> tuple[list[Any], Any]:
    """On CuPy's current stream: by the rules of DLPack JAX's stream waits for it where it takes an
    array, and it waits for JAX's where it is given one."""
    import cupy
    import jax
    import jax.numpy as jnp

    given = [jax.dlpack.from_dlpack(v) if i in arrays else v for i, v in enumerate(values)]
    for number in donated & arrays:  # XLA owns no memory of others that it could give away
        given[number] = jnp.copy(given[number])
    leaves, tree = _leaves(call(given))
    taken = {values[i].data.ptr for i in arrays}
    results = []
    for leaf in leaves:
        device = cupy.from_dlpack(Unversioned(leaf))
        if device.data.ptr in taken:  # JAX hands arguments on, and one result twice
            device = device.copy()
        taken.add(device.data.ptr)
        results.append(device)
    return results, tree


def on_host(
    call: Flat, values: Sequence[Any], arrays: frozenset[int]
) -> tuple[list[np.ndarray], Any, Callable[[], None]]:
    """The arrays of the results, empty, and what fills them when its time has come."""
    import jax
    import jax.numpy as jnp

    shapes = list(values)
    for number in arrays:
        shapes[number] = jax.ShapeDtypeStruct(values[number].shape, values[number].dtype)
    structs, tree = _leaves(_shapes(call, shapes, arrays))
    results = [np.empty(struct.shape, struct.dtype) for struct in structs]

    def fill() -> None:
        given = [jnp.asarray(np.array(v)) if i in arrays else v for i, v in enumerate(values)]
        for result, leaf in zip(results, jax.tree.leaves(call(given)), strict=True):
            result[...] = leaf

    return results, tree, fill


def _shapes(call: Flat, values: list[Any], arrays: frozenset[int]) -> Any:
    import jax

    numbers = sorted(arrays)

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
