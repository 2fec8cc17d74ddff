"""Callbacks and other effects happen as often, in the same order and with the same values as under
jax.jit."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback

import fusionstitch as fs
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import core
from fusionstitch.compiler.built import Built
from fusionstitch.costmodel.devices import device
from fusionstitch.errors import FusionStitchWarning
from fusionstitch.hlo.importer import parse
from fusionstitch.options import Options
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, Artifact
from tests.behaviour.same import assert_same
from tests.behaviour.table import Jit, mixed

X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 6), np.float32))
Log = Callable[[Any], None]
EFFECTS: dict[str, Callable[[Log], Callable[[jax.Array], Any]]] = {}


def effect(make: Callable[[Log], Callable[[jax.Array], Any]]) -> Any:
    EFFECTS[make.__name__] = make
    return make


@effect
def debug_callback(log: Log) -> Callable[[jax.Array], Any]:
    def fun(x: jax.Array) -> jax.Array:
        y = mixed(x)
        jax.debug.callback(log, y[0, 0])
        return y * 2.0

    return fun


@effect
def ordered_io_callbacks(log: Log) -> Callable[[jax.Array], Any]:
    def fun(x: jax.Array) -> jax.Array:
        for i in range(3):
            io_callback(log, None, x[i, 0], ordered=True)
        y = mixed(x)
        io_callback(log, None, y.sum(), ordered=True)
        return y

    return fun


@effect
def pure_callback_in_the_middle(log: Log) -> Callable[[jax.Array], Any]:
    def sine(v: np.ndarray) -> np.ndarray:
        return np.sin(v)

    def fun(x: jax.Array) -> jax.Array:
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        y = jax.pure_callback(sine, shape, mixed(x), vmap_method="sequential")
        return mixed(y) + y

    return fun


@effect
def callbacks_in_a_loop_and_a_branch(log: Log) -> Callable[[jax.Array], Any]:
    def fun(x: jax.Array) -> jax.Array:
        def body(c: jax.Array, i: jax.Array) -> tuple[jax.Array, None]:
            jax.debug.callback(log, c[0, 0] * i, ordered=True)
            return jax.lax.cond(i > 1, lambda c: said(mixed(c)), mixed, c), None

        def said(c: jax.Array) -> jax.Array:
            jax.debug.callback(log, c.sum(), ordered=True)
            return c

        return jax.lax.scan(body, x, jnp.arange(4))[0]

    return fun


@effect
def only_an_effect(log: Log) -> Callable[[jax.Array], Any]:
    return lambda x: jax.debug.callback(log, mixed(x).sum())


def run(name: str, jit: Jit, wrap: Callable[[Any], Any] = lambda f: f) -> tuple[Any, list[float]]:
    seen: list[float] = []
    fun = wrap(jit(EFFECTS[name](lambda v: seen.append(round(float(np.sum(v)), 4)))))
    found = [fun(X), fun(X + 1.0)]
    jax.block_until_ready(found)
    jax.effects_barrier()
    return found, seen


@pytest.mark.parametrize("name", EFFECTS)
def test_effects_are_those_of_jax_jit(name: str, jit: Jit) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ours, log = run(name, jit)
    theirs, expected = run(name, jax.jit)
    assert_same(ours, theirs, committed=False)
    assert log == expected
    reasons = [str(w.message) for w in said if w.category is FusionStitchWarning]
    assert all("callback" in reason for reason in reasons)


@pytest.mark.parametrize("name", ["debug_callback", "pure_callback_in_the_middle"])
def test_effects_of_a_program_that_is_mapped(name: str, jit: Jit) -> None:
    def wrap(fun: Any) -> Any:
        return jax.vmap(lambda x: fun(x * jnp.ones((4, 6))), in_axes=0)

    def over_rows(fun: Any) -> Any:
        return lambda x: wrap(fun)(x[:, 0])

    ours, theirs = run(name, jit, over_rows), run(name, jax.jit, over_rows)
    assert_same(ours[0], theirs[0])
    assert sorted(ours[1]) == sorted(theirs[1])


def test_prints(jit: Jit, capfd: pytest.CaptureFixture[str]) -> None:
    def fun(x: jax.Array) -> jax.Array:
        jax.debug.print("first {x:.3f}", x=x[0, 0], ordered=True)
        y = mixed(x)
        jax.debug.print("then {y:.3f}", y=y.sum(), ordered=True)
        return y

    texts = []
    for one in (jit, jax.jit):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FusionStitchWarning)
            jax.block_until_ready(one(fun)(X))
        jax.effects_barrier()
        texts.append(capfd.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].splitlines()[0].startswith("first ")


CALLBACKS: dict[str, Callable[[Any, jax.Array], Any]] = {
    "pure_callback": lambda fails, x: jax.pure_callback(fails, x, x),
    "io_callback": lambda fails, x: io_callback(fails, x, x),
    "ordered io_callback": lambda fails, x: io_callback(fails, x, x, ordered=True),
    "debug.callback": lambda fails, x: jax.debug.callback(fails, x) or x,
}


@pytest.mark.parametrize("fallback", ["xla", "error"])
@pytest.mark.parametrize("name", CALLBACKS)
def test_what_a_callback_raises_is_raised_and_nothing_runs_again(
    name: str, fallback: str, marked: Jit
) -> None:
    """On the execution path inside XLA, where such programs are stitched around their callbacks."""

    def run(jit: Jit) -> tuple[Any, ...]:
        calls: list[str] = []

        def fails(v: Any) -> Any:
            calls.append("callback")
            raise ValueError("fusionstitch: of the user")

        def fun(x: jax.Array) -> jax.Array:
            calls.append("traced")
            return mixed(CALLBACKS[name](fails, mixed(x)))

        jitted = jit(fun)
        found = []
        for _ in range(2):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    jax.block_until_ready(jitted(X))
                    jax.effects_barrier()
                except Exception as error:
                    found.append((type(error), "of the user" in str(error)))
            found.append([str(w.message) for w in said])
        return found, calls

    ours = run(lambda fun: marked(fun, options=fs.Options(fallback=fallback)))
    assert ours == run(jax.jit)
    assert (jax.errors.JaxRuntimeError, True) in ours[0]


def fake(kernels: Any) -> list[Built]:
    return [
        Built(Artifact(f"key-{k.name}", b"image", k.name, k.grid, k.block, 0, k.cooperative))
        for k in kernels
        if isinstance(k, Kernel)
    ]


@pytest.mark.parametrize("name", EFFECTS)
def test_the_compiler_keeps_every_callback_and_the_order_of_tokens(name: str) -> None:
    """As the pass inside XLA does it: kernels around callbacks, tokens threaded as they were."""
    lowered = jax.jit(EFFECTS[name](print)).lower(X)
    given = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    result = core.stitch(given, Options(scorer="paper"), device("h200"), fake, aliasing=True)
    assert result.fallbacks == ()
    before, after = callbacks(given), callbacks(result.module)
    assert before == after
    assert len(before) >= 1
    if name != "only_an_effect":
        assert result.stitches


def callbacks(data: bytes) -> list[tuple[str, ...]]:
    """Per callback its target and the callbacks before it on its token's way, over all graphs."""
    found = []
    for computation in parse(data).computations:
        by_id = {i.id: i for i in computation.instructions}

        def source(ident: int, by_id: Any = by_id) -> str:
            """The callback whose token `ident` is, or where the token comes from."""
            while (op := by_id[ident]).opcode in ("get-tuple-element", "after-all", "tuple"):
                tokens = [i for i in op.operand_ids if carries_token(by_id[i])]
                if not tokens:
                    break
                ident = tokens[0]
            return str(op.custom_call_target or op.opcode)

        for instruction in computation.instructions:
            target = instruction.custom_call_target
            if instruction.opcode == "custom-call" and target not in (TARGET, LOAD_TARGET):
                tokens = [i for i in instruction.operand_ids if carries_token(by_id[i])]
                found.append((target, *(source(i) for i in tokens)))
    return sorted(found)


def carries_token(instruction: Any) -> bool:
    token = 17  # xla.PrimitiveType.TOKEN
    shape = instruction.shape
    return shape.element_type == token or any(s.element_type == token for s in shape.tuple_shapes)
