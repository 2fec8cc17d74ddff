"""Different legal plans of one program compute the same; the same input gives the same plan."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

import fusionstitch as fs
from fusionstitch.compiler import builders, core
from fusionstitch.compiler.stitched import Stitched
from tests.integration.test_programs import arguments, assert_near, host
from tests.programs import PROGRAMS, precision

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
BASE = fs.Options(backend="emulate", fallback="error", scorer="paper")
WAYS: dict[str, dict[str, Any]] = {
    "all": {},
    "no packing": {"packing": False},
    "no sharing": {"sharing": False},
    "small patterns": {"max_pattern_ops": 6},
    "every rounding": {"numerics": "strict"},
    "against XLA": {"scorer": "model"},
    "against XLA, substitution": {"scorer": "model", "exploratory": False, "packing": False},
    "against XLA, few": {"scorer": "model", "max_patterns": 12, "max_pattern_ops": 24},
}
NAMES = [
    *("many_outputs", "variance_both_axes", "softmax_bf16", "layer_norm_gradient", "figure_1"),
    *("attention_gradient", "recurrent_scan_gradient", "nested_loops", "prng_dropout"),
    *("donated_adam", "mlp_step", "transformer_step", "lstm_step"),
]


@pytest.mark.parametrize("name", NAMES)
def test_every_plan_is_right(host_compiler: str, name: str) -> None:
    entry = PROGRAMS[name]
    plans, outputs = {}, {}
    with precision(entry.args):
        for way, changes in WAYS.items():
            options = BASE.replace(**changes)
            jitted = fs.jit(entry.fun, options=options, donate_argnums=entry.donate)
            compiled = jitted.lower(*arguments(entry)).compile()
            plans[way] = [[c.pattern.bits for c in plan.chosen] for plan in compiled.plan]
            outputs[way] = host(compiled(*arguments(entry)))
    for values in outputs.values():
        assert_near(name, values)
    assert plans["no sharing"] == plans["all"]
    for shared, alone in zip(outputs["all"], outputs["no sharing"], strict=True):
        assert shared.tobytes() == alone.tobytes()
    assert all(bits.bit_count() <= 6 for graph in plans["small patterns"] for bits in graph)


def test_the_ways_differ() -> None:
    """Each way changes the kernels of some program, or the test above would show nothing."""
    changing = set()
    for name in (
        *("softmax_bf16", "attention_gradient", "recurrent_scan_gradient", "lstm_step"),
        *("variance_both_axes", "many_outputs"),
    ):
        lowered = jax.jit(PROGRAMS[name].fun).lower(*PROGRAMS[name].args)
        module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        found = {}
        for way, changes in WAYS.items():
            options = BASE.replace(**changes)
            found[way] = fingerprint(core.stitch(module, options, builders.profile(options), None))
        for way in WAYS:
            base = "against XLA" if way.startswith("against XLA,") else "all"
            changing |= {way} if found[way] != found[base] else set()
    assert changing == WAYS.keys() - {"all"}


def fingerprint(result: Stitched) -> str:
    """The plans and the source of every kernel."""
    parts = [
        *(hex(c.pattern.bits) for plan in result.plans for c in plan.chosen),
        *(kernel.source for kernel in result.kernels),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


#: Prints the fingerprints of programs stitched in a process of its own.
_SCRIPT = """
import jax
from fusionstitch import Options
from fusionstitch.compiler import builders
from fusionstitch.compiler import core
from tests.integration.test_plans_agree import fingerprint
from tests.programs import PROGRAMS
for name in ("transformer_step", "lstm_step", "prng_dropout"):
    for scorer in ("model", "paper"):
        lowered = jax.jit(PROGRAMS[name].fun).lower(*PROGRAMS[name].args)
        module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
        options = Options(backend="emulate", scorer=scorer)
        print(fingerprint(core.stitch(module, options, builders.profile(options), None)))
"""


def test_the_same_input_gives_the_same_kernels_in_every_process() -> None:
    def run(seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            env={
                **os.environ,
                "JAX_PLATFORMS": "cpu",
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    first, second = run("1"), run("2")
    assert len(first.split()) == 6
    assert first == second
