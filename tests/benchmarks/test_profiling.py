"""Reading a trace."""

from __future__ import annotations

import jax
import pytest

from benchmarks.profiling import activity, classified, summed

STREAM = "Stream #14(Compute,MemcpyD2D)"


def plane(name: str, lines: dict[str, list[tuple[str, int]]]) -> str:
    """A plane as text; events are (name, nanoseconds)."""
    names = sorted({event for events in lines.values() for event, _ in events})
    number = {event: i + 1 for i, event in enumerate(names)}
    metadata = "".join(
        f'event_metadata {{ key: {i} value {{ id: {i} name: "{event}" }} }}\n'
        for event, i in number.items()
    )
    texts = []
    for i, (line, events) in enumerate(lines.items()):
        each = "".join(
            f"events {{ metadata_id: {number[event]} duration_ps: {1000 * ns} }}\n"
            for event, ns in events
        )
        texts.append(f'lines {{ id: {i} name: "{line}"\n{each}}}\n')
    return f'planes {{ name: "{name}"\n{"".join(texts)}{metadata}}}\n'


def read(*planes: str, calls: int) -> dict | None:
    return activity(jax.profiler.ProfileData.from_text_proto("".join(planes)), calls)


def test_kernels_copies_and_transfers_per_call() -> None:
    events = [("softmax", 3000), ("gemm", 5000), ("gemm", 7000), ("MemcpyD2D", 1000)]
    found = read(
        plane(
            "/device:GPU:0",
            {
                STREAM: events * 2,
                "Stream #15(MemcpyH2D)": [("MemcpyH2D", 9000)] * 2,
                "XLA Ops": [("softmax", 3000)],
            },
        ),
        plane("/host:CPU", {"Stream of consciousness": [("softmax", 80_000)]}),
        calls=2,
    )
    assert found == {
        "kernels": 3,
        "memcpys": 1,
        "memsets": 0,
        "copies": 1,
        "transfers": 1,
        "kernel_us": 15.0,
        "gpu_us": 16.0,
        "top": [
            {"name": "gemm", "count": 2, "us": 12.0},
            {"name": "softmax", "count": 1, "us": 3.0},
            {"name": "MemcpyD2D", "count": 1, "us": 1.0},
        ],
        "names": {"gemm": (2, 12.0), "softmax": (1, 3.0)},
    }


@pytest.mark.parametrize("name", ["Memset", "memcpy32_post", "memset32_post", "MemcpyD2D"])
def test_copies_in_the_device(name: str) -> None:
    found = read(plane("/device:GPU:0", {STREAM: [(name, 1000)]}), calls=1)
    assert found is not None
    assert (found["kernels"], found["copies"], found["transfers"]) == (0, 1, 0)


def test_a_call_with_a_part_of_an_activity_is_not_rounded_away() -> None:
    found = read(plane("/device:GPU:0", {STREAM: [("kernel", 1000)] * 5}), calls=4)
    assert found is not None
    assert found["kernels"] == 1.25


def test_no_gpu_in_the_trace() -> None:
    assert read(plane("/host:CPU", {"python": [("f", 1)]}), calls=1) is None


def test_classes_of_kernels() -> None:
    events = {
        "fused_step": (1, 5.0),
        "nvjet_tst_128x8": (2, 4.0),
        "gemm_fusion_dot_3": (1, 1.5),
        "input_reduce_fusion": (1, 2.0),
        "loop_convert_fusion": (1, 0.5),
        "Memset": (3, 1.0),
    }
    found = classified(summed(events), {"fused_step": "gemm"})
    assert found["classes"] == {
        "gemm": {"kernels": 3, "us": 5.5},
        "memory": {"kernels": 2, "us": 2.5},
        "stitched gemm": {"kernels": 1, "us": 5.0},
    }
    assert found["stitched"] == {"fused_step": 5.0}
    assert "names" not in found
    assert (found["memsets"], found["memcpys"], found["gpu_us"]) == (3, 0, 14.0)
