"""What a REPL shows of any object a user can reach: one line, however large the program, with text
from modules escaped."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Fallback, Stitched
from fusionstitch.costmodel import devices
from fusionstitch.execution import stages
from fusionstitch.execution.call import Call
from fusionstitch.hlo.brief import Facts, Listed
from fusionstitch.hlo.graph import Graph, Module, Op, Shape
from fusionstitch.hlo.importer import from_proto
from fusionstitch.reports import trial
from fusionstitch.tuning.outcome import Result, TuneReport
from fusionstitch.tuning.record import Record
from tests.foreign.tricks import TRICKS, renamed
from tests.kept import kept_sort

MOST = 300
EMULATE = fs.Options(backend="emulate", scorer="paper")
X = np.ones((16, 24), np.float32)
#: One name for all of it: breaks of lines, terminals, directions, comments.
EVIL = "".join(TRICKS)


def many(*xs: jax.Array) -> list[jax.Array]:
    """More than one kernel, and of inputs, outputs, ops and rejected patterns."""
    soft = [jax.nn.softmax(x * n) for n, x in enumerate(xs)]
    tables = [s * (s * x).sum(0) for s, x in zip(soft, xs, strict=True)]
    return [*tables, jnp.concatenate(tables), kept_sort(sum(tables)) * 2 + 1]


def fields_of(one: Any) -> Iterator[Any]:
    """What `one.` leads to: fields, public properties, elements."""
    if isinstance(one, Mapping):
        yield from one.values()
    elif isinstance(one, (tuple, list)):
        yield from one
    elif dataclasses.is_dataclass(one):
        yield from (getattr(one, field.name) for field in dataclasses.fields(one))
    for name, value in vars(type(one)).items():
        if isinstance(value, property) and not name.startswith("_"):
            yield getattr(one, name)
    if isinstance(one, Graph):
        yield from (one.ops, one.root, one.parameters)


def reached(*begin: Any) -> Iterator[Any]:
    """Everything of ours that a user gets at from `begin`."""
    seen: set[int] = set()
    stack, kept = list(begin), []
    while stack:
        one = stack.pop()
        ours = str(type(one).__module__).partition(".")[0] == "fusionstitch"
        if id(one) in seen or not (ours or isinstance(one, (tuple, list, dict))):
            continue
        seen.add(id(one))
        kept.append(one)  # or its id may be another's
        if ours:
            yield one
        stack += fields_of(one)


def check(found: Iterable[Any]) -> None:
    for one in found:
        text = repr(one)
        assert len(text) < MOST, (type(one), len(text), text)
        assert text.isprintable(), (type(one), text)


def test_all_that_a_compiled_function_leads_to() -> None:
    xs = [X + n for n in range(12)]
    jitted = fs.jit(many, options=EMULATE)
    lowered = jitted.lower(*xs)
    compiled = lowered.compile()
    assert repr(compiled).startswith("<fusionstitch Compiled of ")
    found = list(reached(jitted, jitted.trace(*xs), lowered, compiled, compiled.stitched, EMULATE))
    check(found)
    kinds = {type(one).__name__ for one in found}
    assert kinds >= {"Jitted", "Traced", "Lowered", "Compiled", "Stitched", "Plan", "Chosen"}
    assert kinds >= {"Rejected", "Pattern", "Graph", "Op", "Shape", "Kernel", "KernelFacts"}
    assert kinds >= {"Stitch", "Built", "Artifact", "Device", "Options", "Work", "Listed"}
    assert len(compiled.kernels) > 1
    for surface in (compiled.plan, compiled.kernels, compiled.fallbacks):
        assert isinstance(surface, Listed)
    assert "pattern" in repr(compiled)  # now that it is known
    assert f"{len(compiled.kernels)} kernels" in repr(compiled)
    [plan] = compiled.plan
    assert f"{len(plan.graph):,} ops, {len(plan.chosen):,} pattern" in repr(plan)
    kernel = compiled.kernels[0]
    assert kernel.name in repr(kernel)
    assert f"{len(kernel.inputs)} input" in repr(kernel)


def test_all_that_a_report_leads_to() -> None:
    found = fs.report(many, *(X + n for n in range(12)), options=EMULATE)
    check(reached(found))
    assert "Report of many on emulated (emulate)" in repr(found)
    assert f"{found.kernels['fusionstitch']} kernels, {found.kernels['xla']} under XLA" in repr(
        found
    )
    assert len(str(found).splitlines()) > 10
    for name in ("patterns", "rejected"):
        assert all(type(one) is dict for one in found.to_dict()[name])


def test_all_that_tuning_leads_to() -> None:
    record = Record("cta_size=64;", 1.0, 2.0, 3.0, 1.5, 9, True, "fs_k", "NVIDIA H200")
    points = tuple((float(n), float(n)) for n in range(500))
    results = tuple(Result(f"fs_{n}", n, record, points) for n in range(200))
    check(reached(TuneReport("mine", "h200", "NVIDIA H200", 60.0, results, True)))


def test_names_of_others_are_escaped() -> None:
    module = jax.jit(many).lower(X, X).compiler_ir("hlo").as_serialized_hlo_module_proto()
    hostile = renamed(module, lambda n: f"{EVIL}{n}", lambda n: f"{n}{EVIL}")
    stitched = core.stitch(hostile, EMULATE, devices.device("h200"), None)
    assert stitched.stitches
    check(reached(stitched, from_proto(hostile)))

    def fun(x: jax.Array) -> jax.Array:
        return x + 1

    fun.__name__ = fun.__qualname__ = EVIL
    call = Call(fun, (np.ones(10_000),), {}, EMULATE, {}, fs.jit)
    check([fs.jit(fun), call, trial.Trial(EVIL, "model", hostile, stitched)])
    left = Stitched(EVIL, hostile, stitched.device, (), (), (Fallback((EVIL,) * 9, EVIL),))
    check(reached(left, stages.Compiled(fun, call, lambda: left)))
    one = fs.report(many, X, X, options=EMULATE)
    check(reached(dataclasses.replace(one, workload=EVIL, notes=(EVIL,) * 9)))


@pytest.mark.parametrize("length", [0, 1, 2, 1000])
def test_a_short_tuple_is_shown_and_a_long_one_counted(length: int) -> None:
    listed = Listed(range(length))
    assert listed == tuple(range(length))
    if length < 100:
        assert repr(listed) == repr(tuple(range(length)))
    else:
        assert repr(listed) == "(0, ... 1,000 in all)"


def test_facts_are_a_dict() -> None:
    facts = Facts({"ops": ["a"] * 99, "why": "x" * 999})
    assert facts == {"ops": ["a"] * 99, "why": "x" * 999}
    assert repr(facts).startswith("{'ops': (99), 'why': 'xxx")
    assert len(repr(facts)) < 100


def test_shapes_graphs_and_modules() -> None:
    leaf = Shape("f32", (16, 24))
    assert repr(leaf) == "<Shape f32[16,24]>"
    ops = [Op("parameter", leaf, name=f"p{n}", attrs={"index": n}) for n in range(500)]
    root = Op("tuple", Shape("tuple", elements=(leaf,) * 500), tuple(ops), name="t")
    graph = Graph("main", [*ops, root], root)
    assert repr(graph) == "<Graph main: 501 ops>"
    assert len(str(graph).splitlines()) == 501 + 3
    assert str(root).endswith("p498, p499)")
    check([leaf, root, root.shape, graph, graph.ops, Module("m", (graph,), graph, None)])


def test_a_report_is_put_together_from_plain_data() -> None:
    """`dataclasses.replace` and `asdict` go through the containers."""
    one = fs.report(lambda x: x.sum(), X, options=EMULATE)
    again = dataclasses.replace(one, notes=("a",))
    assert again.to_dict()["patterns"] == one.to_dict()["patterns"]
