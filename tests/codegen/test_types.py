"""Element types of "fusionstitch.cuh": conversions of the 16-bit floats, vectors, rounding."""

import ml_dtypes
import numpy as np
import pytest

from codegen.types import C_TYPES, c_type
from hlo.errors import CodegenError
from hlo.graph import ITEM_BYTES
from tests.codegen.cuda_on_host import build, call

# NumPy warns when it asks a signalling bfloat16 NaN whether it is one.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")

SIXTEEN = {"bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}

SOURCE = """
#define CONVERT(name, From, To, function) \\
  KERNEL(name)(const From* a, To* out, int n) { EACH(i, n) out[i] = function(a[i]); }
CONVERT(load_bf16, bf16, float, fs_load)
CONVERT(load_f16, f16, float, fs_load)
CONVERT(store_bf16, float, bf16, fs_store_as<bf16>)
CONVERT(store_f16, float, f16, fs_store_as<f16>)
CONVERT(round_bf16, float, float, fs_round_bf16)
CONVERT(round_f16, float, float, fs_round_f16)
KERNEL(reverse_bf16)(const bf16* a, bf16* out, int n) {
  EACH(i, n / 8) {
    fs_vec<bf16, 8> v = fs_load_vec<bf16, 8>(a + 8 * i), w;
    for (int j = 0; j < 8; ++j) w[j] = v[7 - j];
    fs_store_vec(out + 8 * i, w);
  }
}
KERNEL(sizes)(int32_t* out, int n) {
  int32_t found[] = {SIZES};
  EACH(i, n) out[i] = found[i];
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    sizes = ", ".join(f"(int32_t)sizeof({kind.storage})" for kind in C_TYPES.values())
    return build(SOURCE.replace("SIZES", sizes), tmp_path_factory.mktemp("types"))


def run(library, name, argument, dtype):
    out = np.zeros(argument.shape, dtype)
    call(library, name, argument, out)
    return out


def every(dtype):
    return np.arange(1 << 16, dtype=np.uint16).view(SIXTEEN[dtype])


def bits(floats):
    return floats.view(f"uint{8 * floats.dtype.itemsize}")


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_every_16_bit_float_is_loaded_exactly(library, dtype):
    values = every(dtype)
    loaded = run(library, f"load_{dtype}", values, np.float32)
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(bits(loaded[numbers]), bits(values[numbers].astype(np.float32)))
    assert np.isnan(loaded[~numbers]).all()
    assert (np.signbit(loaded) == np.signbit(values)).all()


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_stores_round_to_nearest_even_everywhere(library, dtype):
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
    stored = run(library, f"store_{dtype}", values, SIXTEEN[dtype])
    np.testing.assert_array_equal(bits(stored), bits(expected))
    rounded = run(library, f"round_{dtype}", values, np.float32)
    np.testing.assert_array_equal(bits(rounded), bits(expected.astype(np.float32)))


@pytest.mark.parametrize("dtype", SIXTEEN)
def test_nan_stays_nan_with_its_sign(library, dtype):
    patterns = np.array([0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0xFF800001, 0xFFFFFFFF], np.uint32)
    stored = run(library, f"store_{dtype}", patterns.view(np.float32), SIXTEEN[dtype])
    assert np.isnan(stored).all()
    assert np.signbit(stored).tolist() == [False, False, False, True, True]


def test_a_vector_is_one_16_byte_access_in_order(library):
    values = np.arange(64, dtype=np.uint16).view(SIXTEEN["bf16"])
    aligned = np.zeros(64 + 16, np.uint16)
    source, out = (aligned.copy() for _ in range(2))
    starts = [-array.ctypes.data % 16 // 2 for array in (source, out)]
    source[starts[0] : starts[0] + 64] = bits(values)
    into = out[starts[1] : starts[1] + 64]
    call(library, "reverse_bf16", source[starts[0] : starts[0] + 64], into)
    np.testing.assert_array_equal(into, bits(values).reshape(8, 8)[:, ::-1].ravel())


def test_storage_types_are_as_large_as_hlo_says(library):
    sizes = np.zeros(len(C_TYPES), np.int32)
    call(library, "sizes", sizes)
    assert sizes.tolist() == [kind.bytes for kind in C_TYPES.values()]
    assert sizes.tolist() == [ITEM_BYTES[dtype] for dtype in C_TYPES]


def test_a_type_without_c_type_says_what_to_do():
    assert c_type("bf16").compute == "float"
    with pytest.raises(CodegenError, match="c64 has no CUDA-C type: leave the op to XLA"):
        c_type("c64")
