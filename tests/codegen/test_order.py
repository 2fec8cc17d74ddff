"""Mutants: without one of its barriers a kernel's result depends on the order of its threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.hlo.errors import VerifyError
from fusionstitch.runtime import emulate
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.cases import CASES
from tests.codegen.regions import Case, launched

BLOCK_BARRIER, GRID_BARRIER = "__syncthreads();", "fs_grid_barrier();"
#: The emulator's blocks run in step with each other; on a GPU they do not.
LATE = "for (unsigned i = 0; i < blockIdx.x % 2 * 99; ++i) __syncthreads();"
ORDERS: list[tuple[emulate.Order, int]] = [
    ("reversed", 0),
    ("forward", 0),
    *(("random", seed) for seed in range(1, 9)),
]
SHARING = [
    *("of_reduction", "concatenated_reductions", "gram_in_batch", "dot_then_sum", "attention"),
    *("attention_unshared", "attention_wide", "attention_backward", "attention_ragged", "heads"),
    *("self_attention", "columns_then_rows", "softmax_both_ways", "all_four_compositions"),
    *("mlp_gradient_small", "chained_dots", "squares", "squares_unshared", "squared_matrix"),
]
#: Barriers between a write and a read of each element by one and the same thread: thread i writes
#: row i of the scores, and as lane i of the only row's team reads it.
SAME_THREAD = {("k_attention_wide", 0)}
#: Barriers after the last of several exchanges between lanes. The emulator runs all warps from one
#: exchange to the next, so none can be so late that its writes are missed.
IN_STEP = {("k_attention_backward", 1)}
PHASED = [
    *("split_columns", "split_rows", "softmax_split", "layer_norm_backward", "whole_norm"),
    *("three_phases", "mlp_gradient", "center_both_ways"),
]


@dataclass(frozen=True, eq=False)
class Mutant:
    """A kernel without its barrier number `missing`."""

    case: Case
    kernel: Kernel
    barrier: str
    missing: int

    @property
    def sound(self) -> Kernel:
        """The kernel itself; of a cooperative launch, every second block starts late."""
        if self.barrier == BLOCK_BARRIER:
            return self.kernel
        source = self.kernel.source.replace(") {\n", f") {{\n  {LATE}\n", 1)
        return replace(self.kernel, source=source)

    @property
    def broken(self) -> Kernel:
        parts = self.sound.source.split(self.barrier)
        before, after = parts[: self.missing + 1], parts[self.missing + 1 :]
        source = self.barrier.join(before) + self.barrier.join(after)
        return replace(self.kernel, source=source)

    @property
    def separates(self) -> bool:
        """Whether the barrier lies right between a write to shared memory and its read."""
        text = self.kernel.source
        index = r"const (\w+) = \(\w+\*\)\(?shared_memory(?: \+ (\d+))?"
        indices = dict(re.findall(index, text))
        before, after = text.split(BLOCK_BARRIER)[self.missing : self.missing + 2]
        written = re.findall(r"(\w+_shared\w*)\[[^;]*\] = ", before)
        read = re.findall(r"= (\w+_shared\w*)\[", after)
        return bool({indices[name] for name in written} & {indices[name] for name in read})


def mutants(names: list[str], barrier: str) -> Iterator[Mutant]:
    for name in names:
        case = CASES[name].case()
        kernel = case.kernel()
        for missing in range(kernel.source.count(barrier)):
            yield Mutant(case, kernel, barrier, missing)


@pytest.fixture(scope="module")
def built(host_compiler: str) -> dict[Mutant, tuple[Artifact, Artifact]]:
    """Each mutant's code and that of the kernel it comes from."""
    made = [*mutants(SHARING, BLOCK_BARRIER), *mutants(PHASED, GRID_BARRIER)]
    kernels = [m.broken for m in made] + [m.sound for m in made]
    artifacts = emulate.build(kernels)
    return dict(
        zip(made, zip(artifacts[: len(made)], artifacts[len(made) :], strict=True), strict=True)
    )


def results(mutant: Mutant, artifact: Artifact) -> Iterator[object]:
    """What each order gives: the bytes of all outputs, or the emulator's finding."""
    for order, seed in ORDERS:
        emulate.set_order(order, seed)
        try:
            outputs = launched(mutant.kernel, artifact, mutant.case.args)
            yield [value.tobytes() for value in outputs]
        except VerifyError as error:
            yield str(error)
        finally:
            emulate.set_order("forward")


def caught(mutant: Mutant, broken: Artifact, sound: Artifact) -> bool:
    expected = next(results(mutant, sound))
    return any(result != expected for result in results(mutant, broken))


def test_orders_catch_every_missing_barrier_between_a_write_and_its_read(
    built: dict[Mutant, tuple[Artifact, Artifact]],
) -> None:
    tried = 0
    for mutant, artifacts in built.items():
        if mutant.barrier == BLOCK_BARRIER and mutant.separates:
            where = mutant.kernel.name, mutant.missing
            assert caught(mutant, *artifacts) == (where not in SAME_THREAD | IN_STEP), where
            tried += 1
    assert tried >= 25


def test_orders_catch_every_missing_grid_barrier(
    built: dict[Mutant, tuple[Artifact, Artifact]],
) -> None:
    tried = 0
    for mutant, artifacts in built.items():
        if mutant.barrier == GRID_BARRIER:
            where = mutant.kernel.name, mutant.missing
            assert caught(mutant, *artifacts) == (where not in SAME_THREAD), where
            tried += 1
    assert tried >= 10


def test_every_order_alone_lets_some_mutant_pass(
    built: dict[Mutant, tuple[Artifact, Artifact]],
) -> None:
    """Why kernels are tried in several orders."""
    missed = set()
    for mutant, (broken, sound) in built.items():
        expected = next(results(mutant, sound))
        found = results(mutant, broken)
        missed |= {
            order for order, result in zip(ORDERS[:2], found, strict=False) if result == expected
        }
    assert missed == set(ORDERS[:2])
