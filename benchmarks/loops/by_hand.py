"""The hand-written kernels of by_hand.cu, timed and compared: python -m benchmarks.loops.by_hand.

It prints a JSON object: for each, microseconds under graph replay, its bound in microseconds, and
the relative L2 error of its result against XLA's. It needs a GPU and CuPy.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loops.table import loops

SOURCE = Path(__file__).with_name("by_hand.cu")
#: Cycles of a dependent f32 operation, and of a grid barrier and a round trip through L2, as the
#: bounds reckon them.
OPERATION, BARRIER_US = 4, 1.0
#: Dependent operations: a step of Lorenz, a step of the map.
LORENZ_CHAIN, MAP_CHAIN = 4 * 4 + 4, 2
#: Integer operations of a draw, and of an SM in a clock.
THREEFRY, INTEGERS = 20 * 3 + 17, 64


@dataclass(frozen=True)
class Hand:
    """A kernel's launch: its arguments, made of the program's own, the last of which is `steps`;
    its output is `shape`. `bound_us` is of a GPU's clock in MHz and its number of SMs."""

    entry: str
    steps: int
    grid: int
    block: int
    shape: tuple[int, ...]
    bound_us: Callable[[float, int], float]
    scratch: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    shared: int = 0
    cooperative: bool = False


HANDS = {
    "lorenz": Hand(
        *("lorenz", 200, 1024 // 32, 32, (200, 1024, 3)),
        bound_us=lambda mhz, sms: 200 * LORENZ_CHAIN * OPERATION / mhz,
        extra=(1024,),
    ),
    "geometric_brownian": Hand(
        *("brownian", 100, 65536 // 256, 256, (65536,)),
        bound_us=lambda mhz, sms: 65536 * 100 * THREEFRY / (INTEGERS * sms * mhz),
        extra=(65536,),
        shared=8 * 100,
    ),
    "heat": Hand(
        *("heat", 500, 512 // 4, 512, (512, 512)),
        bound_us=lambda mhz, sms: 500 * BARRIER_US,
        scratch=(2 * 128 * 2 * 512, 2),
        cooperative=True,
    ),
    "logistic_map": Hand(
        *("logistic", 10_000_000, 1, 1, ()),
        bound_us=lambda mhz, sms: 10_000_000 * MAP_CHAIN * OPERATION / mhz,
    ),
}


def measured(name: str, hand: Hand) -> dict[str, Any]:
    """Time, bound and error of one kernel."""
    import cupy
    import jax

    from fusionstitch.accuracy import relative_error
    from fusionstitch.measure import replay
    from fusionstitch.runtime import nvrtc

    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    module = cupy.cuda.function.Module()
    module.load(nvrtc.compile(SOURCE.read_text(), arch).image)
    function = module.get_function(hand.entry)
    fun, args = loops()[name].program()
    out = cupy.zeros(hand.shape, cupy.float32)
    inputs = [cupy.asarray(np.asarray(leaf)) for leaf in jax.tree.leaves(args)]
    scratch = [cupy.zeros(size, cupy.float32) for size in hand.scratch]  # counters are zero, too
    numbers = [np.int32(value) for value in (*hand.extra, hand.steps)]
    arrays = (np.uint64(array.data.ptr) for array in (*inputs, out, *scratch))
    given = (*arrays, *numbers)
    options = {"enable_cooperative_groups": True} if hand.cooperative else {}

    def launch(_: int) -> None:
        function((hand.grid,), (hand.block,), given, shared_mem=hand.shared, **options)

    launch(0)
    cupy.cuda.Device().synchronize()
    error = relative_error(cupy.asnumpy(out), np.asarray(jax.jit(fun)(*args)))
    about = cupy.cuda.runtime.getDeviceProperties(0)
    mhz = cupy.cuda.Device().attributes["ClockRate"] / 1e3
    return {
        "us": round(replay.graph_us(launch, 1, 9), 2),
        "bound_us": round(hand.bound_us(mhz, about["multiProcessorCount"]), 2),
        "error": error,
    }


if __name__ == "__main__":
    print(json.dumps({name: measured(name, hand) for name, hand in HANDS.items()}))
