"""The neighbours of a schedule: other kernels, each of which its template makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.generate import CodegenOptions, Looped, draft, generate, neighbours
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.search import neighbours as schedules
from fusionstitch.codegen.search.descent import descend
from fusionstitch.costmodel.devices import device
from tests.codegen.cases import CASES
from tests.codegen.regions import Case
from tests.codegen.test_loop_sizes import on_h200, relaxed

H200 = device("h200")


def templates(case: Case) -> list[str]:
    own = draft(case.graph, case.device, case.options)
    return [one.template for one in neighbours(own)]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("softmax_300", {"team", "tile", "cta_size", "cta_per_sm", "row_registers"}),
        ("columns", {"columns", "tile", "cta_size"}),
        ("chain", {"vector_bytes"}),
        ("split_columns", {"split", "cta_per_sm"}),
        ("tiled_lots", {"lot"}),
        ("tiled_parts_f32", {"shares"}),
        ("attention", {"lanes"}),
    ],
)
def test_neighbours_differ_from_a_schedule_in_its_parts(name: str, parts: set[str]) -> None:
    case = CASES[name].case()
    base = draft(case.graph, case.device, case.options).template
    found = templates(case)
    assert len(found) == len(set(found))
    assert base not in found
    for text in found:
        parse_template(text)
    for part in parts:
        values = {line for text in (base, *found) for line in said(text, part)}
        assert len(values) > 1, f"{part} is always {values}"


def said(template: str, part: str) -> list[str]:
    """What a template says of a part; "" where it has its default."""
    lines = [line for line in template.splitlines() if part in line and "[" not in line]
    return [clause for line in lines for clause in line.split(", ") if part in clause] or [""]


@pytest.mark.parametrize("name", ["softmax_300", "split_columns", "tiled_lots", "attention"])
def test_the_template_of_a_neighbour_makes_it(name: str) -> None:
    case = CASES[name].case()
    for one in neighbours(draft(case.graph, case.device, case.options)):
        kernel = generate(case.graph, case.device, CodegenOptions(template=one.template))
        assert kernel.template == one.template
        assert kernel.source == one.kernel().source
        again = generate(case.graph, case.device, CodegenOptions(template=one.numbered_template))
        assert again == kernel


def test_a_loop_is_near_its_other_forms_and_sizes() -> None:
    [stitch] = on_h200(relaxed, jax.ShapeDtypeStruct((512, 512), jnp.float32)).stitches
    pattern = stitch.chosen.pattern
    own = draft(region("relaxed", pattern.ops, pattern.inputs, pattern.outputs), H200)
    assert isinstance(own, Looped)
    found = list(neighbours(own))
    forms = {one.template.split()[1] for one in found}
    assert {"grid", "block"} <= forms
    assert own.template not in {one.template for one in found}
    for one in found:
        again = generate(own.region, H200, CodegenOptions(template=one.template))
        assert again.source == one.kernel().source


def test_there_are_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["softmax_300"].case()
    every = templates(case)
    monkeypatch.setattr(schedules, "MOST", 5)
    few = templates(case)
    assert few == every[: len(few)]
    assert 0 < len(few) <= 5


# ---- the way from one to a faster one ------------------------------------------------------------


def halves(x: int) -> Iterator[tuple[float, int]]:
    """Costs of 2x and x/2 are what they are."""
    yield from ((float(y), y) for y in (2 * x, x // 2))


def test_the_cheapest_is_gone_on_from_as_long_as_it_is_worth_it() -> None:
    assert descend(64, 64.0, halves, worth=0.6) == (0.0, 0)
    assert descend(64, 64.0, halves, worth=0.6, steps=2) == (16.0, 16)
    assert descend(64, 64.0, halves, worth=0.5) == (64.0, 64)


def test_without_neighbours_the_first_stays() -> None:
    def nothing(_: int) -> Iterable[tuple[float, int]]:
        return ()

    assert descend(3, 1.0, nothing, worth=1.0) == (1.0, 3)
