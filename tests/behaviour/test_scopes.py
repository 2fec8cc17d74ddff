"""Named scopes: profilers find them on the custom calls, readers in the kernels."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.importer import parse
from fusionstitch.options import Options
from fusionstitch.runtime import xla_pass
from fusionstitch.runtime.artifact import TARGET
from tests.behaviour.table import mixed
from tests.behaviour.test_effects import fake
from tests.kept import kept_sort

X = jnp.ones((64, 96))


def layers(x: jax.Array) -> jax.Array:
    with jax.named_scope("encoder"):
        x = mixed(x)
        with jax.named_scope("attention"):
            x = kept_sort(x, 0)
    with jax.named_scope("decoder"):
        return jax.named_call(mixed, name="norm")(x)


def stitched(fun: Any, name: str) -> tuple[Stitched, list[Any]]:
    fun.__name__ = fun.__qualname__ = name
    lowered = jax.jit(fun).lower(X)
    data = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    result = core.stitch(data, Options(scorer="paper"), device("h200"), fake, aliasing=True)
    ops = [i for c in parse(result.module).computations for i in c.instructions]
    return result, ops


def test_custom_calls_carry_the_scope_of_what_they_compute() -> None:
    result, ops = stitched(lambda x: layers(x), xla_pass.mark("layers", "0123456789abcdef"))
    calls = [op for op in ops if op.custom_call_target == TARGET]
    assert len(calls) == len(result.stitches) == 2
    names = sorted(call.metadata.op_name for call in calls)
    assert names[0].startswith("jit(layers)/decoder/norm/")
    assert names[1].startswith("jit(layers)/encoder/")
    [sort] = [op for op in ops if op.opcode == "sort"]
    assert sort.metadata.op_name == "jit(layers)/encoder/attention/sort"
    [kernel] = result.kernels  # both are the same program: the first one's scopes are in the text
    assert "encoder/" in kernel.source


def test_marks_are_in_no_name_of_an_op() -> None:
    _, ops = stitched(lambda x: layers(x), xla_pass.mark("layers", "0123456789abcdef"))
    assert not [op for op in ops if "__fs_" in op.metadata.op_name]


def test_marks_are_in_nothing_that_users_read(
    marked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def messages(jit: Any) -> list[str]:
        def fun(x: jax.Array) -> jax.Array:
            return mixed(x) * 2.0

        caplog.clear()
        with jax.log_compiles(True):
            jitted = jit(fun)
            jitted(X)
            lowered = jitted.lower(X)
            texts = [lowered.as_text(), lowered.as_text("hlo"), lowered.compile().as_text()]
        log = [record.getMessage() for record in caplog.records]
        assert any("Compiling jit(fun)" in text for text in log)
        names = [re.findall(r"(?m)^(?:HloModule |module @)(\w+)", text) for text in texts]
        assert names == [["jit_fun"]] * 3
        return [re.sub(r"[\d.e-]+ sec", "", text) for text in log]

    assert messages(marked) == messages(jax.jit)


def test_scopes_of_a_gradient_and_of_a_loop() -> None:
    def loss(x: jax.Array) -> jax.Array:
        with jax.named_scope("model"):
            return jax.lax.fori_loop(0, 2, lambda _, x: mixed(x), x).sum()

    result, ops = stitched(jax.grad(loss), "gradient")
    names = [op.metadata.op_name for op in ops if op.custom_call_target == TARGET]
    assert len(names) == len(result.stitches)
    assert all("model" in name for name in names if "while" in name or "jvp" in name)
    assert any("transpose(jvp(model))" in name for name in names)


@pytest.mark.gpu
def test_the_compiled_program_shows_them() -> None:
    text = fs.jit(layers, options=fs.Options(scorer="paper")).lower(X).compile().as_text()
    lines = [line for line in text.splitlines() if TARGET in line]
    assert lines
    assert all("coder/" in line for line in lines)
