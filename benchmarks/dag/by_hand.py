"""A program as a person writes it who knows CUDA: streams, events, copies, or a CUDA graph.

It is written over the backend of the scheduler, whose calls are CuPy's own, so that the same runs
on simulated streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.dag.program import Program
from fusionstitch.dag.backends.backend import Sizes
from fusionstitch.dag.signature import parse


class ByHand:
    """The program with its hand-written schedule.

    Args:
        program: the program
        hosts: the host's memory of its inputs
        backend: of the scheduler
        prefetch: whether inputs are sent before other streams are waited for
        streams: whether there are several, or one
    """

    def __init__(
        self,
        program: Program,
        hosts: Mapping[str, np.ndarray],
        backend: Any,
        *,
        prefetch: bool = True,
        streams: bool = True,
    ) -> None:
        self.program, self._backend, self._prefetch = program, backend, prefetch
        count = 1 + max(step.stream for step in program.steps) if streams else 1
        self.streams = [backend.stream(0) for _ in range(count)]
        self._on = [step.stream if streams else 0 for step in program.steps]
        self._device = {n: backend.device_array(*program.shape(n)) for n in program.arrays}
        self._host = dict(hosts)
        for name in program.reset:
            self._host[name] = backend.host_array(*program.shape(name))
        parameters = {name: parse(text) for name, text in program.signatures.items()}
        functions = {n: backend.build(program.code, n, p) for n, p in parameters.items()}
        self._launches = [
            (
                functions[step.kernel],
                [
                    self._device[arg] if parameter.pointer else parameter.scalar(arg)
                    for arg, parameter in zip(step.args, parameters[step.kernel], strict=True)
                ],
            )
            for step in program.steps
        ]
        self._done = [backend.event(False) for _ in program.steps]
        self._sent = {name: backend.event(False) for name in self._host}
        self._waited = {
            before
            for number, step in enumerate(program.steps)
            for before in step.after
            if self._on[before] != self._on[number]
        }
        for name in hosts:  # those that are not sent in each run are there
            backend.upload(self._device[name], self._host[name], self.streams[0])
        self.wait()

    def run(self) -> list[float]:
        """One run, from the host's writes to the host's reads."""
        for iteration in range(self.program.iterations):
            self.reset(iteration)
            self.enqueue(first=iteration == 0)
        return self.results()

    def reset(self, iteration: int) -> None:
        """The host's writes before an iteration: the device may not read there any more."""
        if self.program.reset and iteration > 0:
            self.wait()
        for name, value in self.program.reset.items():
            self._host[name][0] = value

    def enqueue(self, first: bool) -> None:
        """All copies and kernels of an iteration; inputs are sent in the first one."""
        self._enqueue({*self.program.reset, *(self.program.sent if first else ())})

    def _enqueue(self, unsent: set[str]) -> None:
        """All kernels of an iteration, and copies of what is `unsent`."""
        backend, program = self._backend, self.program
        owner: dict[str, int] = {}
        for number, step in enumerate(program.steps):
            stream = self.streams[self._on[number]]
            arrays = [arg for arg in step.args if isinstance(arg, str)]
            if self._prefetch:
                self._send(arrays, unsent, owner, self._on[number])
            for before in step.after:
                if self._on[before] != self._on[number]:
                    backend.wait(stream, self._done[before])
            if not self._prefetch:
                self._send(arrays, unsent, owner, self._on[number])
            for name in arrays:
                if owner.get(name, self._on[number]) != self._on[number]:
                    backend.wait(stream, self._sent[name])
            function, arguments = self._launches[number]
            function(Sizes(step.grid, step.block, 0), arguments, stream, step.kernel)
            if number in self._waited:
                backend.record(self._done[number], stream)

    def _send(self, arrays: list[str], unsent: set[str], owner: dict[str, int], on: int) -> None:
        for name in arrays:
            if name in unsent:
                unsent.remove(name)
                self._backend.upload(self._device[name], self._host[name], self.streams[on])
                self._backend.record(self._sent[name], self.streams[on])
                owner[name] = on

    def results(self) -> list[float]:
        """The host's reads, each on the stream that wrote the array last."""
        return [
            float(self._backend.part(self._device[name], 0, self.streams[self._writer(name)]))
            for name in self.program.results
        ]

    def _writer(self, name: str) -> int:
        writers = [
            on for on, step in zip(self._on, self.program.steps, strict=True) if name in step.args
        ]
        return writers[-1]

    def wait(self) -> None:
        """Waits for all streams."""
        for stream in self.streams:
            event = self._backend.event(False)
            self._backend.record(event, stream)
            self._backend.synchronize(event)

    def compared(self) -> np.ndarray:
        """What says whether the last run was right."""
        self.wait()
        device = self._device[self.program.compared]
        return np.array(self._backend.part(device, slice(None), self.streams[0]))


class Graph(ByHand):
    """The same with the kernels of an iteration captured as a CUDA graph, which is launched in
    their place after the copies: CuPy captures none from the host."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._graph = self._captured()

    def _captured(self) -> Any:
        origin, *others = self.streams
        origin.begin_capture()
        fork = self._backend.event(False)
        self._backend.record(fork, origin)
        for stream in others:
            self._backend.wait(stream, fork)
        self._enqueue(set())
        for stream in others:
            joined = self._backend.event(False)
            self._backend.record(joined, stream)
            self._backend.wait(origin, joined)
        return origin.end_capture()

    def enqueue(self, first: bool) -> None:
        origin = self.streams[0]
        for name in (*self.program.reset, *(self.program.sent if first else ())):
            self._backend.upload(self._device[name], self._host[name], origin)
        self._graph.launch(origin)

    def _writer(self, name: str) -> int:
        return 0
