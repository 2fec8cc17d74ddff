"""Loops that become kernels whatever the model says of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fusionstitch.codegen.kernel import Kernel
    from fusionstitch.costmodel.facts import KernelFacts


@contextmanager
def taken(
    form: str | None = None, made: list[tuple[Kernel, KernelFacts]] | None = None
) -> Iterator[None]:
    """Each loop, short ones too, becomes a kernel if there is one, in a `form` if one is given,
    such as "dealt" or "cluster 4", of as many blocks as it has by default. The kernels and what
    they do go to `made`.
    """
    from fusionstitch.codegen.while_loops import generate
    from fusionstitch.compiler import core
    from fusionstitch.plan import loops

    forms, xla_loop_us, make = generate.FORMS, loops.xla_loop_us, generate.Looped.kernel
    promising, short_loops = generate.PROMISING, core.short_loops

    def noted(looped: Any) -> Kernel:
        kernel = make(looped)
        if made is not None:
            made.append((kernel, looped.facts))
        return kernel

    if form:
        name, _, blocks = form.partition(" ")
        asked = {"requested": int(blocks)} if blocks else {}
        generate.FORMS = {name: partial(forms[name], **asked)}
        generate.PROMISING = 0.0
    loops.xla_loop_us = lambda *_: 1e9
    core.short_loops = lambda _: []
    generate.Looped.kernel = noted
    try:
        yield
    finally:
        generate.FORMS, loops.xla_loop_us, generate.Looped.kernel = forms, xla_loop_us, make
        generate.PROMISING, core.short_loops = promising, short_loops
