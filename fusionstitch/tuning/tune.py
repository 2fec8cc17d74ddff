"""The offline autotuner (paper 4.3 and 6: measured execution, tune once and reuse)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionstitch.execution.call import Call
    from fusionstitch.tuning.outcome import TuneReport

#: Default seconds of measuring per call.
BUDGET = 60.0


def tune_call(call: Call, budget: float = BUDGET, name: str = "") -> TuneReport:
    """Tunes a call; `name` is the workload's name, by default the function's."""
    from fusionstitch.arguments import takeable
    from fusionstitch.compiler import builders, progress
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
    fun, args, kwargs = takeable(call.fun, call.args, call.kwargs)
    jitted = call.jit(fun, options=options, **call.jit_keywords)
    stitched = jitted.lower(*args, **kwargs).compile().stitched
    if stitched is None or not stitched.given:
        raise MeasureError(
            "The compiled program has no plan, so there is nothing to tune: clear JAX's "
            "persistent compilation cache and run it again."
        )
    database = Database()
    try:
        with progress.timed(f"tunes {name or jitted.__name__}", budget) as step:
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
    """Writes the tuning results for a device profile to a JSON file; returns their number. Raises
    OptionError if the file cannot be written."""
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
    """Imports a JSON file of results into the cache; returns its device and the number of
    results."""
    from fusionstitch.runtime.cache import Database
    from fusionstitch.tuning import record, tuned

    device, entries = record.read(path)
    database = Database()
    tuned.store(entries, device, database)
    database.close()
    return device, len(entries)
