"""What is counted of loops in each form is what the emulator sees all their iterations do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from benchmarks.loops.by_form import known
from fusionstitch.codegen.count.tallies import count
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from tests.codegen.regions import Built, Case, build, whole_of
from tests.codegen.test_phased_loops import DEALT, PROGRAMS
from tests.codegen.test_tallies import SCOPES, accesses
from tests.codegen.whole_loop_programs import PROGRAMS as ROWS

pytestmark = pytest.mark.slow
H200 = device("h200")
TABLE = {
    "rows": {name: (fun, (np.asarray(x),)) for name, (fun, x, _) in ROWS.items()},
    "dealt": DEALT,
    "cluster": {**PROGRAMS, **DEALT},
    "block": PROGRAMS,
    "grid": PROGRAMS,
}
#: Where the data decides which of several arrays is read: it is counted as the first of them.
DECIDED = {(form, "selected addresses") for form in ("grid", "cluster", "block")}
#: Buffers of global memory, which change names from iteration to iteration.
GLOBAL = ("input", "output", "scratch")


def cases() -> Iterator[tuple[tuple[str, str], Case]]:
    """Loops whose iterations the program says, in the forms that they have."""
    for form, programs in TABLE.items():
        for name, (fun, args) in programs.items():
            region = whole_of(fun, *args, name=f"k_{form}_{name.replace(' ', '_')}")
            arrays = [np.asarray(x) for x in jax.tree.leaves(args)]
            if len(arrays) != len(region.parameters):
                continue  # JAX leaves out what nothing reads
            case = Case(region, arrays, options=CodegenOptions(template=f"loop {form}"))
            try:
                kernel = case.kernel()
            except CodegenError:
                continue
            if known(dict(kernel.facts)["turns"]):
                yield (form, name), case


@pytest.fixture(scope="module")
def built(host_compiler: str) -> tuple[Built, dict[tuple[str, str], Case]]:
    found = dict(cases())
    assert {form for form, _ in found} == set(TABLE)
    assert len(found) > 40
    return build(found.values(), counted=True), found


def test_loops_do_what_was_counted(built: tuple[Built, dict[tuple[str, str], Case]]) -> None:
    made, found = built
    for name, case in found.items():
        tally, ran = count(made.lowered[case], H200), made.counters(case)
        seen: Counter[object] = Counter(ran.meetings)
        printed: Counter[object] = Counter({SCOPES[s]: n for s, n in tally.barriers.items()})
        printed["shuffle"] = tally.shuffles
        for total, reads, writes in (
            (seen, ran.reads, ran.writes),
            (printed, accesses(tally.loads), accesses(tally.stores)),
        ):
            for what, each in (("read", reads), ("written", writes)):
                for (index, width), times in each.items():
                    total[what, "global" if index in GLOBAL else index, width] += times
        for key in printed.keys() | seen.keys() if name not in DECIDED else ():
            if tally.upper:
                assert seen[key] <= printed[key], (name, key)
            else:
                assert seen[key] == printed[key], (name, key)


def test_phases_of_a_grid_turn_with_its_loop(
    built: tuple[Built, dict[tuple[str, str], Case]],
) -> None:
    made, found = built
    tally = count(made.lowered[found["grid", "diffusion"]], H200)
    assert {phase.iterations for phase in tally.phases} == {1, 7}
    tally = count(made.lowered[found["grid", "three deep"]], H200)
    assert max(phase.iterations for phase in tally.phases) == 16
    tally = count(made.lowered[found["block", "diffusion"]], H200)
    assert {phase.iterations for phase in tally.phases} == {1}


def test_loops_that_the_data_ends_turn_as_often_as_is_said() -> None:
    fun, args = TABLE["rows"]["collatz"]
    region = whole_of(fun, *args)
    case = Case(region, list(args), options=CodegenOptions(template="loop rows"))
    one, many = (count(build([case]).lowered[case], H200, trips) for trips in (1, 10))
    [first], [second] = one.phases, many.phases
    assert second.instructions.int_ops > 5 * first.instructions.int_ops
    assert second.path.chain > 5 * first.path.chain
