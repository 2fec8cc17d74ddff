"""The list of passes over the statements of kernels: where each runs, and what is checked after."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.codegen import assembly
from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.ir import passes
from fusionstitch.codegen.ir.expressions import Name
from fusionstitch.codegen.ir.kernel import Iterations, Lowered
from fusionstitch.codegen.ir.names import Names
from fusionstitch.codegen.ir.passes import PASSES, KernelPass, checked
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import Let
from fusionstitch.codegen.ir.types import FLOAT
from fusionstitch.codegen.snapshots.snapshots import snapshots
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError, PassError
from fusionstitch.hlo.graph import Graph
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.tuning.tuned import Tuned
from tests.codegen.regions import whole, whole_of
from tests.graphs import Builder, softmax

H200 = device("h200")
CHECKED = CodegenOptions(check=True)
STATES = np.ones((8, 16), np.float32)
INPUTS = np.ones((6, 8, 16), np.float32)
WEIGHTS = np.ones((16, 16), np.float32)


def rows() -> Graph:
    """Rows divided by the sum of all, and a softmax of them: its kernel has barriers of blocks."""
    b = Builder()
    x = b.parameter((512, 1024))
    share = b.div(x, b.broadcast(b.reduce(x, (0, 1)), x.dims))
    return whole(b.graph(softmax(b, share)))


def recurrence(x: jax.Array, xs: jax.Array, w: jax.Array) -> Any:
    def step(x: jax.Array, given: jax.Array) -> Any:
        y = jnp.tanh(x @ w + given)
        return y, y * 2

    return lax.scan(step, x, xs)


# ---- the list ------------------------------------------------------------------------------------


def test_names_tell_passes_apart() -> None:
    assert len({one.name for one in PASSES}) == len(PASSES)
    assert all(one.about and one.name.replace(" ", "").isalpha() for one in PASSES)


@pytest.mark.parametrize(
    ("together", "loops"),
    [
        (None, []),
        (Scope.GRID, ["hoisted loads"]),
        (Scope.BLOCK, ["hoisted loads", "early loads"]),
        (Scope.CLUSTER, ["hoisted loads", "early loads", "late stores"]),
    ],
)
def test_loops_have_passes_by_who_goes_through_an_iteration(
    together: Scope | None, loops: list[str]
) -> None:
    iterations = Iterations(together, 8, frozenset()) if together else None
    kernel = Lowered("k", (), (), (), 32, 1, 1, 0, iterations=iterations)
    applied = [one.name for one in PASSES if one.applies(kernel)]
    always = ["staged stores", "vectors", "barriers"]
    assert applied == ["shared functions", "rolled sums", *loops, *always]


@pytest.mark.parametrize(
    ("form", "drawn"),
    [
        ("grid", ["hoisted loads"]),
        ("dealt", ["hoisted loads", "early loads"]),
        ("cluster", ["hoisted loads", "early loads", "late stores"]),
    ],
)
def test_dumps_show_a_loop_after_each_pass(form: str, drawn: list[str]) -> None:
    region = whole_of(recurrence, STATES, INPUTS, WEIGHTS)
    options = CodegenOptions(template=f"loop {form}")
    steps = [one.name for one in snapshots(region, H200, options)]
    order = [one.name for one in PASSES]
    found = [name for name in steps[steps.index("lowered") :] if name in order]
    assert [name for name in found if name not in ("vectors", "barriers")] == drawn
    assert found == sorted(found, key=order.index)


# ---- what is checked -----------------------------------------------------------------------------


def spoiled(kernel: Lowered, names: Names) -> Lowered:
    """Reads a variable that nothing declares."""
    return replace(kernel, body=(Let(FLOAT, names.new("wrong"), Name("nowhere")), *kernel.body))


def planted(monkeypatch: pytest.MonkeyPatch, *listed: KernelPass) -> None:
    monkeypatch.setattr(passes, "PASSES", listed)
    monkeypatch.setattr(assembly, "PASSES", listed)


@pytest.mark.parametrize("region", [rows(), whole_of(recurrence, STATES, INPUTS, WEIGHTS)])
def test_the_pass_that_breaks_a_rule_is_named(
    monkeypatch: pytest.MonkeyPatch, region: Graph
) -> None:
    """Without the check, all that is known is the rule."""
    assert generate(region, H200, CHECKED).source == generate(region, H200).source
    bad = KernelPass("a bad one", "reads what nothing declares", spoiled)
    planted(monkeypatch, bad, *PASSES)
    with pytest.raises(PassError, match=r'^After "a bad one": Defect .* nowhere'):
        generate(region, H200, CHECKED)
    with pytest.raises(CodegenError, match=r"^Defect .* nowhere"):
        generate(region, H200)


def test_the_default_schedule_hides_no_defect_of_a_tuned_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without checks it is used instead."""
    whole = generate(rows(), H200)
    tuned = whole.template.replace(f"cta_size={whole.block};", "cta_size=512;")
    assert generate(rows(), H200, CodegenOptions(tuned=tuned)).block == 512

    def some(kernel: Lowered, names: Names) -> Lowered:
        return spoiled(kernel, names) if kernel.block == 512 else kernel

    planted(monkeypatch, KernelPass("a bad one", "spoils large blocks", some), *PASSES)
    assert generate(rows(), H200, CodegenOptions(tuned=tuned)) == whole
    with pytest.raises(PassError, match=r'^After "a bad one"'):
        generate(rows(), H200, replace(CHECKED, tuned=tuned))


def test_barriers_are_asked_for_from_their_pass_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lowering writes none inside of blocks; a pass that places some has to place all."""
    *others, barriers = PASSES
    planted(monkeypatch, *others, replace(barriers, establishes=()))
    with pytest.raises(PassError, match=r'^After "lowered": Defect'):
        generate(rows(), H200, CHECKED)
    idle = replace(barriers, run=lambda kernel, _: replace(kernel))
    planted(monkeypatch, *others, idle)
    with pytest.raises(PassError, match=r'^After "barriers": Defect'):
        generate(rows(), H200, CHECKED)


def test_a_sound_kernel_is_checked_at_every_step() -> None:
    kernel = Lowered("k", (), (), (Let(FLOAT, "x", Name("x")),), 32, 1, 1, 0)
    for name in ("lowered", *(one.name for one in PASSES)):
        with pytest.raises(PassError, match=f'^After "{name}"'):
            checked(kernel, name)
        checked(replace(kernel, body=()), name)


def test_the_environment_asks_for_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    graph = b.graph(b.exp(b.parameter((8,))))
    pattern = Pattern(graph, 0b10, "test")
    assert not Tuned({}).settings(pattern, Options()).check
    monkeypatch.setenv("FUSIONSTITCH_CHECK", "1")
    assert Tuned({}).settings(pattern, Options()).check
