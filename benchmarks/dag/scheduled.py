"""A program through `fs.dag`: no stream, no event, no wait in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import fusionstitch as fs
from benchmarks.dag.program import Program


class Scheduled:
    """The program with a scheduler of these options; `hosts` is the host's memory of its inputs."""

    def __init__(self, program: Program, hosts: Mapping[str, np.ndarray], **options: Any) -> None:
        self.program = program
        self.d = fs.dag.Scheduler(**options)
        self.x = {name: self._array(name, hosts) for name in program.arrays}
        kernels = {
            name: self.d.kernel(program.code, name, signature)
            for name, signature in program.signatures.items()
        }
        self.launches = [
            (
                kernels[step.kernel](step.grid, step.block),
                [self.x[arg] if isinstance(arg, str) else arg for arg in step.args],
            )
            for step in program.steps
        ]

    def _array(self, name: str, hosts: Mapping[str, np.ndarray]) -> Any:
        shape, dtype = self.program.shape(name)
        array = self.d.array(shape, dtype, name=name)
        if name in hosts:  # pinned once for all versions of the program
            array.storage.host = hosts[name]
            array.writable(overwrite=True)
        return array

    def run(self) -> list[float]:
        """One run, from the host's writes to the host's reads."""
        program, x = self.program, self.x
        for name in program.sent:
            x[name].writable(overwrite=True)  # the host's memory holds it already
        for _ in range(program.iterations):
            for name, value in program.reset.items():
                x[name][0] = value
            for launch, args in self.launches:
                launch(*args)
        return [float(x[name][0]) for name in program.results]

    def compared(self) -> np.ndarray:
        """What says whether the last run was right."""
        return np.array(self.x[self.program.compared][0:])
