"""Gradients whose loops compute residuals again, and the same without that rule.

    python -m benchmarks.loops.residuals [--without] [--json FILE] [NAME...]

Microseconds of a call by the GPU's clock (`spans.py`). Programs are the gradients here, of few rows
and of many, or loops of the table by their names.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.environment import describe
from benchmarks.loops.table import Loop, Program, find

#: Steps of the solvers.
STEPS = 200


def pendulums(rows: int) -> Program:
    """The gradient of where pendulums of their own strength end, in a field that fades."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    def loss(q: Any, p: Any, strength: Any) -> Any:
        def step(state: Any, _: None) -> Any:
            q, p = state
            p = p - 0.01 * jnp.sin(q) * strength * jnp.exp(-0.1 * q * q)
            return (q + 0.01 * p, p), None

        q, p = jax.lax.scan(step, (q, p), None, length=STEPS)[0]
        return jnp.sum(q * q + p * p)

    args = np.random.default_rng(0).standard_normal((3, rows), np.float32)
    return jax.grad(loss, (0, 1, 2)), tuple(args)


PROGRAMS = {f"pendulums_{rows}": partial(pendulums, rows) for rows in (4096, 65536, 262144)}


def loop_of(name: str) -> Loop:
    if name in PROGRAMS:
        return Loop(name, "ode", "rows", PROGRAMS[name], {}, {})
    [found] = find([name])
    return found


def measured(name: str, repeats: int) -> dict[str, Any]:
    import jax

    import fusionstitch as fs
    from benchmarks.loops.spans import spans_us
    from benchmarks.loops.worker import Side

    side = Side(loop_of(name), fs.jit, {})
    spans = spans_us(side.module(), jax.tree.leaves(side.args), repeats)
    kernels = [k.template for k in side.run.stitched.kernels if k.template.startswith("loop")]
    return {"name": name, "us": round(statistics.median(spans), 1), "loops": kernels}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--without", action="store_true", help="leave the rule out")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=15)
    asked = parser.parse_args()
    from fusionstitch.patterns import loop_rules

    if asked.without:
        loop_rules.RULES = tuple(r for r in loop_rules.RULES if r is not loop_rules._residuals)
    with tempfile.TemporaryDirectory() as cache:  # what is kept has no module to measure
        os.environ["FUSIONSTITCH_CACHE_DIR"] = cache
        rows = [measured(name, asked.repeats) for name in asked.names or PROGRAMS]
    for row in rows:
        print(f"{row['name']}: {row['us']} us  {', '.join(row['loops'])}")
    if asked.json:
        command = f"python -m benchmarks.loops.residuals {' '.join(sys.argv[1:])}"
        said = {"command": command, **describe(), "programs": rows}
        results_file.write(asked.json, said)


if __name__ == "__main__":
    main()
