"""Programs timed side by side: what runs, in which order, on which operands. The tests use their
own clock, which advances by a microsecond with each reading."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.costmodel.devices import device
from fusionstitch.errors import MeasureError
from fusionstitch.hlo.importer import parse
from fusionstitch.hlo.verdict import allow, forbid
from fusionstitch.measure import probes, side_by_side
from fusionstitch.measure.side_by_side import CLOCKS, Program
from fusionstitch.runtime import cuda
from fusionstitch.runtime import nvrtc as nvrtc_module
from fusionstitch.runtime.artifact import TARGET

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
        sets = side_by_side._ParameterSets(PROGRAMS)
        clocks = side_by_side.Clocks(H200)
        arrays = [jax.ShapeDtypeStruct(o.shape.dims, jnp.float32) for o in sets.operands]
        lowered = jax.jit(
            lambda start, *xs: side_by_side._all(PROGRAMS, sets, clocks, start, *xs)
        ).lower(np.uint64(0), *arrays)
        [shown] = jax.tree.leaves(lowered.out_info)
    assert shown.shape == (1 + CLOCKS + 3 + 4,)
    assert lowered.as_text().count("optimization_barrier") == 3 + 4


def test_few_kernels_read_the_clock_after_any_number_of_arrays(
    nvrtc: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    plain = probes.build
    monkeypatch.setattr(
        probes, "build", lambda ks, device: built.extend(k.name for k in ks) or plain(ks, device)
    )
    for count in range(1, 10):
        values = [jax.ShapeDtypeStruct((count,), jnp.float32)] * count
        module = parse(side_by_side._clock(H200, [jax.ShapeDtypeStruct((), jnp.int32), *values]))
        [call] = [
            instruction
            for computation in module.computations
            for instruction in computation.instructions
            if instruction.custom_call_target == TARGET
        ]
        assert len(call.operand_ids) == int(built[-1].rpartition("_")[2]) > count
    assert sorted(set(built)) == [f"fs_probe_clock_{n}" for n in (16, 2, 4, 8)]


def test_copies_are_traced_once(ticking: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes JAX some 10 ms, a kernel some microseconds."""
    traced: list[str] = []
    plain = side_by_side.as_function

    def counted(module: bytes, name: str) -> Any:
        function = plain(module, name)
        return lambda *args: traced.append(name) or function(*args)

    monkeypatch.setattr(side_by_side, "as_function", counted)
    side_by_side.times_us(PROGRAMS, jax.devices()[0], H200)
    assert sorted(traced) == ["clock"] * 3 + ["tried"] * 2


def test_sets_rotate_and_equal_shapes_are_shared() -> None:
    one, other = PROGRAMS
    sets = side_by_side._ParameterSets(PROGRAMS)
    # two of X in each of two sets, one of Y in each
    assert [o.shape.dims for o in sets.operands] == [(8, 6)] * 4 + [(6,)] * 2
    assert [list(sets.of(one, copy)) for copy in range(2)] == [[0, 4], [0, 4]]
    assert [list(sets.of(other, copy)) for copy in range(3)] == [
        [0, 2, 4],
        [1, 3, 5],
        [0, 2, 4],
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
    try:
        one, other = side_by_side.times_us(programs, jax.devices()[0], H200)
    except MeasureError as error:
        assert "The GPU is busy" in str(error)  # noqa: PT017
        pytest.skip("other tests run on the GPU")
    assert 0 < one < other


def test_memory_is_that_of_all_operands_and_of_the_largest_results() -> None:
    x, y = 4 * 8 * 6, 4 * 6
    assert side_by_side.memory_bytes(PROGRAMS[:1]) == x + y + 2 * x
    # two sets of two and one; results of one copy: an array and a number
    assert side_by_side.memory_bytes(PROGRAMS) == 4 * x + 2 * y + 2 * (x + 4)


def test_only_what_is_cold_comes_in_sets() -> None:
    one = Program("tried", PROGRAMS[1].module, 3, 2, frozenset({1}))
    sets = side_by_side._ParameterSets([one])
    assert [o.shape.dims for o in sets.operands] == [(8, 6)] * 3 + [(6,)]
    assert [list(sets.of(one, copy)) for copy in range(3)] == [[0, 1, 3], [0, 2, 3], [0, 1, 3]]


def test_times_are_those_of_all_copies_but_the_first(
    ticking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readings in which each copy takes as many microseconds as its number, beyond the clock."""
    counts = [side_by_side.CLOCKS, *(one.copies for one in PROGRAMS)]
    spent = np.concatenate([[0], *(np.arange(count) for count in counts)])
    spent[: 1 + side_by_side.CLOCKS] = 0
    shown = np.cumsum(1000 * (1 + spent)).astype(np.uint64)
    monkeypatch.setattr(side_by_side, "_all", lambda *_: jnp.asarray(shown))
    assert side_by_side.times_us(PROGRAMS, jax.devices()[0], H200) == [1.5, 2.0]


def test_a_busy_gpu_is_recognized_by_its_runs(
    ticking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = side_by_side.CLOCKS + sum(one.copies for one in PROGRAMS)
    runs = iter(range(99))

    def read(*_: Any) -> np.ndarray:
        slow = 1 + (next(runs) % 3 > 0)
        return np.arange(readings + 1, dtype=np.uint64) * np.uint64(1000 * slow)

    class Compiled:
        __call__ = staticmethod(read)

    monkeypatch.setattr(side_by_side, "plain_jit", lambda: lambda run: _Stage(Compiled()))
    with pytest.raises(MeasureError, match="busy"):
        side_by_side.times_us(PROGRAMS, jax.devices()[0], H200)


class _Stage:
    """What jax.jit makes of a function, up to what runs."""

    def __init__(self, compiled: Any):
        self._compiled = compiled

    def lower(self, *_: Any) -> _Stage:
        return self

    def compile(self) -> Any:
        return self._compiled
