"""Builds sources of "fusionstitch.cuh" that need no threads, only its arithmetic, on the host."""

import ctypes
import subprocess
from pathlib import Path

import codegen

CUDA = Path(codegen.__file__).parent / "cuda"

#: Starts a source: KERNEL(name) is a __global__ function or a plain one, EACH(i, n) its loop.
PROLOGUE = """#include "fusionstitch.cuh"
#ifdef FUSIONSTITCH_EMULATE
#define KERNEL(name) extern "C" void name
#define EACH(i, n) for (int i = 0; i < n; ++i)
#else
#define KERNEL(name) extern "C" __global__ void name
#define EACH(i, n) int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n)
#endif
"""


def build(source, folder):
    """The source as a shared library; warnings are errors."""
    (folder / "source.cu").write_text(PROLOGUE + source)
    command = ["g++", "-std=c++17", "-O1", "-Wall", "-Werror", "-ffp-contract=off", "-fPIC"]
    command += ["-shared", "-DFUSIONSTITCH_EMULATE", f"-I{CUDA}", "-x", "c++", "source.cu"]
    subprocess.run([*command, "-o", "source.so"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "source.so"))


def call(library, name, *arrays):
    """Runs kernel `name` over NumPy arrays; the last one is the result and gives the length."""
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    getattr(library, name)(*pointers, ctypes.c_int(arrays[-1].size))
