"""One report for all tests of pages: patterns, a loop of XLA's with some inside, a whole loop."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.reports.report import Report
from tests.kept import kept_sort

#: A scope that a page must write out as text.
HOSTILE = "</script><img src=x onerror=alert(1)><!--'\"&{{7*7}}"


def mixed(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def several(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    with jax.named_scope("outer"), jax.named_scope(HOSTILE):
        y = kept_sort(mixed(x), axis=0)
    z = jax.lax.fori_loop(0, 7, lambda _, v: kept_sort(mixed(v), axis=0), y)
    point = jax.lax.fori_loop(0, 50, lambda _, v: v + 0.01 * jnp.tanh(v), x[0])
    return mixed(z), point


@pytest.fixture(scope="session")
def report() -> Report:
    shape = jax.ShapeDtypeStruct((256, 384), jnp.float32)
    return fs.report(several, shape, device="h200", options=fs.Options(scorer="model"))


@pytest.fixture(scope="session")
def page(report: Report) -> str:
    return report.to_html()
