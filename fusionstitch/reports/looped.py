"""Whole loops in a kernel as text: who runs an iteration, and where carried values live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


def to_dict(loops: Loops) -> dict[str, Any]:
    """The same as plain data, ready for JSON: loops in loops, each with what it carries."""
    return {
        "form": loops.form,
        "axes": list(loops.axes),
        "workers": loops.workers,
        "iteration_us": loops.iteration_us,
        "loops": [_loop_dict(loop) for loop in loops.loops],
    }


def _loop_dict(loop: LoopSummary) -> dict[str, Any]:
    return {
        "iterations": loop.iterations,
        "carried": [
            {
                "number": one.number,
                "type": one.shape,
                "role": one.role,
                "place": one.place,
                "made": _made(one),
            }
            for one in loop.elements
        ],
        "inner": [_loop_dict(inner) for inner in loop.inner],
    }


def _made(element: Element) -> str:
    """The line that makes the next value, if it is known."""
    source = element.source
    [line] = shortened([f"{source.file}:{source.line}"])
    return line if source.file else ""


def _element(element: Element) -> str:
    which = "a value of the kernel's own" if element.number is None else f"element {element.number}"
    line = _made(element)
    made = f"; {line} makes the next" if line else ""
    return f"{which} {element.shape}: {element.role}, {element.place}{made}"
