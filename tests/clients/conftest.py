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


@pytest.fixture
def jit(host_compiler: str) -> Callable[..., Any]:
    """`fs.jit` through the emulator, stitching whatever can be."""
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    return functools.partial(fs.jit, options=options)
