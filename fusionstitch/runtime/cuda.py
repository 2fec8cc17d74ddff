"""The CUDA backend: kernels to cubins in artifacts, and the handler that launches them in XLA."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.text.source import uncommented
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.runtime import driver, handlers, images, nvrtc, prebuilt, temporary, toolchain
from fusionstitch.runtime.apart import checks
from fusionstitch.runtime.artifact import Artifact
from fusionstitch.runtime.nvrtc import Compiled, Resources
from fusionstitch.runtime.threads import in_parallel
from fusionstitch.runtime.toolchain import Store


@dataclass(frozen=True)
class Built:
    """One kernel's artifact, the resources that ptxas gave it, and the compiler's log."""

    artifact: Artifact
    resources: Resources
    log: str


def build(
    kernels: Sequence[Kernel],
    device: Device,
    store: Store | None = None,
    arch: str | None = None,
    options: tuple[str, ...] = (),
) -> list[Artifact]:
    """One artifact per kernel, in order.

    `arch` defaults to the device's; `options` are NVRTC's (see `nvrtc.NO_FMA`). Raises
    ToolchainError for the first kernel that does not compile or could not be launched.
    """
    outcomes = build_each(kernels, device, store, arch, options)
    for outcome in outcomes:
        if isinstance(outcome, ToolchainError):
            raise outcome
    return [outcome.artifact for outcome in outcomes if isinstance(outcome, Built)]


def build_each(
    kernels: Sequence[Kernel],
    device: Device,
    store: Store | None = None,
    arch: str | None = None,
    options: tuple[str, ...] = (),
) -> list[Built | ToolchainError]:
    """Like `build`, but returns the error of a kernel instead of raising it, so that the others are
    built.

    Sources that are equal up to comments are compiled once, different ones in parallel. A store
    saves compiling; if it has all kernels, NVRTC is not loaded. If NVRTC cannot be loaded, builds
    of any version of it are used.
    """
    arch = arch or device.sm_arch
    sources = [uncommented(kernel.source) for kernel in kernels]
    if (version := nvrtc.remembered(store)) is not None:
        keys = [nvrtc.key(source, arch, options, version) for source in sources]
        if (stored := _all_stored(keys, store)) is not None:
            return [
                _built(k, key, stored[key], device) for k, key in zip(kernels, keys, strict=True)
            ]
    if there := nvrtc.available():
        nvrtc.remember(store)
    by_any = [nvrtc.key(source, arch, options, nvrtc.ANY) for source in sources]
    keys = [
        nvrtc.key(source, arch, options) if there else _built_as(store, one)
        for source, one in zip(sources, by_any, strict=True)
    ]
    work = dict(zip(keys, zip(sources, by_any, strict=True), strict=True))
    check = checks()

    def compiled(key: str) -> Compiled | ToolchainError:
        check()
        if store is not None and (stored := _unpack(store.get(key))) is not None:
            return stored
        source, known = work[key]
        try:
            made = nvrtc.compile(source, arch, options)
        except ToolchainError as error:
            return error
        except Exception as error:  # a broken CUDA install may raise anything
            return ToolchainError(f"NVRTC failed ({type(error).__name__}: {error}).")
        if not images.is_whole(made.image):
            return ToolchainError(f"NVRTC returned {len(made.image)} bytes that are not a cubin.")
        if store is not None:
            store.put(key, _pack(made))
            store.put(f"by-any-{known}", key.encode())
        return made

    units = dict(zip(work, in_parallel(compiled, work), strict=True))
    return [
        _built(kernel, key, units[key], device) for kernel, key in zip(kernels, keys, strict=True)
    ]


def _all_stored(keys: Sequence[str], store: Store | None) -> dict[str, Compiled] | None:
    """What the store has under each key, or None if one is missing."""
    found: dict[str, Compiled] = {}
    for key in dict.fromkeys(keys):
        unit = _unpack(store.get(key)) if store is not None else None
        if unit is None:
            return None
        found[key] = unit
    return found


def _built_as(store: Store | None, by_any: str) -> str:
    """The key of the newest build of some content by any version; `by_any` itself if there is
    none."""
    found = store.get(f"by-any-{by_any}") if store is not None else None
    return by_any if found is None else found.decode("ascii", "replace")


def _built(
    kernel: Kernel, key: str, unit: Compiled | ToolchainError, device: Device
) -> Built | ToolchainError:
    if isinstance(unit, ToolchainError):
        return unit
    used = dict(unit.resources).get(kernel.name)
    if used is None:
        return ToolchainError(
            f"The source of {kernel.name} compiled but holds no kernel of that name: report this."
        )
    needs = used.registers, used.shared_bytes, used.barriers
    if not (verdict := launchable(kernel, device, *needs)):
        return ToolchainError(f"{verdict}. Leave its pattern to XLA.")
    artifact = Artifact(
        key=key,
        image=unit.image,
        entry=kernel.name,
        grid=kernel.grid,
        block=kernel.block,
        shared_bytes=kernel.shared_bytes,
        cooperative=kernel.cooperative,
    )
    return Built(artifact, used, unit.log)


def _pack(unit: Compiled) -> bytes:
    return json.dumps({"log": unit.log}).encode() + b"\n" + unit.image


def _unpack(data: bytes | None) -> Compiled | None:
    """The compiled unit; None also for one packed by another version."""
    head, _, image = (data or b"").partition(b"\n")
    try:
        log: str = json.loads(head)["log"]
        resources = nvrtc.parse_resources(log)
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    return Compiled(image, log, resources) if images.is_whole(image) else None


# ---- the handler --------------------------------------------------------------------------------

_lock = threading.Lock()
_registered: Verdict | None = None
_loaded: list[ctypes.CDLL] = []


def register_launcher(store: Store | None = None) -> Verdict:
    """Registers the custom call with JAX on CUDA, once per process. Compiles the handler if the
    package has none for this jaxlib.

    Forbids, with the reason, without a CUDA driver or a host compiler.
    """
    global _registered
    with _lock:
        if _registered is None:
            _registered = _register(store)
        return _registered


def image_count() -> int:
    """The number of kernel images that programs of this process hold on CUDA."""
    return int(_loaded[-1].fs_image_count()) if _loaded else 0


def _register(store: Store | None) -> Verdict:
    try:
        driver.library()
        launcher(store, lambda image: _loaded.append(_load(image)))
    except OSError as error:
        return forbid(f"The CUDA driver cannot be loaded: {error}")
    except ToolchainError as error:
        return forbid(str(error))
    handlers.register(_loaded[-1], "CUDA")
    return allow("the CUDA launcher is registered")


def launcher(store: Store | None = None, accept: Callable[[bytes], None] | None = None) -> bytes:
    """The launcher's shared object for this JAX, as `toolchain.launcher` returns it."""
    return toolchain.launcher(prebuilt.CUDA, store, accept)


def _load(image: bytes) -> ctypes.CDLL:
    try:
        with temporary.folder() as folder:
            path = folder / "launcher.so"
            path.write_bytes(image)
            loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise ToolchainError(f"The launcher cannot be loaded: {error}.") from None
    loaded.fs_image_count.restype = ctypes.c_size_t
    return loaded
