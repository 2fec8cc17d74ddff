"""What a kernel is generated under: the device, the options, and the way its loops are put
together."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning
from fusionstitch.costmodel.devices import Device


@dataclass(frozen=True)
class CodegenOptions:
    """What changes the text of a kernel besides the region and the device.

    `numerics`: "default" keeps bf16 and f16 intermediates in float, "strict" rounds each.
    `sharing`: whether Algorithm 4 may reuse shared memory. `template`: a schedule to follow
    instead of the default one, in the paper's grammar (`schedule/template.py`). `tuning`: the
    autotuner's choices. `overwrites`: pairs of an output and an input whose buffer that output
    should end up in; a schedule may let it happen, which `Kernel.in_place` tells, or not.
    """

    numerics: str = "default"
    sharing: bool = True
    template: str | None = None
    tuning: Tuning = DEFAULT
    overwrites: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Settings:
    """What every pass and every decision may look at besides the region."""

    device: Device
    options: CodegenOptions

    @property
    def strict(self) -> bool:
        """Whether every bit of the program's values must stay."""
        return self.options.numerics == "strict"


class Way(enum.Enum):
    """How the loops of a kernel are put together, the boldest first."""

    STREAM = "chains of dots walk their columns block by block, other loops merge"
    SHARE = "clusters of blocks share the rows: few of them fill the device, no sum is split"
    MERGE = "loops merge into groups"
    APART = "every loop is a group of its own"
