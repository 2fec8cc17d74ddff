"""Profiles: complete, plausible, and named in the error for a missing one."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from fusionstitch.costmodel.devices import Device, device, load, named
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


@pytest.mark.parametrize("name", NAMES)
def test_profiles_are_read_from_files(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(dataclasses.asdict(device(name))))
    assert load(path) == device(name)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sm_count", 0),
        ("sm_count", "148"),
        ("sm_count", True),
        ("warp_size", 31.5),
        ("l2_bytes", None),
        ("cluster_limit", 0),
        ("launch_us", -1.0),
        ("dram_bytes_per_s", 0),
        ("dram_bytes_per_s", math.nan),
        ("fp32_flops", math.inf),
        ("bandwidth_curve", []),
        ("bandwidth_curve", [[2, 1.0], [1, 2.0]]),
        ("bandwidth_curve", [[1, -1.0]]),
        ("sm_arch", "hopper"),
        ("name", 3),
    ],
)
def test_a_file_with_values_that_no_device_has_is_refused(
    field: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**dataclasses.asdict(device("h200")), field: value}))
    with pytest.raises(OptionError, match=rf"holds no device profile \(ValueError: {field}\S* is "):
        load(path)


def test_what_a_profile_does_not_say_is_as_in_one_like_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    printed = {"name": "mine", "like": "l4", "measured": "here", "prices": {"far": 300.0}}
    path.write_text(json.dumps(printed))
    l4 = device("l4")
    prices = dataclasses.replace(l4.prices, far=300.0)
    assert load(path) == dataclasses.replace(l4, name="mine", measured="here", prices=prices)


@pytest.mark.parametrize(
    ("left_out", "added", "why"),
    [
        ("measured", {}, "there is no measured"),
        ("like", {}, "there is no sm_arch"),
        ("", {"like": "tpu"}, "like is 'tpu', which is no profile"),
        ("", {"lames": 128}, "lames is no field of Device"),
        ("", {"prices": {"fair": 1.0}}, "fair is no field of Prices"),
        ("", {"prices": {"far": -1.0}}, r"prices\.far is -1\.0"),
        ("", {"instructions": {"floats": {"log": [1, -2]}}}, r"instructions\.floats\.log\.1 is -2"),
    ],
)
def test_a_profile_says_what_is_wrong_with_it(
    left_out: str, added: dict[str, object], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.json"
    printed = {"name": "mine", "like": "h200", "measured": "here", **added}
    printed.pop(left_out, None)
    path.write_text(json.dumps(printed))
    with pytest.raises(OptionError, match=f"ValueError: {why}"):
        load(path)


def test_the_emulated_device_plans_like_an_h200_with_few_multiprocessors() -> None:
    def planned(profile: Device) -> dict[str, object]:
        mine = {"name", "sm_count", "measured", "parameter_bytes"}
        return {k: v for k, v in vars(profile).items() if k not in mine}

    one, other = device("emulated"), device("h200")
    rounded = dataclasses.replace(one.library, float_bits=other.library.float_bits)
    assert planned(dataclasses.replace(one, library=rounded)) == planned(other)
    assert not one.rounds_floats
    assert device("emulated").sm_count == 4
