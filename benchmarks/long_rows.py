"""Long rows, and few: XLA beside kernels of several schedules, each alone on a GPU.

    python -m benchmarks.long_rows

What `codegen/schedule/clusters.py`, the rows that a block walks one after the other, and those that
XLA's own normalisations take were decided by: benchmarks/results/h200-2026-11-22-rows.txt.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fusionstitch.codegen.generate import CodegenOptions, draft, generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.measure import gpu
from fusionstitch.runtime import cuda
from tests.codegen.regions import whole_of

F32, BF16 = jnp.float32, jnp.bfloat16
DEVICE = device("h200")
ONE_ROW = 2.0**-12  # the factor on the rows of a tile that leaves one
SCHEDULES = (
    Tuning(),
    Tuning(cluster=1),
    Tuning(cluster=1, tile=ONE_ROW),
    Tuning(cluster=1, block=512, tile=ONE_ROW),
    *(Tuning(cluster=n, block=t) for n, t in ((2, 1024), (4, 512), (8, 256), (8, 512), (8, 1024))),
)


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, axis=-1)


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Losses and gradient, a row of logits a token."""
    rows = logits.astype(F32)
    m = rows.max(-1)
    lse = m + jnp.log(jnp.sum(jnp.exp(rows - m[:, None]), -1))
    hot = jnp.arange(rows.shape[1])[None] == labels[:, None]
    picked = jnp.take_along_axis(rows, labels[:, None], axis=-1)[:, 0]
    return lse - picked, (jnp.exp(rows - lse[:, None]) - hot).astype(logits.dtype)


def norm(x: Any, g: Any) -> Any:
    rows = x.astype(F32)
    m = rows.mean(-1, keepdims=True)
    v = ((rows - m) ** 2).mean(-1, keepdims=True)
    return ((rows - m) * jax.lax.rsqrt(v + 1e-5) * g).astype(x.dtype)


def sums(x: Any) -> Any:
    return (x.astype(F32) ** 2).sum(-1)


def arguments(fun: Callable[..., Any], rows: int, row: int, dtype: Any) -> tuple[Any, ...]:
    x = jax.ShapeDtypeStruct((rows, row), dtype)
    if fun is cross_entropy:
        return x, jax.ShapeDtypeStruct((rows,), jnp.int32)
    return (x, jax.ShapeDtypeStruct((row,), F32)) if fun is norm else (x,)


CASES: tuple[tuple[Callable[..., Any], int, int, Any], ...] = (
    *(
        (softmax, 2**27 // n, n, F32)
        for n in (4096, 12_288, 16_384, 32_768, 65_536, 131_072, 2**18)
    ),
    *(
        (softmax, 2**27 // n, n, BF16)
        for n in (4096, 12_288, 16_384, 32_768, 49_152, 131_072, 2**18)
    ),
    *((cross_entropy, 2**27 // n, n, BF16) for n in (50_304, 131_072)),
    *((norm, 2**26 // n, n, BF16) for n in (8192, 16_384, 32_768, 65_536, 131_072)),
    *((softmax, n, 131_072, F32) for n in (16, 64, 132)),
    *((softmax, n, m, F32) for n, m in ((64, 32_768), (32, 65_536))),
    (softmax, 64, 131_072, BF16),
    (cross_entropy, 64, 131_072, BF16),
    (norm, 32, 65_536, BF16),
    *((sums, n, m, F32) for n, m in ((64, 131_072), (16, 1_000_000))),
)


def main() -> None:
    meter = gpu.meters(DEVICE)[0]
    for fun, rows, row, dtype in CASES:
        args = arguments(fun, rows, row, dtype)
        lowered: Any = jax.jit(fun).lower(*args)
        xla = meter.xla_us(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
        print(f"{fun.__name__} {dtype.__name__}[{rows}, {row}]: XLA {xla:.1f} us", flush=True)
        region, seen = whole_of(fun, *args), dict[str, tuple[Tuning, Kernel]]()
        for tuning in SCHEDULES:
            kernel = generate(region, DEVICE, CodegenOptions(tuning=tuning))
            seen.setdefault(kernel.source, (tuning, kernel))
        tried = list(seen.values())
        built = cuda.build_each([kernel for _, kernel in tried], DEVICE)
        for (tuning, kernel), one in zip(tried, built, strict=True):
            if not isinstance(one, cuda.Built):
                print(f"    {tuning}: {one}")
                continue
            cost = draft(region, DEVICE, CodegenOptions(tuning=tuning)).cost
            us = meter.kernel_us(kernel, one.artifact, 3)
            modelled = cost_us(cost, DEVICE)
            print(
                f"    {tuning}: {us:.1f} us, modelled {modelled:.1f}; cluster {kernel.cluster}, "
                f"{kernel.grid} blocks of {kernel.block}, {one.resources.registers} registers",
                flush=True,
            )


if __name__ == "__main__":
    main()
