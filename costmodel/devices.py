"""Device profiles: every number about a GPU that planning, code generation or scoring uses.

A profile is one JSON file, whose keys are the fields of `Device`; a part such as `prices` is an
object of its own. What a file with the key `like` does not say is as in the profile of that name.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fusionstitch.costmodel.prices import Foreign, Library, OpCosts, Prices, Registers, XlaKernels
from fusionstitch.hlo.brief import brief, count
from fusionstitch.hlo.errors import OptionError

#: Bits of an f32, and those that tensor cores read.
FLOAT_BITS, TF32_BITS = 24, 11
#: Lanes of a warp, on every GPU.
WARP = 32


@dataclass(frozen=True)
class Device:
    """One GPU as data. Bytes, microseconds, operations per second. `measured` says which of the
    numbers were measured, and where the others are from.

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
    another one. A span between two events is `event_us` longer than the kernels between them.
    `parameter_bytes` bounds the parameters of one kernel.

    A grid barrier takes `grid_barrier_us` with one block per multiprocessor and `barrier_block_us`
    more for each further one. A block that has written takes `arrive_us` to arrive at a counter,
    and `wait_us` to wait for what has come long ago. From where one block begins to arrive to where
    another one has waited for it takes `signal_us`, wherever the two are
    (`benchmarks/counters.py`). T threads per multiprocessor, with one load of 16 bytes in flight
    each, draw a share 1 - exp(-T / `bandwidth_threads`) of the bandwidth. `cluster_limit` is how
    many blocks may share their shared memory on every device of the architecture; 1: none can.

    `lanes` of a multiprocessor start an instruction in a cycle. `busy_threads` keep its arithmetic
    busy, `memory_threads` its memory pipes; each has `round_trip_bytes` of loads under way at once.
    Shared memory is handed out in whole `shared_unit`s, of which the system takes `reserved_shared`
    bytes for each block. So are the `barriers_per_sm`: a block of one kernel takes those that the
    compiler says it uses (an H200 held 21, 8 and 4 blocks of 3, 8 and 16).

    An array of up to `l1_bytes` is in the cache beside the multiprocessor when it is read again.
    A value below `warm_share` of L2 that was just written or read is in L2. The instruction cache
    holds `cached_instructions`. `tensor_shares`: the rate of tensor cores on operands of a type,
    as a share of the 16-bit rate; of f64, as a share of the rate of f64.

    A barrier of a block takes `block_barrier_us`, in which the block copies `barrier_copy_bytes`
    from shared memory. The work between two grid barriers, reading what was written before the
    first, takes `phase_latency_us` at least: a phase of one dependent load and store on an H200,
    its barrier included, takes 1.54 us at 132 blocks, 1.70 at 264. A block takes `tile_us` at least
    for one tile, from its first load to its last store. A sum of a row that is in L2, after
    another one in the same block, takes `row_sum_us`: six of them took 2.2 us on an H200, their
    barriers included. `stage_us` is what a reduction or a dot takes that waits for another one
    inside a kernel: its last loads, the exchange between threads, and the barriers around it (set
    by hand below those 0.37 us). An iteration of a loop reads in `table_cycles` what it needs of a
    table, most of whose lines are in L1; to take an element to a stack and back are
    `stack_instructions`.

    One that stands for what some `own_blocks` have, each a multiprocessor of its own, and where
    `cooperative_limit` blocks are there at once, is no device that there is (0 for those).
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
    barrier_block_us: float
    arrive_us: float
    wait_us: float
    signal_us: float
    bandwidth_threads: float
    loop_call_us: float
    loop_turn_us: float
    loop_wait_us: float
    event_us: float
    large_gemm_flops: int
    large_tensor_bytes: int
    parameter_bytes: int
    cluster_limit: int
    lanes: int
    busy_threads: int
    memory_threads: int
    round_trip_bytes: int
    shared_unit: int
    reserved_shared: int
    barriers_per_sm: int
    l1_bytes: int
    warm_share: float
    cached_instructions: int
    block_barrier_us: float
    barrier_copy_bytes: int
    phase_latency_us: float
    tile_us: float
    row_sum_us: float
    stage_us: float
    table_cycles: float
    stack_instructions: int
    tensor_shares: Mapping[str, float]
    instructions: OpCosts
    registers: Registers
    prices: Prices
    library: Library
    foreign: Foreign
    xla: XlaKernels
    bandwidth_curve: tuple[tuple[int, float], ...]
    measured: str
    cooperative_limit: int = 0
    own_blocks: int = 0

    @property
    def capability(self) -> int:
        """The compute capability, 10 major + minor: what the device can do follows from it."""
        return int(self.sm_arch.removeprefix("sm_"))

    @property
    def float_tensors(self) -> bool:
        """Whether tensor cores multiply f32 (as tf32) and bf16: older ones take f16 alone."""
        return self.capability >= 80

    @property
    def rounds_floats(self) -> bool:
        """Whether products of f32 are of TF32 where the program asks for no precision."""
        return self.float_tensors and self.library.float_bits <= TF32_BITS

    @property
    def holds_one_block(self) -> bool:
        """Whether it stands for what a single block has."""
        return self.own_blocks == 1

    @property
    def cycles_per_us(self) -> float:
        """Of a multiprocessor, which starts two FLOPs in each of its `lanes` a cycle."""
        return self.fp32_flops / self.sm_count / self.lanes / 2 / 1e6

    def __hash__(self) -> int:
        return hash((self.name, self.sm_count, self.own_blocks))  # equal ones have the same

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


