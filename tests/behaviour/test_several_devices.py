"""Programs over several devices, in one process and in two, next to jax.jit.

On GPUs each device's share is stitched. The emulator takes programs of one device, so without
GPUs these tests say that such programs are left to XLA with the reason, and nothing else changes.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import fusionstitch as fs
from tests.behaviour.sharded import check, programs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NAMES = (
    *("rows", "columns", "given shardings", "data parallel step", "tensor parallel step"),
    *("shard_map", "ring in a scan"),
)

ON_CPU = """
import functools, numpy, warnings
import jax, fusionstitch as fs
from jax.experimental.layout import Format, Layout
from fusionstitch.errors import FusionStitchWarning
from tests.behaviour.sharded import check, programs
mesh = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
emulated = functools.partial(fs.jit, options=fs.Options(backend="emulate", scorer="paper"))
for name in programs(mesh):
    assert check(fs.jit, mesh, name) == []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert check(emulated, mesh, name) == []
    reasons = [str(w.message) for w in said if w.category is FusionStitchWarning]
    assert reasons, name
    assert all("devices" in reason for reason in reasons), reasons
by_row, everywhere = (jax.NamedSharding(mesh, jax.P(*axes)) for axes in (("d",), ()))
held = jax.new_ref(jax.device_put(jax.numpy.ones(8), everywhere))
with warnings.catch_warnings(action="ignore"):
    doubled = emulated(lambda: held[...] * 2, out_shardings=by_row)()
assert doubled.sharding == by_row and doubled.tolist() == [2.0] * 8
for place in (by_row, Format(Layout((0,)), by_row)):
    placed = emulated(lambda x: 1 - x * 2, in_shardings=place, out_shardings=place)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = placed(numpy.ones(8))
        placed.lower(numpy.ones(8)).compile()
    assert result.sharding == by_row and result.tolist() == [-1.0] * 8
    assert ["on several devices" in str(w.message) for w in said] == [True], said
for sharding, notes in ((by_row, 2), (None, 1)):
    whole = jax.ShapeDtypeStruct((64, 64), jax.numpy.float32, sharding=sharding)
    report = fs.report(jax.nn.softmax, whole, device="h200")
    assert len(report.notes) == notes, report.notes
    assert ("divided" in report.notes[-1]) == (notes == 2)
print(sorted(programs(mesh)))
"""


def run(*args: str, **variables: str) -> subprocess.Popen[str]:
    # the user's choice of GPUs stands; PYTHONPATH finds this repository
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **variables, "PYTHONPATH": path},
    )


def output(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return str(probe.getsockname()[1])


def two_processes(platform: str, **variables: str) -> list[dict[str, list[str]]]:
    port = free_port()
    started = [
        run("-m", "tests.behaviour.processes", port, "2", str(n), platform, **variables)
        for n in range(2)
    ]
    return [json.loads(output(process).splitlines()[-1]) for process in started]


def test_four_devices_without_gpus() -> None:
    flags = "--xla_force_host_platform_device_count=4"
    assert output(run("-c", ON_CPU, JAX_PLATFORMS="cpu", XLA_FLAGS=flags)) == f"{sorted(NAMES)}\n"


def test_two_processes_without_gpus() -> None:
    one, other = two_processes("cpu", JAX_PLATFORMS="cpu")
    assert one == other == {name: [] for name in NAMES}


@pytest.mark.gpu
@pytest.mark.parametrize("axis", ["Auto", "Explicit"])
@pytest.mark.parametrize("name", NAMES)
def test_each_gpu_s_share_is_stitched(name: str, axis: str) -> None:
    if jax.device_count() < 2:
        pytest.skip("needs two GPUs")
    if axis == "Explicit" and "step" in name:
        pytest.skip("products of sharded operands name no sharding of their results")
    kind = getattr(jax.sharding.AxisType, axis)
    mesh = jax.make_mesh((jax.device_count(),), ("d",), axis_types=(kind,))
    assert set(programs(mesh)) == set(NAMES)
    jit = functools.partial(fs.jit, options=fs.Options(scorer="paper"))
    assert check(jit, mesh, name)


@pytest.mark.gpu
def test_two_processes_of_one_gpu_each_make_the_same_kernels() -> None:
    if jax.device_count() < 2:
        pytest.skip("needs two GPUs")
    one, other = two_processes("cuda", XLA_PYTHON_CLIENT_PREALLOCATE="false")
    assert one == other
    assert all(one[name] for name in NAMES)


@pytest.mark.gpu
def test_a_program_runs_on_each_gpu_alone() -> None:
    """One function, called with arguments on one GPU and then on another."""
    from tests.behaviour.sharded import mixed

    jitted, x = fs.jit(mixed), jax.random.normal(jax.random.key(0), (256, 384))
    want = jax.jit(mixed)(x)
    for device in jax.devices():
        found = jitted(jax.device_put(x, device))
        assert found.devices() == {device}
        assert float(abs(jax.device_put(found, want.sharding) - want).max()) < 1e-5
