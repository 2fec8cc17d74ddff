"""C text without its comments: what kernels are compiled as and kept by."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.codegen.text.source import comment, uncommented
from fusionstitch.costmodel.devices import device
from fusionstitch.runtime import cuda, nvrtc, toolchain
from fusionstitch.runtime.toolchain import MemoryStore

KERNEL = """#include "fusionstitch.cuh"
{0}
extern "C" __global__ void copy(const float* x, float* y) {{
  {1}
  y[threadIdx.x] = x[threadIdx.x];
}}
"""


def kernel(*comments: str) -> str:
    return KERNEL.format(*map(comment, comments))


#: Texts that differ in more than comments, each beside one that it could be taken for.
OTHERS = {
    "a statement": ("a;\n// one\n", "b;\n// one\n"),
    "a line more": ("a;\n// one\n", "a;\n\n// one\n"),
    "a joined line": ("// one\na;\n", "// one \\\na;\n"),
    "a joined line, as a trigraph": ("// one\na;\n", "// one ??/\na;\n"),
    "a string": ('s = "\\\n// one";\n', 's = "\\\n// two";\n'),
    "a raw string": ('s = R"(\n// one\n)";\n', 's = R"(\n// two\n)";\n'),
    "a longer comment": ("/*\n// */ a;\n", "/*\n// */ b;\n"),
    "a comment that ends within a line": ("// one\ra;\n", "// one\rb;\n"),
    "what only looks like one": ('s = "//one";\n', 's = "//two";\n'),
}


def test_comments_do_not_matter_and_lines_keep_their_numbers() -> None:
    one, other = kernel("step.py:7", "add"), kernel("step.py:1234", "it's \"quoted\" // 'so'")
    assert uncommented(one) == uncommented(other) == KERNEL.format("", "").replace("  \n", "\n")


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_else_differs_matters(name: str) -> None:
    one, other = OTHERS[name]
    assert uncommented(one) != uncommented(other)


def placed(line: int) -> Any:
    """A function of the user's that begins at a line of a file."""
    text = "\n" * line + "def step(x):\n    return jax.nn.softmax(x), x.sum(0)\n"
    names: dict[str, Any] = {"jax": jax}
    exec(compile(text, "step.py", "exec"), names)
    return names["step"]


def test_a_function_that_was_moved_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[str] = []
    build, options = toolchain.build, fs.Options(backend="emulate")

    def counting(source: str, *rest: Any) -> bytes:
        compiled.append(source)
        return build(source, *rest)

    monkeypatch.setattr(toolchain, "build", counting)
    x = jnp.ones((13, 37))
    [one], [other] = (
        fs.jit(placed(line), options=options).lower(x).compile().kernels for line in (0, 8)
    )
    assert "(step.py:2)" in one.source
    assert "(step.py:10)" in other.source
    assert sum(one.name in source for source in compiled) == 1  # besides the launcher


@pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)
def test_nor_is_it_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    options = fs.Options(backend="emulate", device="h200")
    x, store = jnp.ones((13, 37)), MemoryStore()
    [one], [other] = (
        fs.jit(placed(line), options=options).lower(x).compile().kernels for line in (0, 8)
    )
    assert one.source != other.source
    first = cuda.build([one], device("h200"), store)
    monkeypatch.setattr(nvrtc, "compile", lambda *_: pytest.fail("it is compiled again"))
    assert cuda.build([other], device("h200"), store) == first
