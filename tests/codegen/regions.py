"""Regions from JAX functions and graphs, and many generated kernels in one translation unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from fusionstitch.accuracy import FLOORS, relative_error
from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.memory.inplace import one_to_one
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.costmodel.devices import Device, device, exact
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.simplify import simplify
from fusionstitch.hlo.verify import verify
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact
from fusionstitch.runtime.counters import Counters

#: A big device whose cooperative grids stay small on fibers, and the same where products of f32 are
#: not rounded, as on the CPU.
ROUNDING = replace(device("h200"), cooperative_limit=4)
H200 = exact(ROUNDING)
#: The same with one multiprocessor: blocks own more, so more passes through shared memory.
SMALL = replace(H200, sm_count=1)
ORDERS: tuple[tuple[emulate.Order, int], ...] = (("forward", 0), ("reversed", 0), ("random", 7))
DEFAULT = CodegenOptions()
_RED_ZONE = 64
#: As a float no number, so that what was never written shows in every sum.
_POISON = 0xFF


def lowered(fun: Callable[..., Any], *args: Any) -> Graph:
    """The simplified entry of a jitted function, as the emulator's execution path sees it."""
    wide = any(np.dtype(a.dtype).itemsize == 8 for a in jax.tree.leaves(args))
    with jax.enable_x64(wide):
        module = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return simplify(from_proto(inline_calls(module)).entry)


def whole(graph: Graph, name: str = "kernel") -> Graph:
    """The region of all ops of a graph; each result once, results that are parameters left out."""
    roots = graph.root.operands if graph.root.opcode == "tuple" else (graph.root,)
    outputs = list(dict.fromkeys(o for o in roots if o.opcode != "parameter"))
    is_tuple = graph.root.opcode == "tuple"
    ops = [o for o in graph if o.opcode != "parameter" and not (is_tuple and o is graph.root)]
    made = region(name, ops, graph.parameters, outputs)
    verify(made)
    return made


def whole_of(fun: Callable[..., Any], *args: Any, name: str = "kernel") -> Graph:
    """The region of all ops of a jitted function of `args` (arrays or ShapeDtypeStructs)."""
    return whole(lowered(fun, *args), name)


@dataclass(frozen=True, eq=False)
class Case:
    """A region with values for its parameters; how it is generated; the error it may have."""

    graph: Graph
    args: Sequence[np.ndarray]
    device: Device = H200
    options: CodegenOptions = DEFAULT
    #: of every float output, against a float64 run; None: the floor of its type
    limit: float | None = None

    def kernel(self, watch: Watch = NOBODY) -> Kernel:
        """That of the default schedule, which cases are of; verified after each pass."""
        options = replace(self.options, compared=False, check=True)
        return generate(self.graph, self.device, options, watch)


class Statements(Watch):
    """Keeps what a kernel is printed from."""

    last: Lowered

    def lowered(self, kernel: Lowered, name: str, about: str) -> None:
        self.last = kernel


@dataclass(eq=False)
class Built:
    """Kernels of one translation unit, by case."""

    kernels: dict[Case, Kernel] = field(default_factory=dict)
    artifacts: dict[Case, Artifact] = field(default_factory=dict)
    lowered: dict[Case, Lowered] = field(default_factory=dict)
    _wanted: dict[Graph, list[np.ndarray]] = field(default_factory=dict)

    def run(
        self, case: Case, order: emulate.Order = "forward", seed: int = 0, in_place: bool = False
    ) -> list[np.ndarray]:
        emulate.set_order(order, seed)
        try:
            return launched(self.kernels[case], self.artifacts[case], case.args, in_place)
        finally:
            emulate.set_order("forward")

    def checked(self) -> Built:
        """The same kernels, with checks of their accesses."""
        artifacts = emulate.build(list(self.kernels.values()), checked=True)
        return replace(self, artifacts=dict(zip(self.kernels, artifacts, strict=True)))

    def counters(self, case: Case) -> Counters:
        """What a run of a counted kernel did."""
        return counters_of(self.kernels[case], self.artifacts[case], case.args)

    def barriers(self, case: Case, ignoring: str = "") -> list[str]:
        """The places of the barriers that a run of a checked kernel meets, one of which the checks
        may take for nothing."""
        met: list[str] = []
        launched(self.kernels[case], self.artifacts[case], case.args, False, ignoring, met)
        return met

    def wanted(self, case: Case) -> list[np.ndarray]:
        if case.graph not in self._wanted:
            self._wanted[case.graph] = evaluate(case.graph, case.args, float64=True)
        return self._wanted[case.graph]

    def check(
        self, case: Case, order: emulate.Order = "forward", seed: int = 0, in_place: bool = False
    ) -> None:
        """Asserts that every output is near the float64 run."""
        for n, (got, wanted) in enumerate(
            zip(self.run(case, order, seed, in_place), self.wanted(case), strict=True)
        ):
            error, most = relative_error(got, wanted), allowed(got.dtype, case.limit)
            what = f"output {n} of {case.graph.name}, {order} order"
            assert error <= most, f"{what}: error {error:.2e} where {most:.0e} is allowed"


