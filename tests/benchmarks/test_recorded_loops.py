"""Loop programs as the pass gets them on a GPU: what becomes of each, planned for one."""

from __future__ import annotations

import pytest

import fusionstitch as fs
from benchmarks.loops.record import stored
from fusionstitch.compiler import core
from fusionstitch.costmodel.devices import device
from fusionstitch.runtime import nvrtc
from tests.conftest import Golden

pytestmark = pytest.mark.slow

#: Bytes of a module at most: larger ones take seconds to plan.
MOST = 100_000
#: Bytes of a kernel's code at most, and those for each of its text: the largest has 6 beside the
#: first ones, and one of whose loop all iterations were written out had 46.
CODE, CODE_PER_TEXT = 16_384, 8


def test_what_becomes_of_each(golden: Golden) -> None:
    lines = []
    for name, data in stored():
        if len(data) > MOST:
            continue
        found = core.stitch(data, fs.Options(backend="emulate"), device("h200"), None)
        assert not found.fallbacks, name
        assert not [r for r in found.rejected if r.reason.startswith("Defect")], name
        kernels = [k.template for k in found.kernels if dict(k.facts).get("scope") == "loop"]
        left = [r.reason.partition("\n")[0] for r in found.rejected if r.rule == "loop"]
        lines += [name, *(f"  {text}" for text in (*kernels, *left))]
    assert len(lines) > 150
    golden("\n".join(lines) + "\n")


def test_compilers_write_no_loop_out() -> None:
    if not nvrtc.available():
        pytest.skip("there is no NVRTC")
    seen = 0
    for name, data in stored():
        if len(data) > MOST:
            continue
        found = core.stitch(data, fs.Options(backend="emulate"), device("h200"), None)
        for kernel in found.kernels:
            seen += 1
            image = nvrtc.compile(kernel.source, "sm_90").image
            assert len(image) < CODE + CODE_PER_TEXT * len(kernel.source), name
    assert seen > 90
