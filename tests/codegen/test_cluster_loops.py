"""Loops whose rows are dealt to clusters of blocks, on the emulator, against jax.jit; when that is
done, and on devices of other sizes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from benchmarks.loops.record import stored
from benchmarks.loops.recurrent import gru_forward, gru_train, lstm_forward, lstm_train
from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import Barrier, Blank, Group
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.codegen.ir.walk import every, mapped
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.while_loops.generate import plan_loops
from fusionstitch.compiler import core
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.hlo.errors import CodegenError, PassError
from fusionstitch.runtime import emulate
from tests.codegen.regions import whole_of
from tests.codegen.test_phased_loops import agree
from tests.conftest import Golden
from tests.loops.forms import Case, run, wholes
from tests.loops.growth import Grown

draw = np.random.default_rng(5)
STATES = draw.standard_normal((8, 16), np.float32)
WEIGHTS = draw.standard_normal((16, 16), np.float32) * np.float32(0.2)
SMALL = {"batch": 8, "hidden": 16, "steps": 4}
#: With few registers for each thread, clusters of so many blocks hold the weights of 32 by 128.
NARROW = {
    2: replace(device("h200"), registers_per_sm=16_384),
    4: replace(device("h200"), registers_per_sm=8192),
    8: replace(device("h200"), registers_per_sm=5120),
}


def powers(x: jax.Array, w: jax.Array) -> jax.Array:
    """A matrix recurrence, whose sums run along each row of the state."""

    def step(_: Any, x: jax.Array) -> jax.Array:
        x = x @ w + x
        return x / jnp.abs(x).sum(1, keepdims=True)

    return lax.fori_loop(0, 5, step, x)


def loops_in_loops(x: jax.Array, w: jax.Array) -> Any:
    """An inner loop with the weights, and what it leaves is stacked by the outer one."""

    def outer(x: jax.Array, i: jax.Array) -> Any:
        y = lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ w + x), x)
        return y * 0.5, (y.sum(1), y * i)

    return lax.scan(outer, x, jnp.arange(4.0))


def stops_row_by_row(x: jax.Array, w: jax.Array) -> Any:
    """A while of each row, whose end the data decides."""

    def one(x: jax.Array) -> Any:
        step = lambda s: (jnp.tanh(s[0] @ w + 0.9 * s[0]), s[1] * 0.7, s[2] + 1)  # noqa: E731
        return lax.while_loop(lambda s: s[1] > 0.2, step, (x, jnp.abs(x[0]), 0))

    return jax.vmap(one)(x)


def two_stacks(c: jax.Array, xs: jax.Array, w: jax.Array) -> Any:
    """Two outputs of a step, whose rows no multiple of the threads takes."""

    def step(c: jax.Array, x: jax.Array) -> Any:
        y = jnp.tanh(c @ w + x)
        return y, (y * 2, y + x)

    return lax.scan(step, c, xs)


ODD = draw.standard_normal((6, 4, 7), np.float32)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "lstm": lstm_forward(**SMALL),
    "lstm training": lstm_train(**SMALL),
    "gru": gru_forward(**SMALL),
    "gru training": gru_train(**SMALL),
    "powers": (powers, (STATES, WEIGHTS)),
    "loops in loops": (loops_in_loops, (STATES, WEIGHTS)),
    "stops row by row": (stops_row_by_row, (STATES, WEIGHTS)),
    "two stacks": (two_stacks, (ODD[0].copy(), ODD, WEIGHTS[:7, :7].copy())),
}


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only clusters run loops, blocks and threads come in any order, and races are looked for."""
    monkeypatch.setenv("FUSIONSTITCH_CHECK", "1")
    emulate.set_order("random", 3)
    with taken("cluster"):
        yield
    emulate.set_order("forward")


