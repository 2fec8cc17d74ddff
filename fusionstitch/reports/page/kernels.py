"""The kernels of a program as the page shows them: numbers, texts, shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from fusionstitch.codegen.ir.passes import LOWERED, PASSES
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.estimate import barrier_us
from fusionstitch.costmodel.occupancy import blocks_per_sm
from fusionstitch.hlo import foreign
from fusionstitch.hlo.errors import FusionStitchError
from fusionstitch.plan.scores import kind_of_pattern
from fusionstitch.reports import bars, counting
from fusionstitch.reports.floors import pattern_floor
from fusionstitch.reports.lines import source_lines
from fusionstitch.reports.looped import loops_of, to_dict
from fusionstitch.reports.page import assembly
from fusionstitch.reports.page.graphs import NAME
from fusionstitch.reports.page.highlight import coloured
from fusionstitch.runtime.nvrtc import Resources, parse_resources

if TYPE_CHECKING:
    from collections.abc import Callable

    from fusionstitch.codegen.kernel import Kernel
    from fusionstitch.codegen.snapshots.phases import Part
    from fusionstitch.codegen.snapshots.snapshots import Drawn
    from fusionstitch.compiler.stitched import Stitch, Stitched
    from fusionstitch.costmodel.devices import Device
    from fusionstitch.reports.trial import Trial

#: Kernels whose way to the text is drawn and whose assembly is shown: those that take longest.
MOST_DRAWN = 24
#: What is shown of a kernel's way (codegen/snapshots): its title, and what it is called there.
_SHOWN = (("Region", "region"), ("Loops", "groups"), ("Schedule", "schedule"), ("Memory", "memory"))
#: Why a kernel's way is not there, by whether it was looked for.
_UNDRAWN = {
    False: f"It is not among the {MOST_DRAWN} kernels that take longest, whose way is drawn.\n"
    "FUSIONSTITCH_DUMP_DIR writes that of all.\n",
    True: "Its template leads to another text than this, so its way cannot be drawn again.\n",
}
#: Facts of kernels with loops, which are shown as such.
_OF_LOOPS = ("loops", "rows", "turns")
#: What a snapshot before the text is called: the last of them is the kernel's IR.
_IR = (LOWERED, *(one.name for one in PASSES))


def kernels(trial: Trial, step: Callable[[str], None]) -> list[dict[str, Any]]:
    """One entry per distinct kernel. `step` is told which one is drawn."""
    stitched = trial.stitched
    repeats = counting.runs_of(stitched.plans)
    runs = {id(c): repeats.get(p.program, 0) for p in stitched.plans for c in p.chosen}
    uses: dict[str, list[Stitch]] = {}
    for one in stitched.stitches:
        uses.setdefault(one.kernel.name, []).append(one)
    entries = {
        name: _numbers(own, [runs[id(one.chosen)] for one in own], stitched)
        for name, own in uses.items()
    }
    longest = sorted(entries, key=lambda name: -entries[name]["modelled_us"])[:MOST_DRAWN]
    for name, entry in entries.items():
        if name in longest:
            step(f"drawing {name}")
        entry |= _texts(uses[name][0], trial, drawn=name in longest)
    return list(entries.values())


def _numbers(uses: Sequence[Stitch], runs: Sequence[int], stitched: Stitched) -> dict[str, Any]:
    """All uses of a kernel together; modelled times are those of a call."""
    first = uses[0]
    kernel, facts = first.kernel, first.chosen.facts
    work = facts.cost.work
    resources = _resources(first)
    registers = resources.registers if resources else facts.cost.registers
    chosen = [(one.chosen, n) for one, n in zip(uses, runs, strict=True)]
    measured = [c.measured for c, _ in chosen if c.measured is not None]
    floors = [pattern_floor(c.pattern, stitched) for c, _ in chosen]
    return {
        "name": kernel.name,
        "kind": kind_of_pattern(first.chosen.pattern.ops),
        "scope": facts.scope,
        "rule": first.chosen.pattern.rule,
        "uses": len(uses),
        "runs": sum(runs),
        "ops": len(first.chosen.pattern.ops),
        "grid": kernel.grid,
        "block": kernel.block,
        "cluster": kernel.cluster,
        "cooperative": kernel.cooperative,
        "shared_bytes": kernel.shared_bytes,
        "registers": registers,
        "registers_built": resources is not None,
        "spilled_bytes": resources.spill_store_bytes if resources else None,
        "occupancy": occupancy(stitched.device, kernel, registers),
        "modelled_us": sum(n * c.modelled_us for c, n in chosen),
        "xla_us": sum(n * c.spared_us for c, n in chosen),
        "floor_us": sum(n * floor.us for floor, (_, n) in zip(floors, chosen, strict=True)),
        "bound_by": floors[0].bound_by,
        "at_least": floors[0].at_least,
        "compared_us": bars.compared(chosen),
        "measured_us": [measured[0].ours_us, measured[0].xla_us] if measured else None,
        "bytes": work.bytes,
        "l2_bytes": work.l2_bytes,
        "inputs": list(map(str, kernel.inputs)),
        "outputs": list(map(str, kernel.outputs)),
        "scratch": list(map(str, kernel.scratch)),
        "facts": [[name, str(value)] for name, value in kernel.facts if name not in _OF_LOOPS],
        "loops": to_dict(loops) if (loops := loops_of(kernel)) is not None else None,
        "source": source_lines(first.chosen.pattern.ops),
    }


def _resources(one: Stitch) -> Resources | None:
    """What the compiler gave a kernel, where it said so."""
    if one.built is None or one.built.registers is None:
        return None
    found = dict(parse_resources(one.built.log))
    return found.get(one.kernel.name) or Resources(one.built.registers, 0, 0, 0, 0, 0)


def occupancy(device: Device, kernel: Kernel, registers: int) -> dict[str, Any]:
    """Blocks that fit on a multiprocessor, the share of its threads they are, and what bounds it:
    the first of threads, registers and shared memory that allows no more."""
    threads, shared = kernel.block, kernel.shared_bytes
    blocks = blocks_per_sm(device, threads, registers, shared)
    alone = {
        "threads": blocks_per_sm(device, threads, 1, 0),
        "registers": blocks_per_sm(device, threads, registers, 0),
        "shared memory": blocks_per_sm(device, threads, 1, shared),
    }
    return {
        "blocks": blocks,
        "share": blocks * threads / device.max_threads_per_sm,
        "bound": next((name for name, most in alone.items() if most == blocks), ""),
        "waves": kernel.grid / (blocks * device.sm_count) if blocks else None,
    }


def _texts(one: Stitch, trial: Trial, drawn: bool) -> dict[str, Any]:
    kernel = one.kernel
    texts = [_text("CUDA-C", kernel.source, "cuda"), _text("Template", kernel.template, "text")]
    found = draw(one, trial) if drawn else None
    texts += _way(found) if found is not None else [_text("IR", _UNDRAWN[drawn], "text")]
    if drawn and trial.backend != "emulate":
        texts += _assembly(one, trial)
    shared = found.shared if found is not None else ()
    return {
        "texts": texts,
        "phases": _phases(found, trial.stitched.device) if found is not None else None,
        "memory": [
            {
                "group": part.group,
                "lives": [
                    [x.what, x.offset, x.bytes, x.first, x.last, x.exchange] for x in part.lives
                ],
            }
            for part in shared
        ],
    }


def _phases(found: Drawn, device: Device) -> dict[str, Any]:
    """The stages of each phase, group by group, in parts between which narrower scopes wait; and
    the modelled microseconds of a wait by its scope, where the model has them."""
    return {
        "phases": [
            {
                "groups": [[_part(part) for part in group] for group in phase.groups],
                "ends": phase.ends,
                "loop": phase.loop,
            }
            for phase in found.phases
        ],
        "wait_us": {
            "grid": barrier_us(device, found.kernel.grid),
            "block": device.block_barrier_us,
        },
    }


def _part(part: Part) -> tuple[list[str], bool]:
    """What the stages of a part are called, and whether a wait follows."""
    return [foreign.line(name, NAME) for name in part.stages], part.waits


def draw(one: Stitch, trial: Trial) -> Drawn | None:
    """A kernel's way, gone again from its template; None where that leads to another kernel."""
    from fusionstitch.codegen.snapshots.snapshots import drawn

    pattern, kernel = one.chosen.pattern, one.kernel
    part = region(kernel.name, pattern.ops, pattern.inputs, pattern.outputs)
    options = trial.options
    for over in ((), kernel.in_place):
        own = CodegenOptions(
            options.numerics, options.sharing, kernel.template or None, overwrites=over
        )
        try:
            found = drawn(part, trial.stitched.device, own)
        except FusionStitchError:
            continue
        if found.kernel.source == kernel.source:
            return found
    return None


def _way(found: Drawn) -> Iterator[dict[str, Any]]:
    texts = {one.name: one.text for one in found.snapshots}
    if ir := next((texts[name] for name in reversed(_IR) if name in texts), ""):
        yield _text("IR", ir, "c")
    for title, name in _SHOWN:
        if name in texts:
            yield _text(title, texts[name], "text")


def _assembly(one: Stitch, trial: Trial) -> Iterator[dict[str, Any]]:
    arch = trial.stitched.device.sm_arch
    yield _text("PTX", assembly.ptx(one.kernel, arch, trial.options.numerics), "ptx")
    if one.built is not None:
        yield _text("SASS", assembly.sass(one.built.artifact.image), "text")


def _text(title: str, text: str, language: str) -> dict[str, Any]:
    return {"title": title, **coloured(text, language)}
