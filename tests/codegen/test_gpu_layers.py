"""Layers of rows launched on a GPU: all bits of f32, and rounded to TF32 as XLA's libraries do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusionstitch.accuracy import relative_error
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.evaluate import evaluate
from tests.codegen.layer_cases import CASES
from tests.codegen.regions import H200, ROUNDING
from tests.codegen.test_gpu_kernels import launch
from tests.codegen.test_layers import LARGE, SMALL, case_of

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rounded", [False, True])
def test_layers_on_the_gpu_are_near_the_float64_run(name: str, rounded: bool) -> None:
    device: Device = ROUNDING if rounded else H200
    for options in (SMALL, LARGE):
        case = replace(case_of(name), device=device, options=options)
        expected = evaluate(case.graph, case.args, float64=True)
        for value, wanted in zip(launch(case.kernel(), list(case.args)), expected, strict=True):
            most = 1e-2 if rounded else case.limit or 0.0
            assert relative_error(value, wanted) <= max(most, case.limit or 0.0)
