"""A rule of kernels that is broken."""

from __future__ import annotations

from fusionstitch.codegen.ir.statements import Statement


class Fault(Exception):
    """What is wrong, and the statement `at` which it is."""

    def __init__(self, what: str, at: Statement | None = None):
        super().__init__(what)
        self.at = at
