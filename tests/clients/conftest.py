"""Programs of other libraries under fs.jit, next to the same under jax.jit."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest

# equinox reports errors through host callbacks, which the emulator's road cannot carry
os.environ.setdefault("EQX_ON_ERROR", "nan")

import fusionstitch as fs


@pytest.fixture(params=["model", "paper"])
def jit(request: pytest.FixtureRequest, host_compiler: str) -> Callable[..., Any]:
    """`fs.jit` through the emulator, stitching what pays on a GPU ("model") or whatever can be."""
    options = fs.Options(backend="emulate", scorer=request.param, fallback="error")
    return functools.partial(fs.jit, options=options)
