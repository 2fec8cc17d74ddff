"""How long the GPU is at a program, gaps included: from its start to its end by the GPU's clock.

Sums of kernels miss the gaps between the iterations of a loop that the host drives, and a profiler
makes these longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Runs that warm up, and the seconds after which no further run is begun.
WARM_RUNS, ENOUGH = 2, 4.0


def spans_us(module: bytes, leaves: Sequence[Any], most: int = 15) -> list[float]:
    """Microseconds of each of several runs of `module` (HloModuleProto bytes) on `leaves`, its
    parameters, between two kernels that read the GPU's clock. Raises MeasureError without them."""
    import time

    import jax
    import numpy as np

    from fusionstitch.compiler import builders
    from fusionstitch.errors import MeasureError
    from fusionstitch.execution.original import plain_jit
    from fusionstitch.measure.side_by_side import Clocks, once_traced
    from fusionstitch.options import Options
    from fusionstitch.runtime import cuda

    if not (ready := cuda.register_launcher(builders.store())):
        raise MeasureError(f"The GPU's clock cannot be read: {ready.reason}")
    clocks = Clocks(builders.profile(Options()))
    function = once_traced(module, "measured")

    def run(start: Any, *arrays: Any) -> Any:
        begun = clocks(start)
        given, begun = jax.lax.optimization_barrier((arrays, begun))
        ended = clocks(begun, *jax.tree.leaves(function(*given)))
        return begun, ended

    with jax.enable_x64(True):
        zero = jax.device_put(np.uint64(0))
        arrays = [jax.device_put(np.asarray(leaf)) for leaf in leaves]
        compiled = plain_jit()(run).lower(zero, *arrays).compile()
        found: list[float] = []
        since = time.perf_counter()
        while len(found) < WARM_RUNS + most:
            begun, ended = (int(value) for value in compiled(zero, *arrays))
            found.append((ended - begun) / 1e3)
            if len(found) > WARM_RUNS and time.perf_counter() - since > ENOUGH:
                break
    return found[WARM_RUNS:]
