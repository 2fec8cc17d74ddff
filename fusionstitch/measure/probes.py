"""Handwritten kernels that each keep one part of a GPU busy."""

from __future__ import annotations

from collections.abc import Sequence

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import builders
from fusionstitch.costmodel.devices import Device
from fusionstitch.runtime import cuda
from fusionstitch.runtime.artifact import Artifact

BLOCK = 256
#: Independent chains per thread, so that latency is hidden.
CHAINS = 8


def empty(grid: int) -> Kernel:
    """`grid` blocks that do nothing."""
    return handwritten("fs_probe_empty", "", "", grid)


def barriers(grid: int, count: int) -> Kernel:
    """`grid` blocks that synchronize `count` times."""
    body = f"  for (int i = 0; i < {count}; ++i) fs_grid_barrier();"
    return handwritten(f"fs_probe_barriers_{count}", "", body, grid, cooperative=True)


def sparse_copy(grid: int) -> Kernel:
    """Copies 16-byte pieces, as many as the third argument says, with one load in flight per
    thread."""
    body = f"""  const long long step = (long long)gridDim.x * {BLOCK};
  _Pragma("unroll 1")
  for (long long i = blockIdx.x * {BLOCK} + threadIdx.x; i < count; i += step) to[i] = from[i];"""
    parameters = "const float4* __restrict__ from, float4* to, long long count"
    return handwritten(f"fs_probe_sparse_copy_{grid}", parameters, body, grid)


def chains(name: str, kind: str, start: str, step: str, grid: int, count: int) -> Kernel:
    """`count` times `step` on each of CHAINS values x of type `kind`, in every thread.

    The float* argument is written only if a result has an impossible value, which the compiler
    cannot know.
    """
    body = f"""  {kind} value[{CHAINS}];
  for (int i = 0; i < {CHAINS}; ++i) value[i] = {start};
  for (int n = 0; n < {count // 16}; ++n) {{
    FS_UNROLL for (int k = 0; k < 16; ++k) {{
      FS_UNROLL for (int i = 0; i < {CHAINS}; ++i) {{
        {kind}& x = value[i];
        {step}
      }}
    }}
  }}
  {kind} all = value[0];
  for (int i = 1; i < {CHAINS}; ++i) all += value[i];
  if (all == ({kind})12345.6789) result[threadIdx.x] = (float)all;"""
    return handwritten(f"fs_probe_{name}", "float* result", body, grid)


def clock(operands: int) -> Kernel:
    """One thread that writes the GPU's clock in nanoseconds; its operands only order it."""
    parameters = "const void*, " * operands + "unsigned long long* now"
    body = '  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(*now));'
    return handwritten(f"fs_probe_clock_{operands}", parameters, body, 1, block=1)


def gate() -> Kernel:
    """One thread that spins for the nanoseconds in its operand."""
    body = """  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < *nanoseconds);
  *held = *nanoseconds;"""
    parameters = "const unsigned* nanoseconds, unsigned* held"
    return handwritten("fs_probe_gate", parameters, body, 1, block=1)


def copy(grid: int) -> Kernel:
    """Copies 16-byte pieces, as many as the third argument says, with four loads in flight per
    thread."""
    body = f"""  const long long step = (long long)gridDim.x * {BLOCK};
  long long i = blockIdx.x * {BLOCK} + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step) {{
    const float4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    to[i] = a;
    to[i + step] = b;
    to[i + 2 * step] = c;
    to[i + 3 * step] = d;
  }}
  for (; i < count; i += step) to[i] = from[i];"""
    parameters = "const float4* __restrict__ from, float4* to, long long count"
    return handwritten("fs_probe_copy", parameters, body, grid)


def build(kernels: Sequence[Kernel], device: Device) -> list[Artifact]:
    """Their artifacts, cached like those of other kernels. Raises ToolchainError without NVRTC."""
    return cuda.build(kernels, device, builders.store())


def handwritten(
    name: str,
    parameters: str,
    body: str,
    grid: int,
    block: int = BLOCK,
    shared: int = 0,
    cooperative: bool = False,
) -> Kernel:
    """A kernel with that C `body`, launched with `shared` bytes of dynamic shared memory."""
    source = (
        f'#include "fusionstitch.cuh"\n\nextern "C" __global__ void __launch_bounds__({block})\n'
        f"{name}({parameters}) {{\n{body}\n}}\n"
    )
    return Kernel(
        name=name,
        source=source,
        inputs=(),
        outputs=(),
        scratch=(),
        grid=grid,
        block=block,
        shared_bytes=shared,
        cooperative=cooperative,
        template="",
    )
