"""Device profiles: every number about a GPU that planning, code generation or scoring uses."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hlo.errors import OptionError


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
    beyond a kernel of XLA's own. `parameter_bytes` bounds the parameters of one kernel.

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
    bandwidth_threads: float = 400.0
    barrier_block_us: float = 0.3


@functools.cache
def device(name: str) -> Device:
    """The profile `name` (h200, h100, a100, v100, l4, emulated), or that of a file `name`.json.

    Raises OptionError for a name without a profile, listing those there are, and for a file that
    holds none.
    """
    if name.endswith(".json"):
        return load(Path(name))
    folder = resources.files("costmodel") / "profiles"
    path = folder / f"{name}.json"
    if not path.is_file():
        known = ", ".join(sorted(p.name[:-5] for p in folder.iterdir() if p.name.endswith(".json")))
        raise OptionError(f"No device profile is named {name!r}. Choose one of: {known}.")
    return from_fields(json.loads(path.read_text()))


def from_fields(fields: Mapping[str, Any]) -> Device:
    """The profile with these fields, as a JSON file or `dataclasses.asdict` holds them."""
    curve = tuple((int(b), float(us)) for b, us in fields["bandwidth_curve"])
    return Device(**{**fields, "bandwidth_curve": curve})


def load(path: Path) -> Device:
    """The profile in a file, such as `fusionstitch calibrate` writes. Raises OptionError."""
    try:
        return from_fields(json.loads(path.read_text()))
    except OSError as error:
        raise OptionError(f"The device profile {path} cannot be read: {error.strerror}.") from None
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise OptionError(
            f"{path} holds no device profile ({type(error).__name__}: {error}). Write one with "
            "`fusionstitch calibrate --output FILE`."
        ) from None
