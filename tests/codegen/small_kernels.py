"""Small kernels over the device header: many in one translation unit, on the emulator or a GPU."""

import dataclasses

import numpy as np

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.text.types import c_type
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES, shape_of
from fusionstitch.runtime import emulate, nvrtc

INCLUDE = '#include "fusionstitch.cuh"\n'


@dataclasses.dataclass(frozen=True)
class Launch:
    """A kernel of one block with parameters a, b, c and out, and the arrays for the former."""

    kernel: Kernel
    inputs: tuple

    @classmethod
    def of(cls, name, body, inputs, result, size, block=1, shared=0):
        """`body` fills `out`, `size` elements of dtype `result`."""
        shapes = tuple(map(shape_of, inputs))
        names = "abc"[: len(shapes)]
        parameters = [
            f"const {c_type(s.dtype).storage}* {x}" for s, x in zip(shapes, names, strict=True)
        ]
        parameters.append(f"{c_type(result).storage}* out")
        head = f'extern "C" __global__ void {name}({", ".join(parameters)})'
        source = f"{INCLUDE}{head} {{\n{body}\n}}\n"
        out = (Shape(result, (size,)),)
        return cls(
            Kernel(name, source, shapes, out, (), 1, block, shared, False, ""), tuple(inputs)
        )

    @classmethod
    def elementwise(cls, name, text, inputs, result):
        """out[i] = text, an expression of the compute type of `result`."""
        stored = f"fs_store_as<{c_type(result).storage}>({text})"
        size = inputs[0].size
        body = f"  for (int i = threadIdx.x; i < {size}; i += blockDim.x) out[i] = {stored};"
        return cls.of(name, body, inputs, result, size)

    def result(self):
        shape = self.kernel.outputs[0]
        return np.zeros(shape.dims, NUMPY_DTYPES[shape.dtype])


def on_emulator(launches, order="forward", seed=0):
    """The result of each launch."""
    results = [launch.result() for launch in launches]
    emulate.set_order(order, seed)
    try:
        artifacts = emulate.build([launch.kernel for launch in launches])
        for launch, artifact, out in zip(launches, artifacts, results, strict=True):
            emulate.launch(artifact, [a.ctypes.data for a in (*launch.inputs, out)])
    finally:
        emulate.set_order("forward")
    return results


def translation_unit(launches):
    """All kernels as one text for NVRTC."""
    return "\n".join(launch.kernel.source for launch in launches)


def on_gpu(launches):
    """The result of each launch on the GPU that CuPy finds."""
    import cupy

    major, minor = map(int, cupy.cuda.Device().compute_capability)
    module = cupy.cuda.function.Module()
    module.load(nvrtc.compile(translation_unit(launches), f"sm_{major}{minor}").image)
    results = []
    for launch in launches:
        kernel = launch.kernel
        # CuPy has no bfloat16: arrays travel as bytes.
        arrays = [cupy.asarray(a.view(np.uint8)) for a in (*launch.inputs, launch.result())]
        function = module.get_function(kernel.name)
        function((kernel.grid,), (kernel.block,), tuple(arrays), shared_mem=kernel.shared_bytes)
        results.append(arrays[-1].get().view(launch.result().dtype))
    return results
