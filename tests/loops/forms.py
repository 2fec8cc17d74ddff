"""The loops of a program as kernels of every form that they can have, on the emulator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from fusionstitch.accuracy import relative_error
from fusionstitch.codegen.generate import CodegenOptions
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.while_loops.generate import FORMS, plan_loops
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError, PassError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.simplify import simplify
from fusionstitch.patterns.pattern import Pattern, loop_bits
from fusionstitch.plan import loops
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.regions import launched
from tests.loops.growth import Grown

#: Few blocks are many enough where rows and elements are few.
BIG = replace(device("h200"), cooperative_limit=4)
DEVICES = {
    "132 multiprocessors": BIG,
    "two multiprocessors": replace(BIG, sm_count=2),
    "1 KB of shared memory": replace(BIG, sm_count=3, shared_per_block=1024),
}
#: Relative L2 errors that floats may have whatever the program, by type.
FLOORS = {"float64": 1e-12, "float32": 2e-6, "bfloat16": 2e-2, "float16": 2e-3}


@dataclass(frozen=True, eq=False)
class Whole:
    """A loop of a program as a region, what it is given, and what comes of that: as NumPy computes
    it, and in float64."""

    name: str
    region: Graph
    args: tuple[np.ndarray, ...]
    given: tuple[np.ndarray, ...]
    wanted: tuple[np.ndarray, ...]

    @property
    def is_clear(self) -> bool:
        """Whether rounding decides nothing: no integer, and floats by little."""
        pairs = zip(self.given, self.wanted, strict=True)
        return all(
            relative_error(a, b) < 10 * FLOORS[a.dtype.name]
            if a.dtype.name in FLOORS
            else np.array_equal(a, b)
            for a, b in pairs
        )


@dataclass(frozen=True, eq=False)
class Case:
    """A kernel of a loop."""

    whole: Whole
    form: str
    kernel: Kernel


def wholes(grown: Grown) -> Iterator[Whole]:
    """The outermost loops of a program that may be kernels."""
    with grown.width():
        traced = jax.jit(grown.fun, keep_unused=True).lower(*grown.args).compiler_ir("hlo")
    module = inline_calls(traced.as_serialized_hlo_module_proto())
    graph = simplify(from_proto(module).entry)
    for number, op in enumerate(op for op in graph if op.opcode == "while"):
        bits = loop_bits(graph, op)
        pattern = loops._legal(graph, op, bits, set(), BIG)
        if not isinstance(pattern, Pattern):
            continue
        part = region("grown", pattern.ops, pattern.inputs, pattern.outputs)
        args = tuple(_values(graph, pattern.inputs, grown.args))
        given, wanted = (tuple(evaluate(part, args, float64=wide)) for wide in (False, True))
        yield Whole(f"{grown.name} loop {number}", part, args, given, wanted)


def _values(graph: Graph, ops: Sequence[Op], args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ops of a program are."""
    if not ops:
        return []
    needed = set(ops)
    for op in reversed(graph.ops):
        if op in needed:
            needed.update(op.operands)
    before = [op for op in graph if op in needed and op.opcode != "parameter"]
    return evaluate(region("before", before, graph.parameters, ops), args)


def cases(whole: Whole, name: str) -> Iterator[Case]:
    """The kernels of a loop on a device, one of each form that it can have; verified after each
    pass."""
    settings = Settings(DEVICES[name], CodegenOptions(check=True))
    for form in FORMS:
        try:
            looped = plan_loops(whole.region, settings, template=f"loop {form}")
            yield Case(whole, form, looped.kernel())
        except PassError:  # a defect, and no reason to leave a loop to XLA
            raise
        except CodegenError:
            continue


def run(case: Case, artifact: Artifact, seed: int) -> str:
    """What is wrong with a kernel, or nothing. One in two of them has outputs in its inputs'
    memory, where they may lie there."""
    emulate.set_order("random", seed)
    try:
        found = launched(case.kernel, artifact, case.whole.args, in_place=seed % 2 == 1)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        emulate.set_order("forward")
    for number, (own, given, wanted) in enumerate(
        zip(found, case.whole.given, case.whole.wanted, strict=True)
    ):
        if own.dtype.name not in FLOORS:
            if not np.array_equal(own, given):
                return f"output {number} is {own}, not {given}"
            continue
        error, bound = relative_error(own, wanted), relative_error(given, wanted)
        if not error <= max(FLOORS[own.dtype.name], 4 * bound):
            return f"output {number} is off by {error:.1e}: {own}, not {wanted}"
    return ""
