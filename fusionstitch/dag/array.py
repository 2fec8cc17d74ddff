"""Arrays of a scheduler: memory that kernels and the host use in turn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from fusionstitch.dag.element import Storage
from fusionstitch.dag.access import Access


class Array:
    """An array that kernels of its scheduler read and write; made by `Scheduler.array`.

    Reading a part, `x[key]`, waits for the last element that writes the array, and for nothing
    else; it gives a copy, by the rules of NumPy. Writing, `x[key] = value`, waits for all that use
    it. What was written is sent to the device with the next kernel that uses it. `numpy.asarray(x)`
    reads all of it, and `from_dlpack` of CuPy, JAX and NumPy shares its memory on the device.
    """

    __slots__ = ("__weakref__", "access", "storage")

    def __init__(self, access: Access, storage: Storage) -> None:
        self.access = access
        #: what the scheduler knows of it
        self.storage = storage

    def __del__(self) -> None:
        # Runs wherever Python lets go of the array: the scheduler looks at it later.
        self.access.dropped.append(self.storage)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.storage.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.storage.dtype

    @property
    def ndim(self) -> int:
        return len(self.storage.shape)

    @property
    def size(self) -> int:
        return math.prod(self.storage.shape)

    @property
    def nbytes(self) -> int:
        return self.storage.nbytes

    @property
    def name(self) -> str:
        """What it is called on the edges of graphs."""
        return self.storage.label

    def __len__(self) -> int:
        if not self.storage.shape:
            raise TypeError("An array without dimensions has no length.")
        return self.storage.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self[...])

    def __getitem__(self, key: Any) -> Any:
        return self.access.read(self.storage, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.access.write(self.storage, key, value)

    def writable(self, *, overwrite: bool = False) -> np.ndarray:
        """The host's memory of the array, to be written in place until a kernel uses the array.

        It saves the copy of `x[...] = value`. With `overwrite` all of it will be written: what the
        device has is not brought. Waits, and raises, as writing does.
        """
        return self.access.writable(self.storage, overwrite)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("The host gets a copy of an array of the device.")
        return np.asarray(self[...], dtype=dtype)

    def item(self) -> Any:
        """The only element, as a Python number. Raises ValueError if there are more."""
        if self.size != 1:
            raise ValueError(f"An array of {self.size} elements is no number.")
        return self[...].item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        return self.access.export(self.storage, stream, options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.access.dlpack_device()

    def __repr__(self) -> str:
        return f"Array({self.name}, {self.dtype}[{','.join(map(str, self.shape))}])"
