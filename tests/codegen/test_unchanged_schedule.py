"""All is decided before lowering: nothing of a schedule, or of its region, changes after that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.generate import CodegenOptions, plan_kernel
from fusionstitch.codegen.lower.program import written
from fusionstitch.codegen.settings import Settings
from fusionstitch.codegen.watch import NOBODY
from fusionstitch.codegen.while_loops import generate as loops
from fusionstitch.codegen.while_loops.in_rows import InRows, write_rows
from fusionstitch.codegen.while_loops.lower_phased import write_phased
from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Graph
from tests.codegen.cases import CASES
from tests.codegen.regions import H200, whole_of
from tests.codegen.test_cluster_loops import STATES, WEIGHTS, loops_in_loops


def drawn(value: Any, seen: set[int]) -> Any:
    """What a value holds, with all that its fields hold, each part once."""
    if is_dataclass(value) and not isinstance(value, (type, Device)):
        if id(value) in seen:
            return type(value).__name__
        seen.add(id(value))
        own = (one.name for one in fields(value) if not one.name.startswith("_"))
        return type(value).__name__, [drawn(getattr(value, name), seen) for name in own]
    if isinstance(value, Mapping):
        return [(drawn(key, seen), drawn(one, seen)) for key, one in value.items()]
    if isinstance(value, (list, tuple)):
        return [drawn(one, seen) for one in value]
    if isinstance(value, Graph):
        return drawn(value.ops, seen)
    return repr(value)


@pytest.mark.parametrize("name", ["softmax_backward", "attention", "streamed_f32", "split_columns"])
def test_lowering_changes_no_schedule(name: str) -> None:
    case = CASES[name].case()
    scheduled = plan_kernel(case.graph, case.device, case.options)
    before = drawn(scheduled, set())
    first = written(scheduled, "default").lowered
    assert drawn(scheduled, set()) == before
    assert written(scheduled, "default").lowered == first


def known(graph: Graph) -> list[str]:
    """The attributes and annotations of ops."""
    return [f"{dict(op.attrs)} {annotations_of(op)}" for op in graph]


@pytest.mark.parametrize("form", loops.FORMS)
def test_a_form_of_a_loop_changes_no_region(form: str) -> None:
    """Neither while it is planned nor while it is lowered."""
    settings = Settings(H200, CodegenOptions())
    region = whole_of(loops_in_loops, STATES, WEIGHTS)
    flat = loops._flat(region, settings, NOBODY)
    # by what is known of them: who makes another graph of ops gives them new numbers
    ops = sorted(known(flat.graph))
    made = loops.FORMS[form](flat, settings)
    planned = known(made.flat.graph)
    write = write_rows if isinstance(made, InRows) else write_phased
    first = write(made, settings).lowered  # type: ignore[operator]
    assert known(made.flat.graph) == planned
    assert write(made, settings).lowered == first  # type: ignore[operator]
    assert sorted(known(flat.graph)) == ops
