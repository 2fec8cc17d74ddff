"""The command of long runs: what it finds, and what it costs when a process dies."""

from __future__ import annotations

import math
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.codegen import generate
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.while_loops.generate import Looped
from tests.loops import long_run
from tests.loops.checked import check
from tests.loops.growth import Grown
from tests.loops.together import together

pytestmark = pytest.mark.usefixtures("host_compiler")

OPTIONS = fs.Options(backend="emulate", scorer="model", fallback="error")


def grown(times: float) -> Grown:
    def summed(x: Any) -> list[Any]:
        return list(lax.fori_loop(0, 3, lambda i, s: (s[0] * times + i, s[1] + i), (x, 0)))

    return Grown(summed, (np.arange(4, dtype=np.float32),))


def test_programs_that_are_built_together_are_all_compared() -> None:
    with taken():
        found = list(together([lambda n=n: check(grown(n), OPTIONS, range(2)) for n in (0.5, 2)]))
    assert [one.wrong for one in found] == ["", ""]
    assert [(one.kernels, one.runs, dict(one.loops)) for one in found] == [(1, 2, {"rows": 1})] * 2


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(looped: Any) -> Kernel:
        kernel = make(looped)
        object.__setattr__(kernel, "source", kernel.source.replace("turn < 3", "turn < 2"))
        return kernel

    with taken():
        make = Looped.kernel
        monkeypatch.setattr(Looped, "kernel", wrong)
        printed = check(grown(0.5), OPTIONS, [0]).wrong
    assert "output 0 is off by" in printed
    assert "output 1 at [] is 1, not 3" in printed


def test_a_defect_that_costs_a_kernel_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> Any:
        raise KeyError("x")

    with taken():
        monkeypatch.setattr(generate, "plan_loops", broken)
        assert "KeyError: 'x'" in check(grown(0.5), OPTIONS, [0]).wrong


def dies_of_the_fifth(pipe: Any, *_: Any) -> None:
    pipe.send({})
    while True:
        form, seeds = pipe.recv()
        for seed in seeds:
            if seed == 5:
                os._exit(3)
            pipe.send({"seed": seed, "form": form, "wrong": "", "rounding": False, "runs": 1})


def test_a_process_that_dies_costs_one_program() -> None:
    chosen = Namespace(first=0, programs=40, processes=2, seconds=math.inf, backend="", runs=1)
    run = long_run.Run(chosen, ["own"], dies_of_the_fifth)
    run.go()
    report = run.report()
    assert (report["ran"], report["equal"]) == (40, 39)
    [failure] = report["failures"]
    assert (failure["seed"], failure["wrong"]) == (5, "its process died with 3")


@pytest.mark.slow
def test_a_short_long_run(tmp_path: Path) -> None:
    arguments = ["--programs", "16", "--processes", "1", "--json", str(tmp_path / "found.json")]
    assert long_run.main(arguments) == 0
