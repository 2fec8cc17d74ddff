"""A dot's explicit algorithm is the kernel's own, or the dot stays with XLA and says why."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from fusionstitch.accuracy import relative_error
from fusionstitch.hlo.importer import from_proto
from fusionstitch.patterns.fusible import fusible
from tests.codegen.regions import H200
from tests.numbers.same import BACKENDS, compiled

RNG = np.random.default_rng(3)
X, Y = (RNG.normal(size=(4, 24, 24)).astype(np.float32) for _ in range(2))
F8 = jnp.float8_e4m3fn
#: Algorithm -> the type of its operands here, and whether kernels multiply so.
ALGORITHMS = {
    "DEFAULT": (np.float32, True),
    "ANY_F8_ANY_F8_F32": (F8, True),
    "ANY_F8_ANY_F8_F32_FAST_ACCUM": (F8, False),
    "F16_F16_F16": (np.float16, False),
    "F16_F16_F32": (np.float16, True),
    "BF16_BF16_BF16": (jnp.bfloat16, False),
    "BF16_BF16_F32": (np.float32, False),  # which rounds its operands
    "BF16_BF16_F32_X3": (np.float32, False),
    "BF16_BF16_F32_X6": (np.float32, False),
    "BF16_BF16_F32_X9": (np.float32, False),
    "TF32_TF32_F32": (np.float32, False),
    "TF32_TF32_F32_X3": (np.float32, False),
    "F32_F32_F32": (np.float32, True),
}


def product(precision, dtype):
    def fun(x, y):
        x, y = x.astype(dtype), y.astype(dtype)
        dims = (((2,), (1,)), ((0,), (0,)))
        z = lax.dot_general(x, y, dims, precision=precision, preferred_element_type=np.float32)
        return jnp.tanh(z * 0.1) + 1

    return fun


def the_dot(fun):
    """The dot of a program, as it is lowered for a GPU."""
    traced = jax.jit(fun).trace(X, Y).lower(lowering_platforms=("cuda",))
    data = traced.compiler_ir("hlo").as_serialized_hlo_module_proto()
    [dot] = [op for op in from_proto(data).entry if op.opcode == "dot"]
    return dot


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_dot_is_a_kernels_only_by_its_own_algorithms(name):
    dtype, own = ALGORITHMS[name]
    dot = the_dot(product(lax.DotAlgorithmPreset[name], dtype))
    asked = "unset" if name == "DEFAULT" else f"dot_{name.lower()}"
    assert dot.attrs["algorithm"] == asked
    verdict = fusible(dot, H200)
    assert bool(verdict) == own
    if not own:
        assert verdict.reason == "Kernels do not multiply by the algorithm it asks for."
        assert verdict.facts == (("algorithm", asked),)


def test_bf16_operands_need_no_rounding():
    dot = the_dot(product(lax.DotAlgorithmPreset.BF16_BF16_F32, jnp.bfloat16))
    assert fusible(dot, H200)


@pytest.mark.parametrize(
    ("precision", "kept"),
    [
        (lax.DotAlgorithmPreset.F32_F32_F32, "highest"),
        (lax.Precision.HIGHEST, "highest"),
        ((lax.Precision.DEFAULT, lax.Precision.HIGHEST), "highest"),
        (lax.Precision.HIGH, "high"),
        (None, "default"),
    ],
)
def test_precision_of_operands_is_kept(precision, kept):
    assert the_dot(product(precision, np.float32)).attrs["precision"] == kept


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("precision", ["F32_F32_F32", "highest", "high", "default"])
def test_products_are_as_exact_as_asked_for(precision, backend):
    """f32 throughout where it is asked for: tensor cores keep 22 bits of the operands, and on a GPU
    11 where nothing is asked for, as XLA's libraries do."""
    fun = product(precision, np.float32)
    run = compiled(fun, X, Y, backend=backend)
    assert any("dot" in kernel.source for kernel in run.kernels)
    assert ("fs_mma" in run.kernels[0].source) == (precision in ("high", "default"))
    exact = np.tanh(X.astype(np.float64) @ Y * 0.1) + 1
    limit = 1e-7 if precision in ("F32_F32_F32", "highest") else 3e-7
    if precision == "default" and backend == "cuda":
        limit = 2e-4
    assert relative_error(np.asarray(run(X, Y)), exact) <= limit