def exact(found: Device) -> Device:
    """The device with products that keep all bits of f32, as XLA's on a CPU do."""
    return dataclasses.replace(
        found, library=dataclasses.replace(found.library, float_bits=FLOAT_BITS)
    )


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
    """The profile with these fields, as a JSON file or `dataclasses.asdict` holds them. Raises
    ValueError for what no device has."""
    given = dict(fields)
    if (like := given.pop("like", None)) is not None:
        base = named(str(like))
        if base is None:
            raise ValueError(f"like is {like!r}, which is no profile")
        lent = dataclasses.asdict(base)
        own = {key: lent.pop(key) for key in ("name", "measured")}
        parts = {key: lent[key] | given[key] for key in (*PARTS, "tensor_shares") if key in given}
        given = {**lent, **given, **parts}
        if absent := own.keys() - given.keys():
            raise ValueError(f"there is no {min(absent)}")
    for key, part in PARTS.items():
        if key in given:
            given[key] = _made(part, _as_pairs(given[key]))
    if "bandwidth_curve" in given:
        curve = tuple((int(n), float(us)) for n, us in given["bandwidth_curve"])
        if not curve or list(curve) != sorted(curve) or curve[0][0] <= 0:
            raise ValueError(f"bandwidth_curve is {given['bandwidth_curve']!r}")
        given["bandwidth_curve"] = curve
    found: Device = _made(Device, given)
    for path, value in numbers(found):
        if not _good(path, value):
            raise ValueError(f"{path} is {value!r}")
    return found


def load(path: Path) -> Device:
    """The profile in a file, such as `fusionstitch calibrate` writes. Raises OptionError."""
    try:
        return from_fields(json.loads(path.read_text()))
    except OSError as error:
        raise OptionError(f"The device profile {path} cannot be read: {error.strerror}.") from None
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        raise OptionError(
            f"{path} holds no device profile ({type(error).__name__}: {error}). Write one with "
            "`fusionstitch calibrate --output FILE`."
        ) from None


#: The parts of a profile that are objects of their own.
PARTS: Mapping[str, type] = {
    "instructions": OpCosts,
    "registers": Registers,
    "prices": Prices,
    "library": Library,
    "foreign": Foreign,
    "xla": XlaKernels,
}
#: Fields that are whole numbers, and those that may be 0 beside times and counts of instructions.
_WHOLE = {
    field.name
    for kind in (Device, *PARTS.values())
    for field in dataclasses.fields(kind)
    if field.type == "int"
}
_MAY_BE_NONE = ("cooperative_limit", "own_blocks", "reserved_shared")


def numbers(part: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers and texts of a profile, each with where it stands: "prices.far"."""
    if dataclasses.is_dataclass(part):
        inside: Mapping[str, Any] = {
            f.name: getattr(part, f.name) for f in dataclasses.fields(part)
        }
    elif isinstance(part, Mapping):
        inside = part
    elif isinstance(part, (tuple, list)):
        inside = {str(n): each for n, each in enumerate(part)}
    else:
        yield before, part
        return
    for name, value in inside.items():
        yield from numbers(value, f"{before}.{name}" if before else name)


def _good(path: str, value: Any) -> bool:
    """Whether a device may have this value there."""
    first, last = path.partition(".")[0], path.rpartition(".")[2]
    if path in ("name", "measured", "sm_arch"):
        pattern = r"sm_\d{2,3}" if path == "sm_arch" else r".*"
        return isinstance(value, str) and re.fullmatch(pattern, value) is not None
    counts = first == "tensor_shares" or path.startswith("instructions.")
    least = 0 if last.endswith("_us") or last in _MAY_BE_NONE or counts else math.ulp(0)
    kinds = int if last in _WHOLE else (int, float)
    return isinstance(value, kinds) and value is not True and least <= value < math.inf


def _made(kind: type, given: Mapping[str, Any]) -> Any:
    """A part of a profile, or the whole. Raises ValueError for a field too many or too few."""
    known = {f.name: f.default is dataclasses.MISSING for f in dataclasses.fields(kind)}
    if odd := sorted(given.keys() - known.keys()):
        raise ValueError(f"{odd[0]} is no field of {kind.__name__}")
    if absent := [name for name, needed in known.items() if needed and name not in given]:
        raise ValueError(f"there is no {absent[0]}")
    return kind(**given)


def _as_pairs(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part whose tables hold tuples, where JSON has lists."""

    def paired(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: paired(each) for key, each in value.items()}
        return tuple(value) if isinstance(value, list) else value

    return {key: paired(value) for key, value in part.items()}
