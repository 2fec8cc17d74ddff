"""What the CUDA driver reports about a GPU; `costmodel/properties.py` makes a profile from it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from fusionstitch.costmodel.properties import Properties
from fusionstitch.hlo.errors import OptionError

LIBRARY = "libcuda.so.1"
#: Attributes of a device as cuda.h numbers them (CUdevice_attribute).
ATTRIBUTES: Mapping[str, int] = {
    "max_threads_per_block": 1,
    "warp_size": 10,
    "clock_khz": 13,
    "sm_count": 16,
    "memory_clock_khz": 36,
    "bus_bits": 37,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "major": 75,
    "minor": 76,
    "shared_per_sm": 81,
    "registers_per_sm": 82,
    "shared_per_block": 97,  # the limit with opt-in, not the default
    "max_blocks_per_sm": 106,
}
#: Whether blocks can form clusters. Drivers before CUDA 11.8 do not know the attribute.
CLUSTERS = 120
_NAME_BYTES = 256


def properties(ordinal: int) -> Properties:
    """The properties of the `ordinal`-th GPU visible to this process.

    Raises OptionError if the driver cannot be queried.
    """
    try:
        driver = library()
    except OSError as error:
        raise OptionError(f"The CUDA driver cannot be loaded: {error}.") from None
    device = ctypes.c_int()
    _call(driver.cuInit, 0)
    _call(driver.cuDeviceGet, ctypes.byref(device), ordinal)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    _call(driver.cuDeviceGetName, name, _NAME_BYTES, device)
    values = {field: _attribute(driver, number, device) for field, number in ATTRIBUTES.items()}
    try:
        clusters = bool(_attribute(driver, CLUSTERS, device))
    except OptionError:
        clusters = False
    capability = 10 * values.pop("major") + values.pop("minor")
    text = name.value.decode("ascii", "replace")
    return Properties(name=text, capability=capability, clusters=clusters, **values)


def library() -> Any:
    """The driver's library. Raises OSError if it is missing."""
    return ctypes.CDLL(LIBRARY)


def _attribute(driver: Any, number: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    _call(driver.cuDeviceGetAttribute, ctypes.byref(value), number, device)
    return value.value


def _call(function: Callable[..., int], *args: Any) -> None:
    status = function(*args)
    if status != 0:
        raise OptionError(f"The CUDA driver does not answer (error {status}).")
