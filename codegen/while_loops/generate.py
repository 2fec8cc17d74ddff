"""From a region with loops to one kernel: flatten, rewrite, choose a form, lower, verify, print."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fusionstitch.codegen.assembly import Written, assembled, ops_after_rewriting
from fusionstitch.codegen.ir.passes import EARLY, LOWERED, VECTORS
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.settings import CodegenOptions, Settings, Way
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.codegen.while_loops.flat import Flat, flatten
from fusionstitch.codegen.while_loops.in_rows import InRows, in_rows, write_rows
from fusionstitch.codegen.while_loops.lower_phased import write_phased
from fusionstitch.codegen.while_loops.phased import (
    Phased,
    dealt_to_blocks,
    in_clusters,
    in_one_block,
    on_the_grid,
)
from fusionstitch.codegen.while_loops.sizes import WORTH, fastest, larger, near, read_tuning
from fusionstitch.codegen.while_loops.summary import facts
from fusionstitch.codegen.while_loops.trips import iterations
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.errors import CodegenError, PassError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.trips import UNKNOWN_TRIPS

Form = InRows | Phased

#: What a form takes at most, beside the fastest one, for blocks of other sizes to be tried, and the
#: straight segments of iterations at most: each is scheduled anew.
PROMISING, MOST_SEGMENTS = 2.0, 8

#: The forms of loops, by the word that a template begins with.
FORMS: Mapping[str, Callable[[Flat, Settings], Form]] = {
    "rows": in_rows,
    "dealt": dealt_to_blocks,
    "cluster": in_clusters,
    "block": in_one_block,
    "grid": on_the_grid,
}
#: Of these, the ones whose blocks work alone, whose templates may say how many threads they have.
ALONE: Mapping[str, Callable[[Flat, Settings, int], Phased]] = {
    "dealt": dealt_to_blocks,
    "block": in_one_block,
}


@dataclass(frozen=True, eq=False)
class Looped:
    """A region with loops, as far as its cost estimate needs it.

    Attributes:
        region: the loops and what belongs to them
        form: how its iterations run
        begun: what it becomes, before the passes
        written: the same after them
        facts: what it does
        us: microseconds that it is estimated to take, launch included
        settings: what it was planned under
        given_template: the template that chose its form
    """

    region: Graph
    form: Form
    begun: Written
    written: Written
    facts: KernelFacts
    us: float
    settings: Settings
    given_template: str | None = None

    @property
    def options(self) -> CodegenOptions:
        """Those that ask for this kernel."""
        return replace(self.settings.options, template=self.given_template)

    @property
    def template(self) -> str:
        """The template that gives this kernel."""
        return self.form.template

    @property
    def numbered_template(self) -> str:
        """The same: it has no names."""
        return self.form.template

    @property
    def cost(self) -> KernelCost:
        """What its statements do."""
        return self.facts.cost

    def kernel(self) -> Kernel:
        """The kernel. Raises CodegenError where the device cannot launch it."""
        form, device = self.form, self.settings.device
        how = "of a row in one thread" if isinstance(form, InRows) else "in phases"
        ops = ops_after_rewriting(form.flat.graph)
        summary = f"{ops} ops after rewriting, all iterations {how}."
        own = facts(self.region, form, self.written, self.us - device.launch_us)
        known = (*self.facts.facts, ("scope", "loop"), *own)
        return assembled(self.region, self.written, form.template, summary, known, device)


def plan_loops(
    region: Graph, settings: Settings, watch: Watch = NOBODY, template: str | None = None
) -> Looped:
    """The fastest form by the cost of its statements, or the one that `template` names
    ("loop grid"). Clusters are for what outgrows a block. Raises CodegenError where no kernel runs
    the loops of a region."""
    flat = _flat(region, settings, watch)
    names = tuple(FORMS) if template is None else form_of(template)
    if not names:
        known = ", ".join(f'"loop {name}"' for name in FORMS)
        raise CodegenError(f"Templates of loops are {known}, not {template!r}.")
    refused: list[CodegenError] = []
    found: dict[str, Looped] = {}
    for name in names:
        if name == "cluster" and any(map(_holds, found.values())):
            continue  # what a block has at hand, a cluster would only hand round
        try:
            form = _formed(name, flat.copied(), settings, template)
            found[name] = _compared(region, form, settings)
        except CodegenError as error:
            if settings.options.check and isinstance(error, PassError):
                raise  # no other form hides the defect
            refused.append(error)
    if not found:
        raise CodegenError(" ".join(dict.fromkeys(map(str, refused))))
    if "block" in found and "grid" in found and found["grid"].written.lowered.grid == 1:
        del found["grid"]  # the same with the barriers of a grid
    best = min(found.values(), key=lambda one: one.us)
    if template is None and settings.options.compared:
        promising = [one for one in found.values() if one.us < PROMISING * best.us]
        sized = [_sized(one, flat, settings) for one in promising]
        best = min([best, *sized], key=lambda one: one.us)
    watch.lowered(best.begun.lowered, LOWERED, "what the loops became")
    return replace(_looped(region, best.form, best.begun, settings, watch), given_template=template)


def other_forms(of: Looped) -> Iterator[Looped]:
    """The same loops in every other form, in smaller blocks, and on the grid in larger ones."""
    form = of.form
    templates = [f"loop {name}" for name in FORMS]
    if isinstance(form, Phased) and (form.alone or form.form == "grid"):
        tile = "" if form.alone else f" tile {form.tile or 1:g}"
        templates += [f"loop {form.form} threads {threads}{tile}" for threads in near(form.block)]
    if isinstance(form, Phased) and form.form == "grid":
        most = of.settings.device.max_threads_per_block
        larger_ones = larger(Tuning(block=form.block, tile=form.tile or 1.0), most)
        templates += [f"loop grid threads {one.block} tile {one.tile:g}" for one in larger_ones]
    seen = {of.template}
    for template in templates:
        with LeftOut(of.settings.options.check):
            other = plan_loops(of.region, of.settings, template=template)
            if other.template not in seen:
                seen.add(other.template)
                yield other


def _sized(looped: Looped, flat: Flat, settings: Settings) -> Looped:
    """A form whose threads work together, in blocks of other sizes where that is faster."""
    form = looped.form
    if not isinstance(form, Phased) or len(form.schedules) > MOST_SEGMENTS:
        return looped
    check = settings.options.check

    def on_grid(tuning: Tuning) -> Looped:
        larger = on_the_grid(flat.copied(), settings, tuning)
        if larger.grid == 1:
            raise CodegenError("One block has a form of its own.")
        return _compared(looped.region, larger, settings)

    if form.form == "grid":
        return fastest(looped, Tuning(block=form.block), on_grid, settings.device, check)
    found = [looped]
    for block in near(form.block) if form.alone else ():
        with LeftOut(check):
            made = ALONE[form.form](flat.copied(), settings, block)
            found.append(_compared(looped.region, made, settings))
    best = min(found, key=lambda one: one.us)
    return best if best.us < WORTH * looped.us else looped


def _holds(looped: Looped) -> bool:
    """Whether each thread, or each block, holds all that iterations read again of its rows."""
    form = looped.form
    return isinstance(form, InRows) or bool(form.program.dealt and form.threads.holds)


def _formed(name: str, flat: Flat, settings: Settings, template: str | None) -> Form:
    """A loop in a form; its template may say how many blocks clusters have, how many threads others
    have, and which tiles those of the grid."""
    match (template or "").split():
        case ["loop", "cluster", *_, "cluster", blocks] if blocks.isdigit():
            return in_clusters(flat, settings, int(blocks))
        case ["loop", "grid", *_, "threads", threads, "tile", tile]:
            return on_the_grid(flat, settings, read_tuning(threads, tile))
        case ["loop", alone, *_, "threads", threads] if alone in ALONE and threads.isdigit():
            return ALONE[alone](flat, settings, int(threads))
    return FORMS[name](flat, settings)


def form_of(template: str) -> tuple[str, ...]:
    """The form that a template of a loop says, if it is one; but for what `_formed` reads, what
    follows is decided anew."""
    match template.split()[:2]:
        case ["loop", name] if name in FORMS:
            return (name,)
    return ()


def _compared(region: Graph, form: Form, settings: Settings) -> Looped:
    """A region's loops in a form, as they are compared with others. Not all passes run, and in
    blocks that work alone no loads are moved ahead: the costs of forms were fitted where threads
    read element by element, when they need it."""
    begun = write_rows(form, settings) if isinstance(form, InRows) else write_phased(form, settings)
    alone = isinstance(form, Phased) and form.alone
    return _looped(region, form, begun, settings, left_out=(VECTORS, *[EARLY] * alone))


def _looped(
    region: Graph,
    form: Form,
    begun: Written,
    settings: Settings,
    watch: Watch = NOBODY,
    left_out: Sequence[str] = (),
) -> Looped:
    """A region's loops in a form, and what its kernel does after the passes."""
    written = begun.passed(watch, left_out, settings.options.check)
    counted = written.cost(settings.device, UNKNOWN_TRIPS)
    rows = form.rows.count if isinstance(form, InRows) else 0
    own = ("rows", rows), ("turns", iterations(form.flat, form.flat.loops)[0])
    facts = KernelFacts(counted, "loop", own)
    us = cost_us(counted, settings.device)
    return Looped(region, form, begun, written, facts, us, settings)


def _flat(region: Graph, settings: Settings, watch: Watch) -> Flat:
    flat = flatten(region)
    flat = replace(flat, graph=rewritten(flat.graph, settings, None, watch))
    if any(op.shape.size == 0 for op in flat.graph.ops[:-1]):
        raise CodegenError("A value without elements: its loop is left to XLA.")
    carried = replace(settings, becomes=flat.becomes)
    return replace(flat, graph=rewritten(flat.graph, carried, Way.LOOPS, watch))
