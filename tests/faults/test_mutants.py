"""Broken modules: a clear error or a sound result, within bounds of time and memory."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from fusionstitch.compiler import core
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.costmodel.devices import device
from fusionstitch.errors import FusionStitchError, ImportModuleError, StitchError
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.load import load
from fusionstitch.options import Options
from tests.faults import mutants
from tests.faults.sandbox import memory_limit, no_hang

pytestmark = pytest.mark.slow

#: Mutants of each kind in one batch; `make faults` asks for more.
EACH = int(os.environ.get("FAULTS_MUTANTS", "50"))
DEVICE = device("emulated")


def outcome(data: bytes) -> Stitched:
    """What the core makes of a module, having looked at what it promises."""
    result = core.stitch(data, Options(), DEVICE, None)
    assert result.module == data
    for fallback in result.fallbacks:
        assert "Defect" not in fallback.reason, fallback.reason
    if any(not fallback.ops for fallback in result.fallbacks):
        with pytest.raises(StitchError):
            core.stitch(data, Options(fallback="error"), DEVICE, None)
    return result


@pytest.mark.parametrize("batch", range(6))
def test_protos_with_other_fields(batch: int) -> None:
    with no_hang(), memory_limit(2 << 30):
        for number in range(EACH):
            outcome(mutants.of_fields(mutants.proto(), f"{batch}-{number}"))


def refused(mutant: Callable[[int], bytes | str]) -> int:
    """How many of a batch of mutants are refused; the others are read."""
    count = 0
    for number in range(EACH):
        try:
            from_proto(load(mutant(number)))
        except ImportModuleError:
            count += 1
    return count


@pytest.mark.parametrize("batch", range(4))
def test_protos_with_other_bytes(batch: int) -> None:
    with no_hang(), memory_limit(2 << 30):
        assert refused(lambda n: mutants.of_bytes(mutants.proto(), f"{batch}-{n}"))


@pytest.mark.parametrize("batch", range(4))
def test_hlo_text(batch: int) -> None:
    with no_hang(), memory_limit(2 << 30):
        assert refused(lambda n: mutants.of_text(mutants.hlo_text(), f"{batch}-{n}"))


def test_stablehlo_text() -> None:
    with no_hang(), memory_limit(4 << 30):
        count = refused(lambda n: mutants.of_text(mutants.stablehlo_text(), f"{n}"))
    assert count > EACH / 4


def test_the_module_itself_is_fine() -> None:
    assert outcome(mutants.proto()).fallbacks == ()
    for form in (mutants.hlo_text(), mutants.stablehlo_text()):
        try:
            from_proto(load(form))
        except FusionStitchError as error:
            pytest.fail(str(error))
