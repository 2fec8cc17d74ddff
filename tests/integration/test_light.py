"""What a first call loads: solvers, graph libraries and CuPy only where they are needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CALL = """
import sys, jax, jax.numpy as jnp, fusionstitch as fs
jax.block_until_ready(fs.jit({fun}, options=fs.Options(backend={backend!r}))(jnp.ones((8, 8))))
print([m for m in ("networkx", "pulp", "highspy", "cupy") if m in sys.modules])
"""
#: As on a GPU up to XLA, which is given what the pass makes of the module.
MARKED = """
import sys, jax, jax.numpy as jnp, fusionstitch as fs
from fusionstitch.compiler import builders
from fusionstitch.execution import cuda as execution_cuda
from fusionstitch.runtime import cuda, xla_pass
from fusionstitch.hlo.verdict import allow
builders.gpu = lambda: allow("faked", kind="NVIDIA H200")
cuda.register_launcher = lambda store: allow()
xla_pass.register = lambda callback: allow()
jitted = fs.jit(lambda x: x @ x, options=fs.Options(scorer="model"))
execution = jitted._fusionstitch.execution
lowered = execution.jitted.lower(jnp.ones((8, 8)))
module = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
xla_pass._stitch(module, execution_cuda._inside_xla, "f", execution.token)
found = [m for m in sys.modules if m.startswith("fusionstitch.codegen.gen")]
print("fusionstitch.compiler.core" in sys.modules, found)
"""


def loaded(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("backend", ["auto", "emulate"])
def test_a_call_with_nothing_to_stitch(backend: str) -> None:
    assert loaded(CALL.format(fun="lambda x: x @ x", backend=backend)) == "[]"


def test_a_call_with_a_pattern() -> None:
    """One that needs no solver loads none."""
    fun = "lambda x: (jax.nn.softmax(x), x.sum(0))"
    assert loaded(CALL.format(fun=fun, backend="emulate")) == "[]"


def test_an_import_loads_nothing_of_pages_and_bars() -> None:
    code = "import sys, fusionstitch\n"
    code += "print([m for m in ('jinja2', 'pygments', 'rich') if m in sys.modules])"
    assert loaded(code) == "[]"


def test_without_a_gpu_no_compiler_is_loaded() -> None:
    code = CALL.format(fun="lambda x: x @ x", backend="auto")
    code += "heavy = ('fusionstitch.codegen', 'fusionstitch.compiler.core')\n"
    code += "print([m for m in sys.modules if m.startswith(heavy)])"
    assert loaded(code) == "[]\n[]"


def test_a_program_that_is_known_loads_no_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_CACHE_DIR", str(tmp_path / "cache"))
    assert loaded(MARKED) == "True ['fusionstitch.codegen.generate']"
    assert loaded(MARKED) == "False []"
