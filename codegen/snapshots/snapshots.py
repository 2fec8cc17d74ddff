"""One kernel's way in texts: its region after each pass, its loops, its schedule, its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions, Way
from fusionstitch.codegen.snapshots.kernels import kernel_text
from fusionstitch.codegen.snapshots.loops import groups_text, stages_text
from fusionstitch.codegen.snapshots.page import page, table
from fusionstitch.codegen.snapshots.phases import Phase, phases
from fusionstitch.codegen.snapshots.regions import region_text
from fusionstitch.codegen.snapshots.schedules import memory_text, schedule_text
from fusionstitch.codegen.snapshots.shared import Lives, lives
from fusionstitch.codegen.watch import Watch
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Graph

T = TypeVar("T")


@dataclass(frozen=True)
class Snapshot:
    """One text. Its name is one of ours: lower-case words."""

    name: str
    text: str


@dataclass(frozen=True)
class Drawn:
    """What became of a region: step by step as texts, its shared memory, its phases, its kernel."""

    snapshots: Sequence[Snapshot]
    shared: Sequence[Lives]
    phases: Sequence[Phase]
    kernel: Kernel


def snapshots(graph: Graph, device: Device, options: CodegenOptions | None) -> Sequence[Snapshot]:
    """What became of a region, step by step, up to its text. Raises CodegenError as `generate`,
    which makes the same kernel of it, does."""
    return drawn(graph, device, options).snapshots


def drawn(graph: Graph, device: Device, options: CodegenOptions | None) -> Drawn:
    """The same with what is no text. Raises CodegenError as `generate` does."""
    watch = _Drawn()
    kernel = generate(graph, device, options, watch)
    ways = Snapshot("ways", page(table(watch.ways)))
    own = phases(watch.kernel) if watch.kernel is not None else ()
    return Drawn((*watch.common, ways, *watch.own), watch.shared, own, kernel)


@dataclass(eq=False)
class _Drawn(Watch):
    """Draws each step at once: those `common` to all ways, and those of the `own` way."""

    common: list[Snapshot] = field(default_factory=list)
    own: list[Snapshot] = field(default_factory=list)
    ways: list[tuple[str, str]] = field(default_factory=list)
    #: the region as it was drawn last, and as it was where the ways part; the stages
    latest: str = ""
    parting: str = ""
    stages: str = ""
    shared: Sequence[Lives] = ()
    #: the statements after the last pass so far
    kernel: Lowered | None = None

    def region(self, graph: Graph, name: str, about: str) -> None:
        text = region_text(graph)
        if text != self.latest:
            self.latest = text
            self._add(name, f"{name}: {about}\n{text}")

    def way(self, way: Way) -> None:
        if self.ways:
            self.latest = self.parting
        self.parting, self.own = self.latest, []
        self.ways.append((way.name.lower(), way.value))

    def refused(self, way: Way, reason: str) -> None:
        self.ways.append(("", f"refused: {reason}"))

    def decided(self, step: str, value: T) -> T:
        if step == "stages" and isinstance(value, list):
            self.stages = stages_text(value)
            self._add("stages", self.stages)
        if isinstance(value, Scheduled):
            stages = [stage for group in value.plan.groups for stage in group.group.stages]
            text = stages_text(sorted(stages, key=lambda s: s.number))
            if text != self.stages:
                self._add("stages with kept values", text)
            self._add("groups", groups_text(value.plan))
            self._add("schedule", schedule_text(value))
            self._add("memory", memory_text(value))
            self.shared = lives(value)
        return value

    def lowered(self, kernel: Lowered, name: str, about: str) -> None:
        self.kernel = kernel
        self._add(name, kernel_text(kernel, name, about))

    def _add(self, name: str, text: str) -> None:
        (self.own if self.ways else self.common).append(Snapshot(name, text))
