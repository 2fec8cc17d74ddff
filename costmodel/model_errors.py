"""How far off the model's gains are: what has to be measured before it is believed."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from importlib import resources


@functools.cache
def errors() -> Mapping[str, float]:
    """By class of pattern ("elemwise", "reduction", "gemm"): the share of XLA's modelled time by
    which 19 of 20 modelled gains were at most too high, when both were measured.

    The file says on what, how and when (`benchmarks/model_error.py` writes it).
    """
    file = resources.files("costmodel") / "model_errors.json"
    shares: dict[str, float] = json.loads(file.read_text("utf-8"))["shares"]
    return shares
