"""Users' CUDA-C for the host compiler: a translation unit that the emulator can run.

The emulator's launches have one dimension, and its kernels take only buffers. Here the grid and
block sizes are the first buffer, from which `threadIdx` and `blockIdx` are computed. Numbers are
passed by address. Blocks run one after another, so a static variable can serve as shared memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from fusionstitch.dag.signature import Parameter

_HEAD = """\
#include "emulation.h"

// Sizes of the grid and of a block, in three dimensions.
static thread_local FsEmulatedDim3 fs_dag_sizes[2];

static inline FsEmulatedDim3 fs_dag_index(unsigned number, FsEmulatedDim3 size) {
  return {number % size.x, number / size.x % size.y, number / size.x / size.y};
}

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#undef __shared__
#define gridDim (fs_dag_sizes[0])
#define blockDim (fs_dag_sizes[1])
#define blockIdx (fs_dag_index(fs_emulated_self->block->index.x, fs_dag_sizes[0]))
#define threadIdx (fs_dag_index(fs_emulated_self->index.x, fs_dag_sizes[1]))
#define __shared__ static
"""
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\(\s*\d+\s*\)\s*)?([\w\s]*\w)\s+(\w+)\s*\[\s*\]\s*;"
)


def translation_unit(code: str, kernels: Mapping[str, Sequence[Parameter]]) -> str:
    """C++ for `kernels` of one source, by name. The image's i-th entry is `entry(i)`."""
    code = _DYNAMIC_SHARED.sub(r"\1* const \2 = (\1*)fs_emulated_self->block->shared;", code)
    # included files must not be in a namespace
    inside = "#include" not in code
    parts = [_HEAD, "namespace fs_dag_user {" * inside, '#line 1 "kernels.cu"', code, "}" * inside]
    parts.append("using namespace fs_dag_user;" * inside)
    table = []
    for number, (name, parameters) in enumerate(kernels.items()):
        count = len(parameters) + 1
        sizes = ", ".join(["{0, FsRole::kOutput}"] * count)
        passed = ", ".join(
            f"FsEmulatedPointer{{p[{i}]}}" if p.pointer else f"*(const {p.c_type}*)p[{i}]"
            for i, p in enumerate(parameters, 1)
        )
        parts += [
            f"static const FsEmulatedParameter fs_dag_buffers_{number}[] = {{{sizes}}};",
            f"static void fs_dag_call_{number}(void* const* p) {{",
            "  memcpy(fs_dag_sizes, p[0], sizeof fs_dag_sizes);",
            f"  {name}({passed});",
            "}",
        ]
        table.append(
            f'{{"{entry(number)}", {count}, fs_dag_buffers_{number}, 1, fs_dag_call_{number}}},'
        )
    parts += ["static const FsEmulatedKernel fs_dag_kernels[] = {", *table, "};"]
    parts += ["FS_EMULATED_IMAGE(fs_dag_kernels)", ""]
    return "\n".join(parts)


def entry(number: int) -> str:
    """The name of the image's entry for the kernel with this index."""
    return f"kernel_{number}"