def allowed(dtype: np.dtype[Any], wanted: float | None) -> float:
    """The error an output of `dtype` may have: integers none."""
    floor = {"float64": 1e-13, "float32": 1e-6, **FLOORS}.get(dtype.name)
    return 0.0 if floor is None else (floor if wanted is None else wanted)


def build(cases: Iterable[Case], counted: bool = False) -> Built:
    """Generates the kernels of all cases and compiles them in one translation unit."""
    statements = {case: Statements() for case in cases}
    built = Built({case: case.kernel(watch) for case, watch in statements.items()})
    built.lowered = {case: watch.last for case, watch in statements.items()}
    for case, kernel in built.kernels.items():
        assert (verdict := launchable(kernel, case.device)), str(verdict)
    artifacts = emulate.build(list(built.kernels.values()), counted=counted)
    built.artifacts = dict(zip(built.kernels, artifacts, strict=True))
    return built


def counters_of(kernel: Kernel, artifact: Artifact, args: Sequence[np.ndarray]) -> Counters:
    """What a run of a kernel did that was built to be counted."""
    memory = [_Memory(a.shape, a.dtype, a) for a in args]
    memory += [_Memory(s.dims, NUMPY_DTYPES[s.dtype]) for s in (*kernel.outputs, *kernel.scratch)]
    return emulate.counters(artifact, [m.address for m in memory])


def launched(
    kernel: Kernel,
    artifact: Artifact,
    args: Sequence[np.ndarray],
    in_place: bool = False,
    ignoring: str = "",
    met: list[str] | None = None,
) -> list[np.ndarray]:
    """Runs a built kernel on poisoned outputs between red zones; checks what it may not touch.

    A checked kernel adds the positions of its barriers to `met`; see `emulate.launch`.
    """
    inputs = [_Memory(a.shape, a.dtype, a) for a in args]
    over = dict(one_to_one(kernel.in_place)) if in_place else {}
    outputs = [
        inputs[over[n]] if n in over else _Memory(s.dims, NUMPY_DTYPES[s.dtype])
        for n, s in enumerate(kernel.outputs)
    ]
    scratch = [_Memory(s.dims, NUMPY_DTYPES[s.dtype]) for s in kernel.scratch]
    addresses = [m.address for m in (*inputs, *outputs, *scratch)]
    indices = emulate.launch(artifact, addresses, ignoring=ignoring)
    if met is not None:
        met += indices
    assert all(m.intact for m in (*inputs, *outputs, *scratch)), f"{kernel.name}: out of bounds"
    for number, (memory, value) in enumerate(zip(inputs, args, strict=True)):
        retained = number in over.values() or memory.value.tobytes() == value.tobytes()
        assert retained, f"{kernel.name} wrote to its input {number}"
    return [
        m.value.view(NUMPY_DTYPES[s.dtype]) for m, s in zip(outputs, kernel.outputs, strict=True)
    ]


class _Memory:
    """An array between red zones, 64-byte aligned, poisoned unless it has a value."""

    def __init__(self, dims: Sequence[int], dtype: Any, value: np.ndarray | None = None):
        size = int(np.prod(dims, dtype=np.int64)) * np.dtype(dtype).itemsize
        self._whole = np.full(size + 3 * _RED_ZONE, _POISON, np.uint8)
        start = _RED_ZONE + -self._whole.ctypes.data % _RED_ZONE
        self._zones = self._whole[:start], self._whole[start + size :]
        self.address = self._whole.ctypes.data + start
        self.value = self._whole[start : start + size].view(dtype).reshape(dims)
        if value is not None:
            self.value[...] = value

    @property
    def intact(self) -> bool:
        return all(bool((zone == _POISON).all()) for zone in self._zones)
