"""The emulator: generated CUDA-C built by the host compiler and run on the CPU, thread by thread.

It is for correctness, continuous integration and reading; its times say nothing about a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import numpy as np

from fusionstitch import env
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.memory.inplace import one_to_one
from fusionstitch.codegen.text.source import uncommented
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import ToolchainError, VerifyError
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.runtime import delays
from fusionstitch.runtime.artifact import Artifact
from fusionstitch.runtime.counters import Counters, parse
from fusionstitch.runtime.emulator import (
    header_digest,
    header_folder,
    library,
    process_store,
)
from fusionstitch.runtime.toolchain import Store, compile_shared

Order = Literal["forward", "reversed", "random", "delayed"]
_ORDERS: tuple[Order, ...] = ("forward", "reversed", "random", "delayed")

#: A thread has a stack of 64 KiB; larger local arrays are rejected here, where that is free.
_FRAME_BYTES = 48 << 10

#: -O1: with -O2 compiling takes longer than it saves for a kernel that runs a few times.
#: Contraction would make results depend on the host. Kernels reinterpret memory through other
#: types.
KERNEL_FLAGS = (
    "-O1",
    "-DFUSIONSTITCH_EMULATE",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
    "-fno-exceptions",
    # Every misaligned access ends in a call to emulation.h, so that no sanitizer library is needed.
    "-fsanitize=alignment",
    "-fno-sanitize-recover=alignment",
    "-nodefaultlibs",
    *("-lm", "-lc", "-lgcc"),
    f"-Wframe-larger-than={_FRAME_BYTES}",
    f"-Werror=frame-larger-than={_FRAME_BYTES}",
)
#: The same with every access reported to the emulator, which then detects races.
CHECKED_FLAGS = ("-DFUSIONSTITCH_CHECKED", "-fsanitize=thread", *KERNEL_FLAGS)
#: The same with every access in the text reported and counted: an optimizing compiler removes
#: accesses whose value it knows.
COUNTED_FLAGS = ("-DFUSIONSTITCH_COUNTED", "-fsanitize=thread", *KERNEL_FLAGS, "-O0")
#: The array of pointers is not part of the kernel's memory, but may be adjacent to it.
_UNREPORTED = '__attribute__((no_sanitize("thread")))'
_ERROR_BYTES = 4096
_POISON = 0xA5
#: Bytes around every buffer of `run` that the kernel must not touch; keeps 128-byte alignment.
_RED_ZONE = 256


def build(
    kernels: Sequence[Kernel],
    store: Store | None = None,
    device: Device | None = None,
    checked: bool | None = None,
    counted: bool = False,
) -> list[Artifact]:
    """Compiles all kernels in one translation unit into one image; one artifact per kernel.

    Kernels that differ only in name and comments are compiled once. Raises ToolchainError, also for
    a kernel that `device`, which it was made for, could not launch. Launches of `checked` kernels
    fail on races and on reads of unwritten memory; None: as FUSIONSTITCH_CHECK says. `counted`
    kernels can be passed to `counters`, and are not checked.
    """
    if not kernels:
        return []
    for kernel in kernels:
        if device is not None and not (verdict := launchable(kernel, device)):
            raise ToolchainError(f"{verdict}.")
    checked = env.CHECK.get() if checked is None else checked
    flags = COUNTED_FLAGS if counted else CHECKED_FLAGS if checked else KERNEL_FLAGS
    texts = [_without_name(kernel) for kernel in kernels]
    distinct = dict(zip(reversed(texts), reversed(kernels), strict=True))
    entry_of = {text: _entry(kernel, text) for text, kernel in distinct.items()}
    image = compile_shared(
        _translation_unit({entry_of[text]: kernel for text, kernel in distinct.items()}),
        flags=(*flags, *delays.flags()),
        include=(header_folder(),),
        depends=header_digest(),
        store=store or process_store,
        accept=_load,
    )
    key = _key(image)
    return [
        Artifact(key, image, entry_of[text], k.grid, k.block, k.shared_bytes, k.cooperative)
        for text, k in zip(texts, kernels, strict=True)
    ]


def build_unit(source: str, store: Store | None = None) -> Artifact:
    """Compiles a complete translation unit, in the form that `build` writes, for users' kernels.

    The artifact has no kernel name and sizes yet. Raises ToolchainError.
    """
    image = compile_shared(
        source,
        flags=KERNEL_FLAGS,
        include=(header_folder(),),
        depends=header_digest(),
        store=store or process_store,
        accept=_load,
    )
    return Artifact(_key(image), image, "", 1, 1, 0, False)


def keep_loaded(artifact: Artifact, store: Store | None = None) -> Callable[[], None]:
    """Keeps an artifact's image loaded between launches, until the returned function is called.

    Raises VerifyError if it cannot be loaded.
    """
    stack = contextlib.ExitStack()
    if error := stack.enter_context(_loaded(artifact.key, artifact.image, store)):
        stack.close()
        raise VerifyError(f"The emulator stopped: {error}.")
    return stack.close


def _key(image: bytes) -> str:
    return "emulated-" + hashlib.sha256(image).hexdigest()


def _load(image: bytes) -> None:
    """Loads an image once, so that one that cannot be loaded never gets into a program."""
    with _loaded(_key(image), image, None) as error:
        if error:
            raise ToolchainError(f"What the host compiler built cannot be used: {error}.")


@contextmanager
def _loaded(key: str, image: bytes, store: Store | None) -> Iterator[str]:
    """Keeps an image loaded; yields an error message, or ""."""
    emulator = library(store)
    error, holder = ctypes.create_string_buffer(_ERROR_BYTES), ctypes.c_void_p()
    emulator.fs_emulate_hold(key.encode(), image, len(image), holder, error, _ERROR_BYTES)
    try:
        yield error.value.decode(errors="replace")
    finally:
        emulator.fs_emulate_release(holder)


def register(store: Store | None = None) -> None:
    """Registers the custom call with XLA for platform "cpu". Cheap after the first call."""
    library(store)


def set_order(order: Order, seed: int = 0) -> None:
    """Sets the order in which later launches of this process schedule threads and blocks.

    "forward" and "reversed" go by thread number. "random" shuffles with `seed` whenever threads
    become ready. "delayed" also makes blocks stall for a while. Correctly synchronized kernels give
    the same result under all of them.
    """
    library().fs_emulate_set_order(_ORDERS.index(order), seed)


def run(
    kernel: Kernel,
    inputs: Sequence[np.ndarray],
    *,
    in_place: bool = False,
    store: Store | None = None,
) -> list[np.ndarray]:
    """Runs one kernel without XLA and returns its outputs.

    `inputs` must have the shapes and dtypes of `kernel.inputs`. Outputs and scratch memory start as
    poison. With `in_place`, outputs share memory with inputs as `kernel.in_place` allows. Raises
    VerifyError for a deadlock, a divergent barrier, or a write outside a buffer.
    """
    _check_inputs(kernel, inputs)
    [artifact] = build([kernel], store)
    arguments = [_Buffer.holding(value) for value in inputs]
    shared = dict(one_to_one(kernel.in_place)) if in_place else {}
    outputs = [
        arguments[shared[i]] if i in shared else _Buffer(shape)
        for i, shape in enumerate(kernel.outputs)
    ]
    scratch = [_Buffer(shape) for shape in kernel.scratch]
    launch(artifact, [buffer.address for buffer in (*arguments, *outputs, *scratch)], store)
    for name, buffers in (("input", arguments), ("output", outputs), ("scratch", scratch)):
        for i, buffer in enumerate(buffers):
            buffer.check(f"{name} {i} of kernel {kernel.name}")
    overwritten = set(shared.values())
    for i, (argument, value) in enumerate(zip(arguments, inputs, strict=True)):
        if i not in overwritten and argument.raw.tobytes() != value.tobytes():
            raise VerifyError(f"Kernel {kernel.name} wrote to its input {i}.")
    return [
        buffer.raw.view(NUMPY_DTYPES[shape.dtype]).reshape(shape.dims)
        for buffer, shape in zip(outputs, kernel.outputs, strict=True)
    ]


def launch(
    artifact: Artifact, addresses: Sequence[int], store: Store | None = None, ignoring: str = ""
) -> list[str]:
    """Runs a built kernel on host memory: one address per input, output and scratch buffer.

    Returns the locations of the barriers that a checked kernel reached, such as "kernel.cu:12". The
    checks ignore barriers at the location `ignoring`: what they then find is what that barrier is
    for. Raises VerifyError with the emulator's finding.
    """
    barriers, _ = _launch(artifact, addresses, store, ignoring)
    return barriers.split()


def counters(artifact: Artifact, addresses: Sequence[int], store: Store | None = None) -> Counters:
    """Runs a kernel built with `counted`, like `launch`, and returns its counters."""
    return parse(_launch(artifact, addresses, store)[1])


def _launch(
    artifact: Artifact, addresses: Sequence[int], store: Store | None, ignoring: str = ""
) -> tuple[str, str]:
    """The emulator's output lines about barriers and about counts."""
    barriers = ctypes.create_string_buffer(_ERROR_BYTES)
    counts = ctypes.create_string_buffer(_ERROR_BYTES)
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    with _loaded(artifact.key, artifact.image, store) as failed:
        if not failed:
            library(store).fs_emulate_launch(
                artifact.key.encode(),
                artifact.entry.encode(),
                (ctypes.c_void_p * len(addresses))(*addresses),
                len(addresses),
                artifact.grid,
                artifact.block,
                artifact.shared_bytes,
                artifact.cooperative,
                ignoring.encode(),
                barriers,
                _ERROR_BYTES,
                counts,
                _ERROR_BYTES,
                error,
                _ERROR_BYTES,
            )
            failed = error.value.decode(errors="replace")
    if failed:
        raise VerifyError(f"The emulator stopped: {failed}.")
    return barriers.value.decode(), counts.value.decode()


