"""What planning and code generation of whole training steps take, in steps that are counted."""

from __future__ import annotations

from typing import Any

import jax
import pytest
import transformer
from common import Random

import fusionstitch as fs
from fusionstitch.codegen.loops import groups
from fusionstitch.compiler import builders, core
from fusionstitch.plan import search
from tests.steps import planned

pytestmark = pytest.mark.slow


def lowered(layers: int) -> Any:
    """The training step of the transformer example at its full size, with `layers` layers."""
    jax.clear_caches()  # or JAX compiles an equal program only once
    draw = Random()
    params = transformer.init(draw, layers, width=64, length=32, words=256)
    return jax.jit(transformer.step).lower(params, draw.integers(4, 33, high=256))


def module(step: Any) -> bytes:
    data: bytes = step.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


#: Ops visited in sets of ops, and candidates, for each op of the program: about 1,720 and 1,020.
STEPS = {"model": 2_200, "paper": 1_300}


@pytest.mark.parametrize("scorer", STEPS)
def test_a_training_step_takes_no_more_steps_than_it_did(scorer: str) -> None:
    """On two cores the model's plan of this program takes about twice as long as XLA's compile for
    a CPU, and XLA has less to do there than for a GPU; `python -m benchmarks.scaling transformer`
    has the seconds."""
    found = planned(module(lowered(4)), fs.Options(backend="emulate", scorer=scorer))
    ops = sum(len(plan.program) for plan in found.result.plans)
    assert ops > 1000
    assert found.steps < STEPS[scorer] * ops


def test_ten_thousand_ops_take_steps_in_proportion() -> None:
    """What they take in seconds is for `python -m benchmarks.scaling transformer`."""
    options = fs.Options(backend="emulate")
    few, many = (planned(module(lowered(layers)), options) for layers in (9, 36))
    ops, more = (sum(len(plan.program) for plan in p.result.plans) for p in (few, many))
    assert more > 8_000
    assert many.steps * ops < few.steps * more
    # four times the layers have about as many patterns each, and equal ones have equal kernels
    assert len(many.result.stitches) > 3 * len(few.result.stitches)
    assert len(many.result.kernels) < 2 * len(few.result.kernels)


def test_what_repeats_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, not seconds: twice the layers are planned with far less than twice the work."""
    counts = [_counts(layers, monkeypatch) for layers in (3, 6)]
    (_, few, _, forms), (candidates, inspected, merges, measured) = counts
    assert inspected < candidates / 10
    assert inspected < 2 * few
    assert measured < 0.6 * merges
    assert measured < 1.5 * forms


def _counts(layers: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, int, int]:
    """Candidates, patterns that code generation was asked about, groups that it tried to merge,
    and groups whose axes it worked out for that, of a transformer's step."""
    data = module(lowered(layers))
    calls = {"merged": 0, "_measured": 0}
    with monkeypatch.context() as patched:
        for name in calls:
            patched.setattr(groups.Group, name, _counting(name, calls))
        groups._known_figures.cache_clear()
        # a small program is soon near enough to its best: that is not what repeats
        patched.setattr(search, "ENOUGH_SHARE", 0.0)
        options = fs.Options(device="h200")
        result = core.stitch(data, options, builders.profile(options), None)
    stats = result.plans[-1].stats
    return stats.candidates, stats.distinct, calls["merged"], calls["_measured"]


def _counting(name: str, calls: dict[str, int]) -> Any:
    function = getattr(groups.Group, name)

    def counted(*args: Any) -> Any:
        calls[name] += 1
        return function(*args)

    return staticmethod(counted) if name == "merged" else counted
