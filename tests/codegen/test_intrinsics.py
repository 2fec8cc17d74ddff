"""The records of the functions that kernels call (`codegen/ir/intrinsics.py`) are all there, and no
other file names these functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from fusionstitch.codegen.count.tallies import count
from fusionstitch.codegen.ir import intrinsics
from fusionstitch.codegen.ir.expressions import THREAD, Name, Number, apply, infix
from fusionstitch.codegen.ir.intrinsic import Called, Intrinsic, Template, Value
from fusionstitch.codegen.ir.intrinsics import (
    CLAMP,
    JOIN,
    MMA,
    REDUCE_BLOCK,
    REDUCE_CLUSTER,
    REDUCE_LANES,
    REDUCE_TEAM,
    STORE_PACKED,
    TEAM_BARRIER,
)
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.printer import text
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.spelling import function_text
from fusionstitch.codegen.ir.statements import If, Let, Statement
from fusionstitch.codegen.ir.types import FLOAT, INT, Scalar, Type
from fusionstitch.codegen.ir.verifier import verify
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import PassError
from tests.codegen.kernel_cases import CASES

CODEGEN = Path(str(resources.files("fusionstitch.codegen")))
RECORDS = [one for one in vars(intrinsics).values() if isinstance(one, Intrinsic)]
#: Functions that CUDA has and the emulator's header defines.
OF_CUDA = {"__syncthreads", "__syncthreads_and", "__all_sync", "expf"}
#: Text that becomes part of expressions and reducers: entries of ops, and types of elements.
OF_OPS = ("text/expressions.py", "rewrite/")
#: Types of the headers, which are no functions.
TYPES = {"fs_vec", "fs_loaded", "fs_record"}


def headers() -> str:
    text = "\n".join(path.read_text() for path in sorted((CODEGEN / "cuda").glob("*.cuh")))
    return re.sub(r"//.*", "", text)


def defined() -> dict[str, str]:
    """The functions of the headers and their bodies, those of several definitions together."""
    text, bodies = headers(), dict[str, str]()
    starts = r"^(?:FS_FN|__device__ __forceinline__) [\w<>:,.*& ]*?\b(fs_\w+)\("
    for one in re.finditer(starts, text, re.MULTILINE):
        line = text[one.end() : text.index("\n", one.end())]
        body = line if line.endswith("}") else text[one.end() : text.find("\n}", one.end())]
        bodies[one[1]] = bodies.get(one[1], "") + body
    return bodies


def literals(path: Path) -> Iterator[str]:
    """The texts in a file, its docstrings apart."""
    tree = ast.parse(path.read_text())
    printed = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in printed
        ):
            yield node.value


def test_each_record_is_of_a_function_that_there_is() -> None:
    names = [one.name for one in RECORDS if not one.method]
    assert len(set(names)) == len(names) > 30
    assert set(names) - defined().keys() == OF_CUDA
    assert f"static FS_METHOD T {JOIN.name}(T a, T b)" in headers()


def test_functions_are_known_by_their_records_alone() -> None:
    """No text of the code generator names one, but for the tables of ops."""
    records = CODEGEN / "ir" / "intrinsics.py"
    named: dict[str, set[str]] = {}
    for path in sorted(CODEGEN.rglob("*.py")):
        own = path.relative_to(CODEGEN).as_posix()
        if path != records and not own.startswith(OF_OPS):
            found = {
                name for text in literals(path) for name in re.findall(r"\b(?:fs_|__)\w+", text)
            }
            found = {name for name in found if name in defined().keys() | OF_CUDA} - TYPES
            named |= {own: found} if found else {}
    assert named == {}


def test_nobody_looks_into_the_names_of_functions() -> None:
    looked = re.compile(r"""startswith\(f?["'](?:fs_|__)|partition\(["']<["']\)""")
    found = [
        path.relative_to(CODEGEN).as_posix()
        for path in sorted(CODEGEN.rglob("*.py"))
        if any(looked.search(line) for line in path.read_text().splitlines())
    ]
    assert found == []


@pytest.mark.parametrize("name", ["softmax_1000", "layer_norm_100", "three_phases", "whole_norm"])
def test_what_kernels_call_has_a_record_or_is_an_op(name: str) -> None:
    source = CASES[name].case().kernel().source
    called = {one for one in re.findall(r"\bfs_\w+", source) if one in defined()}
    ops = "".join((CODEGEN / "text" / "expressions.py").read_text())
    assert {one for one in called if one not in ops} <= {one.name for one in RECORDS}
    assert called


def test_who_calls_functions_together_is_what_their_bodies_need() -> None:
    """Those whose bodies meet, by barriers or shuffles, or call one that does."""
    bodies = {name: body for name, body in defined().items() if not name.startswith("fs_delay")}
    meets = {
        "__syncthreads",
        "__shfl",
        "__syncwarp",
        "fs_team_barrier",
        "fs_cluster_barrier",
        "fs_emulated_grid_barrier",
        "mma.sync",
    }
    while more := {n for n, body in bodies.items() if any(word in body for word in meets)} - meets:
        meets |= more
    together = {one.name for one in RECORDS if one.together is not Scope.THREAD}
    meeting = {one.name for one in RECORDS if one.name in meets}
    assert meeting == together - {"__all_sync", "__syncthreads_and"}
    assert len(together) > 12


@pytest.mark.parametrize(
    ("intrinsic", "template", "spelled"),
    [
        (REDUCE_LANES, (32, "FsAdd"), "fs_reduce_lanes<32, FsAdd>"),
        (REDUCE_BLOCK, (4, "FsAdd", "FsMaximum"), "fs_reduce_block<4, FsAdd, FsMaximum>"),
        (CLAMP, (), "fs_clamp"),
        (CLAMP, (INT,), "fs_clamp<int>"),
        (JOIN, ("FsAdd",), "FsAdd::apply"),
        (MMA, (1, 2), "fs_mma<1, 2>"),
        (MMA, (1, 2, 4), "fs_mma<1, 2, 4>"),
    ],
)
def test_calls_are_spelled_with_template_arguments(
    intrinsic: Intrinsic, template: Template, spelled: str
) -> None:
    assert intrinsic.fits(template)
    assert function_text(intrinsic, template) == spelled


@pytest.mark.parametrize(
    ("intrinsic", "template"),
    [
        (REDUCE_LANES, (32,)),
        (REDUCE_LANES, ("FsAdd", 32)),
        (REDUCE_LANES, (32, "FsAdd", "FsAdd")),
        (REDUCE_BLOCK, (4,)),
        (REDUCE_BLOCK, (4, "FsAdd", 4)),
        (CLAMP, (INT, INT)),
        (MMA, (1,)),
    ],
)
def test_others_do_not_fit(intrinsic: Intrinsic, template: Template) -> None:
    assert not intrinsic.fits(template)


def test_what_a_call_takes_follows_from_its_template_arguments() -> None:
    values = [Value(FLOAT), Value(FLOAT)]

    def called(one: Intrinsic, *template: int | str | Type, block: int = 256) -> Called:
        return Called(one, template, values, block)

    team = called(REDUCE_TEAM, 2, "FsAdd", "FsAdd")
    cluster = called(REDUCE_CLUSTER, 8, 4, "FsAdd", "FsAdd")
    assert REDUCE_TEAM.team(team.template) == TEAM_BARRIER.team((64,)) == 64
    assert REDUCE_TEAM.scratch is not None
    assert REDUCE_CLUSTER.scratch is not None
    assert REDUCE_TEAM.scratch(team) == 2 * 32 * 8
    assert REDUCE_CLUSTER.scratch(cluster) == 2 * 2 * 32 * 8
    assert REDUCE_LANES.alike_over((16, "FsAdd")) == 16
    assert CLAMP.alike_over(()) is None
    assert STORE_PACKED.cost is not None
    [pointed] = STORE_PACKED.cost(called(STORE_PACKED, Scalar("bf16"), 8)).pointed
    assert (pointed.bytes, pointed.writes) == (16, True)


H200 = device("h200")
VALUE = Let(FLOAT, "v", Number("1.0f"))


def kernel(*body: Statement) -> Lowered:
    """A kernel of one block of two warps."""
    return Lowered("kernel", (), (), (VALUE, *body), block=64, cluster=1, grid=1, shared=0)


def total(*template: int | str | Type) -> Let:
    """The sum of values over lanes."""
    return Let(FLOAT, "total", apply(REDUCE_LANES, Name("v"), template=template))


def test_calls_are_printed_verified_and_counted_by_their_records() -> None:
    assert text([total(16, "FsAdd")]) == "const float total = fs_reduce_lanes<16, FsAdd>(v);"
    verify(kernel(total(16, "FsAdd")))
    with pytest.raises(PassError, match="fs_reduce_lanes has no such template arguments"):
        verify(kernel(total("FsAdd", 16)))
    parted = If(infix("<", THREAD, 3), None, (total(16, "FsAdd"),))
    with pytest.raises(PassError, match="32 threads meet where conditions part them"):
        verify(kernel(parted))
    assert count(kernel(total(16, "FsAdd")), H200).shuffles == 64 * 4
    assert count(kernel(total(32, "FsAdd")), H200).shuffles == 64 * 5
