"""Between a write and another thread's access to an array lies a barrier (`ir/accesses.py`)."""

from __future__ import annotations

from fusionstitch.codegen.ir.hazards import Hazards, Missing, global_areas, may_meet
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.verifier.fault import Fault


def check(kernel: Lowered) -> None:
    """Raises Fault for accesses to one array without a barrier between them."""
    areas = global_areas(kernel)
    if not may_meet(kernel, areas):
        return
    try:
        Hazards(kernel, areas).walk()
    except Missing as missing:
        raise Fault(_message(missing), missing.at) from missing


def _message(missing: Missing) -> str:
    access = missing.access
    name, does = access.area.buffer or access.name, "written" if access.writes else "read"
    if access.writes and missing.before.writes:
        return f"{name} is written where another array lies"
    before = "a write" if missing.before.writes else "a read"
    return f"{name} is {does} with no barrier after {before}"
