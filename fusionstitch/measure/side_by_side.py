"""Small programs timed in one run of one executable, as XLA runs them inside a program.

All of them are compiled as one module, each several times in a row, with a kernel between them that
reads the GPU's clock. XLA records CUDA graphs where it can, as it does for the user's programs. No
profiler session is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fusionstitch.compiler import builders
from fusionstitch.costmodel.devices import Device
from fusionstitch.errors import MeasureError
from fusionstitch.execution.original import plain_jit
from fusionstitch.hlo.exporter import Preparation, Replacement, export
from fusionstitch.hlo.importer import from_proto
from fusionstitch.measure import buffers, index_bounds, probes
from fusionstitch.measure.buffers import Operand
from fusionstitch.runtime import cuda
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, loading_config
from fusionstitch.runtime.portable import as_function

#: Warm-up runs of the executable, in which XLA records graphs and caches fill.
WARM_RUNS = 5
RUNS = 15
#: If the median run takes this many times the shortest, the GPU is shared with other work.
BUSY = 1.5
#: Clock readings with nothing in between.
CLOCKS = 8


@dataclass(frozen=True)
class Sides:
    """Two programs that do the same work: HloModuleProto bytes of both, with equal parameters and
    results. The parameters `cold` are not in L2 when they are read. Integers have the bounds
    `below` (see `index_bounds`). XLA's program has `ops` ops and a modelled time of `about_us`."""

    theirs: bytes
    ours: bytes
    cold: frozenset[int]
    below: tuple[int, ...]
    ops: int
    about_us: float


@dataclass(frozen=True)
class Program:
    """HloModuleProto bytes, of which `copies` copies run in a row.

    The operands `cold` (None: all) come in `sets` sets, used in rotation. The other operands, and
    all of them with one set, are in L2 from the second copy on, as far as they fit. Integers have
    the bounds `below`, by default from what the module itself indexes.
    """

    name: str
    module: bytes
    copies: int
    sets: int = 1
    cold: frozenset[int] | None = None
    below: tuple[int, ...] | None = None

    @functools.cached_property
    def result_bytes(self) -> int:
        return from_proto(self.module).entry.root.shape.bytes

    def set_count(self, number: int) -> int:
        """The number of sets of an operand."""
        return self.sets if self.cold is None or number in self.cold else 1

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        entry = from_proto(self.module).entry
        below = index_bounds.below(entry) if self.below is None else self.below
        shapes = (parameter.shape for parameter in entry.parameters)
        return tuple(Operand(shape, least) for shape, least in zip(shapes, below, strict=True))


def times_us(programs: Sequence[Program], device: Any, profile: Device) -> list[float]:
    """Microseconds of one copy of each program, without the time of the clock kernel.

    The first copy only warms caches. For each other copy the minimum over several runs counts, and
    the result is the median over copies. Raises MeasureError if kernels cannot be launched, or if
    the GPU had other work meanwhile.
    """
    import jax

    if not (ready := cuda.register_launcher(builders.store())):
        raise MeasureError(f"The GPU's clock cannot be read: {ready.reason}")
    with jax.enable_x64(True):
        found = _ParameterSets(programs)
        arrays = buffers.inputs(found.operands, device)
        run = functools.partial(_all, programs, found, Clocks(profile))
        compiled = plain_jit()(run).lower(np.uint64(0), *arrays).compile()
        read = [
            np.asarray(compiled(np.uint64(0), *arrays)).astype(np.int64)
            for _ in range(WARM_RUNS + RUNS)
        ]
    # per run and copy
    passed = np.diff(np.stack(read[WARM_RUNS:]), axis=1) / 1e3
    whole = passed.sum(axis=1)
    if np.median(whole) > BUSY * whole.min():
        raise MeasureError("The GPU is busy: equal runs took very different times.")
    alone, *ends = np.cumsum([CLOCKS, *(program.copies for program in programs)])
    nothing = np.median(passed[:, :alone])
    return [
        float(np.median(passed[:, min(start + 1, end - 1) : end].min(axis=0)) - nothing)
        for start, end in zip([alone, *ends], ends, strict=False)
    ]


