"""A stub of a GPU: times by a rule, results that agree unless the test says otherwise."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from fusionstitch.codegen.generate import CodegenOptions, plan_kernel
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.schedule.tuning import Tuning
from fusionstitch.compiler.built import Built
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.errors import MeasureError, ToolchainError
from fusionstitch.options import Options
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.runtime.artifact import Artifact
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning.outcome import TuneReport
from fusionstitch.tuning.run import tune_module

H200 = device("h200")
SHAPE = jax.ShapeDtypeStruct((1024, 512), jnp.float32)


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def lowered(fun: Callable = mixed, *shapes: jax.ShapeDtypeStruct) -> bytes:
    lowered = jax.jit(fun).lower(*(shapes or (SHAPE,)))
    data: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


def in_blocks_of(threads: int, pattern: Pattern, on: Device = H200) -> str:
    """The template of a pattern's kernel in blocks of so many threads."""
    part = region("wide", pattern.ops, pattern.inputs, pattern.outputs)
    return plan_kernel(part, on, CodegenOptions(tuning=Tuning(block=threads))).template


def build(kernels: Sequence[Kernel]) -> list[Built | ToolchainError]:
    return [
        Built(
            Artifact(
                key=hashlib.sha256(k.source.encode()).hexdigest(),
                image=b"",
                entry=k.name,
                grid=k.grid,
                block=k.block,
                shared_bytes=k.shared_bytes,
                cooperative=k.cooperative,
            )
        )
        for k in kernels
    ]


@dataclass
class Clock:
    """Seconds that pass only when a stub measures."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Stub:
    """`us` and `xla` are rules; a measurement takes a second of `clock`."""

    us: Callable[[Kernel], float]
    xla: float = 100.0
    clock: Clock = field(default_factory=Clock)
    differs: Callable[[Kernel], float] = lambda kernel: 0.0
    name: str = "stub"
    kernels: list[Kernel] = field(default_factory=list)
    modules: list[bytes] = field(default_factory=list)

    def kernel_us(self, kernel: Kernel, artifact: Artifact, rounds: int) -> float:
        self.clock.now += 1
        self.kernels.append(kernel)
        us = self.us(kernel)
        if us < 0:
            raise MeasureError("It cannot be measured.")
        return us

    def xla_us(self, module: bytes) -> float:
        self.clock.now += 1
        self.modules.append(module)
        return self.xla

    def differences(self, one: tuple, other: tuple) -> list[float]:
        return [self.differs(other[0])] * len(other[0].outputs)


def tuned_by(
    stubs: Sequence[Stub], database: Database, budget: float = 1e6, data: bytes | None = None
) -> TuneReport:
    return tune_module(
        lowered() if data is None else data,
        Options(),
        H200,
        build,
        stubs,
        database,
        budget=budget,
        clock=stubs[0].clock,
    )
