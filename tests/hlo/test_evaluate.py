"""The NumPy reference agrees with XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls


def entry(fun, *args, inline=False):
    data = jax.jit(fun).lower(*args).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return from_proto(inline_calls(data) if inline else data).entry


def assert_same(got, want):
    assert got.dtype == want.dtype
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    tolerance = 1e-6 if want.dtype == np.float32 else 4e-3
    got, want = got.astype(np.float64), want.astype(np.float64)
    scale = np.abs(want[np.isfinite(want)]).max(initial=1.0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)


def test_real_programs_evaluate_as_compiled(program):
    for got, want in zip(
        evaluate(from_proto(program.hlo).entry, program.leaves), program.want, strict=True
    ):
        assert_same(got, want)


def test_inlining_keeps_the_value(program):
    plain = evaluate(from_proto(program.hlo).entry, program.leaves)
    inlined = evaluate(from_proto(inline_calls(program.hlo)).entry, program.leaves)
    for got, want in zip(inlined, plain, strict=True):
        np.testing.assert_array_equal(got, want)


def test_float64_mode_keeps_no_rounding():
    x = np.linspace(0.1, 1, 7, dtype=np.float32)
    graph = entry(lambda x: jnp.sin(x.astype(jnp.bfloat16)).astype(jnp.float32) / 3, x)
    [got] = evaluate(graph, [x], float64=True)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, np.sin(x.astype(np.float64)) / 3, rtol=1e-15)


def test_float64_mode_keeps_integer_bits():
    x = np.array([1.5, -2.0], np.float32)
    graph = entry(lambda x: jax.lax.bitcast_convert_type(x, jnp.int32), x)
    np.testing.assert_array_equal(evaluate(graph, [x], float64=True)[0], x.view(np.int32))


SPECIAL = np.array(
    [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 0.49999997, 3e9, -3e9, 1e-40, np.inf, -np.inf, np.nan],
    np.float32,
)
UNARY = {
    "sign": jnp.sign,
    "round": jnp.round,
    "round_away": lambda x: jax.lax.round(x, jax.lax.RoundingMethod.AWAY_FROM_ZERO),
    "to_int": lambda x: x.astype(jnp.int32),
    "to_uint8": lambda x: x.astype(jnp.uint8),
    "to_bool": lambda x: x.astype(bool),
    "is_finite": jnp.isfinite,
    "logistic": jax.nn.sigmoid,
    "erf": jax.lax.erf,
    "cbrt": jnp.cbrt,
    "rsqrt": jax.lax.rsqrt,
    "log1p": jnp.log1p,
    "expm1": jnp.expm1,
    "clamp": lambda x: jnp.clip(x, -1, 2),
    "reduce_precision": lambda x: jax.lax.reduce_precision(x, 5, 3),
    "bits": lambda x: jax.lax.bitcast_convert_type(x, jnp.uint16),
    "maximum": lambda x: jnp.maximum(x, x[::-1]),
    "sort": jnp.sort,
    "largest": lambda x: jax.lax.top_k(x, 5)[0],
    "places of the largest": lambda x: jax.lax.top_k(x, 9)[1],
    "cumsum": lambda x: jnp.cumsum(x[:9]),
    "argmin": jnp.argmin,
}


@pytest.mark.parametrize("name", UNARY)
def test_special_floats(name):
    x = (
        SPECIAL[~np.isclose(SPECIAL, 1e-40, atol=1e-41)]
        if name not in ("bits", "sort")
        else SPECIAL
    )
    [got] = evaluate(entry(UNARY[name], x), [x])
    assert_same(got, np.asarray(jax.jit(UNARY[name])(x)))
    if name in ("sign", "round", "round_away"):
        np.testing.assert_array_equal(np.signbit(got), np.signbit(jax.jit(UNARY[name])(x)))


LAX = jax.lax
BINARY = {
    "div": LAX.div,
    "rem": LAX.rem,
    "shift_left": LAX.shift_left,
    "shift_right_logical": LAX.shift_right_logical,
    "shift_right_arithmetic": LAX.shift_right_arithmetic,
    "max": LAX.max,
    "compare": LAX.lt,
    "clz": lambda x, y: LAX.clz(x) + LAX.population_count(y),
}


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int16", "uint64"])
@pytest.mark.parametrize("name", BINARY)
def test_integer_corners(name, dtype):
    info = np.iinfo(dtype)
    values = np.array([0, 1, 2, 7, 31, 40, info.max, info.min, info.max - 1], dtype)
    if info.min < 0:
        values = np.concatenate([values, np.array([-1, -7], dtype)])
    with jax.enable_x64(True):
        x, y = (a.ravel() for a in np.meshgrid(values, values))
        graph = entry(BINARY[name], x, y)
        want = np.asarray(jax.jit(BINARY[name])(x, y))
    [got] = evaluate(graph, [x, y])
    assert_same(got, want)


MOVES = {
    "pad": lambda x: LAX.pad(x, 7.0, ((1, -1, 2), (-2, 3, 0))),
    "gather": lambda x: x[jnp.array([[5, 0], [2, 9]]), jnp.array([1, 3])],
    "largest": lambda x: LAX.top_k(jnp.round(x), 3)[1],
    "take": lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1),
    "scatter_add": lambda x: x.at[jnp.array([1, 1, 99]), jnp.array([0, 0, 0])].add(2.0),
    "dynamic": lambda x: LAX.dynamic_slice(x, (jnp.int32(4), jnp.int32(-3)), (2, 2)),
    "update": lambda x: LAX.dynamic_update_slice(x, x[:2, :2] * 2, (jnp.int32(9), jnp.int32(1))),
    "pool": lambda x: LAX.reduce_window(x, -jnp.inf, LAX.max, (2, 3), (2, 1), "SAME"),
    "transpose": lambda x: x.reshape(5, 2, 2).transpose(2, 0, 1)[::-1, 1:4:2],
    "repeat": lambda x: jnp.broadcast_to(x[:, None], (5, 3, 4)).sum((0, 2)),
    "batched_gather": lambda x: jax.vmap(lambda row, i: row[i])(x, jnp.array([0, 3, 2, 1, 1])),
}


@pytest.mark.parametrize("name", MOVES)
def test_movement(name):
    x = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
    [got] = evaluate(entry(MOVES[name], x), [x])
    assert_same(got, np.asarray(jax.jit(MOVES[name])(x)))


def test_the_largest_indices_are_clamped_to_the_last_element():
    x, i = np.arange(5, dtype=np.float32), np.array([0, 3, 2**64 - 1, 2**63], np.uint64)
    numbers = LAX.GatherDimensionNumbers((), (0,), (0,))

    def fun(x, i):
        return LAX.gather(x, i[:, None], numbers, (1,), mode="clip")

    with jax.enable_x64(True):
        [got] = evaluate(entry(fun, x, i), [x, i])
    np.testing.assert_array_equal(got, [0, 3, 4, 4])


def test_scatters_name_what_they_do_with_an_update():
    x = np.zeros((5, 4), np.float32)
    bodies = {"set": "replace", "add": "add", "max": "maximum", "min": "minimum"}
    for method, name in bodies.items():
        graph = entry(lambda x, m=method: getattr(x.at[jnp.array([1, 1])], m)(2.0), x)
        [op] = [op for op in graph if op.opcode == "scatter"]
        assert op.attrs["reducer"] == name


def test_dots_contract_any_dimensions():
    x = np.random.default_rng(0).integers(-4, 4, (3, 2, 5, 4)).astype(np.int8)

    def fun(x):
        numbers = (((1, 3), (1, 3)), ((0,), (0,)))
        return LAX.dot_general(x, x, numbers, preferred_element_type=jnp.int32)

    np.testing.assert_array_equal(evaluate(entry(fun, x), [x])[0], jax.jit(fun)(x))


def test_custom_calls_take_their_reference():
    def fun(x):
        return jax.ffi.ffi_call("made_up", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    x = np.ones(3, np.float32)
    graph = entry(fun, x)
    [got] = evaluate(graph, [x], targets={"made_up": lambda op, values: values[0] * 5})
    np.testing.assert_array_equal(got, 5 * x)
    with pytest.raises(ImportModuleError, match="'made_up' has no NumPy reference"):
        evaluate(graph, [x])


def test_an_opcode_without_reference_is_named():
    x = np.ones(4, np.complex64)
    with pytest.raises(ImportModuleError, match="fft has no NumPy reference"):
        evaluate(entry(jnp.fft.fft, x, inline=True), [x])


def test_floats_of_one_byte_are_rounded_to_in_float64_too():
    x = np.linspace(-3.0, 3.0, 50, dtype=np.float32)
    narrow = jnp.float8_e5m2
    graph = entry(lambda x: (x * 0.1).astype(narrow).astype(jnp.float32), x)
    [got] = evaluate(graph, [x], float64=True)
    assert got.dtype == np.float64
    expected = (
        (x.astype(np.float64) * np.float64(np.float32(0.1))).astype(narrow).astype(np.float64)
    )
    np.testing.assert_array_equal(got, expected)
