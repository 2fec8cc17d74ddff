"""The check of names itself, and every kernel of the table under it."""

from __future__ import annotations

import pytest

from tests.codegen.cases import CASES
from tests.codegen.scopes import undeclared

KERNEL = """
// A comment names nothing.
struct FsJoin0 {
  static FS_METHOD float apply(float a, float b) {
    return a > b ? a : b;
  }
};
extern "C" __global__ void k(const float* __restrict__ x_1, float* out) {
  if (const int row = threadIdx.x; row < 4) {
    fs_vec<float, 2> pair;
    const auto first = fs_load_vec<float, 2>(x_1 + row * 2);
    FS_UNROLL for (int v = 0; v < 2; ++v) {
      const int place = fs_clamp(0, row + v, 3);
      pair[v] = FsJoin0::apply(first[v], x_1[place]);
    }
    float sums[2] = {pair[0], pair[1]};
    out[row] = sums[0] + fs_record<float, int32_t>{sums[1], row}.first;
  }
}
"""


@pytest.mark.parametrize("name", CASES)
def test_kernel_declares_every_name_it_reads(name: str) -> None:
    assert undeclared(CASES[name].case().kernel().source) == []


def test_names_declared_in_open_blocks_are_known() -> None:
    assert undeclared(KERNEL) == []


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("x_1 + row * 2", "x_1 + place * 2", "place"),  # declared in an inner block
        ("x_1 + row * 2", "x_1 + v * 2", "v"),  # by a loop that comes later
        ("out[row] =", "out[row + v] =", "v"),  # by a loop that is over
        ("return a > b", "return a > row", "row"),  # by another function
        ("sums[0] +", "total +", "total"),  # nowhere
    ],
)
def test_names_declared_elsewhere_are_found(old: str, new: str, name: str) -> None:
    assert old in KERNEL
    assert undeclared(KERNEL.replace(old, new)) == [name]
