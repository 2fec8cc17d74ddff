"""What is rejected, and what fails on the device: each error names the kernel and the line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.dag import ArrayError, KernelError, LaunchError
from fusionstitch.errors import OptionError, ToolchainError
from tests.dag.programs import scheduler

CODE = """
extern "C" __global__ void add(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }
extern "C" __global__ void broken(float* x) { __trap(); }
"""
THIS = Path(__file__).name


def kernel(d: Any, name: str = "add", signature: str = "pointer float, sint32") -> Any:
    return d.kernel(CODE, name, signature)


def test_a_kernel_that_fails_is_named_at_the_next_access(host_compiler: str) -> None:
    d = scheduler()
    x, y = d.array(4), d.array(4)
    kernel(d)(1, 4)(x, 4)
    line = sys._getframe().f_lineno + 1
    kernel(d, "broken", "pointer float")(1, 1)(x)
    with pytest.raises(KernelError, match=rf"^broken \(called at .*{THIS}:{line}\) failed"):
        x[0]
    with pytest.raises(KernelError, match="broken"):  # and from then on everywhere
        y[0] = 1
    with pytest.raises(KernelError, match="broken"):
        kernel(d)(1, 4)(y, 4)
    with pytest.raises(KernelError, match="broken"):
        d.synchronize()


def test_what_a_device_cannot_tell_is_said_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA reports a failure without saying whose it is."""
    from fusionstitch.dag.backends.backend import DeviceFailure
    from fusionstitch.dag.backends.emulated import Emulated

    d = scheduler()
    x, y = d.array(4), d.array(4)
    first, second, later = (d.library(lambda _: None, "pointer", name=n) for n in ("a", "b", "c"))
    first(x)
    second(x)
    later(y)

    def fail(self: Any, event: Any) -> None:
        raise DeviceFailure("an illegal memory access was encountered")

    monkeypatch.setattr(Emulated, "synchronize", fail)
    with pytest.raises(KernelError, match=r"One of these failed .*: a \(called.*, b \(called") as e:
        x[0]
    assert " c (" not in str(e.value)


def test_a_library_that_raises_is_named() -> None:
    d = scheduler()
    x = d.array(4)

    def divide(_: Any) -> None:
        raise ZeroDivisionError("division by zero")

    d.library(divide, "pointer")(x)
    with pytest.raises(KernelError, match=r"^divide \(called at .*division by zero"):
        x[0]


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        ("x", LaunchError, "has 2 parameters .* with 1 arguments"),
        ("x 4 4", LaunchError, "with 3 arguments"),
        ("numpy 4", LaunchError, "was given a NumPy array. Make an array of the scheduler"),
        ("4 4", LaunchError, "was given a int"),
        ("other 4", ArrayError, "of another scheduler"),
        ("double 4", LaunchError, "elements of float64"),
        ("x x", LaunchError, "is sint32, and .* does not fit"),
        ("x 1.5", LaunchError, "the value would change"),
        ("x 2**40", LaunchError, "does not fit"),
    ],
)
def test_arguments_that_do_not_fit(arguments: str, error: type[Exception], why: str) -> None:
    d = scheduler()
    values = {
        "x": d.array(4),
        "numpy": np.zeros(4, np.float32),
        "other": scheduler().array(4),
        "double": d.array(4, np.float64),
        "4": 4,
        "1.5": 1.5,
        "2**40": 2**40,
    }
    with pytest.raises(error, match=why):
        kernel(d)(1, 4)(*(values[word] for word in arguments.split()))
    assert d.graph().vertices == ()


@pytest.mark.parametrize("sizes", [(0, 1), (1, (1, 2, 3, 4)), ((1, 0), 1), (1.5, 1), (1, ())])
def test_sizes_that_are_none(sizes: Any) -> None:
    with pytest.raises(LaunchError, match="is not a valid size of a"):
        kernel(scheduler())(*sizes)


def test_a_launch_that_is_refused_changes_nothing(host_compiler: str) -> None:
    d = scheduler()
    x = d.array(np.ones(4, np.float32))
    with pytest.raises(LaunchError, match="at most 1024"):
        kernel(d)(1, 2048)(x, 4)
    kernel(d)(1, 4)(x, 4)
    assert x[0] == 2
    assert len(d.graph().vertices) == 1


def test_a_launch_that_is_refused_takes_no_time(host_compiler: str) -> None:
    d = scheduler(timing=True)
    x, add = d.array(4), kernel(d)
    with pytest.raises(LaunchError, match="at most 1024"):
        add(1, 2048)(x, 4)
    add(1, 4)(x, 4)
    assert len(d.history(add)) == 1
    assert [span.name for span in d.timeline().spans] == ["add"]


def test_code_that_does_not_compile_shows_what_the_compiler_said(host_compiler: str) -> None:
    d = scheduler()
    bad = d.kernel('extern "C" __global__ void k(float* x) { y = 1; }', "k", "pointer float")
    with pytest.raises(ToolchainError, match=r"kernels.cu:1.*\n?.*'y' was not declared|undeclared"):
        bad(1, 1)(d.array(1))


@pytest.mark.parametrize(
    ("option", "value"),
    [("policy", "both"), ("streams", "new"), ("parent", ""), ("const", 1), ("timing", None)],
)
def test_options_that_are_not_allowed(option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{option}={value!r} is not allowed: it is one of"):
        scheduler(**{option: value})


def test_backends_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from fusionstitch.dag.backends import choice
    from fusionstitch.hlo.verdict import forbid

    with pytest.raises(OptionError, match="'auto', 'cuda', 'emulate'"):
        fs.dag.Scheduler(backend="gpu")  # type: ignore[arg-type]
    monkeypatch.setattr(choice, "has_gpu", lambda: forbid("CuPy finds no GPU"))
    with pytest.raises(OptionError, match=r"CuPy finds no GPU\. backend='emulate' runs"):
        fs.dag.Scheduler(backend="cuda")
    assert fs.dag.Scheduler().backend == "emulate"


def test_times_that_nobody_took(tmp_path: Path) -> None:
    d = scheduler()
    for ask in (d.timeline, lambda: d.history(None), lambda: d.export(tmp_path / "a.json")):
        with pytest.raises(OptionError, match="timing=True"):
            ask()
    with pytest.raises(OptionError, match=r"neither .dot.* nor .json"):
        d.export(tmp_path / "a.png")
