"""How the CUDA launcher handles a driver's errors, without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from fusionstitch.compiler import builders
from fusionstitch.runtime import cuda, toolchain
from tests.faults.fake_launches import BUFFERS, LAUNCH_STATUSES, SETUP, SETUP_STATUSES

HERE = Path(__file__).parent
NAMES = {
    1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 200: "INVALID_IMAGE", 209: "NO_BINARY_FOR_GPU",
    500: "NOT_FOUND", 700: "ILLEGAL_ADDRESS", 701: "LAUNCH_OUT_OF_RESOURCES",
    720: "COOPERATIVE_LAUNCH_TOO_LARGE",
}  # fmt: skip


def run(folder: Path, *flags: str) -> dict[str, Any]:
    driver, host, launcher = (folder / name for name in ("driver.so", "host.so", "launcher.so"))
    name = (*flags, "-Wl,-soname,libcuda.so.1")
    source = (HERE / "fake_driver.cc").read_text()
    driver.write_bytes(toolchain.compile_shared(source, flags=name))
    host.write_bytes(
        toolchain.compile_shared(
            (HERE / "xla_host.cc").read_text(), include=(Path(jax.ffi.include_dir()),)
        )
    )
    launcher.write_bytes(cuda.launcher(builders.store()))
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.fake_launches", driver, host, launcher],
        cwd=HERE.parents[1],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def found(host_compiler: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tmp_path_factory.mktemp("fake"))


def name_of(status: int) -> str:
    return f"CUDA_ERROR_{NAMES[status]}" if status in NAMES else "unknown error"


def test_a_kernel_is_loaded_and_launched(found: dict[str, Any]) -> None:
    assert found["fine"] == ["", "", ""]
    assert found["launched"] == [list(BUFFERS)] * 2


def test_a_capture_of_the_call_that_loads_is_not_empty(found: dict[str, Any]) -> None:
    """XLA takes an empty one for an error."""
    alone, captured, *failed = found["loading runs"]
    assert alone == ["", 0]
    assert captured == ["", 1]
    assert failed == [
        f"fusionstitch: {call} failed for all kernels: {name_of(1)}"
        for call in ("cuStreamGetCaptureInfo", "cuGraphAddEmptyNode")
    ]


@pytest.mark.parametrize("status", SETUP_STATUSES)
@pytest.mark.parametrize("call", SETUP)
def test_what_fails_while_loading_is_named_and_may_be_tried_again(
    found: dict[str, Any], call: str, status: int
) -> None:
    failed, *again = found["setup"][f"{call}-{status}"]
    whose = "all kernels" if call == "cuStreamGetCtx" else "kernel fs_add"
    assert failed == f"fusionstitch: {call} failed for {whose}: {name_of(status)}"
    assert again == ["", ""]


@pytest.mark.parametrize("status", LAUNCH_STATUSES)
def test_what_fails_at_launch_is_named_and_may_be_tried_again(
    found: dict[str, Any], status: int
) -> None:
    initialized, failed, *again = found["launch"][str(status)]
    assert initialized == ""
    assert failed == f"fusionstitch: cuLaunchKernelEx failed for kernel fs_add: {name_of(status)}"
    assert again == ["", ""]


def test_contexts_are_popped_after_errors(found: dict[str, Any]) -> None:
    # each of the pushes that failed was to have no pop
    assert found["balanced"] == len(SETUP_STATUSES)


def test_the_driver_gets_no_image_that_was_cut_short(found: dict[str, Any]) -> None:
    assert found["cut short"].endswith("kernel fs_add is no cubin, or was cut short")


def test_calls_without_their_image_say_so(found: dict[str, Any]) -> None:
    assert found["another kernel"].startswith("fusionstitch: no image was registered for key fine")
    assert found["not loaded"].startswith("fusionstitch: no image was registered for key late")
    assert "compile the program again" in found["not loaded"]


def test_one_call_loads_for_the_others(found: dict[str, Any]) -> None:
    assert found["loaded then"] == ["", ""]


def test_what_is_ready_is_not_loaded_again(found: dict[str, Any]) -> None:
    # only more shared memory has to be allowed
    assert found["known images"] == [1, 0]


def test_threads_load_an_image_once(found: dict[str, Any]) -> None:
    assert found["threads"] == [[""], 1]


def test_an_image_is_unloaded_with_the_last_program_that_holds_it(found: dict[str, Any]) -> None:
    unloading = found["unloading"]
    assert unloading["two ran"] == ["", "", "", "", 2]
    # the first program goes: the second still launches
    assert unloading["one went"] == [[], "", 2]
    written, numbers, missing = unloading["both went"]
    assert written == ["mode 2", "wait 4", *(f"unload {n}" for n in numbers), "mode 0"]
    assert missing.startswith("fusionstitch: no image was registered for key a")
    assert unloading["left"] == 0


def test_an_image_comes_back_with_another_program(found: dict[str, Any]) -> None:
    assert found["unloading"]["again"] == ["", "", 3, "", ""]


def test_launches_are_waited_for_in_every_context(found: dict[str, Any]) -> None:
    _, *waits, unload, _ = found["unloading"]["two contexts"]
    assert waits == ["wait 4", "wait 5"]
    assert unload.startswith("unload ")


def test_what_never_ran_is_not_waited_for(found: dict[str, Any]) -> None:
    assert found["unloading"]["never ran"] == []


def test_an_image_that_may_be_in_use_stays_until_it_is_not(found: dict[str, Any]) -> None:
    *ran, then = found["unloading"]["busy"]
    assert ran == [""] * 4
    assert then == ["mode 2", "mode 0"]
    _, waited, *unloaded, _ = found["unloading"]["idle then"]
    assert waited == "wait 4"
    assert [line.split()[0] for line in unloaded] == ["unload", "unload"]


def test_an_image_that_cannot_be_unloaded_harms_nobody(found: dict[str, Any]) -> None:
    assert found["unloading"]["stubborn"] == [""] * 4


def test_threads_may_hold_and_let_go_at_once(found: dict[str, Any]) -> None:
    assert found["unloading"]["churn"] == [[""], True]


def test_a_driver_that_lacks_a_function_is_named(host_compiler: str, tmp_path: Path) -> None:
    found = run(tmp_path, "-DLACKING")
    assert found["fine"][0] == "fusionstitch: the CUDA driver lacks cuLaunchKernelEx"
