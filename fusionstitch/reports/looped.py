"""Whole loops in a kernel as text: who runs an iteration, and where carried values live."""

from __future__ import annotations

from collections.abc import Iterator

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.while_loops.summary import Element, Loops, LoopSummary
from fusionstitch.hlo.brief import count
from fusionstitch.reports.lines import shortened

#: Carried values named per loop; the rest is counted.
_SHOWN = 24


def loops_of(kernel: Kernel) -> Loops | None:
    """What a kernel made of its loops, None for one without any."""
    found = dict(kernel.facts).get("loops")
    return found if isinstance(found, Loops) else None


def loop_lines(loops: Loops) -> Iterator[str]:
    """The form, the axes, the time of an iteration, and each loop with what it carries."""
    along = " x ".join(map(str, loops.axes))
    dealt = f", dealt along an axis of {along}" if loops.axes else ""
    yield (
        f"loops in the form {loops.form}{dealt}: {loops.workers}; an iteration is modelled to "
        f"take {loops.iteration_us:.3f} us"
    )
    for loop in loops.loops:
        yield from (f"  {line}" for line in _loop(loop))


def _loop(loop: LoopSummary) -> Iterator[str]:
    if loop.iterations is None:
        yield "a loop whose iterations the data decides, which carries"
    else:
        yield f"a loop of {count(loop.iterations, 'iteration')}, which carries"
    for element in loop.elements[:_SHOWN]:
        yield f"  {_element(element)}"
    if len(loop.elements) > _SHOWN:
        yield f"  and {len(loop.elements) - _SHOWN} more"
    for inner in loop.inner:
        yield from (f"  {line}" for line in _loop(inner))


def _element(element: Element) -> str:
    which = "a value of the kernel's own" if element.number is None else f"element {element.number}"
    source = element.source
    [line] = shortened([f"{source.file}:{source.line}"])
    made = f"; {line} makes the next" if source.file else ""
    return f"{which} {element.shape}: {element.role}, {element.place}{made}"
