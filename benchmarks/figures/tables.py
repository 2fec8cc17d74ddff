"""The tables of docs/how and docs/architecture.md, as Markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.figures import loops, one_pattern, planning, sharing
from benchmarks.figures.cases import case, planner
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.costmodel import devices
from fusionstitch.costmodel.estimate import barrier_us
from fusionstitch.hlo.graph import ids
from fusionstitch.plan.plan import Plan

Rows = Sequence[Sequence[str]]
#: A table of a page below the comment that names it.
PLACE = re.compile(r"^<!-- table: (\w+) -->\n((?:\|.*\n)*)", re.MULTILINE)


def markdown(rows: Rows, numbers: int = 0) -> str:
    """A table; the first row is its head, the last `numbers` columns are numbers."""
    head, *rest = rows
    rule = ["---"] * (len(head) - numbers) + ["--:"] * numbers
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, rule, *rest)).replace(
        f"| {' | '.join(rule)} |", f"|{'|'.join(rule)}|"
    )


def files() -> str:
    """The files that one pattern goes through."""
    head = ["file", "what it does", "then there is"]
    return markdown([head, *one_pattern.rows()])


def scopes() -> str:
    """One function at four sizes, and another one, with their kernels."""
    rows = [["target", "input", "scope", "blocks", "threads", "shared bytes", "registers"]]
    for name in ("thread", "warp", "several_warps", "block", "cluster", "grid"):
        one = case(name)
        kernel, facts = one.kernel, one.chosen.facts
        rows.append(
            [
                f"`{name}`",
                str(kernel.inputs[0]),
                facts.scope,
                f"{kernel.grid:,}",
                f"{kernel.block:,}",
                f"{kernel.shared_bytes:,}",
                str(facts.cost.registers),
            ]
        )
    return markdown(rows, 4)


def costs() -> str:
    """What the model charges on an H200 where threads wait for each other."""
    device = devices.device("h200")
    blocks = device.sm_count
    rows = [["synchronization", "modelled us"]]
    shuffles = device.prices.shuffles / device.cycles_per_us
    rows.append(["one shuffle of a warp", f"{shuffles:.3f}"])
    barrier = device.prices.barriers / device.cycles_per_us
    rows.append(["a barrier of a block, or of a team of warps", f"{barrier:.3f}"])
    between = barrier_us(device, blocks) + device.prices.phase_us
    rows.append([f"a grid barrier of {blocks} blocks, between two phases", f"{between:.2f}"])
    rows.append(["a kernel launch", f"{device.launch_us:.2f}"])
    return markdown(rows, 1)


def requests() -> str:
    """What asks for shared memory in Figure 1, and what it gets."""
    one = case(sharing.NAME)
    plan = sharing.shared_plan(one)
    rows = [["value", "bytes", "written at step", "last read at step", "buffer", "offset"]]
    for stage, slot in plan.slots.items():
        assert isinstance(stage, Stage)
        numbers = (slot.bytes, slot.first, slot.last, slot.buffer, slot.offset)
        rows.append([f"`{stage.op.name}`", *(f"{n:,}" for n in numbers)])
    return markdown(rows, 5)


def candidates() -> str:
    """The candidates that the pages speak of: those of the cuts, and the chosen ones."""
    found = planning.found()
    rejected = {one.bits: one.reason for one in _plan().rejected}
    wanted = sorted({n for cut in found.cuts for n in cut} | set(found.chosen))
    rows = [["candidate", "rule", "ops", "outcome", "bound us", "score us"]]
    for number in wanted:
        pattern = found.patterns[number]
        ops = sum(1 for i in ids(pattern.bits) if found.graph.ops[i].opcode not in ("constant",))
        score = found.scores.get(number)
        fate = "chosen" if number in found.chosen else rejected[pattern.bits]
        rows.append(
            [
                str(number),
                pattern.rule,
                str(ops),
                fate,
                f"{found.bounds[number]:.2f}",
                "" if score is None else f"{score:.2f}",
            ]
        )
    return markdown(rows, 2)


def reasons() -> str:
    """Why candidates are not in that plan."""
    counted = Counter(one.reason for one in _plan().rejected)
    rows = [["reason", "candidates"]]
    rows += [[reason, str(n)] for reason, n in sorted(counted.items(), key=lambda x: (-x[1], x[0]))]
    return markdown(rows, 1)


def _plan() -> Plan:
    search = planner("cycle")
    return search.search.result(search.search.run(), search.xla)


def forms() -> str:
    """One loop at four sizes."""
    rows = [["target", "state", "form", "template", "state is in", "modelled us", "XLA us"]]
    for name in loops.NAMES:
        one = loops.form(name)
        times = (one.modelled_us, one.xla_us)
        rows.append(
            [
                f"`{name}`",
                one.shape,
                one.loops.form,
                f"`{one.template}`",
                one.place,
                *(f"{us:.1f}" for us in times),
            ]
        )
    return markdown(rows, 2)


def carried() -> str:
    """What each loop of the four carries."""
    rows = [["form", "carried value", "role", "is in"]]
    rows += list(_carried())
    return markdown(rows)


def _carried() -> Iterator[list[str]]:
    for name in loops.NAMES:
        one = loops.form(name)
        for loop in one.loops.loops:
            for element in loop.elements:
                yield [one.loops.form, element.shape, element.role, element.place]


TABLES: Mapping[str, Callable[[], str]] = {
    "files": files,
    "scopes": scopes,
    "costs": costs,
    "requests": requests,
    "candidates": candidates,
    "reasons": reasons,
    "forms": forms,
    "carried": carried,
}


def filled(page: str) -> str:
    """A page with its tables written anew."""
    return PLACE.sub(lambda place: f"<!-- table: {place[1]} -->\n{TABLES[place[1]]()}", page)
