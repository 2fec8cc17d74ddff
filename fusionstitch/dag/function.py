"""Jitted functions of JAX as work of a scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusionstitch.dag.access import caller
from fusionstitch.dag.array import Array
from fusionstitch.dag.element import Element, Storage
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.errors import ArrayError


class Function:
    """A function of JAX that a scheduler calls in its order; made by `Scheduler.function`."""

    def __init__(
        self,
        name: str,
        fun: Callable[..., Any],
        donated: tuple[int, ...],
        engine: Engine,
        access: Any,
        made: Callable[[Any], Array],
    ) -> None:
        self.name = name
        self._fun = fun
        self._donated = donated
        self._engine = engine
        self._access = access
        self._made = made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives, with arrays of the scheduler in the place of JAX's.

        Arrays of the scheduler may be anywhere in the arguments; the function gets arrays of JAX
        that share their memory. Raises ArrayError for one that cannot be used, KernelError for work
        that failed before.
        """
        import jax

        self._access.check_open()
        leaves, tree = jax.tree.flatten((args, kwargs))
        donated = self._donated_leaves(args, jax.tree)
        uses: dict[Storage, bool] = {}
        for number, leaf in enumerate(leaves):
            if type(leaf) is Array:
                self._check(leaf, number in donated)
                uses[leaf.storage] = number not in donated and uses.get(leaf.storage, True)
        results: list[Any] = []

        def begin(stream: Any, element: Element) -> None:
            given = [leaf.storage.device if type(leaf) is Array else leaf for leaf in leaves]
            arrays = frozenset(i for i, leaf in enumerate(leaves) if type(leaf) is Array)

            def call(values: list[Any]) -> Any:
                args, kwargs = jax.tree.unflatten(tree, values)
                return self._fun(*args, **kwargs)

            results.extend(
                self._engine.backend.jitted(call, given, arrays, donated, stream, element)
            )

        element = self._engine.submit(self, uses, begin, caller())
        devices, out_tree = results
        for number in donated:
            if type(leaves[number]) is Array:
                leaves[number].storage.readonly = f"it was donated to {self.name}"
                leaves[number].storage.given_away = True
        made = [self._made(device) for device in devices]
        if not element.finished:
            for array in made:
                array.storage.writer = element
                element.uses[array.storage] = False
                element.active += 1
        return jax.tree.unflatten(out_tree, made)

    def _donated_leaves(self, args: tuple[Any, ...], tree: Any) -> frozenset[int]:
        numbers: list[int] = []
        first = 0
        for position, argument in enumerate(args):
            count = len(tree.leaves(argument))
            if position in self._donated:
                numbers += range(first, first + count)
            first += count
        return frozenset(numbers)

    def _check(self, array: Array, donated: bool) -> None:
        if array._access is not self._access:
            raise ArrayError(f"{self.name} was given {array!r}, which is of another scheduler.")
        storage = array.storage
        if storage.given_away or (donated and storage.readonly):
            raise ArrayError(
                f"{self.name}: {storage.label} cannot be used this way: {storage.readonly}."
            )

    def __repr__(self) -> str:
        return f"Function {self.name}"
