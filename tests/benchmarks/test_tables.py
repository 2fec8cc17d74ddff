"""Results as tables: ratios, means, losses."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import tables


def side(kernels: int, gpu_us: float, copies: int = 0) -> dict[str, Any]:
    kernel_us = gpu_us - copies
    return {"kernels": kernels, "copies": copies, "gpu_us": gpu_us, "kernel_us": kernel_us}


def row(target: str, ours: dict[str, Any], wall: float = 50.0, **values: Any) -> dict[str, Any]:
    return {
        "target": target,
        "wall_us": {"xla": {"median": 100.0}, "fusionstitch": {"median": wall}},
        "profile": {"xla": side(8, 40.0), "fusionstitch": ours, "unfused": side(30, 170.0, 90)},
        "check": {"reference": "float64", "outputs": 2, "error": 1e-7, "error_xla": 2e-7}
        | {"wrong": []},
        **values,
    }


WIN = row("softmax.py:rows", side(2, 10.0))
LOSS = row("lorenz.py:scan", side(3, 100.0, copies=13), wall=104.0)
FAILED = {"target": "norms.py:forward", "failure": "signal 11 in step 'run'"}


def test_copies_count_for_both_compilers_and_not_op_by_op() -> None:
    assert tables.launches(LOSS, "fusionstitch") == 16
    assert tables.launches(LOSS, "unfused") == 30
    assert tables.gpu(LOSS, "unfused") == 80.0
    assert "| lorenz.py:scan | 30 | 8 + 0 | 3 + 13 | 1.88 | 0.50 |" in tables.kernels_table([LOSS])


def test_geometric_means() -> None:
    assert tables.kernels_table([WIN, LOSS, FAILED])[-1] == (
        "| geometric mean | | | | 5.30 | 1.41 |"
    )
    assert tables.times_table([WIN, LOSS, FAILED])[-1] == (
        "| geometric mean | | | | 2.53 | 1.26 | | | 1.39 |"
    )


def test_losses_say_what_was_lost() -> None:
    wrong = [{"output": 1, "elements": 1, "error": 9e-6, "xla": 1e-6, "allowed": 2e-6}]
    bad = row("adam.py:gpt2_small", side(2, 10.0), check={"outputs": 2, "wrong": wrong})
    assert tables.losses([WIN]) == ["None."]
    assert tables.losses([WIN, LOSS, FAILED, bad]) == [
        "- lorenz.py:scan: kernels 2.00 times XLA's; **GPU time 2.50 times XLA's**; "
        "wall time 1.04 times XLA's.",
        "- norms.py:forward: not measured: signal 11 in step 'run'.",
        "- adam.py:gpt2_small: 1 of 2 outputs over the limit, the first, of 1 elements, with "
        "error 9.0e-06 where XLA's is 1.0e-06 and 2.0e-06 is allowed.",
    ]


def test_what_was_not_measured_is_a_dash_and_what_was_modelled_is_marked() -> None:
    assert tables.kernels_table([FAILED])[2] == "| norms.py:forward | - | - | - | - | - |"
    modelled = row("lorenz.py:scan", side(3, 10.0), unfused_modelled=14000)
    del modelled["profile"]["unfused"]
    assert tables.kernels_table([modelled])[2].startswith("| lorenz.py:scan | ~14000 | 8 + 0 ")


def test_the_page_keeps_what_is_above_its_marker() -> None:
    page = f"# Title\n\n{tables.MARKER}\n\nold\n"
    assert tables.put("new\n", page) == f"# Title\n\n{tables.MARKER}\n\nnew\n"
    with pytest.raises(ValueError, match="The page has no line"):
        tables.put("new", "# Title")
