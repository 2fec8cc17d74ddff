"""What becomes of the programs of docs/how: planned for an H200, which need not be there."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import fusionstitch as fs
from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.snapshots.snapshots import Drawn, drawn
from fusionstitch.codegen.watch import Watch
from fusionstitch.commands.targets import load
from fusionstitch.compiler.planning import GraphPlanner
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.execution.call import Call
from fusionstitch.plan.plan import Chosen
from fusionstitch.plan.planner import Planner
from fusionstitch.reports import trial

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
#: The JAX that gave the ops of the pages their names.
JAX = "0.10.2"
PROGRAMS = "docs/how/programs.py"
#: Programs by the names that the pages call them: their targets, and a template for the kernel.
TARGETS: Mapping[str, tuple[str, str | None]] = {
    "figure1": ("examples/figure1.py:original", None),
    "figure1 as in the paper": ("examples/figure1.py:original", "docs/how/figure1.template"),
    "norms": ("examples/norms.py:backward", None),
    **{
        name: (f"{PROGRAMS}:{name}", None)
        for name in (
            *("thread", "warp", "several_warps", "block", "cluster", "grid"),
            *("cycle", "layers", "rows", "dealt", "one_block", "whole_grid"),
        )
    },
}
OPTIONS = fs.Options(device="h200", scorer="model", fallback="error")


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel of a program: what was chosen, the kernel, its way, what was decided of it (None
    for loops and layers), and its statements."""

    stitched: Stitched
    chosen: Chosen
    kernel: Kernel
    way: Drawn
    scheduled: Scheduled | None
    lowered: Lowered

    def text(self, name: str) -> str:
        """The snapshot of that name; "source" and "template" are those of the kernel."""
        if name == "source":
            return self.kernel.source
        if name == "template":
            return self.kernel.template
        return next(one.text for one in self.way.snapshots if one.name == name)


@dataclass(eq=False)
class _Kept(Watch):
    """Keeps what was decided last."""

    scheduled: Scheduled | None = None
    kernels: list[Lowered] = field(default_factory=list)

    def decided(self, step: str, value: T) -> T:
        if isinstance(value, Scheduled):
            self.scheduled = value
        return value

    def lowered(self, kernel: Lowered, name: str, about: str) -> None:
        self.kernels.append(kernel)


@functools.cache
def stitched(target: str) -> Stitched:
    """The plans and kernels of a target at its real size."""
    with _at_full_size():
        fun, args = load(target)
    return trial.plan(Call(fun, args, {}, OPTIONS, {}, fs.jit))


@functools.cache
def case(name: str) -> Case:
    """The only kernel of a program; with a template, what becomes of its region by that."""
    target, template = TARGETS[name]
    found = stitched(target)
    [one] = found.stitches
    pattern, kernel = one.chosen.pattern, one.kernel
    part = region(kernel.name, pattern.ops, pattern.inputs, pattern.outputs)
    text = kernel.template if template is None else (ROOT / template).read_text("utf-8")
    options = CodegenOptions(template=text)
    watch = _Kept()
    again = generate(part, found.device, options, watch)
    if template is None and again.source != kernel.source:
        raise AssertionError(f"{name}: its template leads to another kernel.")
    way = drawn(part, found.device, options)
    return Case(found, one.chosen, again, way, watch.scheduled, watch.kernels[-1])


@functools.cache
def planner(name: str) -> Planner:
    """What planned a program's only graph, with all candidates."""
    found = stitched(TARGETS[name][0])
    [plan] = found.plans
    again = GraphPlanner(plan.program, found.device, OPTIONS)
    assert [c.pattern.bits for c in again.plan.chosen] == [c.pattern.bits for c in plan.chosen]
    return again.planner


@contextmanager
def _at_full_size() -> Iterator[None]:
    """Examples have the sizes of a GPU."""
    name = "FUSIONSTITCH_EXAMPLE_SCALE"
    before = os.environ.get(name)
    os.environ[name] = "full"
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
