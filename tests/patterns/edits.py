"""Modules of programs, before and after a rule edits their loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Module
from fusionstitch.hlo.importer import from_message, parse
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.verify import verify_module


def module_of(fun: Callable[..., Any], *args: Any) -> Module:
    lowered: Any = jax.jit(fun, keep_unused=True).lower(*args).compiler_ir("hlo")
    return from_message(parse(inline_calls(lowered.as_serialized_hlo_module_proto())))


def edited(module: Module, edit: Callable[[Module], object], *args: Any) -> Module:
    """The module after `edit`, checked to give the same results."""
    leaves = jax.tree.leaves(args)
    before = evaluate(module.entry, leaves, float64=True)
    edit(module)
    found = from_message(module.proto)
    verify_module(found.proto.SerializeToString())
    after = evaluate(found.entry, leaves, float64=True)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12, atol=1e-12)
    return found
