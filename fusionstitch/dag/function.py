"""Jitted JAX functions as work of a scheduler."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from fusionstitch.dag.access import Access
from fusionstitch.dag.array import Array
from fusionstitch.dag.element import Element, Storage, Work
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.errors import ArrayError


class Function(Work):
    """A JAX function that a scheduler calls in order; made by `Scheduler.function`."""

    of_jax = True

    def __init__(
        self,
        name: str,
        fun: Callable[..., Any],
        donated: tuple[int, ...],
        engine: Engine,
        access: Access,
        made: Callable[[Any], Array],
    ) -> None:
        import jax

        self.name = name
        self._fun = fun
        self._donated = donated
        self._engine = engine
        self._access = access
        self._made = made
        self._jitted = isinstance(fun, jax.stages.Wrapped)
        self._flatten, self._unflatten = jax.tree.flatten, jax.tree.unflatten

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results of the function, as arrays of the scheduler instead of JAX arrays.

        Arrays of the scheduler may be anywhere in the arguments; the function gets JAX arrays that
        share their memory. Raises ArrayError for an array that cannot be used, and KernelError for
        work that failed before.
        """
        self._access.check_open()
        self._engine.collect()
        leaves, tree = self._flatten((args, kwargs))
        donated = frozenset(self._donated_leaves(args)) if self._donated else frozenset[int]()
        uses: dict[Storage, bool] = {}
        for number, leaf in enumerate(leaves):
            if type(leaf) is Array:
                leaves[number] = storage = self._storage(leaf, number in donated)
                uses[storage] = number not in donated and uses.get(storage, True)
        call = _Call(self._fun, self._jitted, leaves, donated, self._unflatten, tree)
        frame = sys._getframe(1)
        element = Element(self, (call,), uses, (frame.f_code, frame.f_lasti))
        self._engine.submit(element)
        for storage in call.given_away:
            storage.readonly = f"it was donated to {self.name}"
            storage.given_away = True
        made = [self._made(lent) for lent in call.results]
        if not element.finished:
            for array in made:
                array.storage.writer = element
                uses[array.storage] = False
        return self._unflatten(call.out_tree, made)

    def begin(self, element: Element, stream: Any) -> None:
        [call] = element.arguments
        backend = self._engine.backend
        for storage in element.uses:
            if storage.lent is None:
                storage.lent = backend.lend(storage.device, stream)
        call.results, call.out_tree = backend.jitted(
            call, call.lent_leaves(), call.lent, stream, element
        )

    def _donated_leaves(self, args: tuple[Any, ...]) -> Iterator[int]:
        """The indices of the donated leaves."""
        first = 0
        for position, argument in enumerate(args):
            after = first + len(self._flatten(argument)[0])
            if position in self._donated:
                yield from range(first, after)
            first = after

    def _storage(self, array: Array, donated: bool) -> Storage:
        if array.access is not self._access:
            raise ArrayError(f"{self.name} was given {array!r}, which is of another scheduler.")
        storage = array.storage
        if storage.given_away or (donated and storage.readonly):
            raise ArrayError(
                f"{self.name}: {storage.label} cannot be used this way: {storage.readonly}."
            )
        return storage

    def __repr__(self) -> str:
        return f"Function {self.name}"


class _Call:
    """One call of a function: a function of its leaves, and its results.

    Attributes:
        lent: indices of the leaves that are arrays of the scheduler
        donated, copied, one: as in `JaxCall`
        given_away: the donated storages
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        one: bool,
        leaves: list[Any],
        donated: frozenset[int],
        unflatten: Callable[..., Any],
        tree: Any,
    ) -> None:
        self.one = one
        self._fun = fun
        self._leaves = leaves
        self._unflatten = unflatten
        self._tree = tree
        self.lent = {i for i, leaf in enumerate(leaves) if type(leaf) is Storage}
        self.donated = self.lent & donated
        self.given_away = [leaves[i] for i in self.donated]
        self.copied: set[int] = set()
        if self.donated:
            times = Counter(leaves[i] for i in self.lent)
            self.copied = {
                i for i in self.donated if leaves[i].device is not None or times[leaves[i]] > 1
            }
        self.results: list[Any] = []
        self.out_tree: Any = None

    def lent_leaves(self) -> list[Any]:
        return [leaf.lent if type(leaf) is Storage else leaf for leaf in self._leaves]

    def __call__(self, leaves: list[Any]) -> Any:
        args, kwargs = self._unflatten(self._tree, leaves)
        return self._fun(*args, **kwargs)
