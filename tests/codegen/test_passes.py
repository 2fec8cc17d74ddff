"""The list of passes, and what becomes of a region that a pass has broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fusionstitch.codegen import passes
from fusionstitch.codegen.generate import CodegenOptions, draft, generate
from fusionstitch.codegen.invariants import check_region
from fusionstitch.codegen.passes import PASSES, Pass
from fusionstitch.codegen.rewrite.monoids import Monoid
from fusionstitch.codegen.rewrite.region import with_root
from fusionstitch.codegen.settings import Settings, Way
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError, PassError, VerifyError
from fusionstitch.hlo.graph import Graph, Op, Shape
from tests.codegen.cases import CASES
from tests.codegen.regions import whole
from tests.graphs import Builder, softmax

H200 = device("h200")


def rows() -> Graph:
    b = Builder()
    return whole(b.graph(softmax(b, b.parameter((64, 128)))))


def names(numerics: str, way: Way | None) -> list[str]:
    settings = Settings(H200, CodegenOptions(numerics))
    return [one.name for one in PASSES if one.applies(settings, way)]


# ---- the list ------------------------------------------------------------------------------------


def test_names_tell_passes_apart() -> None:
    assert len({one.name for one in PASSES}) == len(PASSES)
    assert all(one.about and one.name.replace(" ", "").isalpha() for one in PASSES)


def test_no_pass_before_the_ways_part_comes_behind_one_of_a_way() -> None:
    common = [one.ways is None for one in PASSES]
    assert common == sorted(common, reverse=True)


def test_strict_numerics_leave_out_what_rounds_otherwise() -> None:
    rows = ["selected rows", "long rows"]
    first = ["complex", "dims of dots", "expand", "strength"]
    assert names("strict", None) == [*first, *rows, "scatters"]
    assert names("strict", Way.MERGE) == ["split", "stacks", "pieces", "comparisons"]
    assert set(names("default", None)) > set(names("strict", None))


def test_ways_have_passes_of_their_own() -> None:
    last = ["comparisons", "roundings", "products"]
    assert names("default", Way.STREAM) == ["streams", "whole tiles", "stacks", "pieces", *last]
    assert names("default", Way.SHARE) == ["stacks", "pieces", "variances", *last]
    apart = names("fast", Way.APART)
    merge = names("fast", Way.MERGE)
    assert merge.pop(2) == "halos"
    assert merge == apart
    assert apart == [
        "split",
        "concatenates",
        "stacks",
        "pieces",
        "variances",
        *last,
    ]


# ---- a pass with a defect ------------------------------------------------------------------------


def longer(graph: Graph, settings: Settings) -> Graph:
    """Gives a value a type that its op does not have."""
    ops = list(graph.ops[:-1])
    wrong = Op("exponential", Shape("f32", (3,)), (ops[0],), name="wrong")
    return with_root(graph.name, [*ops, wrong], graph.root.operands)


def planted(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    bad = replace(Pass("a bad one", "breaks what it gets", longer), **fields)
    monkeypatch.setattr(passes, "PASSES", (*PASSES, bad))


def test_a_pass_that_breaks_a_region_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch)
    with pytest.raises(PassError, match=r'The pass "a bad one" broke kernel: wrong = .* expected'):
        generate(rows(), H200)
    with pytest.raises(PassError, match="defect of fusionstitch"):
        draft(rows(), H200)


def test_no_other_way_hides_the_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch, ways=frozenset({Way.MERGE}))
    with pytest.raises(PassError, match="a bad one"):
        generate(rows(), H200)
    other = CodegenOptions(tuning=replace(CodegenOptions().tuning, merge=False))
    assert generate(rows(), H200, other).source


def test_a_pass_that_gives_back_what_it_got_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Graph) -> None:
        raise VerifyError("looked at")

    idle = Pass("idle", "does nothing", lambda graph, _: graph)
    monkeypatch.setattr(passes, "PASSES", (idle,))
    monkeypatch.setattr(passes, "check_region", refuse)
    assert generate(rows(), H200).source


# ---- what is found -------------------------------------------------------------------------------


def expanded(name: str) -> Graph:
    """The region of a case after the pass that knows ops in terms of others, in which windows stay
    views."""
    case = CASES[name].case()
    [expand] = [one for one in PASSES if one.name == "expand"]
    options = replace(case.options, numerics="strict")
    return expand.run(case.graph, Settings(case.device, options))


def copied(graph: Graph, change: Callable[[Op], object] = lambda op: None) -> Graph:
    """Another graph of like ops, each after `change`."""
    new: dict[Op, Op] = {}
    for op in graph.ops[:-1]:
        new[op] = replace(op, operands=tuple(new[o] for o in op.operands), attrs={**op.attrs})
        change(new[op])
    return with_root(graph.name, list(new.values()), [new[o] for o in graph.root.operands])


def test_a_copy_is_sound() -> None:
    for graph in (rows(), expanded("argmax")):
        check_region(copied(graph), graph)


def swapped(graph: Graph) -> Graph:
    ops = list(copied(graph).ops)
    ops[0], ops[-2] = ops[-2], ops[0]
    return Graph(graph.name, ops, ops[-1])


def doubled(graph: Graph) -> Graph:
    ops = copied(graph).ops
    return Graph(graph.name, [*ops[:-1], ops[-2], ops[-1]], ops[-1])


def rootless(graph: Graph) -> Graph:
    ops = copied(graph).ops[:-1]
    return Graph(graph.name, ops, ops[-1])


def ahead(graph: Graph) -> Graph:
    made = copied(graph)
    tail = Op("tuple", Shape("tuple"), (), name="behind")
    return Graph(graph.name, [*made.ops, tail], made.root)


def without_outputs(graph: Graph) -> Graph:
    return with_root(graph.name, list(copied(graph).ops[:-1]), [])


def with_another_input(graph: Graph) -> Graph:
    made = copied(graph)
    more = Op("parameter", Shape("f32"), attrs={"index": len(made.parameters)})
    return with_root(graph.name, [more, *made.ops[:-1]], made.root.operands)


def unknown_reducer(graph: Graph) -> Graph:
    def change(op: Op) -> None:
        if op.opcode == "reduce":
            op.attrs["reducer"] = "average"  # type: ignore[index]

    return copied(graph, change)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (swapped, "to come before it"),
        (doubled, "an op belongs to one graph"),
        (rootless, "is no tuple at its end"),
        (ahead, "is no tuple at its end"),
        (without_outputs, r"Its outputs are ; they were f32\[64,128\]"),
        (with_another_input, r"Its parameters are f32\[64,128\], f32\[\]; they were"),
        (unknown_reducer, "expected a reducer"),
    ],
)
def test_regions_that_are_none(broken: Callable[[Graph], Graph], words: str) -> None:
    graph = rows()
    with pytest.raises(VerifyError, match=words):
        check_region(broken(graph), graph)


def change_type(op: Op) -> None:
    if op.opcode == "record":
        op.shape = Shape("record<s32,f32>", op.dims)


def change_index(op: Op) -> None:
    if op.opcode == "member":
        op.attrs["index"] = 2  # type: ignore[index]


def change_stride(op: Op) -> None:
    if op.opcode == "windows":
        op.attrs["stride"] = (1, 3, 1)  # type: ignore[index]


def drop_definition(op: Op) -> None:
    if isinstance(monoid := op.attrs.get("reducer"), Monoid):
        op.attrs["reducer"] = replace(monoid, source="")  # type: ignore[index]


def forget_emptiness(op: Op) -> None:
    if op.opcode == "reduce":
        op.attrs["reducer"] = replace(op.attrs["reducer"], in_runs=True)  # type: ignore[index]


@pytest.mark.parametrize(
    ("case", "change", "words"),
    [
        ("argmax", change_type, r"a result of shape record<f32,s32>"),
        ("argmax", change_index, "an index inside the record"),
        ("pool", change_stride, "windows inside of the array"),
        ("argmax", drop_definition, "a definition of what it reduces by"),
        ("argmax", forget_emptiness, "records that say whether they are empty"),
    ],
)
def test_what_only_kernels_have_is_checked(
    case: str, change: Callable[[Op], object], words: str
) -> None:
    graph = expanded(case)
    with pytest.raises(VerifyError, match=words):
        check_region(copied(graph, change), graph)


def test_a_functor_has_one_definition() -> None:
    graph = expanded("recurrence")
    seen: list[Op] = []

    def change(op: Op) -> None:
        if isinstance(monoid := op.attrs.get("reducer"), Monoid):
            seen.append(op)
            if len(seen) == 2:
                assert monoid.functor == seen[0].attrs["reducer"].functor
                another = replace(monoid, source=f"{monoid.source};\n")
                op.attrs["reducer"] = another  # type: ignore[index]

    with pytest.raises(VerifyError, match="one definition of FsJoin"):
        check_region(copied(graph, change), graph)


@pytest.mark.parametrize("name", ["argmax", "recurrence", "pool", "running_sum"])
def test_what_only_kernels_have_is_sound(name: str) -> None:
    graph = expanded(name)
    check_region(copied(graph), graph)


def test_a_refusal_is_no_defect() -> None:
    b = Builder()
    graph = whole(b.graph(b.exp(b.parameter((5,), "c64"))))
    with pytest.raises(CodegenError) as caught:
        generate(graph, H200)
    assert not isinstance(caught.value, PassError)
