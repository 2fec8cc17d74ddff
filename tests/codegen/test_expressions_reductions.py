"""Reductions across threads: lanes, block, strided columns, each in several thread orders."""

import numpy as np
import pytest

from fusionstitch.codegen.schedule.schedule import slot_bytes
from fusionstitch.codegen.text.expressions import FUNCTORS
from fusionstitch.codegen.text.types import C_TYPES, c_type
from fusionstitch.hlo.graph import FLOATS, FLOATS8
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.runtime import nvrtc
from tests.codegen.small_kernels import Launch, on_emulator, on_gpu, translation_unit

UFUNCS = {
    "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def launch(name, call, dtype, block, scratch):
    """Two reductions: out = f(a) and f(b), one after the other over the same scratch, or, where the
    call is a statement about {first} and {second}, both at once."""
    stored, compute = c_type(dtype).storage, c_type(dtype).compute
    rng = np.random.default_rng(block)
    lowest = 1 if "FsMultiply" in call else 0
    a, b = (rng.integers(lowest, 3, block).astype(NUMPY_DTYPES[dtype]) for _ in range(2))
    loads = ["fs_load(a[i])", "fs_load(b[i])"]
    together = "{first}" in call
    if not together:
        loads = [call.format(load, compute=compute) for load in loads]
    body = f"""  FS_DYNAMIC_SHARED(shared_memory);
  int i = threadIdx.x;
  {compute} first = {loads[0]};
  __syncthreads();
  {compute} second = {loads[1]};
  {call.format(first="first", second="second") if together else ""}
  out[i] = fs_store_as<{stored}>(first);
  out[{block} + i] = fs_store_as<{stored}>(second);"""
    return Launch.of(name, body, [a, b], dtype, 2 * block, block, scratch)


def groups(values, reducer, width=0, columns=0):
    """The result of every thread: over aligned groups of `width`, or columns modulo `columns`."""
    rows = values.reshape(-1, width) if width else values.reshape(-1, columns).T
    with np.errstate(over="ignore"):
        joined = UFUNCS[reducer].reduce(rows, axis=1, dtype=values.dtype)
    spread = np.repeat(joined, width) if width else np.tile(joined, len(values) // columns)
    return spread.astype(values.dtype)


def cases():
    """(launch, expected result) pairs."""
    found = []

    def add(kind, call, reducer, dtype, block, scratch, **how):
        sizes = "_".join(str(v) for v in how.values())
        name = f"{kind}_{sizes}_{block}_{reducer}_{dtype}"
        made = launch(name, call, dtype, block, scratch)
        both = [groups(values, reducer, **how) for values in made.inputs]
        found.append((made, np.concatenate(both)))

    for reducer, functor in FUNCTORS.items():
        for dtype in sorted(C_TYPES.keys() - FLOATS8):  # those are reduced as f32
            if dtype in FLOATS and reducer in ("and", "or", "xor"):
                continue
            lanes = f"fs_reduce_lanes<8, {functor}>({{}})"
            add("lanes", lanes, reducer, dtype, 32, 0, width=8)
            joined = "(shared_memory, {first}, {second});"
            block = f"fs_reduce_block<3, {functor}, {functor}>{joined}"
            add("block", block, reducer, dtype, 96, 2 * slot_bytes("f64"), width=96)
    for width in (1, 2, 4, 16, 32):
        call = f"fs_reduce_lanes<{width}, FsAdd>({{}})"
        add("lanes", call, "add", "f32", 64, 0, width=width)
    for threads in (32, 64, 1024):
        joined = "(shared_memory, {first}, {second});"
        call = f"fs_reduce_block<{threads // 32}, FsAdd, FsAdd>{joined}"
        add("block", call, "add", "s32", threads, 2 * slot_bytes("f64"), width=threads)
    for width, threads in ((64, 128), (64, 512), (128, 256), (96, 288), (256, 512)):
        for dtype in ("f32", "f64", "u8"):
            joined = "(shared_memory, {first}, {second});"
            call = f"fs_reduce_team<{width // 32}, FsMaximum, FsMaximum>{joined}"
            add("team", call, "maximum", dtype, threads, 2 * slot_bytes("f64"), width=width)
    for columns, threads in ((32, 32), (32, 160), (8, 256), (1, 96), (48, 144)):
        for dtype in ("f32", "f64", "u8"):
            call = f"fs_reduce_strided<{columns}, FsMaximum>({{}}, shared_memory)"
            add("strided", call, "maximum", dtype, threads, 8 * threads, columns=columns)
    return found


CASES = cases()


@pytest.mark.parametrize(("order", "seed"), [("forward", 0), ("reversed", 0), ("random", 1)])
def test_emulated(order, seed):
    results = on_emulator([made for made, _ in CASES], order, seed)
    for (made, expected), out in zip(CASES, results, strict=True):
        np.testing.assert_array_equal(out, expected, err_msg=made.kernel.name)


@pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)
def test_they_compile_for_gpus_without_warnings_or_local_memory():
    compiled = nvrtc.compile(translation_unit([made for made, _ in CASES]), "sm_90")
    assert "warning" not in compiled.log
    assert len(compiled.resources) == len(CASES)
    assert {used.stack_bytes for _, used in compiled.resources} == {0}


@pytest.mark.gpu
def test_on_a_gpu():
    for (made, expected), out in zip(CASES, on_gpu([m for m, _ in CASES]), strict=True):
        np.testing.assert_array_equal(out, expected, err_msg=made.kernel.name)
