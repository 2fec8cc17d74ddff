"""Templates as an option: checked when they are given, part of the mark, followed or refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.errors import OptionError, StitchError
from fusionstitch.options import Options
from fusionstitch.tuning.record import Record, record_key
from fusionstitch.tuning.tuned import NOTHING, Tuned
from tests.tuning.stubs import in_blocks_of

DEVICE = device("h200")
ONE = "sum[GRID,CTA];"


def rows(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    s = jax.nn.softmax(x)
    return s, (s * x).sum(1)


def module() -> bytes:
    x = jax.ShapeDtypeStruct((512, 300), jnp.float32)
    data: bytes = jax.jit(rows).lower(x).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


def stitch(tuned: Tuned = NOTHING, **options: Any) -> Stitched:
    chosen = Options(scorer="paper", **options)
    return core.stitch(module(), chosen, DEVICE, None, tuned=tuned)


def test_a_loop_takes_the_form_that_its_template_says() -> None:
    def decayed(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 50, lambda i, y: y - 0.01 * jnp.tanh(y), x)

    x = jax.ShapeDtypeStruct((64,), jnp.float32)
    data = jax.jit(decayed).lower(x).compiler_ir("hlo").as_serialized_hlo_module_proto()

    def planned(**options: Any) -> Stitched:
        return core.stitch(data, Options(scorer="model", **options), DEVICE, None)

    [own] = planned().kernels
    assert own.template.startswith("loop rows")
    [again] = planned(templates={own.name: own.template}).kernels
    assert again.source == own.source
    [other] = planned(templates={own.name: "loop block"}).kernels
    assert other.template.startswith("loop block")
    with pytest.raises(OptionError, match="'fs_a': Template, line 1"):
        Options(templates={"fs_a": "loop elsewhere"})


@pytest.mark.parametrize(
    ("templates", "message"),
    [
        (3, "Options.templates is 3; it takes a mapping from the names of kernels"),
        ({"fs_a": 3}, "it takes strings"),
        ({"fs_a": "sum[GRID"}, "'fs_a': Template, line 1, column 9: expected ',' or"),
        ({"fs_a": ""}, "'fs_a': Template, line 1, column 1: expected an identifier"),
    ],
)
def test_what_is_no_template_is_refused_at_once(templates: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Options(templates=templates)


def test_templates_are_part_of_the_mark() -> None:
    given = Options(templates={"fs_a": ONE})
    assert given.token != Options().token
    assert given.token == Options(templates={"fs_a": ONE}).token
    assert given == Options(templates={"fs_a": ONE})
    assert len({given, Options(templates={"fs_a": ONE}), Options()}) == 2
    assert given.token != Options(templates={"fs_a": "sum[GRID,THREAD];"}).token


def test_templates_do_not_change() -> None:
    mine = {"fs_a": ONE}
    given = Options(templates=mine)
    mine["fs_b"] = ONE
    assert dict(given.templates) == {"fs_a": ONE}
    with pytest.raises(TypeError, match=r"use Options\.replace"):
        given.templates["fs_b"] = ONE  # type: ignore[index]
    assert given.replace(templates={}).templates == {}


def test_templates_survive_what_options_do() -> None:
    given = Options(templates={"fs_a": ONE})
    data = json.loads(json.dumps(dataclasses.asdict(given)))
    assert Options(**data) == given
    assert pickle.loads(pickle.dumps(given)) == given
    assert copy.deepcopy(given) == given


def test_a_kernel_follows_the_template_of_its_name() -> None:
    [kernel] = stitch().kernels
    text = kernel.template.replace("team=32", "team=64")
    assert text != kernel.template
    text = re.sub(r"cta_(num|per_sm)=\w+;\n", "", text)
    found = stitch(templates={kernel.name: text})
    assert found.fallbacks == ()
    assert "team=64" in found.kernels[0].template
    assert found.kernels[0].name == kernel.name
    assert found.kernels[0].source != kernel.source


def test_a_name_that_no_kernel_has_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    plain = stitch()
    assert stitch(templates={"fs_other_12345678": ONE}).kernels == plain.kernels
    assert "no kernel called fs_other_12345678 to follow a template" in caplog.text


def test_a_template_counts_before_what_tuning_found() -> None:
    [one] = stitch().stitches
    record = Record(
        in_blocks_of(512, one.chosen.pattern), 0.1, 0.2, 90.0, 0.1, 1, True, one.kernel.name, "gpu"
    )
    tuned = Tuned({record_key(one.chosen.pattern.key, Options()): record})
    assert stitch(tuned).kernels[0].block == 512
    given = {one.kernel.name: one.kernel.template}
    assert stitch(tuned, templates=given).kernels == (one.kernel,)


def test_a_refused_template_leaves_its_pattern_to_xla_with_the_reason() -> None:
    [kernel] = stitch().kernels
    given = {kernel.name: kernel.template.replace("team=32", "team=33")}
    found = stitch(templates=given)
    assert found.kernels == ()
    assert "team=33 in the loop of" in found.fallbacks[0].reason
    with pytest.raises(StitchError, match="team=33 in the loop of"):
        stitch(templates=given, fallback="error")


def test_results_are_those_of_the_program(host_compiler: str) -> None:
    x = np.random.default_rng(0).standard_normal((32, 300)).astype(np.float32)
    plain = Options(backend="emulate", scorer="paper")
    [kernel] = fs.jit(rows, options=plain).lower(x).compile().kernels
    text = re.sub(r"cta_(num|per_sm)=\w+;\n", "", kernel.template)
    templates = {kernel.name: text.replace("team=32", "team=16")}
    step = fs.jit(rows, options=plain.replace(templates=templates))
    assert "team=16" in step.lower(x).compile().kernels[0].template
    for got, wanted in zip(step(x), rows(x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
