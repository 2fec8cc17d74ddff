"""All small programs that kernels are tested with, from the files that hold them."""

from __future__ import annotations

from tests.codegen import (
    bins_cases,
    cluster_cases,
    complex_cases,
    conv_cases,
    dot_cases,
    field_cases,
    halo_cases,
    inplace_cases,
    known_scatter_cases,
    movement_cases,
    pair_cases,
    piece_cases,
    refused_cases,
    scan_cases,
    slice_cases,
    sort_cases,
    table_cases,
    team_cases,
)
from tests.codegen.kernel_cases import CASES, Program

__all__ = [
    "CASES",
    "Program",
    "bins_cases",
    "cluster_cases",
    "complex_cases",
    "conv_cases",
    "dot_cases",
    "field_cases",
    "halo_cases",
    "inplace_cases",
    "known_scatter_cases",
    "movement_cases",
    "pair_cases",
    "piece_cases",
    "refused_cases",
    "scan_cases",
    "slice_cases",
    "sort_cases",
    "table_cases",
    "team_cases",
]
