"""Convolutions of few channels, in the layouts of images, signals and volumes."""

from __future__ import annotations

from typing import Any

from benchmarks.instances.instance import Instance

LAST, FIRST = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
SIGNALS, VOLUMES = ("NCW", "OIW", "NCW"), ("NCDHW", "OIDHW", "NCDHW")


def programs() -> dict[str, Instance]:
    """By name: the type of the arguments is that of the images."""
    from jax import grad, vjp
    from jax import numpy as jnp
    from jax.lax import conv_general_dilated

    def of(
        layout: tuple[str, str, str],
        x: tuple[int, ...],
        w: tuple[int, ...],
        stride: int = 1,
        groups: int = 1,
        dtype: str = "float32",
        **other: Any,
    ) -> Instance:
        def fun(x: Any, w: Any) -> Any:
            return conv_general_dilated(
                x,
                w,
                (stride,) * (len(layout[0]) - 2),
                other.get("padding", "SAME"),
                lhs_dilation=other.get("lhs_dilation"),
                dimension_numbers=layout,
                feature_group_count=groups,
            )

        return Instance(fun, (x, w), dtype, rounds=True)

    first = of(LAST, (64, 224, 224, 3), (3, 3, 3, 16), 2)

    def layer(x: Any, w: Any, b: Any) -> Any:
        return jnp.maximum(first.fun(x * 0.5 - 0.25, w) + b, 0)

    small = of(LAST, (64, 128, 128, 8), (3, 3, 8, 3))

    def by_the_input(x: Any, w: Any) -> Any:
        return grad(lambda x: (small.fun(x, w) ** 2).sum())(x)

    def by_the_kernel(of: Instance, *result: int) -> Instance:
        x, w = of.shapes

        def fun(x: Any, g: Any) -> Any:
            return vjp(lambda w: of.fun(x, w), jnp.zeros(w, x.dtype))[1](g)[0]

        return Instance(fun, (x, result), of.dtype, rounds=True)

    def net(w: Any, v: Any, images: Any) -> Any:
        x = jnp.maximum(digits.fun(images, w), 0)
        x = x.reshape(*x.shape[:1], 14, 2, 14, 2, 32).max((2, 4))
        return (jnp.tanh(x.mean((1, 2)) @ v) ** 2).sum()

    colours = of(LAST, (64, 128, 128, 3), (5, 5, 3, 8))
    digits = of(LAST, (256, 28, 28, 1), (3, 3, 1, 32))
    steps = ((3, 3, 1, 32), (32, 10), (256, 28, 28, 1))
    up = {"padding": ((2, 2), (2, 2)), "lhs_dilation": (2, 2)}
    return {
        "colours, 5 x 5 to 8": colours,
        "colours, 3 x 3 by 2 to 16": first,
        "the same, scaled, with bias and relu": Instance(
            layer, (*first.shapes, (16,)), rounds=True
        ),
        "colours first, 3 x 3 to 16": of(FIRST, (64, 3, 224, 224), (16, 3, 3, 3)),
        "colours, 7 x 7 by 2 to 64": of(LAST, (64, 224, 224, 3), (7, 7, 3, 64), 2),
        "patches of 16 x 16 to 192": of(LAST, (64, 224, 224, 3), (16, 16, 3, 192), 16),
        "colours mixed": of(LAST, (32, 256, 256, 3), (1, 1, 3, 3)),
        "digits, 3 x 3 to 32": digits,
        "one channel, 5 x 5": of(FIRST, (64, 1, 256, 256), (1, 1, 5, 5)),
        "each of 64 channels, 3 x 3": of(LAST, (32, 56, 56, 64), (3, 3, 1, 64), groups=64),
        "each of 96 channels, 7 x 7": of(FIRST, (32, 96, 56, 56), (96, 1, 7, 7), groups=96),
        "each of 256 channels, bf16": of(
            LAST, (64, 28, 28, 256), (3, 3, 1, 256), groups=256, dtype="bfloat16"
        ),
        "a signal, 9": of(SIGNALS, (64, 1, 16_000), (1, 1, 9)),
        "a signal, 9 to 32": of(SIGNALS, (64, 1, 16_000), (32, 1, 9)),
        "a signal, 400 by 160 to 64": of(SIGNALS, (64, 1, 16_000), (64, 1, 400), 160),
        "volumes, 3 to 24, bf16": of(
            VOLUMES, (128, 3, 24, 32, 32), (24, 3, 3, 3, 3), dtype="bfloat16"
        ),
        "8 channels first to 64, bf16": of(
            FIRST, (128, 8, 128, 128), (64, 8, 3, 3), dtype="bfloat16"
        ),
        "16 channels, 3 x 3 to 16": of(LAST, (64, 64, 64, 16), (3, 3, 16, 16)),
        "16 channels, doubled to 3": of(LAST, (32, 64, 64, 16), (4, 4, 16, 3), **up),
        "by the input, 8 to 3": Instance(by_the_input, small.shapes, rounds=True),
        "by the kernel, colours, 5 x 5 to 8": by_the_kernel(colours, 64, 128, 128, 8),
        "by the kernel, colours, 3 x 3 by 2": by_the_kernel(first, 64, 112, 112, 16),
        "by the kernel, digits, 3 x 3 to 32": by_the_kernel(digits, 256, 28, 28, 32),
        "gradient of a small net": Instance(grad(net, 0), steps, rounds=True),
    }