# --- translation units ----------------------------------------------------------------------------


def _without_name(kernel: Kernel) -> str:
    """What a compiler reads of the kernel's source, and its buffers."""
    source = re.sub(rf"\b{re.escape(kernel.name)}\b", "@", uncommented(kernel.source))
    return f"{source}{kernel.inputs}{kernel.outputs}{kernel.scratch}"


def _entry(kernel: Kernel, text: str) -> str:
    """The kernel's name in its image: different kernels may have equal names."""
    return f"{kernel.name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _translation_unit(kernels: dict[str, Kernel]) -> str:
    parts = ['#include "fusionstitch.cuh"']
    for entry, kernel in kernels.items():
        parts += [
            f"#define {kernel.name} {entry}",
            f"namespace in_{entry} {{",
            f'#line 1 "{kernel.name}.cu"',
            uncommented(kernel.source),
            "}",
            f"#undef {kernel.name}",
        ]
    table = []
    for entry, kernel in kernels.items():
        buffers = [
            f"{{{shape.bytes}, FsRole::{role}}}"
            for role, shapes in (
                ("kInput", kernel.inputs),
                ("kOutput", kernel.outputs),
                ("kScratch", kernel.scratch),
            )
            for shape in shapes
        ]
        count = len(buffers)
        parts.append(
            f"static const FsEmulatedParameter buffers_{entry}[] = {{{', '.join(buffers)}}};"
        )
        arguments = ", ".join(f"FsEmulatedPointer{{p[{i}]}}" for i in range(count))
        parts.append(
            f"{_UNREPORTED} static void call_{entry}(void* const* p) "
            f"{{ in_{entry}::{entry}({arguments}); }}"
        )
        table.append(
            f'    {{"{entry}", {count}, buffers_{entry}, {kernel.cluster}, call_{entry}}},'
        )
    parts += ["static const FsEmulatedKernel fs_emulated_kernels[] = {", *table, "};"]
    parts += ["FS_EMULATED_IMAGE(fs_emulated_kernels)", ""]
    return "\n".join(parts)


