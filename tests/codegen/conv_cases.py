"""Cases of convolutions of few channels, in every layout, and of what is around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from tests.codegen.kernel_cases import BF16, TENSOR, add, case, normal

LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")


def convolution(
    layout: tuple[str, str, str],
    stride: tuple[int, ...] = (1, 1),
    padding: Any = "SAME",
    groups: int = 1,
    **other: Any,
) -> Callable[[Any, Any], Any]:
    """`lax.conv_general_dilated` of an array and a kernel."""

    def fun(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            w,
            stride,
            padding,
            dimension_numbers=layout,
            feature_group_count=groups,
            **other,
        )

    return fun


PLACES = ((-1, -2), (0, -1))  # edges that are cut off
CONVOLUTIONS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "channels_last": (convolution(LAST), (2, 9, 16, 3), (5, 5, 3, 16)),
    "channels_first": (convolution(FIRST), (2, 3, 9, 11), (24, 3, 3, 3)),
    "strided": (convolution(LAST, (2, 3), "VALID"), (2, 19, 21, 3), (3, 5, 3, 4)),
    "dilated": (convolution(LAST, rhs_dilation=(2, 3)), (2, 19, 21, 2), (3, 3, 2, 12)),
    "dilated_first": (convolution(FIRST, rhs_dilation=(3, 2)), (2, 2, 19, 21), (12, 2, 3, 3)),
    "upsampled": (
        convolution(LAST, padding=((2, 2), (1, 2)), lhs_dilation=(2, 3)),
        (2, 7, 8, 3),
        (3, 3, 3, 4),
    ),
    "rows_upsampled": (
        convolution(LAST, padding=((2, 2), (1, 2)), lhs_dilation=(2, 1)),
        (1, 5, 6, 3),
        (3, 3, 3, 4),
    ),
    "edges_cut": (convolution(LAST, padding=PLACES), (2, 9, 11, 3), (2, 2, 3, 8)),
    "one_element": (convolution(LAST), (2, 9, 10, 6), (1, 1, 6, 12)),
    "a_row": (convolution(LAST), (2, 9, 10, 6), (1, 5, 6, 12)),
    "a_column": (convolution(LAST), (2, 9, 10, 6), (5, 1, 6, 12)),
    "each_channel": (convolution(LAST, groups=6), (2, 9, 10, 6), (3, 3, 1, 6)),
    "each_channel_first": (convolution(FIRST, (2, 1), groups=5), (2, 5, 9, 10), (5, 1, 7, 7)),
    "two_of_each": (convolution(LAST, groups=6), (2, 9, 10, 6), (3, 3, 1, 12)),
    "groups": (convolution(FIRST, (1, 2), groups=3), (2, 6, 9, 10), (12, 2, 3, 3)),
    "groups_last": (convolution(LAST, groups=2), (2, 9, 10, 8), (3, 3, 4, 10)),
    "a_signal": (convolution(("NCW", "OIW", "NCW"), (1,)), (2, 4, 50), (6, 4, 7)),
    "a_volume": (
        convolution(("NCDHW", "OIDHW", "NCDHW"), (1, 1, 1)),
        (2, 3, 5, 6, 7),
        (4, 3, 3, 3, 3),
    ),
    "mixed_layouts": (convolution(("HWNC", "OHWI", "CNWH")), (9, 11, 2, 3), (4, 3, 3, 3)),
}
for name, (fun, x, w) in CONVOLUTIONS.items():
    add(f"convolution_{name}", fun, normal(*x), normal(*w))


@case(normal(2, 32, 32, 3), normal(5, 5, 3, 16), normal(16), shows=TENSOR)
def convolution_with_surroundings(x: Any, w: Any, b: Any) -> Any:
    """Scaled before, activated after, on tensor cores, in one kernel."""
    return jax.nn.gelu(convolution(LAST)((x - 0.5) * 2, w) + b)


@case(normal(1, 8, 9, 3), normal(3, 3, 3, 5))
def gradient_of_convolution(x: Any, w: Any) -> Any:
    """By the input: the kernel is reversed, the stride a dilation."""

    def loss(x: Any) -> Any:
        return (convolution(LAST, (2, 2))(x, w) ** 2).sum()

    return jax.grad(loss)(x)


def by_kernel(layer: Callable[..., Any], x: tuple[int, ...], w: tuple[int, ...]) -> None:
    """Adds a case of the gradient of a layer by its kernel."""
    args = normal(*x), normal(*jax.eval_shape(layer, *map(shape, (x, w))).shape)

    def fun(x: Any, g: Any) -> Any:
        [found] = jax.vjp(lambda w: layer(x, w), jnp.zeros(w))[1](g)
        return found

    by_kernels[f"by_kernel_{len(by_kernels)}"] = fun, args


def shape(dims: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


by_kernels: dict[str, Any] = {}
by_kernel(convolution(LAST), (4, 32, 32, 3), (5, 5, 3, 8))
by_kernel(convolution(LAST, (2, 2)), (4, 33, 35, 3), (3, 3, 3, 16))
by_kernel(convolution(LAST), (8, 28, 28, 1), (3, 3, 1, 32))
by_kernel(convolution(FIRST), (4, 3, 32, 32), (16, 3, 3, 3))
by_kernel(convolution(FIRST, (2, 1), "VALID"), (4, 3, 33, 35), (24, 3, 3, 5))
by_kernel(convolution(LAST, rhs_dilation=(2, 3)), (4, 32, 32, 3), (3, 3, 3, 16))
by_kernel(
    convolution(LAST, padding=((2, 2), (1, 2)), lhs_dilation=(2, 1)),
    (4, 32, 32, 3),
    (3, 3, 3, 16),
)
by_kernel(
    convolution(LAST, padding=((2, 2), (1, 2)), lhs_dilation=(1, 2)),
    (4, 32, 32, 3),
    (3, 3, 3, 16),
)
by_kernel(convolution(("NWC", "WIO", "NWC"), (1,)), (4, 400, 4), (7, 4, 8))
by_kernel(convolution(LAST, (2, 2)), (4, 64, 64, 3), (7, 7, 3, 16))  # runs are made longer
by_kernel(convolution(LAST), (4, 32, 32, 16), (1, 1, 16, 8))
by_kernel(convolution(LAST, padding=PLACES), (4, 33, 35, 3), (2, 2, 3, 16))
for name, (fun, args) in by_kernels.items():
    add(f"convolution_{name}", fun, *args)


@case(normal(2, 9, 16, 3, dtype=BF16), normal(5, 5, 3, 16, dtype=BF16))
def convolution_of_halves(x: Any, w: Any) -> Any:
    return convolution(LAST)(x, w)


@case(normal(3, 60), normal(9))
def smoothed_signals(x: Any, w: Any) -> Any:
    return jax.vmap(lambda row: jnp.convolve(row, w, mode="same"))(jnp.abs(x))
