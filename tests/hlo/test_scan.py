"""Scans: newer releases of JAX write running sums for GPUs so."""

from __future__ import annotations

import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders, core
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.hlo.verify import verify
from tests.codegen.regions import Case, build, whole

_TEXT = """
HloModule scanned

body {{
  input = f32[5]{{0}} parameter(0)
  carry = f32[5]{{0}} parameter(1)
  joined = f32[5]{{0}} {opcode}(input, carry)
  ROOT both = (f32[5]{{0}}, f32[5]{{0}}) tuple(joined, {carried})
}}

ENTRY main {{
  x = f32[5,{n}]{{1,0}} parameter(0)
  twice = f32[5,{n}]{{1,0}} add(x, x)
  zero = f32[] constant({start})
  start = f32[5]{{0}} broadcast(zero), dimensions={{}}
  all = (f32[5,{n}]{{1,0}}, f32[5]{{0}}) scan(twice, start), {attributes}
  sums = f32[5,{n}]{{1,0}} get-tuple-element(all), index=0
  last = f32[5]{{0}} get-tuple-element(all), index=1
  out = f32[5,{n}]{{1,0}} negate(sums)
  ROOT result = (f32[5,{n}]{{1,0}}, f32[5]{{0}}) tuple(out, last)
}}
"""
_RUNS = {"add": (np.cumsum, "0"), "maximum": (np.maximum.accumulate, "-inf")}


def text(
    opcode: str = "add",
    n: int = 70,
    reverse: bool = False,
    start: str = "0",
    carried: str = "joined",
) -> str:
    flag = str(reverse).lower()
    attributes = f"dimensions={{1}}, is_reverse={flag}, num_carries=1, to_apply=body"
    return _TEXT.format(opcode=opcode, n=n, start=start, carried=carried, attributes=attributes)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("opcode", _RUNS)
@pytest.mark.parametrize("n", [7, 70, 1500])
def test_a_scan_is_a_running_reduction(
    host_compiler: str, opcode: str, reverse: bool, n: int
) -> None:
    accumulate, start = _RUNS[opcode]
    graph = from_proto(text_to_proto(text(opcode, n, reverse, start))).entry
    verify(graph)
    x = np.random.default_rng(n).integers(-8, 9, (5, n)).astype(np.float32)
    rows = 2 * x[:, ::-1] if reverse else 2 * x
    expected = accumulate(rows, axis=1)
    last = expected[:, -1]
    expected = -(expected[:, ::-1] if reverse else expected)
    case = Case(whole(graph), [x])
    for values in (evaluate(graph, [x]), build([case]).run(case, "random", 3)):
        np.testing.assert_array_equal(values[0], expected)
        np.testing.assert_array_equal(values[1], last)


def test_a_scan_and_its_parts_are_one_pattern() -> None:
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    module = text_to_proto(text())
    result = core.stitch(module, options, builders.profile(options), None)
    [kernel] = result.kernels
    assert len(kernel.outputs) == 2


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"carried": "carry"}, "It scans by a body of its own."),
        ({"opcode": "divide"}, "It scans by a body of its own."),
        (
            {"start": "1"},
            "Its scan starts from another value than the reducer's neutral one.",
        ),
    ],
)
def test_other_scans_are_left_to_xla(changes: dict, reason: str) -> None:
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    module = text_to_proto(text(**changes))
    result = core.stitch(module, options, builders.profile(options), None)
    assert reason in {r.reason for r in result.rejected}
