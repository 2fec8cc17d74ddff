"""Runs of a program on the user's arguments that leave the arguments intact."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: Share of the free memory that copies of arguments and results may take.
_MEMORY_SHARE = 0.5


class Runs:
    """Calls of a function with these arguments. If it donates, each call gets copies of all arrays,
    made before any call."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], donates: bool):
        self.args, self.kwargs, self.donates = args, kwargs, donates

    def calls(self, function: Callable[..., Any], number: int) -> list[Callable[[], Any]]:
        """This many calls, to be made once each; their arguments are already on the device."""
        import jax

        if not self.donates:
            return [functools.partial(function, *self.args, **self.kwargs)] * number
        taken = [_copied((self.args, self.kwargs)) for _ in range(number)]
        jax.block_until_ready([leaf for one in taken for leaf in arrays_of(one)])
        return [functools.partial(function, *args, **kwargs) for args, kwargs in taken]

    @property
    def copied_bytes(self) -> int:
        """The bytes of the copies for one call."""
        if not self.donates:
            return 0
        return sum(leaf.nbytes for leaf in arrays_of((self.args, self.kwargs)))

    @property
    def devices(self) -> list[Any]:
        """The devices that hold the arguments; the default one if they are on the host."""
        import jax

        arrays = arrays_of((self.args, self.kwargs))
        found = {device for array in arrays for device in array.devices()}
        return sorted(found, key=lambda device: device.id) or [jax.local_devices()[0]]

    def fit(self, result_bytes: int) -> Verdict:
        """Whether the memory suffices for one more call, together with its results."""
        needed, free = self.copied_bytes + result_bytes, self._free_bytes()
        if free is not None and needed > _MEMORY_SHARE * free:
            return forbid(
                "Copies of its arguments do not fit beside them.", bytes=needed, free=free
            )
        return allow()

    def most_calls(self, number: int) -> int:
        """How many of these calls in a row have memory for their copies; at least one."""
        free, each = self._free_bytes(), self.copied_bytes
        if free is None or not each:
            return number
        return max(1, min(number, int(_MEMORY_SHARE * free / each)))

    def _free_bytes(self) -> int | None:
        """The free bytes of the fullest device; None if no device reports them."""
        reporting = [
            stats for one in self.devices if "bytes_limit" in (stats := one.memory_stats() or {})
        ]
        left = (stats["bytes_limit"] - stats.get("bytes_in_use", 0) for stats in reporting)
        return min(left, default=None)


def _copied(arguments: Any) -> Any:
    import jax

    def copy(leaf: Any) -> Any:
        return jax.device_put(leaf, may_alias=False) if isinstance(leaf, jax.Array) else leaf

    with jax.transfer_guard("allow"):
        return jax.tree.map(copy, arguments)


def arrays_of(arguments: Any) -> list[Any]:
    """The JAX arrays among arguments."""
    import jax

    return [leaf for leaf in jax.tree.leaves(arguments) if isinstance(leaf, jax.Array)]
