"""What was counted of a kernel as work that the cost model prices, phase by phase."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.codegen.count.tally import Tally
from fusionstitch.codegen.ir.kernel import Lowered, Space
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.work import L2_SHARE, Work


def works(tally: Tally, lowered: Lowered, device: Device) -> Iterator[Work]:
    """The work between two grid barriers each.

    An input comes from DRAM once; what a later phase reads of it comes from L2 if the input is
    small, as do all bytes that come to multiprocessors again, and those of scratch.
    """
    inputs = {buffer.name for buffer in lowered.buffers if buffer.space is Space.INPUT}
    outputs = {buffer.name for buffer in lowered.buffers if buffer.space is Space.OUTPUT}
    seen: set[str] = set()
    for phase in tally.phases:
        read = written = near = 0
        for name, one in phase.read.items():
            small = name in seen and one.bytes < device.l2_bytes * L2_SHARE
            far = one.bytes if name in inputs and not small else 0
            read, near = read + far, near + one.moved - far
        for name, one in phase.written.items():
            far = one.bytes if name in outputs else 0
            written, near = written + far, near + one.moved - far
        seen |= phase.read.keys()
        own = phase.instructions
        yield Work(
            bytes_read=read,
            bytes_written=written,
            l2_bytes=near,
            flops=own.flops,
            flops64=own.flops64,
            special=own.special,
            int_ops=own.int_ops,
            tensor_flops=own.tensor_flops,
        )
