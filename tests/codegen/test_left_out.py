"""Schedules that a search leaves out: refused ones, and defects where kernels are not checked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from fusionstitch.codegen.drafts import Draft
from fusionstitch.codegen.generate import CodegenOptions, draft, generate, neighbours
from fusionstitch.codegen.search import compared, stored
from fusionstitch.codegen.search import neighbours as schedules
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.while_loops import generate as loops
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.errors import CodegenError, PassError
from fusionstitch.hlo.graph import Graph
from tests.codegen.regions import whole_of
from tests.codegen.test_compared import region

H200 = device("h200")
CHECKED = CodegenOptions(check=True)


def test_a_refusal_is_left_out_and_other_errors_are_not(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        for check in (False, True):
            with LeftOut(check):
                raise CodegenError("too long a row")
    assert [r.levelname for r in caplog.records] == ["DEBUG", "DEBUG"]
    assert {r.message for r in caplog.records} == {"A schedule is left out: too long a row"}
    with pytest.raises(ValueError, match="else"), LeftOut(check=False):
        raise ValueError("something else")


def broken(*_: Any, **__: Any) -> Any:
    raise PassError("Defect: a planted one")


def relaxed(x: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 100, lambda _, x: jnp.sin(x) * 0.5 + x[::-1], x)


def straight() -> Graph:
    return region()


def looped() -> Graph:
    return whole_of(relaxed, jax.ShapeDtypeStruct((3000,), jnp.float32))


def large() -> Graph:
    return whole_of(relaxed, jax.ShapeDtypeStruct((1 << 20,), jnp.float32))


#: What breaks while schedules near one are looked at, and of which region.
BROKEN: dict[str, tuple[Any, str, Any, Callable[[], Graph]]] = {
    "other choices": (schedules, "settle", broken, straight),
    "other splits": (schedules, "split_so", broken, straight),
    "their statements": (compared.Draft, "of", broken, straight),
    "blocks of other sizes": (loops, "ALONE", dict.fromkeys(loops.ALONE, broken), looped),
    "larger blocks of the grid": (loops, "read_tuning", broken, large),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_search_hides_a_defect_where_nobody_checks_alone(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    where, what, instead, graph = BROKEN[name]
    first, checked = (draft(graph(), H200, options) for options in (None, CHECKED))
    monkeypatch.setattr(where, what, instead)
    with caplog.at_level(logging.DEBUG):
        found = list(neighbours(first))
    assert found or what == "of"
    assert "A schedule is left out: Defect: a planted one" in {
        r.getMessage() for r in caplog.records
    }
    with pytest.raises(PassError, match="a planted one"):
        list(neighbours(checked))


def test_a_comparison_hides_a_defect_where_nobody_checks_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, checked = (draft(region(), H200, options) for options in (None, CHECKED))
    assert isinstance(first, Draft)
    monkeypatch.setattr(schedules, "settle", broken)
    monkeypatch.setattr(schedules, "split_so", broken)
    monkeypatch.setattr(stored, "decide", broken)
    from fusionstitch.codegen.generate import compared as faster

    assert faster(first, H200) is first
    with pytest.raises(PassError, match="a planted one"):
        faster(checked, H200)
    with pytest.raises(PassError, match="a planted one"):
        generate(region(), H200, CHECKED)
