"""From a jitted function to custom calls: what each step of the compiler makes of Figure 1."""

from __future__ import annotations

from benchmarks.figures.cases import Case, case
from benchmarks.figures.picture import Picture
from fusionstitch.codegen.ir.walk import every
from fusionstitch.codegen.snapshots.page import counted
from fusionstitch.hlo.importer import from_proto

STEP, BOX, LEFT = 58, 42, 20
#: Of a step: its name, what there is after it, and the folders that do it.
Step = tuple[str, str, str]


def steps(one: Case) -> list[Step]:
    """What became of a program with one plan and one kernel."""
    stitched, scheduled = one.stitched, one.scheduled
    assert scheduled is not None
    [plan] = stitched.plans
    stats, groups = plan.stats, scheduled.plan.groups
    stages = sum(len(group.group.stages) for group in groups)
    ops = len(list(from_proto(stitched.given).entry))
    nests = sum(len(group.nests) for group in groups)
    statements = sum(1 for _ in every(one.lowered.body))
    shape = f"{counted(one.kernel.grid, 'block')} of {counted(one.kernel.block, 'thread')}"
    calls = len(stitched.stitches)
    return [
        ("jax.jit lowers the function", counted(ops, "HLO instruction"), "fusionstitch/execution/"),
        (
            "import, inline, simplify",
            f"a graph of {counted(len(plan.program), 'op')}",
            "hlo/, fusionstitch/compiler/",
        ),
        (
            "candidates are proposed",
            counted(stats.candidates, "candidate"),
            "fusionstitch/patterns/",
        ),
        (
            "bounds, then scores",
            f"{stats.inspected} of them scheduled",
            "costmodel/, fusionstitch/plan/scores.py",
        ),
        (
            "the integer program chooses",
            f"{counted(len(plan.chosen), 'pattern')}, {counted(plan.cuts, 'cycle cut')}",
            "fusionstitch/plan/",
        ),
        (
            "passes from region to region",
            f"a region of {counted(len(scheduled.graph) - 1, 'value')}",
            "codegen/rewrite/",
        ),
        (
            "stages, groups, nests",
            f"{counted(stages, 'stage')}, {counted(len(groups), 'group')}, "
            f"{counted(nests, 'nest')}",
            "codegen/loops/",
        ),
        ("schedule and memory", shape, "codegen/schedule/, codegen/memory/"),
        (
            "lowering, barriers, verifier",
            f"{statements} nodes of IR",
            "codegen/lower/, codegen/ir/",
        ),
        (
            "printed as CUDA-C and built",
            counted(one.kernel.source.count("\n"), "line"),
            "codegen/ir/printer.py, fusionstitch/runtime/",
        ),
        (
            "written into the module",
            f"{counted(calls, 'custom call')}, and one that loads kernels",
            "hlo/exporter.py",
        ),
    ]


def draw() -> Picture:
    """The steps, one below the other."""
    found = steps(case("figure1"))
    about = "; ".join(f"{name}: {result}" for name, result, _ in found)
    title = "From a jitted function to custom calls"
    picture = Picture(920, STEP * len(found) + 34, title, f"Figure 1 of the paper. {about}.")
    for x, text in ((LEFT, "step"), (LEFT + 310, "result"), (LEFT + 560, "folder")):
        picture.text(x, 22, text, 11, "soft")
    for n, (name, result, where) in enumerate(found):
        y = 34 + STEP * n
        colour = "xla" if n in (0, len(found) - 1) else "block" if n >= 5 else "thread"
        picture.box(LEFT, y, 270, BOX, colour, colour, 1.2, 0.14)
        picture.text(LEFT + 14, y + 26, name, 13.5, bold=True)
        picture.text(LEFT + 310, y + 26, result, 13)
        picture.text(LEFT + 560, y + 26, where, 11, "soft", mono=True)
        if n:
            picture.line([(LEFT + 135, y - STEP + BOX), (LEFT + 135, y)], arrow=True)
    return picture
