"""Figure 1 by the paper's schedule: which loop computes an op, and what carries its value on."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.figures import graphs
from benchmarks.figures.cases import Case, case
from benchmarks.figures.picture import Picture
from fusionstitch.codegen.loops.nests import Place
from fusionstitch.hlo.graph import Op

ROWS = (
    ("thread", "thread: a register of the thread that computed it"),
    ("warp", "warp: a register of each lane, joined by shuffles"),
    ("block", "block: shared memory, after a block barrier"),
    ("sunken", "an input in global memory"),
)


def carriers(one: Case) -> Mapping[Op, str]:
    """The scope by which the value of each op reaches the loops of its kernel that read it."""
    assert one.scheduled is not None
    scheduled = one.scheduled
    found = {op: "thread" for op in scheduled.graph if op.opcode != "parameter"}
    for group in scheduled.plan.groups:
        for nest in group.nests:
            for stage, place in nest.nest.place.items():
                if stage in scheduled.layout.offsets:
                    found[stage.op] = "block"
                elif place is Place.REDUCE and nest.teams.threads > 1:
                    found[stage.op] = "warp"
    return found


def loops(one: Case) -> Mapping[Op, list[int]]:
    """The numbers of the loops that compute each op."""
    assert one.scheduled is not None
    graph = one.scheduled.graph
    found: dict[Op, list[int]] = {}
    nests = [nest for group in one.scheduled.plan.groups for nest in group.nests]
    for number, nest in enumerate(nests):
        for stage in nest.nest.stages:
            for op in (stage.op, *(graph.ops[i] for i in sorted(stage.inlined))):
                own = found.setdefault(op, [])
                if number not in own:
                    own.append(number)
    return found


def draw() -> Picture:
    """The graph with a colour per scope."""
    one = case("figure1 as in the paper")
    assert one.scheduled is not None
    graph, carried, by_loop = one.scheduled.graph, carriers(one), loops(one)
    ops = graphs.shown_ops(graph)
    said = [
        f"{op.name} in loop {' and '.join(map(str, by_loop[op]))}, {carried[op]}"
        for op in ops
        if op in by_loop
    ]
    picture = Picture(
        830,
        620,
        "Figure 1 of the paper, by scope",
        f"Each op with its loop and the scope that carries its value: {'; '.join(said)}.",
    )
    outputs = set(graph.root.operands)
    graphs.draw_ops(
        picture,
        ops,
        40,
        400,
        lambda op: carried.get(op, "sunken"),
        lambda op: f"loop {'+'.join(map(str, by_loop[op]))}" if op in by_loop else "",
        stored=outputs.__contains__,
        width=148,
    )
    graphs.legend(picture, 450, 526, ROWS)
    picture.text(450, 606, "a thick border: an output", 11.5, "soft")
    return picture
