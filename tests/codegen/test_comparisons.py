"""Numbers that are compared with an extremum of them: which ops round alike for that, and how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.annotations import annotations_of
from fusionstitch.codegen.generate import generate
from fusionstitch.codegen.rewrite.comparisons import mark_compared
from fusionstitch.costmodel.devices import device
from tests.codegen.regions import whole_of

X = jax.ShapeDtypeStruct((8, 5), jnp.float32)


def hits(numbers: Any) -> Any:
    return numbers == numbers.max(1, keepdims=True)


#: What is compared, and how often which ops are marked.
MARKED: dict[str, tuple[Callable[[Any], Any], dict[str, int]]] = {
    "a product": (lambda x: hits(x * x + 1), {"multiply": 1}),
    "what a function is of": (lambda x: hits(jnp.sin(x * x)), {"multiply": 1}),
    "the least of all": (lambda x: x * x + x == (x * x + x).min(), {"multiply": 1}),
    "in another type": (
        lambda x: hits((x * x + 1).astype(jnp.bfloat16)),
        {"multiply": 1},
    ),
    "moved": (lambda x: (x * x).max(1) == (x * x).T, {"multiply": 1}),
    "a short sum": (lambda x: hits(x[:, :3].sum(1)[:, None] + x), {"reduce": 1}),
    "not what is computed once": (lambda x: hits((x * x).sum(1)[:, None] + x), {}),
    "not what a product of matrices is of": (lambda x: hits((x * x) @ (x * x).T), {}),
    "what another kernel may compare": (lambda x: -(x * x).max(1), {"multiply": 1}),
    "with what another kernel may have found": (lambda x: x * x == x.ravel()[0], {"multiply": 1}),
    "not what nothing is compared with": (lambda x: jnp.sin((x * x).max(1)), {}),
    "not another's maximum": (lambda x: x * x == x.max(1, keepdims=True), {}),
    "not the greater of two": (lambda x: x * x == jnp.maximum(x * x, x), {}),
}


@pytest.mark.parametrize(("fun", "expected"), MARKED.values(), ids=MARKED)
def test_what_rounds_alike(fun: Callable[[Any], Any], expected: dict[str, int]) -> None:
    graph = whole_of(fun, X)
    found = mark_compared(graph)
    assert Counter(op.opcode for op in found if annotations_of(op).alike) == expected
    assert expected or found is graph


def test_no_addition_is_joined_with_a_marked_product() -> None:
    def source(fun: Callable[[Any], Any]) -> str:
        return generate(whole_of(fun, X), device("h200")).source

    assert "__fmul_rn(" in source(lambda x: hits(x * x + 1))
    assert "__fmul_rn(" not in source(lambda x: jnp.sin((x * x + 1).max(1)))
