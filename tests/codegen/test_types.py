"""Element types of "fusionstitch.cuh": conversions of the 16-bit floats, vectors, rounding."""

import ml_dtypes
import numpy as np
import pytest

from fusionstitch.codegen.text.types import C_TYPES, c_type
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import FLOATS8, ITEM_BYTES
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.runtime import emulate
from tests.codegen.small_kernels import Launch, on_emulator

# NumPy warns when it tests a signaling bfloat16 NaN for NaN.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")

SIXTEEN = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}


def run(text, argument, result):
    """out[i] = text of a[i]."""
    return on_emulator([Launch.elementwise("convert", text, [argument], result)])[0]


def every(dtype):
    return np.arange(1 << 16, dtype=np.uint16).view(SIXTEEN[dtype])


def bits(floats):
    return floats.view(f"uint{8 * floats.dtype.itemsize}")


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_every_16_bit_float_is_loaded_exactly(dtype):
    values = every(dtype)
    loaded = run("fs_load(a[i])", values, "f32")
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(bits(loaded[numbers]), bits(values[numbers].astype(np.float32)))
    assert np.isnan(loaded[~numbers]).all()
    assert (np.signbit(loaded) == np.signbit(values)).all()


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_stores_round_to_nearest_even_everywhere(dtype):
    # every representable number, every midpoint to the next, and the floats beside both
    exact = every(dtype)[np.isfinite(every(dtype))].astype(np.float32)
    step = {"bf16": 1 << 15, "f16": 1 << 12}[dtype]
    middle = (bits(exact) + step).view(np.float32)
    if dtype == "f16":  # subnormals are evenly spaced
        tiny = np.abs(exact) < 2.0**-14
        middle[tiny] = exact[tiny] + np.float32(2.0**-25)
    around = [np.nextafter(x, np.float32(to)) for x in (exact, middle) for to in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    anything = rng.integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    values = np.concatenate([exact, middle, *around, anything, np.float32([np.inf, -np.inf])])
    values = values[~np.isnan(values)]
    with np.errstate(over="ignore"):
        expected = values.astype(SIXTEEN[dtype])
    stored = run("a[i]", values, dtype)
    np.testing.assert_array_equal(bits(stored), bits(expected))
    rounded = run(f"fs_round_{dtype}(a[i])", values, "f32")
    np.testing.assert_array_equal(bits(rounded), bits(expected.astype(np.float32)))


@pytest.mark.parametrize("dtype", sorted(FLOATS8))
def test_every_8_bit_float_is_loaded_exactly(dtype):
    values = np.arange(256, dtype=np.uint8).view(NUMPY_DTYPES[dtype])
    loaded = run("fs_load(a[i])", values, "f32")
    expected = values.astype(np.float32)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(bits(loaded[numbers]), bits(expected[numbers]))
    assert np.isnan(loaded[~numbers]).all()


@pytest.mark.parametrize("dtype", sorted(FLOATS8))
def test_stores_to_8_bits_round_to_nearest_even_everywhere(dtype):
    kind = NUMPY_DTYPES[dtype]
    every = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
    exact = np.sort(every[np.isfinite(every)])
    middle = (exact[1:] + exact[:-1]) / 2
    around = [np.nextafter(x, np.float32(to)) for x in (exact, middle) for to in (-np.inf, np.inf)]
    beyond = np.float32([1e9, -1e9, np.inf, -np.inf, 1e-30, -1e-30, -0.0, np.nan])
    top = exact[-1] * np.linspace(1, 1.3, 40, dtype=np.float32)
    values = np.concatenate([exact, middle, *around, top, -top, beyond])
    expected = values.astype(kind)
    stored = run("a[i]", values, dtype)
    missing = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(stored.astype(np.float32)), missing)
    known = ~missing
    np.testing.assert_array_equal(stored[known].view(np.uint8), expected[known].view(np.uint8))


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_nan_stays_nan_with_its_sign(dtype):
    patterns = np.array([0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0xFF800001, 0xFFFFFFFF], np.uint32)
    stored = run("a[i]", patterns.view(np.float32), dtype)
    assert np.isnan(stored).all()
    assert np.signbit(stored).tolist() == [False, False, False, True, True]


def test_a_vector_is_one_access_in_order():
    values = np.arange(64, dtype=np.uint16).view(SIXTEEN["bf16"])
    body = """
  for (int i = 0; i < 8; ++i) {
    const auto v = fs_load_vec<bf16, 8>(a + 8 * i);
    fs_vec<bf16, 8> w;
    for (int j = 0; j < 8; ++j) w[j] = fs_store_as<bf16>(fs_load(v[7 - j]));
    fs_store_vec(out + 8 * i, w);
  }
  static_assert(sizeof(fs_vec<bf16, 8>) == 16 && alignof(fs_vec<bf16, 8>) == 16, "");"""
    kernel = Launch.of("reverse", body, [values], "bf16", 64).kernel
    (out,) = emulate.run(kernel, [values])
    np.testing.assert_array_equal(bits(out), bits(values).reshape(8, 8)[:, ::-1].ravel())


def test_storage_types_are_as_large_as_hlo_says():
    sizes = ", ".join(f"(int32_t)sizeof({kind.storage})" for kind in C_TYPES.values())
    body = f"  const int32_t sizes[] = {{{sizes}}};\n"
    body += f"  for (int i = 0; i < {len(C_TYPES)}; ++i) out[i] = sizes[i];"
    (found,) = on_emulator([Launch.of("sizes", body, [], "s32", len(C_TYPES))])
    assert found.tolist() == [kind.bytes for kind in C_TYPES.values()]
    assert found.tolist() == [ITEM_BYTES[dtype] for dtype in C_TYPES]


def test_a_type_without_c_type_says_what_to_do():
    assert c_type("bf16").compute == "float"
    with pytest.raises(CodegenError, match="c64 has no CUDA-C type: leave the op to XLA"):
        c_type("c64")
