"""Arrays of others, through DLPack."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from fusionstitch.dag.access import Named, caller
from fusionstitch.dag.element import Element, Storage
from fusionstitch.dag.engine import Engine

_CPU = 1


def is_on_device(value: Any) -> bool:
    """Whether an array of another library lies in a GPU's memory."""
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and where()[0] != _CPU


def adopted(engine: Engine, value: Any, label: str, copy: bool) -> Storage:
    """A storage with the memory of another library's array, or with a copy of it.

    Raises ArrayError for one that is elsewhere, or not row-major.
    """
    storage = Storage(tuple(value.shape), np.dtype(value.dtype), label)
    storage.on_device = True  # nothing is sent there
    if not copy and _is_immutable(value):
        storage.readonly = "it shares the memory of an array that never changes"

    def begin(stream: Any, element: Element) -> None:
        storage.device = engine.backend.adopt(value, copy, stream)

    engine.submit(Named("copy" if copy else "from_dlpack"), {storage: False}, begin, caller())
    return storage


def _is_immutable(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return not value.flags.writeable
    return isinstance(value, getattr(sys.modules.get("jax"), "Array", ()))
