"""Templates drive: what is printed of a kernel makes that kernel, and every part of it acts."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.schedule.parser import parse_template
from fusionstitch.codegen.schedule.template import Template
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError
from tests.codegen.cases import CASES
from tests.codegen.changed import changes
from tests.codegen.regions import Case, build, whole_of
from tests.replay.replay import stored, text

#: One of so many stored regions is tried here; all of them were when this was written.
SAMPLE = 12
#: Cases whose templates are changed, those with a part that few have among them, and how often.
CHANGED = sorted(
    {
        *list(CASES)[::16],
        *("softmax_split", "split_columns", "streamed_bf16", "cluster_norm", "attention_small"),
        *("tiled_parts_f32", "tiled_lots", "layer_norm_backward", "attention_backward", "adam"),
        *("teams_of_4_and_8", "norm_both_ways_512_bfloat16", "argmax", "slices_of_heavy"),
    }
    & CASES.keys()
)
MOST_CHANGES = 60
#: Kernels of changed templates that are run, and threads of the largest.
RUN_EACH, MOST_RUN = 2, 1 << 17
#: An elementwise value that is kept, or no more: where the threads of its loop have it anyway,
#: nothing else becomes of that.
KEPT = re.compile(r"(no (?!stream$|tensor$)[\w.#-]+|.* with other (registers|whole))")


def followed(case: Case, template: str) -> Kernel:
    return generate(case.graph, case.device, replace(case.options, template=template))


def followed_or_refused(case: Case, template: str) -> Kernel | CodegenError:
    try:
        return followed(case, template)
    except CodegenError as error:
        return error


@cache
def case_of(name: str) -> Case:
    return CASES[name].case()


@cache
def made(name: str) -> Kernel:
    return case_of(name).kernel()


@pytest.mark.parametrize("part", range(8))
def test_a_case_is_what_its_template_says(part: int) -> None:
    for name in list(CASES)[part::8]:
        kernel = made(name)
        assert text(followed(case_of(name), kernel.template)) == text(kernel), name


def test_a_kernel_of_a_program_is_what_its_template_says() -> None:
    target = device("h200")
    for name, graph in list(stored())[::SAMPLE]:
        kernel = generate(graph, target)
        again = generate(graph, target, CodegenOptions(template=kernel.template))
        assert text(again) == text(kernel), name


def beside_a_largest(a: Any, w: Any) -> Any:
    """A block that its register tiles shrink to other than a power of two; teams share rows."""
    return jax.nn.softmax((a + jnp.max(w)) @ w, -1)


def with_columns_of_another(a: Any, w: Any) -> Any:
    """A dot that has columns because the least of its operand, in the same loop, reads so."""
    return a @ w.T, jnp.min(w.T, -2)


@pytest.mark.parametrize(
    ("fun", "rows", "inner", "printed"),
    [
        (beside_a_largest, (5, 3), (3, 17), "cta_size=160;"),
        (with_columns_of_another, (1, 1024), (17, 1024), "loop columns=8;\ndot_general"),
    ],
)
def test_what_dots_share_with_others_is_what_the_template_says(
    fun: Any, rows: tuple[int, int], inner: tuple[int, int], printed: str
) -> None:
    target = device("h200")
    graph = whole_of(fun, *(jax.ShapeDtypeStruct(dims, np.float32) for dims in (rows, inner)))
    kernel = generate(graph, target)
    assert printed in kernel.template
    again = generate(graph, target, CodegenOptions(template=kernel.template))
    assert text(again) == text(kernel)


def bare(kernel: Kernel) -> str:
    """A kernel without its template."""
    return " ".join(text(replace(kernel, template="")).split())


def changed(name: str, most: int) -> Iterator[tuple[str, Template]]:
    """Some of the templates that differ in one part from that of a case."""
    found = list(changes(parse_template(made(name).template)))
    random.Random(0).shuffle(found)
    yield from found[:most]


@pytest.mark.parametrize("name", CHANGED)
def test_every_part_of_a_template_acts(name: str) -> None:
    """Another part makes another kernel, or is refused."""
    before = bare(made(name))
    for what, template in changed(name, MOST_CHANGES):
        assert parse_template(str(template)) == template
        kernel = followed_or_refused(case_of(name), str(template))
        if isinstance(kernel, CodegenError):
            assert type(kernel) is CodegenError, f"{what}: {kernel}"
            assert "defect" not in str(kernel), f"{what}: {kernel}"
            continue
        retained = KEPT.fullmatch(what.rpartition(": ")[2])
        assert retained or bare(kernel) != before, what
        assert kernel.template == str(parse_template(kernel.template))


def test_what_another_template_makes_computes_the_same(host_compiler: str) -> None:
    cases: dict[Case, str] = {}
    for name in CHANGED:
        found = 0
        for what, template in changed(name, MOST_CHANGES):
            case = case_of(name)
            one = replace(case, options=replace(case.options, template=str(template)))
            try:
                kernel = one.kernel()
            except CodegenError:
                continue
            if launchable(kernel, case.device) and kernel.grid * kernel.block <= MOST_RUN:
                cases[one] = f"{name}, {what}"
                found += 1
            if found == RUN_EACH:
                break
    built = build(cases)
    for case, what in cases.items():
        try:
            built.check(case, "random", 7)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        ("softmax_64", "cta_size=256;", "cta_size=100;", "cta_size=100: it takes a multiple of 32"),
        ("softmax_64", "cta_size=256;", "cta_size=2048;", "a multiple of 32 up to 1024"),
        ("softmax_64", r"cta_num=\d+;", "cta_num=9999;", "cta_num=9999: there are tiles"),
        ("softmax_64", "group tile=", "group tile=9999", "its grid has"),
        ("softmax_64", "cta_per_sm=any", "cta_per_sm=99", "a multiprocessor has no room"),
        ("softmax_64", "loop team=32", "loop team=33", "team=33 in the loop of reduce_max.7"),
        ("softmax_64", "loop team=32", "loop tensor", "has a register tile, but no dot"),
        ("softmax_64", "loop team=32", "loop stream", "cannot be a stream|has a register tile"),
        ("softmax_64", "loop team=32", "loop team=32, columns=8", "team=32 and columns=8"),
        ("softmax_64", "reduce_max.7", "reduce_max.8", "schedules reduce_max.8, but the region"),
        ("softmax_64", r"reduce_sum.7\[GRID,CTA\];\n", "", "has no line for reduce_sum.7"),
        ("softmax_64", r"reduce_max.7\[GRID,CTA\]", "reduce_max.7[GRID,CTA]G", "takes no mark"),
        ("softmax_64", r"reduce_max.7\[GRID,CTA\]", "reduce_max.7[CTA,GRID]", "cannot be GRID"),
        ("softmax_64", r"reduce_max.7\[GRID,CTA\]", "reduce_max.7[GRID]", "give one per dim"),
        ("cluster_norm", r"cluster=\d;", "cluster=16;", "has clusters of up to"),
        ("rows_of_31", "group", "cluster=2;\ngroup", "rows of at least|multiple of cluster"),
        ("split_columns", r"into \d+;", "into 999999;", "elements go into"),
        ("split_columns", r"split \w+\.?\w*", "split nothing", "no sum of that name"),
    ],
)
def test_what_cannot_be_is_refused_with_the_part(
    name: str, before: str, after: str, message: str
) -> None:
    template, count = re.subn(before, after, made(name).template, count=1)
    assert count, made(name).template
    with pytest.raises(CodegenError, match=message):
        followed(case_of(name), template)


def test_strict_numerics_have_no_streams() -> None:
    case = case_of("streamed_bf16")
    strict = replace(case.options, numerics="strict", template=made("streamed_bf16").template)
    with pytest.raises(CodegenError, match=r"loop stream: .* strict numerics forbid"):
        generate(case.graph, case.device, strict)


def test_what_is_left_out_gets_a_default() -> None:
    """A template of groups, loops and lines alone."""
    kernel = made("softmax_64")
    bones = re.sub(r"(cta_\w+=\w+;\n| tile=\d+| team=\d+)", "", kernel.template)
    assert bones.startswith("group;\nloop;\n")
    assert text(followed(case_of("softmax_64"), bones)) == text(kernel)


def test_bounds_act_where_they_bind() -> None:
    wide, rows = made("softmax_vectors"), made("softmax_1000")
    narrow = followed(case_of("softmax_vectors"), f"vector_bytes=4;\n{wide.template}")
    assert bare(narrow) != bare(wide)
    unheld = followed(case_of("softmax_1000"), f"row_registers=0;\n{rows.template}")
    assert bare(unheld) != bare(rows)
    assert "row_registers=0;" in unheld.template
