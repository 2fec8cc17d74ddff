"""One pattern on its way from HLO bytes to CUDA-C: the files it goes through, in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.figures.cases import planner
from benchmarks.figures.picture import Picture
from benchmarks.figures.traced import NAME, Run, run
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.passes import PASSES as KERNEL_PASSES
from fusionstitch.codegen.ir.statements import Barrier
from fusionstitch.codegen.ir.verifier import RULES
from fusionstitch.codegen.ir.walk import every
from fusionstitch.codegen.passes import PASSES
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.snapshots.page import counted
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.importer import from_proto

#: The floors from top to bottom, and their colors.
FLOORS = {"fusionstitch": "thread", "codegen": "block", "costmodel": "grid", "hlo": "xla"}
STEP, BOX, LANE, LEFT, TOP = 34, 22, 176, 16, 42


@dataclass(frozen=True)
class Step:
    """A file, what it does to the pattern, and what there is after it."""

    file: str
    does: str
    after: Callable[[Run], str]


def _imported(run: Run) -> str:
    return counted(len(from_proto(run.case.stitched.given).entry), "op")


def _team(one: Scheduled) -> str:
    nest = one.plan.groups[0].nests[0]
    return f"{counted(nest.teams.threads, 'thread')} to a row"


def _barriers(kernel: Lowered) -> int:
    return sum(isinstance(one, Barrier) for one in every(kernel.body))


def _could_win(run: Run) -> str:
    bounds = [one.bound for one in planner(NAME).search.candidates]
    return f"{sum(us > 0 for us in bounds)} of them could win"


def _compared(run: Run) -> str:
    assert run.case.scheduled is not None
    return f"{_team(run.case.scheduled)}, {run.case.chosen.modelled_us:.1f} us"


STEPS = (
    Step(
        "fusionstitch/compiler/core.py",
        "`stitch` calls all that follows: one method for each pass over the module",
        lambda run: counted(len(from_proto(run.case.stitched.given).graphs), "computation"),
    ),
    Step("hlo/importer.py", "reads each computation of the module into a graph", _imported),
    Step(
        "hlo/simplify.py",
        "rewrites the graph by rules until none applies",
        lambda run: counted(len(run.case.stitched.plans[0].program), "op"),
    ),
    Step(
        "fusionstitch/compiler/planning.py",
        "plans each graph, and equal graphs once",
        lambda run: f"{counted(len(run.case.stitched.plans), 'graph')} to plan",
    ),
    Step(
        "costmodel/xla_fusions.py",
        "models the kernels that XLA would make of it",
        lambda run: (
            f"{counted(len(planner(NAME).xla.kernels), 'XLA kernel')}, "
            f"{run.case.stitched.plans[0].xla_us:.1f} us"
        ),
    ),
    Step(
        "fusionstitch/patterns/candidates.py",
        "asks the generators for sets of ops, and drops those that are not legal",
        lambda run: counted(run.case.stitched.plans[0].stats.candidates, "candidate"),
    ),
    Step(
        "costmodel/kernel_time.py",
        "bounds what the best possible kernel of each candidate could win",
        _could_win,
    ),
    Step(
        "fusionstitch/plan/ilp.py",
        "chooses disjoint candidates with the largest total score, again after each new score",
        lambda run: (
            f"{counted(len(run.case.stitched.plans[0].chosen), 'pattern')}, "
            f"{counted(run.case.stitched.plans[0].stats.solves, 'solve')}"
        ),
    ),
    Step(
        "codegen/rewrite/region.py",
        "makes a graph of the pattern alone, with its inputs as parameters",
        lambda run: f"a region of {counted(len(run.case.chosen.pattern.ops), 'op')}",
    ),
    Step(
        "codegen/passes.py",
        "rewrites the region: the same values, faster to compute",
        lambda run: f"{run.seen.passes} of {len(PASSES)} passes changed it",
    ),
    Step(
        "codegen/loops/stages.py",
        "finds the ops that get a loop; all others are inlined where they are read",
        lambda run: counted(sum(run.seen.stages["stages"]), "stage"),
    ),
    Step(
        "codegen/loops/merging.py",
        "puts stages that share the axes of the grid into one group",
        lambda run: counted(len(run.seen.stages["groups"]), "group"),
    ),
    Step(
        "codegen/loops/caching.py",
        "makes a stage of each value that several loops would compute again",
        lambda run: counted(sum(run.seen.stages["cached values"]), "stage"),
    ),
    Step(
        "codegen/schedule/defaults.py",
        "deals rows to threads and tiles to blocks",
        lambda run: f"{run.default.plan.grid:,} blocks, {_team(run.default)}",
    ),
    Step(
        "codegen/loops/nests.py",
        "puts stages with the same rows into one loop over rows",
        lambda run: counted(sum(len(g.nests) for g in run.default.plan.groups), "nest"),
    ),
    Step(
        "codegen/memory/storage.py",
        "places the values that cross loops in memory",
        lambda run: f"{run.default.layout.total:,} bytes shared",
    ),
    Step(
        "codegen/lower/program.py",
        "writes the schedule as a tree of statements",
        lambda run: f"{sum(1 for _ in every(run.first.lowered.body))} nodes of IR",
    ),
    Step(
        "codegen/lower/edges/__init__.py",
        "carries each value from the loop that computes it to those that read it",
        lambda run: f"{counted(len(run.default.layout.offsets), 'value')} through shared memory",
    ),
    Step(
        "codegen/ir/passes/barriers.py",
        f"is the last of {len(KERNEL_PASSES)} passes over the statements, and makes threads wait "
        "where they must",
        lambda run: counted(_barriers(run.first.lowered), "barrier"),
    ),
    Step(
        "codegen/count/tallies.py",
        "counts what the statements do, which gives the estimated time",
        lambda run: f"{cost_us(run.first.cost, run.first.device):.1f} us",
    ),
    Step(
        "codegen/search/compared.py",
        "does the same for neighboring schedules, and takes the fastest",
        _compared,
    ),
    Step(
        "fusionstitch/plan/checker.py",
        "checks the plan with code that the planner does not use",
        lambda run: f"a plan that saves {run.case.chosen.wins_us:.1f} us",
    ),
    Step(
        "codegen/ir/verifier/__init__.py",
        "checks the statements of the kernel that is taken",
        lambda run: f"{counted(len(RULES), 'rule')} hold",
    ),
    Step(
        "codegen/ir/printer.py",
        "prints the statements",
        lambda run: f"{counted(run.case.kernel.source.count(chr(10)), 'line')} of CUDA-C",
    ),
)


def followed(steps: Sequence[Step], files: Sequence[str]) -> list[Step]:
    """The steps, whose files are entered in this order. Raises AssertionError if they are not."""
    last = -1
    for step in steps:
        if step.file not in files:
            raise AssertionError(f"{step.file} is not entered: take it out of STEPS.")
        if (at := files.index(step.file)) < last:
            raise AssertionError(f"{step.file} is entered before {files[last]}: move it up.")
        last = at
    return list(steps)


def rows() -> list[list[str]]:
    """Of each step its file, what that does, and what there is after it."""
    one = run()
    return [[f"`{x.file}`", x.does, x.after(one)] for x in followed(STEPS, one.files)]


def draw() -> Picture:
    """A lane for each floor, and the files in the order in which the pattern comes to them."""
    found = [(file.strip("`"), after) for file, _, after in rows()]
    about = "; ".join(f"{file}: {after}" for file, after in found)
    title = "One pattern on its way through the floors"
    picture = Picture(960, TOP + STEP * len(found), title, f"{about}.")
    lanes = {floor: LEFT + LANE * n for n, floor in enumerate(FLOORS)}
    for floor, x in lanes.items():
        picture.text(x, 24, f"{floor}/", 13, bold=True, mono=True)
    end = LEFT + LANE * len(lanes)
    picture.text(end + 6, 24, "what there is then", 11, "soft")
    before: tuple[float, float] | None = None
    for n, (file, after) in enumerate(found):
        floor, _, name = file.partition("/")
        x, y, width = lanes[floor], TOP + STEP * n, LANE - 12
        middle = x + 20
        if before is not None:
            bend = y - (STEP - BOX) / 2
            turns = [] if before[0] == middle else [(before[0], bend), (middle, bend)]
            picture.line([before, *turns, (middle, y)], arrow=True)
        picture.box(x, y, width, BOX, FLOORS[floor], FLOORS[floor], 1.2, 0.14)
        picture.text(x + 8, y + 15, name, 11, mono=True)
        picture.text(end + 6, y + 15, after, 12)
        before = (middle, y + BOX)
    return picture
