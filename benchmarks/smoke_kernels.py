"""Handwritten kernels and the pass that puts them into programs, for `benchmarks.gpu_smoke`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.exporter import Preparation, Replacement, export
from fusionstitch.hlo.importer import from_message, parse
from fusionstitch.measure.probes import handwritten
from fusionstitch.runtime import cuda, xla_pass
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, Artifact, loading_config
from fusionstitch.runtime.cache import Store

TOKEN = "5a0ce"
KERNELS: dict[str, Kernel] = {}


# ---- handwritten kernels ------------------------------------------------------------------------


def define(*args: Any, **keywords: Any) -> str:
    """Enters a kernel (see `handwritten`) under its name, which it gives."""
    kernel = handwritten(*args, **keywords)
    KERNELS[kernel.name] = kernel
    return kernel.name


def tanh_kernel(size: int) -> str:
    return define(
        f"tanh_{size}",
        "const float* x, float* y",
        f"  int i = blockIdx.x * 256 + threadIdx.x;\n  if (i < {size}) y[i] = tanhf(x[i]);",
        grid=-(-size // 256),
    )


def scale_kernel(size: int) -> str:
    return define(
        f"scale_{size}",
        "const float* x, float* y",
        f"  int i = blockIdx.x * 256 + threadIdx.x;\n  if (i < {size}) y[i] = x[i] * 1.0625f;",
        grid=-(-size // 256),
    )


def softmax_kernel(rows: int, columns: int) -> str:
    """One block per row, the row in dynamic shared memory, more of it than 48 KB."""
    return define(
        "softmax_row",
        "const float* x, float* y",
        f"""  extern __shared__ float row[];
  __shared__ float partial[8];
  const float* in = x + (long long)blockIdx.x * {columns};
  float* out = y + (long long)blockIdx.x * {columns};
  float top = -1e30f;
  for (int i = threadIdx.x; i < {columns}; i += 256) top = fmaxf(top, row[i] = in[i]);
  for (int d = 16; d; d /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = top;
  __syncthreads();
  for (int i = 0; i < 8; i++) top = fmaxf(top, partial[i]);
  __syncthreads();
  float sum = 0.0f;
  for (int i = threadIdx.x; i < {columns}; i += 256) sum += row[i] = expf(row[i] - top);
  for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int i = 0; i < 8; i++) sum += partial[i];
  for (int i = threadIdx.x; i < {columns}; i += 256) out[i] = row[i] / sum;""",
        grid=rows,
        shared=4 * columns,
    )


def bare_kernel(grid: int, block: int, rounds: int) -> str:
    """Nothing but barriers."""
    return define(
        f"bare_{grid}_{block}_{rounds}",
        "const unsigned* x, unsigned* y, unsigned* scratch",
        f"""  for (int round = 0; round < {rounds}; round++) fs_grid_barrier();
  y[blockIdx.x * {block} + threadIdx.x] = x[blockIdx.x * {block} + threadIdx.x];""",
        grid=grid,
        block=block,
        cooperative=True,
    )


def ring_kernel(grid: int, block: int, rounds: int) -> str:
    """Each round a block adds its neighbour's value of the round before, then all meet."""
    return define(
        f"ring_{grid}_{block}_{rounds}",
        "const unsigned* x, unsigned* y, unsigned* scratch",
        f"""  int me = blockIdx.x * {block} + threadIdx.x, size = {grid * block};
  int next = (me + {block}) % size;
  unsigned value = x[me];
  for (int round = 0; round < {rounds}; round++) {{
    unsigned* now = scratch + (round & 1) * size;
    now[me] = value;
    fs_grid_barrier();
    value = value * 3 + now[next];
  }}
  y[me] = value;""",
        grid=grid,
        block=block,
        cooperative=True,
    )


def many_kernel(count: int) -> str:
    """As many inputs as an optimizer step has; sums them."""
    parameters = ", ".join(f"const float* x{i}" for i in range(count))
    total = " + ".join(f"x{i}[threadIdx.x]" for i in range(count))
    return define("many", f"{parameters}, float* y", f"  y[threadIdx.x] = {total};", 1, 32)


# ---- the pass -----------------------------------------------------------------------------------


def place(name: str, results: Any, *args: Any, **options: Any) -> Any:
    """A placeholder for kernel `name`, for use inside a jitted function."""
    return jax.ffi.ffi_call(TARGET, results, **options)(*args, kernel=name)


def artifact(name: str, profile: Device, store: Store) -> Artifact:
    return cuda.build([KERNELS[name]], profile, store)[0]


def stitcher(profile: Device, store: Store) -> xla_pass.StitchCallback:
    """Fills placeholders and replaces every f32 tanh, in all computations."""

    def stitch(module: bytes, token: str) -> bytes:
        proto = parse(module)
        used: list[Artifact] = []

        def config(name: str) -> bytes:
            used.append(artifact(name, profile, store))
            return used[-1].config()

        for computation in proto.computations:
            for call in computation.instructions:
                if call.custom_call_target == TARGET:
                    name = re.search(rb'kernel = "(\w+)"', call.backend_config)
                    assert name is not None
                    call.backend_config = config(name[1].decode())
        imported = from_message(proto)
        found = [
            Replacement(
                graph=graph,
                outputs=(op,),
                inputs=op.operands,
                removed=(op,),
                name=f"stitched_{op.id}",
                target=TARGET,
                config=config(tanh_kernel(op.shape.size)),
            )
            for graph in imported.stitchable
            for op in graph
            if op.opcode == "tanh" and op.dtype == "f32"
        ]
        xla_pass.publish(sorted({one.key for one in used}))
        load = Preparation("load", LOAD_TARGET, loading_config(used))
        return export(imported, found, preparation=load)

    return stitch


def stitched(fun: Callable[..., Any], **keywords: Any) -> Any:
    def renamed(*args: Any) -> Any:
        return fun(*args)

    renamed.__name__ = xla_pass.mark("smoke", TOKEN)
    return jax.jit(renamed, **keywords)
