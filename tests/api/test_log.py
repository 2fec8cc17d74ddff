"""What FUSIONSTITCH_LOG shows at each of its levels."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import fusionstitch as fs
from fusionstitch.api import call_of
from fusionstitch.compiler.core import log
from fusionstitch.compiler.stitched import Fallback, Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.reports import trial


def table(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


def said(level: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    options = fs.Options(backend="emulate", device="h200")
    with caplog.at_level(level, "fusionstitch"):
        trial.plan(call_of(table, (jax.ShapeDtypeStruct((64, 96), jnp.float32),), {}, options))
    return caplog.messages


def test_nothing_is_said_of_what_went_well(caplog: pytest.LogCaptureFixture) -> None:
    assert said(logging.WARNING, caplog) == []


def test_a_line_a_program_and_one_a_graph(caplog: pytest.LogCaptureFixture) -> None:
    first, second = said(logging.INFO, caplog)
    assert first.startswith("jit_table for h200: 1 pattern in 1 kernel; import 0.")
    assert "us under XLA" in second


def test_patterns_and_reasons(caplog: pytest.LogCaptureFixture) -> None:
    text = "\n".join(said(logging.DEBUG, caplog))
    assert "    fs_reduce_exp_div_" in text
    assert f"from {__file__}:" in text
    assert "    rejected " in text


def test_what_is_left_to_xla(caplog: pytest.LogCaptureFixture) -> None:
    left = Fallback(("a", "b"), "No C++ compiler."), Fallback((), "Everything is broken.")
    with caplog.at_level(logging.INFO, "fusionstitch"):
        log(Stitched("f", b"", device("h200"), fallbacks=left))
    assert caplog.messages == [
        "f for h200: 0 patterns in 0 kernels; nothing was done",
        "  left to XLA: 2 ops: No C++ compiler.",
        "  left to XLA: the whole program: Everything is broken.",
    ]


@pytest.mark.parametrize(
    ("level", "shown"),
    [
        ("", ["warning"]),  # as Python prints what nobody handles
        ("off", []),
        ("warning", ["warning"]),
        ("info", ["info", "warning"]),
        ("debug", ["debug", "info", "warning"]),
    ],
)
def test_levels(level: str, shown: list[str]) -> None:
    code = (
        "import logging, fusionstitch\n"
        "for name in ('debug', 'info', 'warning'):\n"
        "    getattr(logging.getLogger('fusionstitch.some.part'), name)(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FUSIONSTITCH_LOG": level},
        capture_output=True,
        text=True,
        check=True,
    )
    assert [line.split()[-1] for line in done.stderr.splitlines()] == shown
