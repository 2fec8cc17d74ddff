"""Shared memory of Figure 1 by the paper's schedule: the dominance tree, lives and places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import graphs
from benchmarks.figures.cases import Case, case
from benchmarks.figures.picture import Picture
from fusionstitch.codegen.loops.dominance import DominanceTree
from fusionstitch.codegen.loops.stages import Stage
from fusionstitch.codegen.memory.exchange_scratch import ExchangeBuffer
from fusionstitch.codegen.memory.shared import SharedPlan
from fusionstitch.codegen.memory.storage import requests_of
from fusionstitch.hlo.graph import Op

NAME = "figure1 as in the paper"
WIDTH, HEIGHT, GAP, DOWN = 104, 26, 8, 52
STEP, LEFT, LANE = 56, 96, 56


def parents(one: Case) -> Mapping[Op, Op | None]:
    """The closest op that computes on all paths from each to the outputs; None: the outputs."""
    assert one.scheduled is not None
    graph = one.scheduled.graph
    tree = DominanceTree(graph.ops[:-1], graph.root.operands)
    found: dict[Op, Op | None] = {}
    for op in graphs.shown_ops(graph, inputs=False):
        above = tree.immediate(op)
        while above is not None and not graphs.computes(above):
            above = tree.immediate(above)
        found[op] = above
    return found


def shared_plan(one: Case) -> SharedPlan:
    """Algorithm 4's result of the only group."""
    assert one.scheduled is not None
    [plan] = one.scheduled.layout.plans
    return plan


def steps(one: Case) -> list[str]:
    """The names of the positions that lives are counted in: stages and ends of loops."""
    assert one.scheduled is not None
    [group] = one.scheduled.plan.groups
    requests, _ = requests_of(group, one.scheduled.plan)
    names = []
    for request in requests:
        if isinstance(request.op, Stage):
            names.append(request.op.op.name)
        elif isinstance(request.op, ExchangeBuffer):
            names.append("exchange")
        else:
            names.append("end of loop")
    return names


def draw_tree() -> Picture:
    """The dominance tree, rooted at the outputs."""
    one = case(NAME)
    above = parents(one)
    shared = {stage.op for stage in shared_plan(one).slots if isinstance(stage, Stage)}
    below: dict[Op | None, list[Op]] = {}
    for op, parent in above.items():
        below.setdefault(parent, []).append(op)
    at: dict[Op | None, tuple[float, int]] = {}
    leaves = _placed(None, 0, below, at, 0)
    depth = max(y for _, y in at.values())
    said = [f"{op.name} below {'the outputs' if p is None else p.name}" for op, p in above.items()]
    picture = Picture(
        40 + leaves * (WIDTH + GAP),
        70 + (depth + 1) * DOWN,
        "The dominance tree of Figure 1",
        f"Rooted at the outputs: {'; '.join(said)}.",
    )

    def middle(op: Op | None) -> tuple[float, float]:
        x, y = at[op]
        return 20 + (x + 0.5) * (WIDTH + GAP), 34 + y * DOWN

    for op, parent in above.items():
        (x, y), (a, b) = middle(parent), middle(op)
        picture.line([(x, y + HEIGHT / 2), (a, b - HEIGHT / 2)])
    for node in (None, *above):
        x, y = middle(node)
        colour = "block" if node in shared else "panel"
        edge, opacity = ("block", 0.16) if node in shared else ("line", 1)
        picture.box(x - WIDTH / 2, y - HEIGHT / 2, WIDTH, HEIGHT, colour, edge, 1.2, opacity)
        name = "outputs" if node is None else node.name
        picture.text(x, y + 4, name, 11, anchor="middle", mono=True)
    graphs.legend(picture, 24, 56 + (depth + 1) * DOWN, [("block", "kept in shared memory")])
    return picture


def _placed(
    op: Op | None,
    depth: int,
    below: Mapping[Op | None, Sequence[Op]],
    at: dict[Op | None, tuple[float, int]],
    first: int,
) -> int:
    """Puts a subtree into columns from `first` on; the column after it."""
    free = first
    for child in below.get(op, ()):
        free = _placed(child, depth + 1, below, at, free)
    free = max(free, first + 1)
    at[op] = ((first + free - 1) / 2, depth)
    return free


def draw_lives() -> Picture:
    """Buffers over the steps of the group."""
    one = case(NAME)
    plan, names = shared_plan(one), steps(one)
    slots = {s.op.name: slot for s, slot in plan.slots.items() if isinstance(s, Stage)}
    lanes = sorted({slot.buffer: slot.offset for slot in slots.values()}.items())
    lives = [
        f"{name}: {slot.bytes:,} bytes at {slot.offset:,}, steps {slot.first} to {slot.last}"
        for name, slot in slots.items()
    ]
    picture = Picture(
        LEFT + STEP * len(names) + 24,
        128 + LANE * len(lanes) + 46,
        "Lifetimes and offsets of shared buffers in Figure 1",
        f"{'; '.join(lives)}. Together {plan.total:,} bytes, {plan.unshared:,} without sharing.",
    )
    top = 128
    for n, name in enumerate(names):
        x = LEFT + STEP * (n + 0.5)
        picture.line([(x - STEP / 2, top - 8), (x - STEP / 2, top + LANE * len(lanes))], "line", 1)
        picture.text(x, 20 + 22 * (n % 4), name, 10.5, "soft", "middle", mono=True)
        picture.line([(x, 26 + 22 * (n % 4)), (x, top - 20)], "line", 1)
        picture.text(x, top - 8, str(n), 11, "ink", "middle")
    for lane, (number, offset) in enumerate(lanes):
        y = top + LANE * lane
        picture.text(16, y + 24, f"buffer {number}", 12, bold=True)
        picture.text(16, y + 40, f"at {offset:,}", 11, "soft")
        for name, slot in slots.items():
            if slot.buffer != number:
                continue
            # a taker writes while what it takes is read: they meet in one step
            begins = slot.first + (0.5 if any(o.last == slot.first for o in slots.values()) else 0)
            ends = slot.last + (0.5 if any(o.first == slot.last for o in slots.values()) else 1)
            x, width = LEFT + STEP * begins, STEP * (ends - begins)
            picture.box(x + 2, y + 6, width - 4, LANE - 12, "block", "block", 1.2, 0.16)
            picture.text(x + 9, y + 24, name, 11, mono=True)
            picture.text(x + 9, y + 40, f"{slot.bytes:,} bytes", 10.5, "soft")
    text = f"{plan.total:,} bytes; {plan.unshared:,} with one buffer per request"
    picture.text(LEFT, top + LANE * len(lanes) + 28, text, 12.5)
    return picture