@pytest.mark.parametrize("name", PROGRAMS)
def test_clusters_give_what_xla_gives(host_compiler: str, checked: None, name: str) -> None:
    agree(*PROGRAMS[name], "cluster", bound=1e-5 if "training" in name else 2e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_clusters_on_the_gpu(name: str) -> None:
    with taken("cluster"):
        agree(*PROGRAMS[name], "cluster", backend="cuda", bound=1e-5)


@pytest.mark.parametrize("blocks", NARROW)
def test_clusters_are_as_large_as_the_weights_take(host_compiler: str, blocks: int) -> None:
    fun, args = lstm_forward(batch=32, hidden=32, steps=3)
    arrays = tuple(np.asarray(leaf) for leaf in jax.tree.leaves(args))
    tree = jax.tree.structure(args)
    [whole] = wholes(Grown(lambda *a: fun(*jax.tree.unflatten(tree, a)), arrays, "lstm"))
    settings = Settings(NARROW[blocks], CodegenOptions())
    kernel = plan_loops(whole.region, settings, template="loop cluster").kernel()
    assert kernel.cluster == blocks
    assert kernel.grid % blocks == 0
    assert not kernel.cooperative
    artifact = emulate.build([kernel], checked=True)[0]
    assert run(Case(whole, "cluster", kernel), artifact, 7) == ""


@pytest.mark.parametrize("blocks", [2, 4, 8])
def test_templates_say_how_large_clusters_are(blocks: int) -> None:
    region = whole_of(powers, STATES, WEIGHTS)
    settings = Settings(device("h200"), CodegenOptions())
    requested = f"loop cluster blocks {blocks} threads 32 cluster {blocks}"
    kernel = plan_loops(region, settings, template=requested).kernel()
    assert kernel.cluster == blocks
    again = plan_loops(region, settings, template=kernel.template).kernel()
    assert again.source == kernel.source
    with pytest.raises(CodegenError, match="Clusters of h200 have 2, 4, 8 blocks, not 3"):
        plan_loops(region, settings, template="loop cluster blocks 9 threads 32 cluster 3")


def lowered(target: Device) -> Lowered:
    region = whole_of(powers, STATES, WEIGHTS)
    settings = Settings(target, CodegenOptions())
    return plan_loops(region, settings, template="loop cluster").written.lowered


def test_every_barrier_of_the_cluster_is_missed() -> None:
    """But the one after the loop, for which that at the end of its iterations does as well."""
    kernel = lowered(device("h200"))
    barriers = sum(map(meets, every(kernel.body)))
    assert barriers > 3
    verify(kernel)
    for number in range(barriers - 1):
        with pytest.raises(PassError):
            verify(without(kernel, number))


def meets(one: Any) -> bool:
    return isinstance(one, Barrier) and one.scope is Scope.CLUSTER


def without(kernel: Lowered, number: int) -> Lowered:
    """The kernel without one of its barriers of the cluster."""
    seen = itertools.count()
    left = mapped(
        Group(kernel.body), lambda one: Blank() if meets(one) and next(seen) == number else one
    )
    return replace(kernel, body=left.body)


def test_devices_without_clusters_have_none() -> None:
    with pytest.raises(CodegenError, match="a100 has no clusters of blocks"):
        lowered(device("a100"))


@pytest.mark.parametrize("name", ["h100", "h200"])
def test_weights_that_outgrow_a_block_go_to_clusters(name: str) -> None:
    """Those of an LSTM of hidden 128 do, those of hidden 64 do not; nor are there clusters on every
    device."""
    assert forms("lstm_train_128", device(name)) == {"cluster"}
    assert forms("gru_forward", device(name)) == {"cluster"}
    assert forms("lstm_train", device(name)) == {"dealt"}
    without = replace(device(name), cluster_limit=1)
    assert forms("lstm_train_128", without) == {"dealt"}


def forms(program: str, target: Device) -> set[str]:
    """The forms of a recorded program's loops."""
    found = core.stitch(dict(stored())[program], fs.Options(backend="emulate"), target, None)
    return {k.template.split()[1] for k in found.kernels if k.template.startswith("loop ")}


def test_the_text_of_a_cluster(golden: Golden) -> None:
    region = whole_of(powers, STATES, WEIGHTS)
    settings = Settings(device("h200"), CodegenOptions())
    golden(plan_loops(region, settings, template="loop cluster").kernel().source)
