"""What a kernel was on its way, as texts for people."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fusionstitch.codegen import passes
from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.ir.passes import LOWERED
from fusionstitch.codegen.ir.passes import PASSES as KERNEL_PASSES
from fusionstitch.codegen.loops.stages import find_stages
from fusionstitch.codegen.passes import PASSES, Pass
from fusionstitch.codegen.settings import Way
from fusionstitch.codegen.snapshots.loops import stages_text
from fusionstitch.codegen.snapshots.regions import region_text
from fusionstitch.codegen.snapshots.snapshots import snapshots
from fusionstitch.codegen.watch import Watch
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph
from tests.codegen.cases import CASES
from tests.codegen.regions import SMALL, whole
from tests.conftest import Golden
from tests.graphs import Builder, softmax

H200 = device("h200")


def drawn(graph: Graph, on=H200, options: CodegenOptions | None = None) -> dict[str, str]:
    return {one.name: one.text for one in snapshots(graph, on, options)}


def shares() -> Graph:
    """Rows divided by the sum of all, and a softmax of them: two phases."""
    b = Builder()
    x = b.parameter((512, 1024))
    x.name = "x"
    share = b.div(x, b.broadcast(b.reduce(x, (0, 1)), x.dims))
    return whole(b.graph(softmax(b, share)), "shares")


def test_a_kernel_step_by_step(golden: Golden) -> None:
    steps = snapshots(shares(), H200, None)
    golden("\n".join(f"---- {one.name} ----\n{one.text}" for one in steps))


def test_steps_are_in_the_order_in_which_they_were_taken() -> None:
    names = list(drawn(shares()))
    assert names[0] == "region"
    taken = [one.name for one in PASSES if one.name in names]
    assert "split" in taken
    after = ["stages", "groups", "schedule", "memory", "lowered", "barriers"]
    assert [n for n in names if n not in ("region", "ways", "stages with kept values")] == [
        *taken,
        *after,
    ]


def test_a_pass_that_changes_nothing_is_not_drawn() -> None:
    b = Builder()
    graph = whole(b.graph(b.exp(b.parameter((64,)))))
    after = ["stages", "groups", "schedule", "memory", "lowered"]
    assert list(drawn(graph)) == ["region", "ways", *after]


def test_who_looks_on_changes_nothing() -> None:
    for name in ("softmax_backward", "batch_norm_backward", "attention", "argmax_split"):
        case = CASES[name].case()
        told: list[str] = []

        class Names(Watch):
            def region(self, graph: Graph, name: str, about: str, told: list[str] = told) -> None:
                told.append(name)

        kernel = generate(case.graph, case.device, case.options, Names())
        assert kernel == generate(case.graph, case.device, case.options)
        assert told[0] == "region"


#: The steps that give statements.
STATEMENTS = frozenset({LOWERED, *(one.name for one in KERNEL_PASSES)})


@pytest.mark.parametrize("name", sorted(CASES)[::4])
def test_texts_are_lines_for_people(name: str) -> None:
    case = CASES[name].case()
    for step, text in drawn(case.graph, case.device, case.options).items():
        assert text.endswith("\n")
        for line in text.splitlines():
            assert line.isprintable()
            assert line == line.rstrip()
            assert len(line) <= 160 or step in STATEMENTS  # which stay whole
            assert not any(word in line for word in ("Shape(", "Stage(", "Op(", "Index(", "object"))


def tight(name: str) -> dict[str, str]:
    """The texts of a case on a device of little shared memory."""
    case = CASES[name].case()
    return drawn(case.graph, replace(case.device, shared_per_block=2048), case.options)


def test_a_way_that_is_refused_says_why() -> None:
    ways = tight("heads")["ways"].splitlines()
    assert ways[0].split()[0] == "merge"
    assert "refused: The intermediate results of one block do not fit" in ways[1]
    assert ways[-1].split()[0] == "apart"


def test_what_was_done_on_a_refused_way_is_not_drawn() -> None:
    case = CASES["streamed_f32"].case()
    assert "streams" in drawn(case.graph, case.device, case.options)
    texts = tight("streamed_f32")
    assert "refused" in texts["ways"]
    assert "streams" not in texts


def test_the_way_taken_starts_from_where_the_ways_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused way may have changed the region in the same manner."""
    both = frozenset({Way.MERGE, Way.APART})
    rename = Pass("rename", "values get other names", lambda graph, _: renamed(graph), ways=both)
    monkeypatch.setattr(passes, "PASSES", (*PASSES, rename))
    texts = tight("heads")
    assert "refused" in texts["ways"]
    assert "renamed_" in texts["rename"]


def renamed(graph: Graph) -> Graph:
    made = whole(graph, graph.name)
    for op in made.ops[:-1]:
        op.name = f"renamed_{op.id}"
    return made


def test_memory_says_who_has_which_bytes() -> None:
    b = Builder()
    e = b.exp(b.parameter((9, 20, 30)))
    share = b.div(e, b.like(b.reduce(e, (1,)), e, (1,)))
    graph = whole(b.graph(softmax(b, share)), "both_ways")
    kernel = generate(graph, SMALL)
    memory = drawn(graph, SMALL)["memory"]
    assert memory.startswith(f"shared memory: {kernel.shared_bytes} bytes a block")
    rows = [line.split() for line in memory.splitlines() if " to " in line]
    ends = [int(row[2]) + 1 for row in rows]
    assert -(-max(ends) // 16) * 16 == kernel.shared_bytes  # in whole accesses
    assert all(int(row[0]) + int(row[3]) == end for row, end in zip(rows, ends, strict=True))


HOSTILE = "a\nb ../../c\x1b[2J \u202e %s {} \\"


def test_names_of_a_module_stay_words() -> None:
    """The importer makes names printable; texts do not count on it."""
    plain, hostile = shares(), shares()
    for op in hostile.ops[:-1]:
        op.name = HOSTILE
    for draw in (region_text, lambda graph: stages_text(find_stages(graph))):
        text = draw(hostile)
        assert all(line.isprintable() for line in text.splitlines())
        assert "/" not in text
        assert len(text.splitlines()) == len(draw(plain).splitlines())


_DIGEST = """
import hashlib
from tests.codegen.test_snapshots import drawn, shares
print(hashlib.sha256(repr(drawn(shares())).encode()).hexdigest())
"""


def test_texts_depend_on_nothing_but_the_region() -> None:
    here = hashlib.sha256(repr(drawn(shares())).encode()).hexdigest()
    folder, path = Path(__file__).parents[2], os.pathsep.join(sys.path)
    env = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": path}
    run = subprocess.run(
        [sys.executable, "-c", _DIGEST], env=env, cwd=folder, capture_output=True, text=True
    )
    assert run.stdout.strip() == here, run.stderr
