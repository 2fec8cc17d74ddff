"""One program compiled under a trace: its schedules, and the files that are entered."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TypeVar

import fusionstitch
from benchmarks.figures.cases import OPTIONS, Case, case
from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.loops.groups import Group
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.codegen.watch import Watch
from fusionstitch.compiler import core
from fusionstitch.hlo.graph import Graph

T = TypeVar("T")

#: The program: matrices whose rows and columns are summed.
NAME = "block"
#: The folders at the top of the repository that are linked into the package.
LINKED = ("codegen", "costmodel", "hlo")


@dataclass(eq=False)
class Seen(Watch):
    """What code generation decided of a region: the first schedule, and counts on the way to it."""

    #: those that changed the region, which is also shown before all of them
    passes: int = -1
    #: the stages of each group, by step
    stages: dict[str, list[int]] = field(default_factory=dict)
    scheduled: Scheduled | None = None

    def region(self, graph: Graph, name: str, about: str) -> None:
        self.passes += 1

    def decided(self, step: str, value: T) -> T:
        if isinstance(value, list):
            self.stages[step] = [len(x.stages) if isinstance(x, Group) else 1 for x in value]
        if isinstance(value, Scheduled) and self.scheduled is None:
            self.scheduled = value
        return value


@dataclass(frozen=True)
class Run:
    """The program compiled: its kernel, its first schedule, and the files that were entered."""

    case: Case
    seen: Seen
    first: Draft
    files: Sequence[str]

    @property
    def default(self) -> Scheduled:
        return self.first.scheduled


@functools.cache
def run() -> Run:
    """The program compiled; its files are those of a second, traced compile."""
    one = case(NAME)
    pattern, device, seen = one.chosen.pattern, one.stitched.device, Seen()
    part = region(one.kernel.name, pattern.ops, pattern.inputs, pattern.outputs)
    again = generate(part, device, CodegenOptions(), seen)
    assert again.source == one.kernel.source
    assert seen.scheduled is not None
    first = Draft.of(seen.scheduled, CodegenOptions(), device)
    return Run(one, seen, first, entered(one))


def entered(one: Case) -> list[str]:
    """The files whose functions run while the program is compiled, by first call; paths are
    relative to the repository."""
    found: dict[str, None] = {}

    def enters(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.setdefault(frame.f_code.co_filename)

    with profiled(enters):
        stitched = core.stitch(one.stitched.given, OPTIONS, one.stitched.device, None)
    assert [each.kernel.source for each in stitched.stitches] == [one.kernel.source]
    return list(_ours(found))


@contextmanager
def profiled(enters: Callable[[FrameType, str, object], None]) -> Iterator[None]:
    """Calls `enters` as `sys.setprofile` does, on this thread and on those that start meanwhile."""
    here, others = sys.getprofile(), threading.getprofile()
    threading.setprofile(enters)
    sys.setprofile(enters)
    try:
        yield
    finally:
        sys.setprofile(here)
        threading.setprofile(others)


def _ours(files: Iterable[str]) -> Iterator[str]:
    """Those of this package, from the folder of the repository."""
    package = Path(fusionstitch.__file__).parent
    for name in files:
        if Path(name).is_relative_to(package):
            path = Path(name).relative_to(package)
            yield str(path if path.parts[0] in LINKED else package.name / path)
