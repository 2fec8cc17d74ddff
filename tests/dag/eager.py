"""The emulator with JAX functions as on a GPU: called immediately, with JAX arrays."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from fusionstitch.dag.backends.backend import JaxCall
from fusionstitch.dag.backends.emulated import Emulated
from fusionstitch.dag.backends.jitted import at_once
from fusionstitch.dag.backends.simulated import Stream


class Eager(Emulated):
    """`lent` and `taken` count the arrays that were given to JAX, and that were taken from it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.lent = self.taken = 0

    def lend(self, device: np.ndarray, stream: Stream) -> Any:
        import jax.numpy as jnp

        self.lent += 1
        self.drain()  # JAX waits for the stream
        return jnp.array(device)

    def take(self, lent: Any, stream: Stream) -> np.ndarray:
        self.taken += 1
        return np.array(lent)

    def jitted(
        self, call: JaxCall, values: list[Any], lent: Set[int], stream: Stream, work: object
    ) -> tuple[list[Any], Any]:
        results, tree, fresh = at_once(call, values, lent)
        self.joined = len(fresh)
        return results, tree
