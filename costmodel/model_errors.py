"""How far off the model's gains are: what has to be measured before it is believed."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class ModelError:
    """By what share of XLA's modelled time modelled gains were too high, when both were measured.

    19 of 20 of those that were measured were within `usual`. A gain beyond `proven` is real in 19
    of 20 cases, with 95% confidence and whatever the errors' distribution: infinite where too few
    were measured to say so.
    """

    usual: float
    proven: float = math.inf


@functools.cache
def errors() -> Mapping[str, ModelError]:
    """By class of pattern: "elemwise", "reduction", "gemm".

    The file says on what, how and when (`benchmarks/model_error.py` writes it).
    """
    file = resources.files("fusionstitch.costmodel") / "model_errors.json"
    shares = json.loads(file.read_text("utf-8"))["shares"]
    return {
        kind: ModelError(found["usual"], math.inf if found["proven"] is None else found["proven"])
        for kind, found in shares.items()
    }