# --- memory for `run` -----------------------------------------------------------------------------


class _Buffer:
    """Poisoned bytes of an array between two red zones."""

    def __init__(self, shape: Shape) -> None:
        self._size = shape.bytes
        self._whole = np.full(self._size + 3 * _RED_ZONE, _POISON, np.uint8)
        self._start = _RED_ZONE + -self._whole.ctypes.data % _RED_ZONE

    @classmethod
    def holding(cls, value: np.ndarray) -> _Buffer:
        buffer = cls(Shape("u8", (value.nbytes,)))
        buffer.raw[:] = np.frombuffer(value.tobytes(), np.uint8)
        return buffer

    @property
    def raw(self) -> np.ndarray:
        return self._whole[self._start : self._start + self._size]

    @property
    def address(self) -> int:
        return self.raw.ctypes.data if self._size else self._whole.ctypes.data + self._start

    def check(self, what: str) -> None:
        zones = (self._whole[: self._start], self._whole[self._start + self._size :])
        if any((zone != _POISON).any() for zone in zones):
            raise VerifyError(f"Memory outside {what} ({self._size} bytes) was overwritten.")


def _check_inputs(kernel: Kernel, inputs: Sequence[np.ndarray]) -> None:
    given = [(value.dtype, value.shape) for value in inputs]
    wanted = [(NUMPY_DTYPES[shape.dtype], shape.dims) for shape in kernel.inputs]
    if given != wanted:
        raise VerifyError(
            f"Kernel {kernel.name} takes {', '.join(map(str, kernel.inputs))}, "
            f"but was given {', '.join(f'{dtype}{list(dims)}' for dtype, dims in given)}."
        )
