"""Programs timed side by side: what is run, in which order, on which operands. The clock is one of
ours here, which shows a microsecond more each time it is read."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.devices import device
from fusionstitch.errors import MeasureError
from fusionstitch.measure import probes, side_by_side
from fusionstitch.measure.side_by_side import CLOCKS, Program
from fusionstitch.runtime import cuda
from fusionstitch.runtime import nvrtc as nvrtc_module
from hlo.verdict import allow, forbid

H200 = device("h200")
X = jax.ShapeDtypeStruct((8, 6), jnp.float32)
Y = jax.ShapeDtypeStruct((6,), jnp.float32)


def program(fun: Any, *shapes: Any, copies: int = 3, sets: int = 1) -> Program:
    module = jax.jit(fun).lower(*shapes).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return Program("tried", module, copies, sets)


PROGRAMS = [
    program(lambda x, y: jnp.tanh(x) + y, X, Y, copies=3),
    program(lambda x, z, y: (jnp.sin(x) * z, y.sum()), X, X, Y, copies=4, sets=2),
]


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, ...]]]:
    """The dims of what each kind of reading waits for."""
    read: list[list[tuple[int, ...]]] = []

    def clock(profile: Any, values: Any) -> bytes:
        read.append([value.shape for value in values])
        given = [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]
        lowered = jax.jit(lambda earlier, *_: earlier + jnp.uint64(1000), keep_unused=True)
        return lowered.lower(*given).compiler_ir("hlo").as_serialized_hlo_module_proto()

    monkeypatch.setattr(side_by_side, "_clock", clock)
    monkeypatch.setattr(cuda, "register_launcher", lambda store: allow())
    return read


def test_a_copy_takes_what_passes_beyond_the_clock_s_own(
    ticking: list[list[tuple[int, ...]]],
) -> None:
    assert side_by_side.times_us(PROGRAMS, jax.devices()[0], H200) == [0.0, 0.0]
    # nothing; the one result; both, each whole
    assert ticking == [[()], [(), (8, 6)], [(), (8, 6), ()]]


def test_every_copy_stands_between_two_readings(ticking: Any) -> None:
    with jax.enable_x64(True):
        places = side_by_side._Places(PROGRAMS)
        clocks = side_by_side._Clocks(H200)
        arrays = [jax.ShapeDtypeStruct(s.dims, jnp.float32) for s in places.shapes]
        lowered = jax.jit(
            lambda start, *xs: side_by_side._all(PROGRAMS, places, clocks, start, *xs)
        ).lower(np.uint64(0), *arrays)
        [shown] = jax.tree.leaves(lowered.out_info)
    assert shown.shape == (1 + CLOCKS + 3 + 4,)
    assert lowered.as_text().count("optimization_barrier") == 3 + 4


def test_sets_are_taken_in_turns_and_equal_shapes_shared() -> None:
    one, other = PROGRAMS
    places = side_by_side._Places(PROGRAMS)
    # two of X in each of two sets, one of Y in each
    assert [s.dims for s in places.shapes] == [(8, 6)] * 4 + [(6,)] * 2
    assert [list(places.of(one, copy)) for copy in range(2)] == [[0, 4], [0, 4]]
    assert [list(places.of(other, copy)) for copy in range(3)] == [
        [0, 1, 4],
        [2, 3, 5],
        [0, 1, 4],
    ]


def test_the_clock_of_any_number_of_operands_compiles(nvrtc: Any) -> None:
    for operands in (1, 7):
        [(name, used)] = nvrtc_module.compile(probes.clock(operands).source, "sm_90").resources
        assert name == f"fs_probe_clock_{operands}"
        assert not used.spills


def test_without_a_launcher_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "register_launcher", lambda store: forbid("No compiler was found."))
    with pytest.raises(MeasureError, match="clock cannot be read: No compiler was found"):
        side_by_side.times_us(PROGRAMS, jax.devices()[0], H200)


@pytest.mark.gpu
def test_times_of_two_programs_on_a_gpu() -> None:
    """XLA leaves no copy out, and lets none overlap: four times the traffic takes longer."""
    small, large = jax.ShapeDtypeStruct((1 << 26,), jnp.float32), (1 << 28,)
    programs = [
        program(lambda x: jnp.tanh(x), small, copies=4),
        program(lambda x: jnp.tanh(x), jax.ShapeDtypeStruct(large, jnp.float32), copies=4),
    ]
    one, other = side_by_side.times_us(programs, jax.devices()[0], H200)
    assert 0 < one < other
