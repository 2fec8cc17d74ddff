"""StableHLO's own interpreter, which shares nothing with ours, nor with XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo


def interpreted(fun: Callable[..., Any], *args: np.ndarray) -> list[np.ndarray]:
    """The results of `fun` for arrays of 32-bit numbers, op by op as StableHLO defines them."""
    lowered = jax.jit(fun).lower(*args)
    module = lowered.compiler_ir("stablehlo")
    with module.context:
        results = stablehlo.eval_module(module, [ir.DenseElementsAttr.get(x) for x in args])
        shapes = [(x.shape, x.dtype) for x in jax.tree.leaves(lowered.out_info)]
        return [
            np.array(result if not result.is_splat else list(result), dtype).reshape(shape)
            for result, (shape, dtype) in zip(results, shapes, strict=True)
        ]
