"""What a kernel is generated under: the device, the options, and the way its loops are put
together."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fusionstitch.codegen.loops.stream import NOTHING, Stream
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.schedule.split import Splits
from fusionstitch.codegen.schedule.template import Template
from fusionstitch.codegen.schedule.tuning import DEFAULT, Tuning
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Op


@dataclass(frozen=True)
class CodegenOptions:
    """What changes the text of a kernel besides the region and the device.

    `numerics`: "default" keeps bf16 and f16 intermediates in float, "strict" rounds each.
    `sharing`: whether Algorithm 4 may reuse shared memory. `template`: the text of a schedule to
    follow instead of the default one (`schedule/template.py`). `tuned`: one that the autotuner
    found, which is followed where it fits. `tuning`: choices that replace single defaults.
    `overwrites`: pairs of an output and an input whose buffer that output should end up in; whether
    a schedule allows it, `Kernel.in_place` shows. `compared`: whether schedules near the default
    one are compared (`search/compared.py`). `check`: whether statements are verified after each
    pass, which changes no text.
    """

    numerics: str = "default"
    sharing: bool = True
    template: str | None = None
    tuned: str | None = None
    tuning: Tuning = DEFAULT
    overwrites: tuple[tuple[int, int], ...] = ()
    compared: bool = True
    check: bool = field(default=False, compare=False)

    @property
    def attempts(self) -> tuple[CodegenOptions, ...]:
        """What a kernel is made under, until one fits: what was tuned with other versions of this
        package may fit no longer."""
        if self.tuned is None:
            return (self,)
        free = replace(self, tuned=None)
        return replace(free, template=self.tuned), free


@dataclass(frozen=True)
class Settings:
    """What every pass and every decision may look at besides the region."""

    device: Device
    options: CodegenOptions
    #: what the template of the options says
    template: Template | None = None
    #: the sums that become several, by op id
    splits: Splits = field(default_factory=dict)
    #: whether concatenates sink towards the outputs (`rewrite/sunk.py`)
    sunk: bool = False
    #: elements of a tile along each stencil axis (`rewrite/halo_tiles.py`); none: no such tiles
    halo: tuple[int, ...] = ()
    #: the chains of dots that are streamed, of the region as it is now
    stream: Stream = NOTHING
    #: the ids of the ops that are computed once, of the region as it is now; None: the default ones
    stored: frozenset[int] | None = None
    #: the ids of the outputs that are stored piece by piece, likewise
    joined: frozenset[int] | None = None
    #: of which ops the parameters that loops carry have the values, by their numbers
    becomes: Mapping[int, Sequence[Op]] = field(default_factory=dict)

    @classmethod
    def of(cls, device: Device, options: CodegenOptions) -> Settings:
        """The settings of a kernel before its ways part. Raises TemplateSyntaxError."""
        text = options.template
        template = parse_template(text) if text is not None else None
        return cls(device, options, template, halo=options.tuning.halo)

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
    LAYERS = "rows stay with the lanes of a warp from product to product"
    LOOPS = "all iterations of the region's loops"
