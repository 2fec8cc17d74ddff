"""One of the processes of a program under jax.distributed: python -m tests.behaviour.processes.

Arguments: the coordinator's port, the number of processes, this one's number, "cuda" or "cpu".
Prints the names of the kernels of each program of `sharded`, as JSON.
"""

from __future__ import annotations

import functools
import json
import sys

import jax

import fusionstitch as fs
from tests.behaviour.sharded import check, programs


def main(port: str, count: str, number: str, platform: str) -> None:
    if platform == "cpu":
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
    ids = [int(number)] if platform == "cuda" else None
    jax.distributed.initialize(f"localhost:{port}", int(count), int(number), local_device_ids=ids)
    mesh = jax.make_mesh((len(jax.devices()),), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    jit = functools.partial(fs.jit, options=fs.Options(scorer="paper"))
    found = {name: check(jit, mesh, name) for name in programs(mesh)}
    print(json.dumps(found))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
