"""Which buffers a kernel reads anywhere.

No access to one that is only written waits for another: a training step packed into one launch
writes hundreds of them, and none needs a barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fusionstitch.codegen.ir.expressions import Name, Named
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.statements import Function, Invoke, Swap
from fusionstitch.codegen.ir.walk import parts


def read_in(kernel: Lowered) -> set[str]:
    """The names through which a kernel reads, its functions' parameters among them. One that is
    passed to a function is read if its parameter is."""
    functions = {function.name: function for function in kernel.functions}
    known: dict[str, set[str]] = {}
    found = set(_names(kernel.body, functions, known))
    return found.union(*(_read_by(one, functions, known) for one in kernel.functions))


def _read_by(
    function: Function, functions: Mapping[str, Function], known: dict[str, set[str]]
) -> set[str]:
    if function.name not in known:
        known[function.name] = set(_names(function.body, functions, known))
    return known[function.name]


def _names(
    nodes: Iterable[Any], functions: Mapping[str, Function], known: dict[str, set[str]]
) -> Iterator[str]:
    """The names that nodes read: all but those of what is stored to."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        kind = type(node)
        if kind is Name:
            yield node.name
        elif kind is Named:
            yield from filter(str.isidentifier, node.parts)
        elif kind is Swap:
            yield from (node.left, node.right)
        if kind is Invoke:
            function = functions[node.function]
            read = _read_by(function, functions, known)
            given = zip(function.parameters, node.arguments, strict=True)
            stack += [a for (_, name), a in given if name in read or not isinstance(a, Name)]
        else:
            stack += parts(node)
