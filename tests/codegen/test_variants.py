"""The neighbours of a schedule: other kernels, each of which its template makes."""

from __future__ import annotations

import pytest

from fusionstitch.codegen import variants as variants_module
from fusionstitch.codegen.generate import CodegenOptions, generate, plan_kernel
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.variants import variants
from tests.codegen.cases import CASES


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("softmax_300", {"team", "tile", "cta_size", "cta_per_sm"}),
        ("columns", {"columns", "tile", "cta_size"}),
        ("split_columns", {"split", "cta_per_sm"}),
        ("tiled_lots", {"lot"}),
        ("tiled_parts_f32", {"shares"}),
        ("attention", {"lanes"}),
    ],
)
def test_neighbours_differ_from_a_schedule_in_its_parts(name: str, parts: set[str]) -> None:
    case = CASES[name].case()
    base = plan_kernel(case.graph, case.device, case.options).template
    found = [one.template for one in variants(case.graph, case.device, case.options)]
    assert len(found) == len(set(found))
    assert base not in found
    for text in found:
        parse_template(text)
    for part in parts:
        values = {line for text in (base, *found) for line in said(text, part)}
        assert len(values) > 1, f"{part} is always {values}"


def said(template: str, part: str) -> list[str]:
    """What a template says of a part."""
    lines = [line for line in template.splitlines() if part in line and "[" not in line]
    return [clause for line in lines for clause in line.split(", ") if part in clause]


@pytest.mark.parametrize("name", ["softmax_300", "split_columns", "tiled_lots", "attention"])
def test_the_template_of_a_neighbour_makes_it(name: str) -> None:
    case = CASES[name].case()
    for one in variants(case.graph, case.device, case.options):
        kernel = generate(case.graph, case.device, CodegenOptions(template=one.template))
        assert kernel.template == one.template
        assert (kernel.block, kernel.grid) == (one.plan.block, one.plan.grid * one.plan.cluster)


def test_there_are_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["softmax_300"].case()
    every = [one.template for one in variants(case.graph, case.device)]
    monkeypatch.setattr(variants_module, "MOST", 5)
    few = [one.template for one in variants(case.graph, case.device)]
    assert few == every[: len(few)]
    assert 0 < len(few) <= 5
