"""The kernels of a program's patterns, each made once: patterns of equal structure share one."""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fusionstitch.codegen.generate import CodegenOptions, Draft, Looped, generate, tuned_or_default
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

#: The (output, input) pairs whose memory a kernel shares.
Over = tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Kernels:
    """Makes kernels. `announce` is called with the name of each before it is made."""

    options: Options
    device: Device
    tuned: Tuned
    announce: Callable[[str], object]
    #: what planning left of them
    drafts: dict[Pattern, Draft | Looped] = field(default_factory=dict)
    #: by structure and duties, and the pattern whose names are in the text
    made: dict[tuple[str, Pattern], Kernel | str] = field(default_factory=dict)

    def of(self, pattern: Pattern, over: Over, alike: dict[str, Pattern]) -> Kernel | str:
        """The kernel of a pattern whose outputs overwrite inputs (`over`), or why there is none.
        `alike` are patterns by structure and duties: where one is there, the kernel is its own."""
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
        """The kernel that planning has left the statements of, if it is to have these settings."""
        found = self.drafts.pop(pattern, None)
        if found is None or found.options != settings:
            return None
        try:
            return found.kernel()
        except Exception:  # said where it is generated from the beginning
            logger.debug("finishing a kernel failed", exc_info=True)
            return None

    def part(self, name: str, pattern: Pattern, over: Over) -> tuple[Graph, CodegenOptions]:
        """The region of a pattern, and how its kernel is generated."""
        settings = self.tuned.settings(pattern, self.options, name)
        part = region(name, pattern.ops, pattern.inputs, pattern.outputs)
        return part, dataclasses.replace(settings, overwrites=over)

    def snapshots(self, name: str, pattern: Pattern, over: Over) -> Sequence[Snapshot]:
        """What a pattern was on its way to the kernel of that name."""
        from fusionstitch.codegen.snapshots.snapshots import snapshots  # for dumps alone

        check()
        part, settings = self.part(name, pattern, over)
        return tuned_or_default(snapshots, part, self.device, settings)


def _generated(part: Graph, device: Device, settings: CodegenOptions) -> Kernel | str:
    """The kernel of a region, or why there is none."""
    try:
        return tuned_or_default(generate, part, device, settings)
    except CodegenError as error:
        return str(error)
    except Exception as error:  # a defect in one pattern must not cost the others
        logger.debug("code generation of %s failed", part.name, exc_info=True)
        return reason(error)