def memory_bytes(programs: Sequence[Program]) -> int:
    """The device memory that `times_us` needs: all operands, and the results of one copy, counted
    twice to allow for its temporaries."""
    operands = sum(operand.shape.bytes for operand in _ParameterSets(programs).operands)
    return operands + 2 * max(program.result_bytes for program in programs)


class _ParameterSets:
    """Which of the module's parameters each copy of each program reads; equal operands share
    them."""

    def __init__(self, programs: Sequence[Program]):
        counts: dict[Operand, int] = {}
        for program in programs:
            needed: dict[Operand, int] = {}
            for number, operand in enumerate(program.operands):
                needed[operand] = needed.get(operand, 0) + program.set_count(number)
            for operand, count in needed.items():
                counts[operand] = max(counts.get(operand, 0), count)
        self._first: dict[Operand, int] = {}
        self.operands: list[Operand] = []
        for operand, count in counts.items():
            self._first[operand] = len(self.operands)
            self.operands += [operand] * count

    def of(self, program: Program, copy: int) -> Iterator[int]:
        used: dict[Operand, int] = {}
        for number, operand in enumerate(program.operands):
            before = used.get(operand, 0)
            set_count = program.set_count(number)
            used[operand] = before + set_count
            yield self._first[operand] + before + copy % set_count


def _all(
    programs: Sequence[Program], found: _ParameterSets, clocks: Clocks, start: Any, *arrays: Any
) -> Any:
    """Clock readings: `CLOCKS` + 1 with nothing in between, then one after each copy of each
    program."""
    import jax
    import jax.numpy as jnp

    shown = [clocks(start)]
    for _ in range(CLOCKS):
        shown.append(clocks(shown[-1]))
    for program in programs:
        function = once_traced(program.module, program.name)
        for copy in range(program.copies):
            given = [arrays[parameter] for parameter in found.of(program, copy)]
            # no copy begins before the clock reading after the previous one
            given, now = jax.lax.optimization_barrier((given, shown[-1]))
            # a program with one result does not return a tuple
            shown.append(clocks(now, *jax.tree.leaves(function(*given))))
    return jnp.stack(shown)


def once_traced(module: bytes, name: str) -> Callable[..., Any]:
    """A function of the module's parameters that JAX traces only once for all copies."""
    return plain_jit()(as_function(module, name), keep_unused=True)


class Clocks:
    """The GPU's clock in nanoseconds, read after an earlier reading and after any given arrays."""

    def __init__(self, profile: Device):
        self.profile = profile
        self._modules: dict[tuple[Any, ...], Callable[..., Any]] = {}

    def __call__(self, earlier: Any, *arrays: Any) -> Any:
        key = tuple((array.dtype, array.shape) for array in arrays)
        if key not in self._modules:
            module = _clock(self.profile, (earlier, *arrays))
            self._modules[key] = once_traced(module, "clock")
        return self._modules[key](earlier, *arrays)


def _clock(profile: Device, values: Sequence[Any]) -> bytes:
    import jax

    given = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
    # the call will replace the sum
    lowered = plain_jit()(lambda earlier, *_: earlier + earlier, keep_unused=True).lower(*given)
    module = from_proto(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    # few kernels suffice for any number of arrays: one array is repeated, up to a power of two
    operands = 1 << (len(given) - 1).bit_length()
    [artifact] = probes.build([probes.clock(operands)], profile)
    graph = module.entry
    again = [graph.parameters[0]] * (operands - len(given))
    call = Replacement(
        graph=graph,
        outputs=(graph.root,),
        inputs=(*graph.parameters, *again),
        removed=(graph.root,),
        name="clock",
        target=TARGET,
        config=artifact.config(),
    )
    return export(module, [call], Preparation("load", LOAD_TARGET, loading_config([artifact])))
