"""Kernels that fusionstitch emits, as work of a scheduler."""

from __future__ import annotations

import sys
from typing import Any

from fusionstitch.codegen.kernel import Kernel as Generated
from fusionstitch.dag.access import Access
from fusionstitch.dag.arguments import Arguments
from fusionstitch.dag.backends.backend import Sizes
from fusionstitch.dag.element import Element, Storage, Work
from fusionstitch.dag.engine import Engine
from fusionstitch.dag.errors import LaunchError
from fusionstitch.dag.signature import Parameter
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.literals import NUMPY_DTYPES


class Emitted(Work):
    """A generated kernel, which has fixed sizes; made by `Scheduler.kernel`.

    Its parameters are the kernel's inputs, then its outputs. All launches share its scratch memory,
    so they run one after another if it has some.
    """

    def __init__(self, kernel: Generated, engine: Engine, access: Access, priority: int) -> None:
        self.name = kernel.name
        self.priority = priority
        parameters = (
            *(_parameter(f"input {i}", shape, True) for i, shape in enumerate(kernel.inputs)),
            *(_parameter(f"output {i}", shape, False) for i, shape in enumerate(kernel.outputs)),
        )
        self._arguments = Arguments(kernel.name, parameters, access)
        self._shapes = (*kernel.inputs, *kernel.outputs)
        self._scratch = [
            Storage(shape.dims, NUMPY_DTYPES[shape.dtype], f"scratch of {kernel.name}")
            for shape in kernel.scratch
        ]
        self._engine = engine
        self._function = engine.backend.build_emitted(kernel)
        self._sizes = Sizes((kernel.grid,), (kernel.block,), kernel.shared_bytes)

    def __call__(self, *arguments: Any) -> None:
        """Launches the kernel. Raises LaunchError and ArrayError for arguments that do not fit,
        including arrays of other shapes, and KernelError for work that failed before."""
        values, uses = self._arguments.bound(arguments)
        parameters = self._arguments.parameters
        for parameter, shape, storage in zip(parameters, self._shapes, values, strict=True):
            if storage.nbytes != shape.bytes:
                raise LaunchError(
                    f"{self.name}: {parameter.name} is {shape}, and {storage.label} has the shape "
                    f"{storage.shape}."
                )
        uses |= dict.fromkeys(self._scratch, False)
        frame = sys._getframe(1)
        site = (frame.f_code, frame.f_lasti)
        self._engine.submit(Element(self, values, uses, site))

    def begin(self, element: Element, stream: Any) -> None:
        given = self._arguments.devices(element.arguments)
        given += [storage.device for storage in self._scratch]
        self._function(self._sizes, given, stream, element)

    def __repr__(self) -> str:
        return f"Emitted {self.name}({', '.join(map(str, self._shapes))})"


def _parameter(name: str, shape: Shape, const: bool) -> Parameter:
    return Parameter(name, True, const, NUMPY_DTYPES[shape.dtype].type, shape.dtype)
