"""Programs of other libraries under fs.jit, next to the same under jax.jit."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest

# equinox reports errors through host callbacks, which the emulator's execution path cannot carry
os.environ.setdefault("EQX_ON_ERROR", "nan")

import fusionstitch as fs


@pytest.fixture(params=["emulate", pytest.param("cuda", marks=pytest.mark.gpu)])
def jit(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """`fs.jit` through the emulator and on a GPU, stitching whatever can be.

    On a GPU products are those of float32 on both sides, so that steps can be compared.
    """
    if request.param == "emulate":
        request.getfixturevalue("host_compiler")
    options = fs.Options(backend=request.param, scorer="paper", fallback="error")
    with jax.default_matmul_precision("highest" if request.param == "cuda" else None):
        yield functools.partial(fs.jit, options=options)
