"""What fusionstitch did with a program, and what the models count in it, as plain data."""

from __future__ import annotations

from typing import Any

from fusionstitch.compiler.stitched import Stitch, Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.prices import OpCosts
from fusionstitch.costmodel.work import arithmetic
from fusionstitch.hlo.graph import Graph
from fusionstitch.plan.scores import kind_of_pattern
from fusionstitch.reports import counting
from fusionstitch.reports.floors import floors
from fusionstitch.reports.modelled import modelled_counts


def stitched(compiled: Any) -> dict[str, Any]:
    """Patterns, kernels, seconds per pass, and what was left to XLA with the reasons."""
    found: Stitched | None = compiled.stitched
    if found is None:
        return {"patterns": [], "kernels": [], "passes_s": {}, "fallbacks": []}
    by_name = {one.kernel.name: one for one in found.stitches}
    return {
        "patterns": [
            {"kernel": one.kernel.name, "ops": len(one.chosen.pattern.ops)}
            for one in found.stitches
        ],
        "kernels": [_kernel(one) for one in by_name.values()],
        "passes_s": {name: round(value, 3) for name, value in found.timings.items()},
        "fallbacks": [{"ops": len(f.ops), "reason": f.reason[:300]} for f in found.fallbacks],
    }


def _kernel(one: Stitch) -> dict[str, Any]:
    """Shared memory in bytes; requests and allocations of Algorithm 4 (the paper's Table 4)."""
    kernel, facts = one.kernel, dict(one.kernel.facts)
    return {
        "name": kernel.name,
        "kind": kind_of_pattern(one.chosen.pattern.ops),
        "scope": facts.get("scope"),
        "grid": kernel.grid,
        "block": kernel.block,
        "shared": kernel.shared_bytes,
        "unshared": facts.get("unshared_bytes"),
        "registers": one.built.registers if one.built else None,
        "modelled_us": round(one.chosen.modelled_us, 2),
    }


def counts(module: bytes, found: Stitched | None) -> dict[str, Any]:
    """Ops, FLOPs, and kernels and DRAM bytes per call by the model, of the lowered `module` (a
    HloModuleProto) run op by op, under XLA, and as it was stitched; and the microseconds that a
    call cannot go below on the device, None where nothing was planned for one."""
    program = counting.entry(module)
    unfused = counting.unfused(program)
    both = modelled_counts(found) if found else (None, None)
    sides = {"unfused": unfused, "xla": both[0], "fusionstitch": both[1]}
    return {
        "ops": counting.ops(program),
        "flops": _flops(program, (found.device if found else device("h200")).instructions),
        "floor_us": floors(found, module).whole.us if found else None,
        "modelled": {
            name: {"kernels": count.kernels, "bytes": count.bytes}
            for name, count in sides.items()
            if count is not None
        },
    }


def _flops(program: Graph, costs: OpCosts) -> int:
    """Floating-point operations of one run; special functions count as one each."""
    total = 0
    for graph, n in counting.repeats(program).items():
        for op in filter(counting.is_kernel, graph):
            work = arithmetic(op, costs)
            own = work.flops + work.flops64 + work.special + work.dot_flops + work.tensor_flops
            total += n * own
    return total
