"""`fs.tune`: the offline autotuner (paper 4.3 and 6: measured execution, tune once and reuse)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionstitch.options import Options

if TYPE_CHECKING:
    from fusionstitch.stages import Call
    from fusionstitch.tuning.outcome import TuneReport

#: Seconds of measuring that a call may take unless it says otherwise.
BUDGET = 60.0


def tune(
    fun: Any, /, *args: Any, budget: float = BUDGET, options: Options | None = None, **kwargs: Any
) -> TuneReport:
    """Searches schedules for the kernels of `fun` on the GPU at hand, for about `budget` seconds.

    Each pattern of the program gets the fastest schedule found, and a verdict against XLA's own
    compile of the same ops. Both are kept in the cache folder: functions jitted from then on, in
    any process, follow them without measuring. A call that the budget cut short goes on where
    it stopped; several GPUs share the patterns. Raises MeasureError where there is no GPU, and
    what `fun` raises.
    """
    from fusionstitch.api import call_of

    return tune_call(call_of(fun, args, kwargs, options), budget)


def tune_call(call: Call, budget: float = BUDGET, name: str = "") -> TuneReport:
    """Tunes a call; `name` is the workload's, by default the function's."""
    from fusionstitch import builders, progress
    from fusionstitch.api import Jitted
    from fusionstitch.errors import MeasureError, StitchError
    from fusionstitch.measure import gpu
    from fusionstitch.runtime.apart import alone
    from fusionstitch.runtime.cache import Database
    from fusionstitch.supported import jax_version
    from fusionstitch.tuning.run import tune_module

    if not (version := jax_version()):
        raise StitchError(version.reason)
    options = call.options.replace(backend="auto")
    if options.scorer not in ("model", "paper"):
        options = options.replace(scorer="model")
    if not builders.gpu():
        gpu.meters(builders.profile(options))
    device = builders.profile(options)
    meters = gpu.meters(device)
    jitted = Jitted(call.fun, options=options, keywords=call.jit_keywords)
    stitched = jitted.lower(*call.args, **call.kwargs).compile().stitched
    if stitched is None or not stitched.given:
        raise MeasureError(
            "The compiled program says nothing of how it was planned, so there is nothing to "
            "tune: clear JAX's persistent compilation cache and run it again."
        )
    database = Database()
    try:
        with progress.line(name or jitted.__name__) as step:
            tuning = partial(
                tune_module,
                stitched.given,
                options,
                device,
                builders.cuda(device, options),
                meters,
                database,
                budget=budget,
                name=name or jitted.__name__,
                step=step,
            )
            return alone(tuning)
    finally:
        database.close()


def export_results(path: Path, device: str) -> int:
    """Writes what is tuned for a device profile to a JSON file; returns how many results."""
    from fusionstitch.costmodel import devices
    from fusionstitch.errors import OptionError
    from fusionstitch.runtime.cache import Database
    from fusionstitch.tuning import record, tuned

    database = Database()
    entries = tuned.stored(devices.device(device), database)
    database.close()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(record.to_json(device, entries), "utf-8")
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}.") from None
    return len(entries)


def import_results(path: Path) -> tuple[str, int]:
    """Takes a JSON file of results into the cache; returns its device and how many results."""
    from fusionstitch.runtime.cache import Database
    from fusionstitch.tuning import record, tuned

    device, entries = record.read(path)
    database = Database()
    tuned.store(entries, device, database)
    database.close()
    return device, len(entries)
