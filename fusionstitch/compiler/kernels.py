"""The kernels of a program's patterns, each made once: patterns of equal structure share one."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fusionstitch.codegen.generate import CodegenOptions, Planned, generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.compiler import override
from fusionstitch.compiler.naming import kernel_name
from fusionstitch.costmodel.devices import Device
from fusionstitch.errors import reason
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.runtime.apart import check
from fusionstitch.tuning.tuned import Tuned

if TYPE_CHECKING:
    from fusionstitch.codegen.snapshots.snapshots import Snapshot

logger = logging.getLogger(__name__)

#: (output, input) pairs that share memory.
Over = tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Kernels:
    """Makes kernels. Calls `announce` with the name of each before it is made."""

    options: Options
    device: Device
    tuned: Tuned
    announce: Callable[[str], object]
    #: drafts of kernels left over from planning
    drafts: dict[Pattern, Planned] = field(default_factory=dict)
    #: by structure and in-place outputs, and by the pattern whose names are in the text
    made: dict[tuple[str, Pattern], Kernel | str] = field(default_factory=dict)

    def of(self, pattern: Pattern, over: Over, alike: dict[str, Pattern]) -> Kernel | str:
        """The kernel of a pattern whose outputs overwrite inputs (`over`), or why there is none.
        `alike` has patterns by structure and in-place outputs: if one matches, its kernel is
        used."""
        key = pattern.key
        if over:
            key = hashlib.sha256(f"{key} {over}".encode()).hexdigest()
        first = alike.setdefault(key, pattern)
        if (key, first) not in self.made:
            name = kernel_name(first.ops, key)
            self.announce(name)
            part, settings = self.part(name, first, over)
            made = self.drafted(first, settings) or _generated(part, self.device, settings)
            if isinstance(made, Kernel):
                made = override.overridden(made, self.device)
            self.made[key, first] = made
        return self.made[key, first]

    def drafted(self, pattern: Pattern, settings: CodegenOptions) -> Kernel | None:
        """The kernel finished from a draft of planning, if it needs the same settings."""
        found = self.drafts.pop(pattern, None)
        if found is None or found.options not in settings.attempts:
            return None
        try:
            return found.kernel()
        except Exception:  # reported when it is generated from scratch
            logger.debug("finishing a kernel failed", exc_info=True)
            return None

    def part(self, name: str, pattern: Pattern, over: Over) -> tuple[Graph, CodegenOptions]:
        """The region of a pattern, and how its kernel is generated."""
        settings = self.tuned.settings(pattern, self.options, name)
        part = region(name, pattern.ops, pattern.inputs, pattern.outputs)
        return part, dataclasses.replace(settings, overwrites=over)

    def snapshots(self, name: str, pattern: Pattern, over: Over) -> Sequence[Snapshot]:
        """The intermediate forms of the kernel of that name."""
        from fusionstitch.codegen.snapshots.snapshots import snapshots  # for dumps only

        check()
        part, settings = self.part(name, pattern, over)
        return snapshots(part, self.device, settings)


def _generated(part: Graph, device: Device, settings: CodegenOptions) -> Kernel | str:
    """The kernel of a region, or why there is none."""
    try:
        return generate(part, device, settings)
    except CodegenError as error:
        return str(error)
    except Exception as error:  # a defect in one pattern must not cost the others
        logger.debug("code generation of %s failed", part.name, exc_info=True)
        return reason(error)
