"""Layers of rows in one kernel: XLA beside blocks of all sizes, each alone on a GPU.

    python -m benchmarks.layered [--only NAME ...] [--commit COMMIT] [--json FILE]

Each case is a chain of products whose rows are many and whose matrices are small: forward, and with
the gradients of all matrices.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import results_file
from benchmarks.environment import describe
from fusionstitch.codegen.layers.generate import DOUBLED, SHAPES, Sizes, plan_layers
from fusionstitch.codegen.layers.values import WORTH_HOLDING
from fusionstitch.codegen.settings import CodegenOptions, Settings
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.measure import gpu
from fusionstitch.runtime import cuda
from tests.codegen.regions import whole_of

Array = jax.Array
DEVICE = device("h200")


def chain(widths: Sequence[int], act: Callable[[Array], Array]) -> Callable[..., Array]:
    """A multilayer perceptron; biases follow the matrices."""
    count = len(widths) - 1

    def layers(x: Array, *p: Array) -> Array:
        for i in range(count):
            x = x @ p[i] + p[count + i]
            x = act(x) if i + 1 < count else x
        return x

    return layers


def with_loss(layers: Callable[..., Array]) -> Callable[..., Any]:
    """The gradients of a mean square by all matrices and biases."""

    def loss(p: Sequence[Array], x: Array, y: Array) -> Array:
        return ((layers(x, *p) - y).astype(jnp.float32) ** 2).mean()

    return jax.value_and_grad(loss)


def gated(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


def normalised(x: Array, *p: Array) -> Array:
    first, second, last, *scales = p
    for w, scale in zip((first, second), scales, strict=True):
        h = x @ w
        h = h - h.mean(-1, keepdims=True)
        x = jax.nn.gelu(h * jax.lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-5) * scale)
    return x @ last


def _floats(*shapes: Sequence[int], dtype: Any = jnp.float32) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(tuple(s), dtype) for s in shapes]


def cases() -> Iterator[tuple[str, Callable[..., Any], Sequence[Any]]]:
    """Name, function and arguments of each case."""
    million = 1 << 20
    for name, widths, rows, act in (
        ("9-64-64-13 tanh", (9, 64, 64, 13), million, jnp.tanh),
        ("3-64-64-64-1 tanh", (3, 64, 64, 64, 1), 1 << 19, jnp.tanh),
        ("17-64-64-6 relu, odd", (17, 64, 64, 6), 291_417, jax.nn.relu),
        ("32-128-128-16 silu", (32, 128, 128, 16), 1 << 18, jax.nn.silu),
        ("48-96-96-96-4 gelu", (48, 96, 96, 96, 4), 1 << 18, jax.nn.gelu),
        ("2-20-20-20-1 sin", (2, 20, 20, 20, 1), million, jnp.sin),
    ):
        for dtype in (jnp.float32, jnp.bfloat16):
            matrices = [*itertools.pairwise(widths)]
            p = _floats(*matrices, *((n,) for n in widths[1:]), dtype=dtype)
            [x] = _floats((rows, widths[0]), dtype=dtype)
            [y] = _floats((rows, widths[-1]), dtype=dtype)
            kind = jnp.dtype(dtype).name
            yield f"{name} {kind}", chain(widths, act), (x, *p)
            yield f"{name} {kind} gradient", with_loss(chain(widths, act)), (tuple(p), x, y)
    p = _floats((64, 128), (64, 128), (128, 64))
    yield "gated 64-128-64", gated, (*_floats((1 << 18, 64)), *p)
    yield "gated 64-128-64 gradient", with_loss(gated), (p, *_floats(*[(1 << 18, 64)] * 2))
    p = _floats((32, 64), (64, 64), (64, 10), (64,), (64,))
    yield "normalised 32-64-64-10", normalised, (*_floats((1 << 19, 32)), *p)
    yield (
        "normalised 32-64-64-10 gradient",
        with_loss(normalised),
        (p, *_floats((1 << 19, 32), (1 << 19, 10))),
    )


def rows(only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row of the table for each case: microseconds, measured and modelled."""
    meter = gpu.meters(DEVICE)[0]
    for name, fun, args in cases():
        if only and not any(word in name for word in only):
            continue
        lowered: Any = jax.jit(fun).lower(*args)
        xla = meter.xla_us(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
        region = whole_of(fun, *args)
        row: dict[str, Any] = {"case": name, "xla_us": round(xla, 1)}
        drafts = []
        for warps, blocks, worth in (
            *((*shape, WORTH_HOLDING[0]) for shape in (*SHAPES, DOUBLED)),
            (*SHAPES[1], WORTH_HOLDING[1]),
        ):
            template = str(Sizes(warps, blocks, worth))
            try:
                options = CodegenOptions(template=template)
                drafts.append(plan_layers(region, Settings(DEVICE, options)))
            except CodegenError as error:
                row[template.removeprefix("layers ")] = str(error)
        kernels = [draft.kernel() for draft in drafts]
        for draft, kernel, built in zip(
            drafts, kernels, cuda.build_each(kernels, DEVICE), strict=True
        ):
            form = draft.template.removeprefix("layers ")
            row[form] = round(meter.kernel_us(kernel, built.artifact, 5), 1)
            row[f"{form}, registers"] = built.resources.registers
            row[f"{form}, modelled"] = round(cost_us(draft.cost, DEVICE), 1)
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description="Layers of rows in one kernel.")
    parser.add_argument("--only", nargs="*", default=[], help="parts of the names of cases")
    parser.add_argument("--commit", default="", help="the commit, where the checkout has no git")
    parser.add_argument("--json", help="where the results go")
    asked = parser.parse_args()
    found = []
    for row in rows(asked.only):
        found.append(row)
        print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    if asked.json:
        results_file.write(asked.json, {"environment": describe(asked.commit), "rows": found})


if __name__ == "__main__":
    main()
