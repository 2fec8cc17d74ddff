"""Device profiles: every number about a GPU that planning, code generation or scoring uses."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.errors import OptionError

#: Lanes of a multiprocessor that start an instruction in a cycle.
LANES = 128


@dataclass(frozen=True)
class Device:
    """One GPU as data. Bytes, microseconds, operations per second.

    `bandwidth_curve` holds (bytes moved, microseconds) of a device-to-device copy inside a CUDA
    graph, reads plus writes counted, the launch included, ascending (paper Figure 4).

    `large_gemm_flops` is the size of one batch entry from which a GEMM is left to the library. The
    profiles say 2 * 256^3: from there on the library's tiling and tensor cores win by more
    than the launch and the traffic that stitching a GEMM saves (the paper leaves such GEMMs to
    cuBLAS, 6.6). Below it the score decides pattern by pattern.

    `large_tensor_bytes` is what exploratory fusion calls a large tensor: what DRAM moves during
    one launch. `loop_call_us` is what a custom call adds to one iteration of an XLA while loop
    beyond a kernel of XLA's own; outside loops it adds nothing that could be measured
    (`benchmarks/later_calls.py`). `loop_turn_us` is what an iteration of such a loop takes beside
    its kernels, and `loop_wait_us` what it takes more where the host waits to hear whether there is
    another one. `parameter_bytes` bounds the parameters of one kernel.

    A grid barrier takes `grid_barrier_us` with one block per multiprocessor and `barrier_block_us`
    more for each further one. T threads per multiprocessor, with one load of 16 bytes in flight
    each, draw a share 1 - exp(-T / `bandwidth_threads`) of the bandwidth. `cluster_limit` is how
    many blocks may share their shared memory on every device of the architecture; 1: none can.
    """

    name: str
    sm_arch: str
    sm_count: int
    warp_size: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    shared_per_sm: int
    shared_per_block: int
    l2_bytes: int
    dram_bytes_per_s: float
    l2_bytes_per_s: float
    fp32_flops: float
    fp64_flops: float
    special_per_s: float
    int32_ops: float
    tensor_bf16_flops: float
    launch_us: float
    paper_launch_us: float
    grid_barrier_us: float
    large_gemm_flops: int
    large_tensor_bytes: int
    bandwidth_curve: tuple[tuple[int, float], ...]
    measured: str = ""
    cooperative_limit: int = 0
    cluster_limit: int = 1
    parameter_bytes: int = 32_764
    loop_call_us: float = 8.5
    loop_turn_us: float = 3.0
    loop_wait_us: float = 7.0
    bandwidth_threads: float = 400.0
    barrier_block_us: float = 0.3

    @property
    def capability(self) -> int:
        """The compute capability, 10 major + minor: what the device can do follows from it."""
        return int(self.sm_arch.removeprefix("sm_"))

    @property
    def float_tensors(self) -> bool:
        """Whether tensor cores multiply f32 (as tf32) and bf16: older ones take f16 alone."""
        return self.capability >= 80

    @property
    def holds_one_block(self) -> bool:
        """Whether it stands for what a single block has."""
        return self.cooperative_limit == 1

    @property
    def holds_its_blocks(self) -> bool:
        """Whether it stands for what some blocks have, each a multiprocessor of its own."""
        return self.cooperative_limit == self.sm_count

    @property
    def cycles_per_us(self) -> float:
        """Of a multiprocessor, which starts two FLOPs in each of its `LANES` a cycle."""
        return self.fp32_flops / self.sm_count / LANES / 2 / 1e6

    def __repr__(self) -> str:
        return brief(
            f"Device {self.name}: {self.sm_arch}, {count(self.sm_count, 'multiprocessor')}, "
            f"{self.dram_bytes_per_s / 1e9:.0f} GB/s, {self.fp32_flops / 1e12:.1f} TFLOP/s"
        )


def device(name: str) -> Device:
    """The profile `name`, one of `names()`, or that of a file `name`.json.

    Names are taken in any case, and as the driver gives them ("NVIDIA H200"). Raises OptionError
    for a name without a profile, listing those there are, and for a file that holds none.
    """
    if name.endswith(".json"):
        return _file(name)
    found = named(name)
    if found is None:
        known = ", ".join(names())
        raise OptionError(f"No device profile is named {name!r}. Choose one of: {known}.")
    return found


def named(kind: str) -> Device | None:
    """The profile whose name is a word of `kind`, such as "NVIDIA A100-SXM4-80GB"."""
    words = re.split(r"[\s_-]+", kind.lower())
    return next((_named(name) for name in names() if name in words), None)


@functools.cache
def names() -> tuple[str, ...]:
    """The profiles there are, sorted."""
    files = [path.name for path in _folder().iterdir()]
    return tuple(sorted(name[:-5] for name in files if name.endswith(".json")))


@functools.cache
def _named(name: str) -> Device:
    return from_fields(json.loads((_folder() / f"{name}.json").read_text()))


@functools.cache
def _file(name: str) -> Device:
    return load(Path(name))


def _folder() -> Traversable:
    return resources.files("fusionstitch.costmodel") / "profiles"


def from_fields(fields: Mapping[str, Any]) -> Device:
    """The profile with these fields, as a JSON file or `dataclasses.asdict` holds them."""
    curve = tuple((int(b), float(us)) for b, us in fields["bandwidth_curve"])
    return Device(**{**fields, "bandwidth_curve": curve})


def load(path: Path) -> Device:
    """The profile in a file, such as `fusionstitch calibrate` writes. Raises OptionError."""
    try:
        found = from_fields(json.loads(path.read_text()))
        _check(found)
    except OSError as error:
        raise OptionError(f"The device profile {path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise OptionError(
            f"{path} holds no device profile ({type(error).__name__}: {error}). Write one with "
            "`fusionstitch calibrate --output FILE`."
        ) from None
    return found


def _check(found: Device) -> None:
    """Raises ValueError for a value that no device has."""
    for field in dataclasses.fields(found):
        value = getattr(found, field.name)
        if field.type in ("int", "float"):
            numbers = int if field.type == "int" else (int, float)
            least = 0 if field.name.endswith("_us") or field.name == "cooperative_limit" else 1
            good = isinstance(value, numbers) and value is not True and least <= value < math.inf
        elif field.name == "bandwidth_curve":
            good = bool(value) and all(n > 0 and 0 < us < math.inf for n, us in value)
            good = good and list(value) == sorted(value)
        else:
            pattern = r"sm_\d{2,3}" if field.name == "sm_arch" else r".*"
            good = isinstance(value, str) and re.fullmatch(pattern, value) is not None
        if not good:
            raise ValueError(f"{field.name} is {value!r}")
