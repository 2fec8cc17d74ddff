"""Every kernel of the table built for real GPUs, without one; resources of those worth watching."""

from __future__ import annotations

import re
from functools import cache
from types import ModuleType

import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.runtime import nvrtc
from tests.codegen.cases import CASES
from tests.conftest import Golden

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason),
]

COUNTED_WITH = "13.5"
#: Their registers, stack and barriers are kept: a rise here is a slower kernel.
WATCHED = [
    *("chain", "vectors", "adam", "columns", "block_row", "softmax_vectors", "softmax_warps"),
    *("layer_norm_100", "layer_norm_1024", "layer_norm_backward", "cross_entropy", "attention"),
    *("packed_like_tensors", "all_four_compositions"),
]


@cache
def all_kernels() -> tuple[Kernel, ...]:
    return tuple(program.case().kernel() for program in CASES.values())


def kernels(arch: str) -> list[Kernel]:
    """Those that the architecture can run: clusters of blocks come with sm_90."""
    return [k for k in all_kernels() if k.cluster == 1 or arch != "sm_80"]


@cache
def resources(arch: str) -> dict[str, nvrtc.Resources]:
    """What each kernel takes, by name: all in one program, each in a namespace of its own."""
    parts = [f"namespace in_{k.name} {{\n{k.source}\n}}" for k in kernels(arch)]
    source = "\n".join(['#include "fusionstitch.cuh"', *parts])
    return dict(nvrtc.compile(source, arch).resources)


#: Bytes that a kernel spills for an architecture it was not tuned for, with NVRTC 13.0 to 13.5; 0
#: for one that has a slot on the stack and stores nothing there.
SPILLED = {
    ("sm_80", "k_norm_both_ways_512_bfloat16"): 0,
    ("sm_100", "k_norm_both_ways_1024_bfloat16"): 12,
    ("sm_100", "k_tiled_lots"): 8,
    # 16 elements of 8 bytes and half as many registers again
    ("sm_80", "k_sorted_in_parts"): 48,
    ("sm_90", "k_sorted_in_parts"): 48,
    # one value, though there are registers: NVRTC takes 56
    ("sm_80", "k_streamed_grouped"): 4,
    ("sm_90", "k_streamed_grouped"): 4,
}
#: Bytes of `sinf` or `cosf` for large arguments: NVRTC keeps the digits of the product with 2/pi in
#: an array, in registers where it unrolls the loop over them. It does not on one path of these.
DIGITS = {
    ("sm_80", "k_squeezed_and_placed"): 32,
    **{
        (arch, name): 32
        for arch in ("sm_80", "sm_90", "sm_100")
        for name in ("k_bins_in_a_plane", "k_bins_of_wide_rows")
    },
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_every_kernel_compiles_without_spills(nvrtc: ModuleType, arch: str) -> None:
    found = resources(arch)
    assert set(found) == {k.name for k in kernels(arch)}
    sources = {kernel.name: kernel.source for kernel in kernels(arch)}
    for name, used in found.items():
        assert used.spill_store_bytes <= SPILLED.get((arch, name), 0), name
        # tables of operands, at most of pointers, are all that may lie in memory
        tables = sum(8 * int(count) for count in re.findall(r"_terms\[(\d+)\] =", sources[name]))
        spilled = max(8, SPILLED[arch, name]) if (arch, name) in SPILLED else 0
        digits = DIGITS.get((arch, name), 0)
        assert used.stack_bytes <= tables + spilled + digits, name


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_registers_leave_room_for_the_blocks_the_launch_counts_on(
    nvrtc: ModuleType, arch: str
) -> None:
    found = resources(arch)
    for kernel in kernels(arch):
        bounds = re.search(r"__launch_bounds__\((\d+)(?:, (\d+))?\)", kernel.source)
        assert bounds is not None
        assert int(bounds[1]) == kernel.block
        together = kernel.block * int(bounds[2] or 1)
        assert found[kernel.name].registers * together <= 65_536, kernel.name
        if kernel.cooperative:
            assert together >= 512, kernel.name


def test_resources_of_watched_kernels(nvrtc: ModuleType, golden: Golden) -> None:
    """For sm_90; other releases of NVRTC allocate registers differently. Only programs that every
    supported JAX lowers to the same ops are watched."""
    if nvrtc.version() != COUNTED_WITH:
        pytest.skip(f"the numbers are those of NVRTC {COUNTED_WITH}, not {nvrtc.version()}")
    found = resources("sm_90")
    lines = [
        f"{name}: {used.registers} registers, {used.stack_bytes} bytes of stack, "
        f"{used.barriers} barriers"
        for name in WATCHED
        for used in [found[f"k_{name}"]]
    ]
    golden("\n".join(lines) + "\n")


def test_a_kernel_is_a_translation_unit_of_its_own(nvrtc: ModuleType) -> None:
    kernel = CASES["softmax_vectors"].case().kernel()
    [(name, _)] = nvrtc.compile(kernel.source, "sm_90").resources
    assert name == kernel.name
