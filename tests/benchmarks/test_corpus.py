"""The corpus: what its templates draw, and that each is a program without loops that runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.extend.core as jax_core
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from benchmarks.checking import check_rounded, wanted_by
from benchmarks.corpus import public
from benchmarks.corpus.drawing import Draw
from benchmarks.corpus.table import KINDS, Program, find, templates
from fusionstitch import accuracy

TEMPLATES = templates()
#: Primitives that repeat a body.
LOOPS = {"scan", "while", "custom_root", "custom_linear_solve"}


def primitives(jaxpr: Any) -> Iterator[str]:
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax_core.jaxprs_in_params(equation.params):
            yield from primitives(inner)


def signature(program: Program) -> list[tuple[tuple[int, ...], Any]]:
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(program.leaves)]


def test_there_are_enough_of_each_kind() -> None:
    assert len(TEMPLATES) >= 120
    kinds = Counter(one.kind for one in TEMPLATES.values())
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 8
    assert list(TEMPLATES) == [one.name for one in TEMPLATES.values()]


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_small_program_lowers_and_has_no_loop(name: str, seed: int) -> None:
    program = TEMPLATES[name].program(seed, small=True)
    assert program.nbytes < 3_000_000
    assert all(leaf.dtype not in (np.float64, np.int64) for leaf in jax.tree.leaves(program.leaves))
    traced = jax.jit(program.fun).trace(*program.shapes())
    assert not LOOPS & set(primitives(traced.jaxpr.jaxpr))
    assert jax.tree.leaves(traced.lower().out_info)


@pytest.mark.parametrize("name", TEMPLATES)
def test_arguments_have_the_shapes_that_were_drawn(name: str) -> None:
    program = TEMPLATES[name].program(0, small=True)
    arrays = jax.tree.leaves(program.args())
    assert [(a.shape, a.dtype) for a in arrays] == signature(program)
    assert all(np.isfinite(a.astype(np.complex64)).all() for a in arrays) or "scaled" in name


def test_equal_seeds_draw_equal_programs_and_others_draw_others() -> None:
    drawn = {s: {n: one.program(s) for n, one in TEMPLATES.items()} for s in (3, 4)}
    for name, one in TEMPLATES.items():
        assert signature(one.program(3)) == signature(drawn[3][name])
    other = sum(signature(drawn[3][n]) != signature(drawn[4][n]) for n in TEMPLATES)
    assert other > 0.9 * len(TEMPLATES)
    one, again = (TEMPLATES["embedding_bags"].program(3, small=True).args() for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, one, again)


def test_programs_for_a_gpu_are_neither_tiny_nor_too_large() -> None:
    sizes = np.array([one.program(s).nbytes for one in TEMPLATES.values() for s in range(5)])
    assert np.median(sizes) > 2e6
    assert sizes.max() < 7e8


def test_what_is_drawn_keeps_to_its_bounds() -> None:
    for small in (False, True):
        draw = Draw(7, "bounds", small)
        for _ in range(50):
            assert draw.size(96, 640, 32) in range(32 if small else 96, 641, 32)
            assert draw.odd_size(3, 900) % 2 == 1
            assert draw.size(100, 900, least=30) >= 30
            assert 0 <= draw.axis(3) < 3
    assert {Draw(s, "x").choice("a", "b") for s in range(20)} == {"a", "b"}
    assert Draw(0, "x").size(2, 10**9) != Draw(0, "y").size(2, 10**9)


def test_names_and_kinds_are_found() -> None:
    assert [one.name for one in find(["shifted_windows"])] == ["shifted_windows"]
    assert {one.kind for one in find(kinds=["hashing"])} == {"hashing"}
    assert len(find(["shifted_windows"], ["hashing"])) == len(find(kinds=["hashing"])) + 1
    assert find() == list(TEMPLATES.values())
    with pytest.raises(ValueError, match=r"No template is called windows\. There are: batch_norm"):
        find(["windows"])
    with pytest.raises(ValueError, match=r"No kind is called sport\. There are: vision"):
        find(kinds=["sport"])


#: A part of them, since each has kernels for the host compiler to build.
SOME = list(TEMPLATES)[::12]


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
@pytest.mark.usefixtures("host_compiler")
def test_a_small_program_is_right_under_the_emulator(name: str) -> None:
    program = TEMPLATES[name].program(2026, small=True)
    args = program.args()
    lowered: Any = jax.jit(program.fun, keep_unused=True).lower(*args)
    module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    options = fs.Options(backend="emulate")
    sides = jax.jit(program.fun), fs.jit(program.fun, options=options)
    xla, ours = ([accuracy.host(x) for x in jax.tree.leaves(run(*args))] for run in sides)
    assert not check_rounded(ours, xla, *wanted_by(program.fun, args, module, xla))["wrong"]


def test_the_first_size_that_is_drawn_is_so_many_times_as_large() -> None:
    plain, large = Draw(3, "a_program"), Draw(3, "a_program", times=16)
    sizes = [
        [draw.size(3, 90, 3), draw.size(5, 50), draw.odd_size(5, 50)] for draw in (plain, large)
    ]
    assert sizes[1] == [16 * sizes[0][0], *sizes[0][1:]]
    assert large.dtype() == plain.dtype()


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_program_of_a_larger_batch_lowers(name: str) -> None:
    template = TEMPLATES[name]
    large, plain = template.program(2, times=4), template.program(2)
    assert large.nbytes >= plain.nbytes
    jax.jit(large.fun).trace(*large.shapes())


def checkouts(folder: Path) -> Path:
    """Suites as others lay them out, with a program each."""
    operator = folder / "JAXBench" / "benchmark" / "2k_Scaled"
    operator.mkdir(parents=True)
    (operator / "baseline.py").write_text(
        "import jax.numpy as jnp\n"
        "def create_inputs(dtype=jnp.float32):\n"
        "    return jnp.arange(6, dtype=dtype), 3\n"
        "def workload(x, times):\n"
        "    return jnp.tile(x, times) * 2\n"
    )
    for part, function in public.OCEAN.items():
        package, _, module = part.partition(".")
        part_of = folder / "pyhpc-benchmarks" / "benchmarks" / package
        part_of.mkdir(parents=True)
        (part_of / "__init__.py").write_text(
            "import numpy as np\n"
            "def generate_inputs(size):\n"
            "    return np.arange(size) / size, np.arange(3)\n"
        )
        (part_of / f"{module}.py").write_text(f"def {function}(x, y):\n    return x[y] + y\n")
    return folder


def test_programs_of_published_suites_are_read_from_their_checkouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = public.templates(checkouts(tmp_path))
    assert known is not None
    assert len(known) == 1 + len(public.OCEAN) * len(public.SIZES)
    [scaled] = find(kinds=["JAXBench"], among=known)
    program = scaled.program(0)
    [leaf] = program.leaves
    assert (leaf.shape, leaf.dtype, program.name) == ((6,), jnp.bfloat16, "2k_Scaled")
    wanted = np.tile(np.arange(6), 3) * 2
    np.testing.assert_array_equal(program.fun(*program.args()).astype(np.float32), wanted)
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        program = known[f"equation_of_state_{public.SIZES[0]}"].program(0)
        assert jax.config.jax_enable_x64
    finally:
        jax.config.update("jax_enable_x64", False)
    assert [str(leaf.dtype) for leaf in program.leaves] == ["float64", "int64"]
    assert program.fun(*program.args()).shape == (3,)


def test_a_folder_without_suites_is_refused(tmp_path: Path) -> None:
    assert public.templates(None) is None
    with pytest.raises(ValueError, match="no checkout of a suite: JAXBench or pyhpc-benchmarks"):
        public.templates(tmp_path)
