"""Different legal ways to run one graph as kernels, many graphs in one translation unit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fusionstitch.accuracy import relative_error
from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region, rewrite
from fusionstitch.costmodel.devices import Device, device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.free import free_bits
from fusionstitch.hlo.graph import Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.semantics import Kind, kind_of
from fusionstitch.patterns.pattern import spreads
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.regions import launched
from tests.fuzz import corpus
from tests.fuzz.values import FLOATS, Grown

#: Cooperative grids stay small on fibers; what else a device has decides the schedules.
BIG = replace(device("h200"), cooperative_limit=4)
DEVICES: Mapping[str, Device] = {
    "132 multiprocessors": BIG,
    "one multiprocessor": replace(BIG, sm_count=1),
    "eight multiprocessors": replace(BIG, sm_count=8, cooperative_limit=3),
    "4 KB of shared memory": replace(BIG, shared_per_block=4096),
}
#: What each float op may be off, relative to its value, by type: the bound for what follows.
NOISE = {"f64": 2.0**-50, "f32": 2.0**-21, "bf16": 2.0**-8, "f16": 2.0**-11}
#: Errors that need no explanation.
FLOORS = {"float64": 1e-13, "float32": 1e-6, "bfloat16": 4e-3, "float16": 5e-4}


@dataclass(frozen=True)
class Piece:
    """A kernel that reads and writes values of the graph, by op id."""

    kernel: Kernel
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Way:
    """One way to run a grown graph: pieces in order."""

    name: str
    grown: Grown
    pieces: tuple[Piece, ...]

    def run(self, artifacts: Sequence[Artifact]) -> list[np.ndarray]:
        graph = self.grown.graph
        values = {p.id: a for p, a in zip(graph.parameters, self.grown.args, strict=True)}
        for piece, artifact in zip(self.pieces, artifacts, strict=True):
            results = launched(piece.kernel, artifact, [values[i] for i in piece.inputs])
            values.update(zip(piece.outputs, results, strict=True))
        return [values[op.id] for op in graph.root.operands]


def whole(grown: Grown, name: str, device: Device, options: CodegenOptions) -> Way:
    """All of the graph as one kernel."""
    return cut(grown, name, device, options, ())


def cut(
    grown: Grown, name: str, device: Device, options: CodegenOptions, cuts: Sequence[int]
) -> Way:
    """The graph's order cut into intervals, each of which is convex, and a kernel for each.

    As in patterns, what is cheaper to compute again than to read is in every piece that reads it.
    """
    graph = grown.graph
    free = free_bits(graph)
    ops = _with_parts_together(op for op in graph.ops[:-1] if op.opcode != "parameter")
    heads = [n for n, op in enumerate(ops) if op.opcode != "get-tuple-element"]
    places = {max(n for n in heads if n <= c % len(ops)) for c in cuts}
    bounds = [0, *sorted(places - {0}), len(ops)]
    parts = []
    for start, end in itertools.pairwise(bounds):
        known = set(ops[start:end])
        for op in reversed(ops):
            repeated = free >> op.id & 1 or spreads(op)
            if repeated and any(u in known for u in graph.users[op.id]):
                known.add(op)
        inside = [op for op in ops if op in known]
        inputs = list(dict.fromkeys(o for op in inside for o in op.operands if o not in known))
        parts.append((ops[start:end], inside, inputs))
    wanted = {op for _, _, inputs in parts for op in inputs} | set(graph.root.operands)
    pieces = []
    for number, (own, inside, inputs) in enumerate(parts):
        outputs = [op for op in own if op in wanted]
        if not outputs:
            continue
        kernel = generate(region(f"fuzz_{number}", inside, inputs, outputs), device, options)
        ids = tuple(o.id for o in inputs), tuple(o.id for o in outputs)
        pieces.append(Piece(kernel, *ids))
    return Way(name, grown, tuple(pieces))


def _with_parts_together(ops: Iterable[Op]) -> list[Op]:
    """`ops` in order, but each part of a reduction of several values right after it."""
    ops = list(ops)
    parts: dict[Op, list[Op]] = {}
    for op in ops:
        if op.opcode == "get-tuple-element":
            parts.setdefault(op.operands[0], []).append(op)
    heads = (op for op in ops if op.opcode != "get-tuple-element")
    return [each for op in heads for each in (op, *parts.get(op, ()))]


def check(ways: Sequence[Way]) -> None:
    """Builds all ways at once; each must give what a float64 run of its graph gives."""
    kernels = [piece.kernel for way in ways for piece in way.pieces]
    artifacts = iter(emulate.build(kernels))
    orders: tuple[emulate.Order, ...] = ("random", "reversed", "forward")
    references: dict[Grown, list[np.ndarray]] = {}
    for number, way in enumerate(ways):
        grown = way.grown
        if grown not in references:
            references[grown] = evaluate(grown.graph, grown.args, float64=True)
        own = [next(artifacts) for _ in way.pieces]
        order = orders[number % len(orders)]
        emulate.set_order(order, number)
        try:
            results = way.run(own)
        except Exception as error:
            raise AssertionError(report(way, f"{order} order: {error}")) from error
        finally:
            emulate.set_order("forward")
        for n, (value, wanted) in enumerate(zip(results, references[grown], strict=True)):
            error = relative_error(value, wanted)
            floor = FLOORS.get(value.dtype.name, 0.0)
            if error > floor and error > allowance(grown, references[grown])[n]:
                raise AssertionError(report(way, f"{order} order, output {n}: error {error:.2e}"))


def report(way: Way, found: str) -> str:
    """A failure, and the file that replays its graph."""
    return f"{way.name}, {found}. Replayed by {corpus.keep(way.grown)}."


def allowance(grown: Grown, wanted: Sequence[np.ndarray]) -> list[float]:
    """How far each output may be off: NumPy's own error in the graph's types, and how far outputs
    move when every float op is off by a rounding, which is their conditioning."""
    graph, args = grown.graph, grown.args
    own = _errors(evaluate(graph, args), wanted)
    moved = [
        _errors(evaluate(rewrite(graph, _noise(seed)), args, float64=True), wanted)
        for seed in (1, 2, 3)
    ]
    return [max(2 * e, *(4 * m for m in ms)) for e, *ms in zip(own, *moved, strict=True)]


def _errors(values: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> list[float]:
    return [
        relative_error(v, w) if w.dtype.kind == "f" else 0.0
        for v, w in zip(values, wanted, strict=True)
    ]


def _noise(seed: int) -> Callable[[Op], list[Op] | None]:
    rng = np.random.default_rng(seed)

    def rule(op: Op) -> list[Op] | None:
        exact = op.opcode == "parameter" or kind_of(op.opcode) in (Kind.MOVEMENT, Kind.SOURCE)
        if op.dtype not in FLOATS or exact:
            return None
        # float64 runs widen constants, but only after they were rounded to their type
        size = rng.uniform(-1, 1, op.dims) * NOISE[op.dtype]
        factor = Op("constant", op.shape, attrs={"value": _wide(1 + size)})
        return [op, factor, Op("multiply", op.shape, (op, factor))]

    return rule


def _wide(value: Any) -> np.ndarray:
    return np.asarray(value, NUMPY_DTYPES["f64"])
