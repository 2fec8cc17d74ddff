"""Kernels of modules whose names are attacks: the same C tokens as with harmless names."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.text.source import RESERVED
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.simplify import simplify
from fusionstitch.runtime import nvrtc
from fusionstitch.runtime.emulator import header_folder
from tests.codegen.cases import CASES
from tests.codegen.regions import Built, Case, build, whole
from tests.foreign.tricks import NAMES, TRICKS, renamed

#: Those that are compiled and run.
BUILT = ("softmax_vectors", "layer_norm_backward", "cross_entropy", "packed_like_tensors", "chain")
#: Between them they have tables, functors of users, shared functions, scratch, streams, tensor
#: cores, clusters, records, places that data decides, sums carried over rows.
SHOWN = (
    *("chain", "adam", "softmax_vectors", "layer_norm_backward", "cross_entropy", "attention"),
    *("packed_like_tensors", "all_four_compositions", "norm_both_ways_512_bfloat16", "tiled_lots"),
)
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|\.?[A-Za-z_]\w*|\d[\w.]*|\S')
_TRIGRAPHS = dict(zip("=/'()!<>-", "#\\^[]|{}~", strict=True))


def names() -> list[str]:
    """The cases that are tried: those above, and every fifth of the table."""
    return [*SHOWN, *(name for name in list(CASES)[::5] if name not in SHOWN)]


def tokens(source: str) -> list[str]:
    """What a C compiler reads: trigraphs, joined lines and comments are done with first."""
    text = re.sub(r"\?\?([=/'()!<>-])", lambda found: _TRIGRAPHS[found[1]], source)
    text = re.sub(r"\\[ \t]*(?:\r\n|[\n\r\v\f\x85\u2028\u2029])", "", text)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL) if "/*" in uncommented(text) else text
    return _TOKEN.findall(uncommented(text))


def uncommented(text: str) -> str:
    # as the strictest reader sees it, a comment ends with whatever may end a line
    return re.sub(r"//[^\n\r\v\f\x85\u2028\u2029]*", "", text)


def parts(source: str) -> list[list[str]]:
    """The tokens of each definition: names are their own in each."""
    found: list[list[str]] = [[]]
    depth = 0
    for token in tokens(source):
        depth += (token == "{") - (token == "}")
        found[-1].append(token)
        if depth == 0 and token in "};":
            found.append([])
    return found


@cache
def module(case: str) -> bytes:
    program = CASES[case]
    with jax.enable_x64(program.wide):
        lowered = jax.jit(program.fun).lower(*program.args)
    return inline_calls(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())


def case_of(case: str, name: Callable[[int], str], text: Callable[[int], str]) -> Case:
    program = CASES[case]
    graph = simplify(from_proto(renamed(module(case), name, text)).entry)
    args = [np.asarray(a) for a in jax.tree.leaves(program.args)]
    return Case(whole(graph, f"k_{case}"), args, program.device, program.options)


def harmless(case: str) -> Case:
    return case_of(case, lambda n: f"q{n}_7", lambda n: f"jit(f)/q{n}")


@cache
def hostile(case: str) -> Case:
    first = sum(map(ord, case))
    return case_of(
        case,
        lambda n: NAMES[(first + n) % len(NAMES)],
        lambda n: TRICKS[(first + 3 * n) % len(TRICKS)],
    )


def assert_same(one: Kernel, other: Kernel) -> None:
    """Token by token the same but for names, which stand for each other one to one."""
    for mine, theirs in zip(parts(one.source), parts(other.source), strict=True):
        assert len(mine) == len(theirs)
        there: dict[str, str] = {}
        back: dict[str, str] = {}
        for a, b in zip(mine, theirs, strict=True):
            assert there.setdefault(a, b) == b
            assert back.setdefault(b, a) == a
            fixed = not re.match(r"[A-Za-z]", a) or a in RESERVED or a.startswith(("fs_", "Fs"))
            assert a == b or not fixed, (a, b)


@pytest.mark.parametrize("case", names())
def test_names_change_names_alone(case: str) -> None:
    assert_same(harmless(case).kernel(), hostile(case).kernel())


def test_every_character_in_every_comment_and_name() -> None:
    characters = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x10000))))
    chunks = [characters[i : i + 100] for i in range(0, len(characters), 100)]
    plain = harmless("layer_norm_backward").kernel()
    step = 20
    for first in range(0, len(chunks), step):

        def chunk(n: int, first: int = first) -> str:
            return chunks[(first + n % step) % len(chunks)]

        kernel = case_of("layer_norm_backward", chunk, chunk).kernel()
        assert_same(plain, kernel)
        assert all(c.isprintable() or c == "\n" for c in kernel.source)


@pytest.fixture(scope="module")
def built(host_compiler: str) -> Built:
    return build(map(hostile, BUILT))


@pytest.mark.parametrize("case", BUILT)
def test_they_build_and_compute_the_same(built: Built, case: str) -> None:
    built.check(hostile(case))


@pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)
def test_nvrtc_takes_them_one_by_one() -> None:
    for case in ("softmax_vectors", "packed_like_tensors"):
        kernel = hostile(case).kernel()
        [(name, _)] = nvrtc.compile(kernel.source, "sm_90").resources
        assert name == kernel.name


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_nvcc_takes_them(tmp_path: Path) -> None:
    """With the host's headers and their macros, as emitted kernels are built by hand."""
    cases = (*BUILT, "attention_f64")
    parts = [f"namespace in_{case} {{\n{hostile(case).kernel().source}\n}}" for case in cases]
    (tmp_path / "all.cu").write_text("\n".join(['#include "fusionstitch.cuh"', *parts]), "utf-8")
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-I", str(header_folder()), "-ptx", "all.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
