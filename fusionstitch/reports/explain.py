"""A plan as text: what was stitched and why, what was not and why not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusionstitch.codegen.drafts import COMPARED
from fusionstitch.compiler import override
from fusionstitch.compiler.stitched import Fallback, Stitch, Stitched
from fusionstitch.costmodel.floor import Floor
from fusionstitch.costmodel.xla_truth import MODELLED
from fusionstitch.hlo import foreign
from fusionstitch.hlo.brief import count
from fusionstitch.hlo.graph import Op
from fusionstitch.plan.plan import Chosen, Plan, Rejected
from fusionstitch.plan.scores import kind_of_pattern
from fusionstitch.reports import counting
from fusionstitch.reports.answers import Answers
from fusionstitch.reports.floors import floors, parts, pattern_floor
from fusionstitch.reports.gaps import LEAST_US, part_lines
from fusionstitch.reports.left import left, left_lines
from fusionstitch.reports.lines import source_lines
from fusionstitch.reports.looped import loop_lines, loops_of
from fusionstitch.reports.modelled import modelled_times
from fusionstitch.reports.seen import dearest, told_of
from fusionstitch.supported import jax_version

#: Ops, source lines and lines of the template shown per pattern; the rest is counted.
_SHOWN_OPS = 12
_SHOWN_LINES = 4
_SHOWN_TEMPLATE = 40
_SHOWN_REJECTED = 40
#: Parts of the program that lose most above their floors.
_SHOWN_PARTS = 10

ASK_FOR_REJECTED = "`explain --rejected`, in Python explain(rejected=True), lists them"
NOTHING = (
    "Nothing was stitched: the program ran through jax.jit alone (no GPU in use).\n"
    "FUSIONSTITCH_BACKEND=emulate runs stitched kernels on the CPU; `fusionstitch report --device "
    "h200` plans for a GPU that is not here."
)


def explain(stitched: Stitched | None, rejected: bool = False) -> str:
    """Patterns with ops, source lines, scope, template and score; what is left to XLA, by reason;
    and where `rejected` is asked for, each candidate that was turned down with the reason."""
    if stitched is None:
        version = jax_version()
        return NOTHING if version else f"Nothing was stitched: {version.reason}"
    lines = [
        f"{foreign.line(stitched.name) or 'program'} for {stitched.device.name}: "
        f"{count(stitched.stitches, 'pattern')} in {count(stitched.kernels, 'kernel')}"
    ]
    if stitched.trial:
        lines.append(f"trial: {stitched.trial}")
    lines += told_of(stitched.truth)
    lines += (f"  {line}" for line in dearest(stitched.truth))
    carried = {id(one.chosen): one for one in stitched.stitches}
    repeats = counting.runs_of(stitched.plans)
    answers = Answers(stitched)
    to_xla = {} if answers.whole else left(answers)
    for plan in stitched.plans:
        lines += ["", *_plan(plan, repeats.get(plan.program, 0), carried, stitched)]
        lines += (f"  {line}" for line in left_lines(to_xla.get(id(plan), ())))
        lines += (f"  {line}" for line in _rejections(plan, rejected))
    if lost := list(_lost(stitched)):
        lines += ["", *lost]
    if stitched.fallbacks:
        lines += ["", "left to XLA although planned:"]
        lines += [f"  {_fallback(fallback)}" for fallback in stitched.fallbacks]
    return "\n".join(lines)


def _lost(stitched: Stitched) -> Iterable[str]:
    """What the program cannot go below, and the parts that are furthest above it."""
    if not stitched.plans:
        return
    found = floors(stitched, stitched.given)
    xla_us, ours_us = modelled_times(stitched)
    over = [found.priced.over(us) for us in (xla_us, ours_us)]
    if None in over:
        return
    yield (
        f"floor {found.whole.us:.1f} us, bound by {found.whole.bound_by}: modelled at "
        f"{over[0]:.2f} times that under XLA, {over[1]:.2f} times stitched"
    )
    lost = [part for part in parts(stitched) if part.lost_us > LEAST_US]
    for part in lost[:_SHOWN_PARTS]:
        yield from (f"  {line}" for line in part_lines(part))
    if len(lost) > _SHOWN_PARTS:
        yield f"  and {len(lost) - _SHOWN_PARTS} parts that lose less"


def _plan(plan: Plan, runs: int, carried: dict[int, Stitch], stitched: Stitched) -> Iterable[str]:
    stats = plan.stats
    times = "" if runs == 1 else f", in each of {runs} runs a call"
    yield (
        f"{plan.graph.name}: {len(plan.graph)} ops once simplified, modelled {plan.xla_us:.1f} us "
        f"under XLA{_as(plan.xla_source)}, {plan.modelled_us:.1f} us stitched{times}"
    )
    yield (
        f"  {count(stats.candidates, 'candidate')}, {stats.inspected} inspected, "
        f"{count(stats.solves, 'program')} solved, {count(plan.cuts, 'cycle cut')}"
        f"{'' if stats.optimal else ', not proven optimal'}"
    )
    for number, chosen in enumerate(plan.chosen):
        floor = pattern_floor(chosen.pattern, stitched)
        yield from chosen_lines(number, chosen, carried.get(id(chosen)), floor)


def _rejections(plan: Plan, shown: bool) -> Iterable[str]:
    """The candidates that were turned down, by reason; without `shown` how to see them."""
    covered = {op for chosen in plan.chosen for op in chosen.pattern.ops}
    reasons: dict[str, list[Rejected]] = {}
    for one in plan.rejected:
        if one.rule == "op" and covered.issuperset(one.ops):
            continue  # a loop, of which a kernel holds the whole
        reasons.setdefault(one.reason, []).append(one)
    if reasons and not shown:
        number = sum(map(len, reasons.values()))
        yield f"{count(number, 'candidate')} rejected: {ASK_FOR_REJECTED}"
        return
    for reason, group in reasons.items():
        yield f"rejected {len(group)}: {reason}"
        for one in group[:_SHOWN_REJECTED]:
            yield f"  {_rejected(one)}"
        if len(group) > _SHOWN_REJECTED:
            yield f"  and {len(group) - _SHOWN_REJECTED} more"


def chosen_lines(
    number: int, chosen: Chosen, stitch: Stitch | None, floor: Floor, whole: bool = False
) -> Iterable[str]:
    """A chosen pattern: its kernel, what it wins, its floor, ops, lines and template, of which the
    `whole` may be asked for."""
    pattern, facts = chosen.pattern, chosen.facts
    kernel = stitch.kernel.name if stitch else "not carried out, see below"
    threads, shared = facts.cost.threads, facts.cost.shared_bytes
    yield (
        f"  pattern {number}: {kernel} ({kind_of_pattern(pattern.ops)}, {facts.scope} scope, "
        f"{threads} threads a block, {shared} bytes shared)"
    )
    yield (
        f"    wins {chosen.wins_us:.2f} us: modelled {chosen.modelled_us:.2f} us against "
        f"{chosen.spared_us:.2f} us of XLA{_as(chosen.xla_source)}; found by {pattern.rule}"
    )
    if (over := floor.over(chosen.modelled_us)) is not None:
        least = f"floor {floor.us:.2f} us, bound by {floor.bound_by}"
        yield f"    {least}: modelled at {over:.2f} times that"
    if (found := chosen.measured) is not None:
        beside = f", with {found.patterns - 1} more" if found.patterns > 1 else ""
        yield (
            f"    measured{beside}: {found.ours_us:.2f} us against {found.xla_us:.2f} us of XLA's "
            "kernels around it"
        )
    yield f"    ops: {names(pattern.ops, _SHOWN_OPS)}"
    if places := source_lines(pattern.ops):
        more = len(places) - _SHOWN_LINES
        yield f"    from: {', '.join(places[:_SHOWN_LINES])}{f' and {more} more' * (more > 0)}"
    if stitch and (file := override.file_of(stitch.kernel)) is not None:
        yield f"    its text is that of {foreign.line(str(file))}"
    if stitch and (us := dict(stitch.kernel.facts).get(COMPARED)) is not None:
        own, default = (number_text(float(one)) for one in us)  # type: ignore[attr-defined]
        yield f"    {own} us by what its statements do, {default} us under the default schedule"
    template = stitch.kernel.template.splitlines() if stitch else []
    shown = len(template) if whole else _SHOWN_TEMPLATE
    yield from (f"    {line}" for line in template[:shown])
    if len(template) > shown:
        more = len(template) - shown
        yield f"    and {more} more lines of the template: ask for the kernel by its name"
    if stitch and (loops := loops_of(stitch.kernel)) is not None:
        yield from (f"    {line}" for line in loop_lines(loops))


def _as(source: str) -> str:
    """Where a time of XLA's is from, unless it is what all are."""
    return "" if source == MODELLED else f" ({source})"


def _rejected(rejected: Rejected) -> str:
    facts = ", ".join(f"{name} {number_text(value)}" for name, value in rejected.facts)
    places = source_lines(rejected.ops)
    where = f" at {places[0]}" if places else ""
    return f"{names(rejected.ops, _SHOWN_OPS)}{where}{f' ({facts})' if facts else ''}"


def _fallback(fallback: Fallback) -> str:
    shown = ", ".join(fallback.ops[:_SHOWN_OPS]) or "the whole program"
    more = len(fallback.ops) - _SHOWN_OPS
    return f"{shown}{f' and {more} more' * (more > 0)}: {fallback.reason}"


def names(ops: Sequence[Op], limit: int) -> str:
    """The ops' names, at most `limit` of them."""
    shown = ", ".join(op.name or op.opcode for op in ops[:limit])
    return shown if len(ops) <= limit else f"{shown} and {len(ops) - limit} more"


def number_text(value: object) -> str:
    """A fact of a verdict as text."""
    return f"{value:.2f}" if isinstance(value, float) else str(value)
