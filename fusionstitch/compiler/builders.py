"""Backends as builders: where kernels are built, and for which device profile."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fusionstitch import env
from fusionstitch.compiler.built import Builder, Built
from fusionstitch.costmodel import devices
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import SCOPES
from fusionstitch.costmodel.properties import dotted, from_properties
from fusionstitch.hlo import foreign
from fusionstitch.hlo.errors import OptionError, ToolchainError
from fusionstitch.hlo.verdict import Verdict, allow, forbid
from fusionstitch.options import Options
from fusionstitch.runtime import driver
from fusionstitch.runtime.cache import Store

if TYPE_CHECKING:
    from fusionstitch.codegen.kernel import Kernel

logger = logging.getLogger(__name__)


@functools.cache
def store() -> Store:
    """The store of built kernels in this process's cache folder."""
    return Store()


def emulated(device: Device | None = None) -> Builder:
    """Builds kernels with the host compiler, all in one unit; if that fails, one by one.

    With a device, rejects kernels that it could not launch.
    """

    def build(kernels: Sequence[Kernel]) -> list[Built | ToolchainError]:
        from fusionstitch.runtime import emulate

        try:
            return [Built(artifact) for artifact in emulate.build(kernels, store(), device)]
        except ToolchainError:
            return [_alone(kernel) for kernel in kernels]

    def _alone(kernel: Kernel) -> Built | ToolchainError:
        from fusionstitch.runtime import emulate

        try:
            [artifact] = emulate.build([kernel], store(), device)
        except ToolchainError as error:
            return error
        return Built(artifact)

    return build


def cuda(device: Device, options: Options) -> Builder:
    """Builds kernels with NVRTC, for the architecture of `device`."""

    def build(kernels: Sequence[Kernel]) -> list[Built | ToolchainError]:
        from fusionstitch.runtime import cuda as backend
        from fusionstitch.runtime import delays, nvrtc

        flags = (nvrtc.NO_FMA,) if options.numerics == "strict" else ()
        outcomes = backend.build_each(kernels, device, store(), options=(*flags, *delays.flags()))
        return [
            outcome
            if isinstance(outcome, ToolchainError)
            else Built(outcome.artifact, outcome.resources.registers, outcome.log)
            for outcome in outcomes
        ]

    return build


def gpu() -> Verdict:
    """Whether JAX runs on an NVIDIA GPU here, with its kind and index. Initializes JAX's
    backends."""
    import jax

    if jax.default_backend() != "gpu":
        return forbid(
            f"JAX's default backend is {jax.default_backend()!r}, so there is no GPU to stitch for."
        )
    kind, number = jax.devices()[0].device_kind, jax.local_devices()[0].local_hardware_id
    return allow("JAX has a GPU", kind=kind, number=number or 0)


def profile(options: Options) -> Device:
    """The profile to plan for: the requested one, else the GPU's, else "emulated". It has no
    clusters if `options.scope` is narrower.

    On the emulator products keep all bits, as XLA's do beside it. FUSIONSTITCH_PROFILE replaces the
    GPU's profile. Raises OptionError for a GPU that kernels cannot be written for, or that nothing
    is known about.
    """
    found = _profile(options)
    if options.backend == "emulate":
        found = devices.exact(found)
    clusters = SCOPES.index(options.scope) >= SCOPES.index("cluster")
    return found if clusters else replace(found, cluster_limit=1)


def _profile(options: Options) -> Device:
    if options.device is not None:
        return devices.device(options.device)
    found = gpu()
    if options.backend == "emulate" or not found:
        return devices.device("emulated")
    if (file := env.PROFILE.get()) is not None:
        return devices.load(file)
    facts = dict(found.facts)
    return _of_gpu(str(facts["kind"]), int(str(facts.get("number", 0))))


@functools.cache
def _of_gpu(kind: str, number: int) -> Device:
    """The profile of that name, if it matches the driver's description: cards of several sizes and
    parts of cards share names. Otherwise a profile made from the driver's description, logged
    once."""
    measured = devices.named(kind)
    try:
        stated = driver.properties(number)
    except OptionError as error:
        if measured is not None:
            return measured
        raise OptionError(
            f"There is no device profile for {kind!r}: {error} Make one with `fusionstitch "
            "calibrate --output FILE` and set FUSIONSTITCH_PROFILE to it, or name the nearest: "
            'Options(device="h100").'
        ) from None
    size = stated.sm_count, stated.capability
    if measured is not None and (measured.sm_count, measured.capability) == size:
        return measured
    profile = from_properties(stated)
    logger.warning(
        "%s has no measured device profile: one from its properties is used (%d multiprocessors of "
        "compute capability %s, %.0f GB/s). `fusionstitch calibrate --output FILE` measures it; "
        "FUSIONSTITCH_PROFILE names the file.",
        foreign.line(kind),
        profile.sm_count,
        dotted(profile.capability),
        profile.dram_bytes_per_s / 1e9,
    )
    return profile
