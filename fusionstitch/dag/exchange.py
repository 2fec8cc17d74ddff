"""Arrays of other libraries, through DLPack."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fusionstitch.dag.access import caller
from fusionstitch.dag.element import Element, Storage, Work
from fusionstitch.dag.engine import Engine

_CPU = 1


def is_on_device(value: Any) -> bool:
    """Whether an array of another library is in a GPU's memory."""
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and where()[0] != _CPU


def adopted(engine: Engine, value: Any, label: str, copy: bool) -> Storage:
    """A storage with the memory of another library's array, or with a copy of it.

    Raises ArrayError for an array that is elsewhere, or not row-major.
    """
    storage = Storage(tuple(value.shape), np.dtype(value.dtype), label)
    storage.on_device = True  # no transfer is needed
    of_jax = isinstance(value, getattr(sys.modules.get("jax"), "Array", ()))
    if not copy and (of_jax or (isinstance(value, np.ndarray) and not value.flags.writeable)):
        storage.readonly = "it shares the memory of an array that never changes"
    engine.submit(Element(_Adoption(engine, value, copy), (), {storage: False}, caller()))
    if of_jax and not copy:
        storage.lent = value
    return storage


class _Adoption(Work):
    """Gives its storage the memory of another library's array, or a copy of it."""

    def __init__(self, engine: Engine, value: Any, copy: bool) -> None:
        self.name = "copy" if copy else "from_dlpack"
        self._engine = engine
        self._value: Any = value
        self._copy = copy

    def begin(self, element: Element, stream: Any) -> None:
        [storage] = element.uses
        device = self._engine.backend.adopt(self._value, self._copy, stream)
        self._engine.memory.adopt(storage, device)
        self._value = None  # the element is remembered, but must not hold memory
