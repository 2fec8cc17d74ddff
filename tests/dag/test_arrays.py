"""Arrays on the host: reads, writes, parts of them; memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from benchmarks.dag.random_programs import CODE, SIGNATURES, N
from tests.dag.programs import Runner, scheduler


def test_a_shape_gives_zeros_on_both_sides() -> None:
    d = scheduler()
    x, y = d.array((2, 3)), d.array(4, np.int32)
    seen: list[Any] = []
    d.library(lambda a: seen.append(a.copy()), "const pointer")(y)
    assert np.asarray(x).tolist() == [[0.0] * 3] * 2
    assert (x.dtype, y.dtype) == (np.float32, np.int32)
    d.synchronize()
    assert seen[0].tolist() == [0] * 4


def test_values_are_copied() -> None:
    d = scheduler()
    host = np.arange(6, dtype=np.int16).reshape(2, 3)
    x = d.array(host)
    host[...] = 0
    assert np.asarray(x).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (x.shape, x.ndim, x.size, x.nbytes, len(x)) == ((2, 3), 2, 6, 12, 2)
    assert d.array([1.5, 2.5]).dtype == np.float64
    assert [row.tolist() for row in x] == [[0, 1, 2], [3, 4, 5]]
    read = x[0]
    read[...] = 9  # a copy, too
    assert x[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("key", [0, (1, 2), (slice(None), 1), np.array([1, 0]), ..., slice(None)])
def test_parts_are_those_of_numpy(key: Any) -> None:
    d = scheduler()
    host = np.arange(6.0).reshape(2, 3)
    x = d.array(host)
    d.library(lambda a: np.add(a, 1, out=a), "pointer", name="add")(x)
    assert np.array_equal(x[key], host[key] + 1)
    x[key] = -1.0
    host += 1
    host[key] = -1.0
    assert np.array_equal(np.asarray(x), host)


def test_invalid_indices_raise_as_in_numpy() -> None:
    d = scheduler()
    x = d.array(np.arange(6.0).reshape(2, 3))
    add = d.library(lambda a: np.add(a, 1, out=a), "pointer", name="add")
    add(x)
    for key in (2, (0, 3), (0, 0, 0), np.array([5]), "a"):
        with pytest.raises(IndexError):
            x[key]
        with pytest.raises(IndexError):
            x[key] = 1
    add(x)
    assert x[1, 2] == 7


def test_numbers() -> None:
    d = scheduler()
    x = d.array([7], np.int32)
    assert (float(x), int(x), bool(x), x.item()) == (7.0, 7, True, 7)
    with pytest.raises(ValueError, match="2 elements"):
        d.array(2).item()
    with pytest.raises(TypeError, match="no length"):
        len(d.array(()))


def test_memory_of_the_host_is_written_in_place() -> None:
    d = scheduler()
    x = d.array(3)
    x.writable()[1] = 4
    add = d.library(lambda a: np.add(a, 1, out=a), "pointer", name="add")
    add(x)
    assert x.writable().tolist() == [1, 5, 1]
    add(x)
    assert np.asarray(x).tolist() == [2, 6, 2]


def test_what_is_not_named_any_more_is_given_back_after_its_last_reader(
    host_compiler: str,
) -> None:
    d = scheduler()
    kernels = {name: d.kernel(CODE, name, SIGNATURES[name]) for name in ("update", "into")}
    x, y = d.array(N, np.int32), d.array(N, np.int32)
    kernels["update"](1, 4)(x, 1, N, 0)
    kernels["into"](1, 4)(x, y, 0, N, 0)
    memory = weakref.ref(x.storage.device)
    del x
    gc.collect()
    if not d._engine.pending()[-1].done.mark.reached:
        d.array(1)  # looks for what can be given back
        assert memory() is not None
    assert y[0] == 1
    d.array(1)
    gc.collect()
    assert memory() is None


@pytest.mark.slow
@pytest.mark.parametrize(("streams", "reads"), [("always-new", False), ("reuse", True)])
def test_a_hundred_thousand_launches_leak_nothing(streams: Any, reads: bool) -> None:
    runner = Runner(streams=streams, remembered=64)
    d, steps = runner.d, ["a b", "b? c", "b? d", "c? d? a"]
    calls = []
    for uses in steps:
        words = uses.split()
        signature = ", ".join("const pointer" if w[-1] == "?" else "pointer" for w in words)
        call = d.library(lambda *_: None, signature, name="k")
        calls.append((call, [runner.array(word.rstrip("?")) for word in words]))

    def launch(times: int) -> None:
        for number in range(times):
            call, arrays = calls[number % len(calls)]
            call(*arrays)
            if reads and number % 100 == 99:
                runner.array("d")[0]

    launch(5000)
    handles = d._engine.lanes.handles
    d.synchronize()
    gc.collect()
    before = len(gc.get_objects())
    launch(100_000)
    d.synchronize()
    gc.collect()
    assert len(gc.get_objects()) < before + 500
    assert d._engine.lanes.handles <= handles + 2
