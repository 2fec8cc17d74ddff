"""Random programs give bit-identical results to serial runs, under all policies and orders."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.dag.random_programs import (
    SIGNATURES,
    N,
    Op,
    random_program,
    scheduled,
    serially,
)
from fusionstitch.dag import dependencies
from tests.dag.programs import scheduler

POLICIES = [
    {"streams": streams, "parent": parent, "const": const, "prefetch": prefetch}
    for streams, parent, const, prefetch in itertools.product(
        ("always-new", "reuse"), ("disjoint", "same-as-parent"), (True, False), (True, False)
    )
]


def as_serially(seed: int, **options: Any) -> bool:
    program = random_program(seed)
    return scheduled(program, scheduler(seed=seed, **options)) == serially(program)


@pytest.mark.parametrize("policies", POLICIES, ids=lambda p: " ".join(map(str, p.values())))
def test_some(policies: dict[str, Any], host_compiler: str) -> None:
    assert all(as_serially(seed, **policies) for seed in range(12))


def test_synchronous(host_compiler: str) -> None:
    assert all(as_serially(seed, policy="sync") for seed in range(10))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand(part: int, host_compiler: str) -> None:
    wrong = [
        seed
        for seed in range(1000 * part, 1000 * (part + 1))
        if not as_serially(seed, **POLICIES[seed % len(POLICIES)])
    ]
    assert wrong == []


@st.composite
def ops(draw: st.DrawFn) -> Op:
    name = draw(st.sampled_from(["update", "into", "join", "read", "write"]))
    count = {"into": 2, "join": 3}.get(name, 1)
    numbers = draw(st.permutations(range(4)))[:count]
    return Op(name, tuple(numbers), draw(st.integers(1, N - 1)))


@given(st.lists(ops(), max_size=12), st.sampled_from(POLICIES), st.integers(0, 1000))
def test_property(program: list[Op], policies: dict[str, Any], seed: int) -> None:
    assert scheduled(program, scheduler(seed=seed, **policies)) == serially(program)


def test_a_wrong_const_is_caught(host_compiler: str) -> None:
    wrong = {**SIGNATURES, "into": SIGNATURES["into"].replace("inout", "const")}
    results = []
    for seed in range(20):
        program = random_program(seed)
        results.append(scheduled(program, scheduler(seed=seed), signatures=wrong))
        results[-1] = results[-1] == serially(program)
    assert not all(results)


def test_a_missing_const_changes_no_result(host_compiler: str) -> None:
    written = {name: text.replace("const", "inout") for name, text in SIGNATURES.items()}
    for seed in range(10):
        program = random_program(seed)
        assert scheduled(program, scheduler(seed=seed), signatures=written) == serially(program)


def without_parent(dropped: int) -> Callable[[Any, bool], None]:
    """The search for parents, which misses one."""
    connect = dependencies.connect

    def missing(element: Any, with_const: bool) -> None:
        connect(element, with_const)
        if element.parents:
            kept = list(element.parents)
            del kept[dropped]
            element.parents = tuple(kept)

    return missing


@pytest.mark.parametrize("dropped", [0, -1])
def test_a_dropped_edge_is_caught(
    dropped: int, monkeypatch: pytest.MonkeyPatch, host_compiler: str
) -> None:
    monkeypatch.setattr("fusionstitch.dag.engine.connect", without_parent(dropped))
    assert not all(as_serially(seed) for seed in range(20))


def test_a_wait_for_what_another_stream_sends_is_needed(
    monkeypatch: pytest.MonkeyPatch, host_compiler: str
) -> None:
    from fusionstitch.dag.backends.emulated import Emulated

    wait = Emulated.wait
    monkeypatch.setattr(Emulated, "wait", lambda self, stream, event: None)
    assert not all(as_serially(seed) for seed in range(20))
    monkeypatch.setattr(Emulated, "wait", wait)
    assert all(as_serially(seed) for seed in range(20))
