"""Arrays of a scheduler: memory shared by kernels and the host."""

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

    Reading a part, `x[key]`, waits for the last element that writes the array and for nothing else.
    It returns a copy, by NumPy's indexing rules. Writing, `x[key] = value`, waits for all work that
    uses the array. Written values are sent to the device with the next kernel that uses them.
    `numpy.asarray(x)` reads the whole array. `from_dlpack` of CuPy, JAX and NumPy shares its device
    memory.

    Raises ArrayError for an array that was donated or cannot be written, KernelError if work
    failed, and IndexError for a bad key.
    """

    __slots__ = ("__weakref__", "access", "storage")

    def __init__(self, access: Access, storage: Storage) -> None:
        self.access = access
        #: the scheduler's own record of it
        self.storage = storage

    def __del__(self) -> None:
        # Runs whenever Python frees the array: the scheduler handles it later.
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
        """The name in edges of graphs."""
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
        """The host's memory of the array, for writing in place until a kernel uses the array.

        This avoids the copy of `x[...] = value`. With `overwrite`, the caller writes every element,
        and the device's contents are not copied to the host. Waits, and raises, as writing does.
        """
        return self.access.writable(self.storage, overwrite)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("The host gets a copy of an array of the device.")
        return np.asarray(self[...], dtype=dtype)

    def item(self) -> Any:
        """The only element, as a Python number. Raises ValueError if there are more."""
        if self.size != 1:
            raise ValueError(f"An array of {self.size} elements is not a number.")
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
