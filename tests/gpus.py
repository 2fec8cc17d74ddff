"""GPUs that no profile was measured on, as their drivers describe them; and a driver that does."""

from __future__ import annotations

from typing import Any

from fusionstitch.costmodel.properties import Properties
from fusionstitch.runtime import driver

_INVALID = 1


def _gpu(
    name: str,
    capability: int,
    sm_count: int,
    clocks: tuple[int, int],
    bus_bits: int,
    l2_mib: float,
    shared_kib: tuple[int, int],
    threads_and_blocks: tuple[int, int],
) -> Properties:
    return Properties(
        name=name,
        capability=capability,
        sm_count=sm_count,
        clock_khz=1000 * clocks[0],
        memory_clock_khz=1000 * clocks[1],
        bus_bits=bus_bits,
        l2_bytes=int(l2_mib * 2**20),
        shared_per_sm=1024 * shared_kib[0],
        shared_per_block=1024 * shared_kib[1],
        registers_per_sm=65_536,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_sm=threads_and_blocks[0],
        max_blocks_per_sm=threads_and_blocks[1],
        clusters=capability >= 90,
    )


GPUS = {
    gpu.name: gpu
    for gpu in (
        _gpu("Tesla T4", 75, 40, (1590, 5001), 256, 4, (64, 64), (1024, 16)),
        _gpu("NVIDIA GeForce RTX 4090", 89, 128, (2520, 10_501), 384, 72, (100, 99), (1536, 24)),
        _gpu("NVIDIA L40S", 89, 142, (2520, 9_001), 384, 96, (100, 99), (1536, 24)),
        _gpu("NVIDIA GH200 480GB", 90, 132, (1980, 2_619), 6144, 60, (228, 227), (2048, 32)),
        _gpu("NVIDIA B200", 100, 148, (1965, 3_996), 8192, 126.5, (228, 227), (2048, 32)),
        _gpu("NVIDIA GeForce RTX 5090", 120, 170, (2407, 14_001), 512, 96, (100, 99), (1536, 24)),
    )
}


class FakeDriver:
    """Stands for libcuda: it has the GPUs `found`, and knows no attribute in `unknown`."""

    def __init__(self, *found: Properties, unknown: tuple[int, ...] = ()):
        self.found, self.unknown = found, unknown

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        if ordinal >= len(self.found):
            return _INVALID
        device._obj.value = ordinal
        return 0

    def cuDeviceGetName(self, text: Any, size: int, device: Any) -> int:
        text.value = self.found[device.value].name.encode()[: size - 1]
        return 0

    def cuDeviceGetAttribute(self, value: Any, number: int, device: Any) -> int:
        if number in self.unknown:
            return _INVALID
        gpu = self.found[device.value]
        known = {driver.CLUSTERS: gpu.clusters}
        for field, each in driver.ATTRIBUTES.items():
            parts = {"major": gpu.capability // 10, "minor": gpu.capability % 10}
            known[each] = parts[field] if field in parts else getattr(gpu, field)
        value._obj.value = int(known[number])
        return 0
