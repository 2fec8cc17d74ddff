"""Whether a device can launch a kernel: by CUDA's rules and the numbers of its profile."""

from __future__ import annotations

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.occupancy import blocks_per_sm
from fusionstitch.hlo.verdict import Verdict, allow, forbid


def launchable(
    kernel: Kernel, device: Device, registers: int = 1, static_shared: int = 0, barriers: int = 1
) -> Verdict:
    """Whether `device` can run a block of the kernel, and a cooperative grid all at once.

    `registers` per thread, `static_shared` bytes and `barriers` of a block are what a compiler
    reports; without one the threads, the clusters and the dynamic shared memory decide.
    """
    shared = static_shared + kernel.shared_bytes
    resident = blocks_per_sm(device, kernel.block, registers, shared, barriers)
    facts: dict[str, object] = {
        "threads": kernel.block,
        "registers": registers,
        "shared_bytes": shared,
        "barriers": barriers,
        "blocks_per_sm": resident,
    }
    if resident == 0:
        return forbid(f"One block of {kernel.name} does not fit on a multiprocessor", **facts)
    if kernel.cluster > device.cluster_limit:
        return forbid(
            f"{device.name} has no clusters as large as those of {kernel.name}",
            cluster=kernel.cluster,
            limit=device.cluster_limit,
        )
    if kernel.cooperative and kernel.grid > resident * device.sm_count:
        return forbid(
            f"The cooperative grid of {kernel.name} is larger than what {device.name} holds",
            **facts,
            grid=kernel.grid,
        )
    return allow("", **facts)
