"""Profiles of GPUs that were never measured, from their drivers' descriptions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusionstitch.costmodel.devices import device
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.properties import (
    REACHED,
    Properties,
    from_properties,
    large_tensor_bytes,
    profile_name,
    scaled_curve,
)
from fusionstitch.costmodel.xla_fusions import xla_fusions
from fusionstitch.hlo.errors import OptionError
from tests.gpus import GPUS
from tests.graphs import Builder

#: name of the profile, TB/s of DRAM, TFLOP/s of f32 and of 16-bit products: what datasheets say.
SHEETS = {
    "Tesla T4": ("t4", 0.32, 8.1, 65),
    "NVIDIA GeForce RTX 4090": ("rtx-4090", 1.008, 82.6, 330),
    "NVIDIA L40S": ("l40s", 0.864, 91.6, 362),
    "NVIDIA GH200 480GB": ("gh200-480gb", 4.0, 67, 990),
    "NVIDIA B200": ("b200", 8.0, 75, 2250),
    "NVIDIA GeForce RTX 5090": ("rtx-5090", 1.792, 104.8, 419),
}


@pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
def test_of_gpus_without_a_name_of_their_own(gpu: Properties) -> None:
    profile = from_properties(gpu)
    name, dram, fp32, tensor = SHEETS[gpu.name]
    assert profile.name == name
    assert profile.sm_arch == f"sm_{gpu.capability}"
    assert profile.dram_bytes_per_s == pytest.approx(REACHED * dram * 1e12, rel=0.03)
    assert profile.fp32_flops == pytest.approx(fp32 * 1e12, rel=0.03)
    assert profile.tensor_bf16_flops == pytest.approx(tensor * 1e12, rel=0.1)
    assert profile.dram_bytes_per_s < profile.l2_bytes_per_s
    assert "not measured" in profile.measured
    for limit in ("sm_count", "l2_bytes", "shared_per_sm", "shared_per_block", "warp_size"):
        assert getattr(profile, limit) == getattr(gpu, limit)
    for limit in ("max_threads_per_sm", "max_blocks_per_sm", "registers_per_sm"):
        assert getattr(profile, limit) == getattr(gpu, limit)
    curve = profile.bandwidth_curve
    assert curve == tuple(sorted(set(curve)))
    assert [us for _, us in curve] == sorted(us for _, us in curve)


def test_what_a_gpu_can_do_follows_its_capability() -> None:
    found = {name: from_properties(gpu) for name, gpu in GPUS.items()}
    assert [name for name, one in found.items() if not one.float_tensors] == ["Tesla T4"]
    clusters = ["NVIDIA GH200 480GB", "NVIDIA B200", "NVIDIA GeForce RTX 5090"]
    assert [name for name, one in found.items() if one.cluster_limit > 1] == clusters
    # a driver that knows of no clusters launches none; a card is not taken for what it is called
    b200 = GPUS["NVIDIA B200"]
    assert from_properties(replace(b200, clusters=False)).cluster_limit == 1
    assert from_properties(replace(b200, capability=89)).cluster_limit == 1


def test_products_of_bf16_run_on_the_fma_units_of_old_gpus() -> None:
    """On XLA's side of the model, too."""
    times = {}
    for dtype in ("f32", "f16", "bf16"):
        b = Builder()
        graph = b.graph(b.dot(b.parameter((4096, 4096), dtype), b.parameter((4096, 4096), dtype)))
        works = GraphWork(graph, 0, from_properties(GPUS["Tesla T4"]))
        times[dtype] = xla_fusions(works, 1 << graph.root.id).us
    assert times["bf16"] == pytest.approx(times["f32"], rel=0.1)
    assert times["f16"] < times["bf16"] / 5


def test_a_capability_between_known_ones_has_what_the_lower_has() -> None:
    b200 = GPUS["NVIDIA B200"]
    assert from_properties(replace(b200, capability=101)).fp32_flops > 0
    newer = from_properties(replace(b200, capability=137))
    assert (newer.sm_arch, newer.capability, newer.cluster_limit) == ("sm_137", 137, 8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"capability": 61}, "compute capability 6.1: kernels need 7.0"),
        ({"memory_clock_khz": 0}, "does not say how fast Tesla T4 is"),
    ],
)
def test_gpus_that_get_none(change: dict[str, int], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        from_properties(replace(GPUS["Tesla T4"], **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["a100", "h100", "l4", "v100"])
def test_curves_of_profiles_from_datasheets_are_scaled_alike(name: str) -> None:
    one = device(name)
    rates = one.l2_bytes_per_s, one.dram_bytes_per_s
    assert scaled_curve(device("h200"), one.l2_bytes, *rates) == one.bandwidth_curve
    assert large_tensor_bytes(one.dram_bytes_per_s, 1.0) == pytest.approx(
        one.large_tensor_bytes, rel=0.3
    )


def test_names() -> None:
    assert profile_name("NVIDIA RTX PRO 6000 Blackwell") == "rtx-pro-6000-blackwell"
