"""Profiles: complete, plausible, and named in the error for a missing one."""

from __future__ import annotations

import pytest

from fusionstitch.costmodel.devices import Device, device, named
from fusionstitch.hlo.errors import OptionError

NAMES = ("a100", "emulated", "h100", "h200", "l4", "v100")


@pytest.mark.parametrize("name", NAMES)
def test_profiles(name: str) -> None:
    profile = device(name)
    assert profile.name == name
    assert profile.sm_arch.startswith("sm_")
    assert profile.max_threads_per_sm % profile.warp_size == 0
    assert profile.shared_per_block <= profile.shared_per_sm
    assert profile.dram_bytes_per_s < profile.l2_bytes_per_s
    assert 6 <= profile.paper_launch_us <= 10
    assert 2 * 256**3 <= profile.large_gemm_flops <= 2 * 512**3
    assert profile.parameter_bytes == (8_188 if name == "emulated" else 32_764)
    assert profile.measured
    curve = profile.bandwidth_curve
    assert curve == tuple(sorted(curve))
    assert [us for _, us in curve] == sorted(us for _, us in curve)
    assert curve[0][1] > profile.launch_us


def test_only_the_profiles_listed_here_exist() -> None:
    with pytest.raises(OptionError, match=f"Choose one of: {', '.join(NAMES)}\\."):
        device("tpu")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("h200", "h200"),
        ("H200", "h200"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("nvidia l4", "l4"),
        ("Emulated", "emulated"),
    ],
)
def test_names_in_any_case(text: str, name: str) -> None:
    assert device(text) is device(name)


@pytest.mark.parametrize("text", ["GH200", "L40S", "", "h20", "NVIDIA"])
def test_a_name_is_a_whole_word(text: str) -> None:
    assert named(text) is None


def test_the_emulated_device_plans_like_an_h200_with_few_multiprocessors() -> None:
    def planned(profile: Device) -> dict[str, object]:
        mine = {"name", "sm_count", "measured", "parameter_bytes"}
        return {k: v for k, v in vars(profile).items() if k not in mine}

    assert planned(device("emulated")) == planned(device("h200"))
    assert device("emulated").sm_count == 4
