"""Generated kernels launched on a GPU, without XLA: the same cases as on the emulator.

Small and quick, so that they also run under compute-sanitizer's memcheck and racecheck.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from fusionstitch.accuracy import limit, relative_error
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.runtime import nvrtc
from tests.codegen.cases import CASES

pytestmark = pytest.mark.gpu


def launch(kernel: Kernel, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """Runs one kernel through CuPy; results and scratch arrive poisoned."""
    import cupy

    module = cupy.cuda.function.Module()
    module.load(nvrtc.compile(kernel.source, "sm_90").image)
    function = module.get_function(kernel.name)
    if kernel.shared_bytes > 48 * 1024:
        dynamic_shared = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        cupy.cuda.driver.funcSetAttribute(function.ptr, dynamic_shared, kernel.shared_bytes)
    read = [cupy.asarray(np.frombuffer(x.tobytes(), np.uint8)) for x in inputs]
    written = [
        cupy.full(max(shape.bytes, 1), 0xFF, cupy.uint8)
        for shape in (*kernel.outputs, *kernel.scratch)
    ]
    pointers = tuple(np.uint64(buffer.data.ptr) for buffer in (*read, *written))
    options = {"enable_cooperative_groups": True} if kernel.cooperative else {}
    function((kernel.grid,), (kernel.block,), pointers, shared_mem=kernel.shared_bytes, **options)
    cupy.cuda.Device().synchronize()
    return [
        buffer.get()[: shape.bytes].view(NUMPY_DTYPES[shape.dtype]).reshape(shape.dims)
        for buffer, shape in zip(written, kernel.outputs, strict=False)
    ]


@pytest.mark.parametrize("name", list(CASES))
def test_kernel_on_the_gpu_is_near_the_float64_run(name: str) -> None:
    program = CASES[name]
    case = program.case()
    with jax.enable_x64(program.wide), jax.default_matmul_precision("highest"):
        xla = [np.asarray(x) for x in jax.tree.leaves(jax.jit(program.fun)(*program.args))]
    expected = evaluate(case.graph, case.args, float64=True)
    for value, reference, theirs in zip(
        launch(case.kernel(), list(case.args)), expected, xla, strict=True
    ):
        most = limit(value.dtype, relative_error(theirs, reference))
        assert relative_error(value, reference) <= most
