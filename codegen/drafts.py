"""A kernel before it is verified and printed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from fusionstitch.codegen.count.account import account
from fusionstitch.codegen.count.tallies import count
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.launchable import launchable
from fusionstitch.codegen.lower.program import statements, write_kernel
from fusionstitch.codegen.scheduled import Scheduled
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.account import Account
from fusionstitch.costmodel.account_time import account_us
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.hlo.errors import CodegenError

#: The fact of a kernel that is launched otherwise than by default: its modelled microseconds and
#: the default's.
COMPARED = "compared_us"


@dataclass(frozen=True, eq=False)
class Draft:
    """What a schedule became under `options` for a `device`. `default_us` is what the default one
    would take by the account, if this one is another."""

    scheduled: Scheduled
    lowered: Lowered
    options: CodegenOptions
    device: Device
    default_us: float | None = None

    @classmethod
    def of(cls, scheduled: Scheduled, options: CodegenOptions, device: Device) -> Draft:
        """The draft of a schedule. Raises CodegenError."""
        return cls(scheduled, statements(scheduled, options.numerics), options, device)

    @cached_property
    def account(self) -> Account:
        """What its statements do."""
        return account(count(self.lowered, self.device), self.lowered)

    @property
    def facts(self) -> KernelFacts:
        """What it would do."""
        return KernelFacts(self.account, self.scheduled.scope, self.scheduled.facts)

    def kernel(self) -> Kernel:
        """The kernel. Raises CodegenError if the device cannot launch it."""
        kernel = write_kernel(self.scheduled, self.lowered)
        if self.default_us is not None:
            us = account_us(self.account, self.device), self.default_us
            kernel = replace(kernel, facts=(*kernel.facts, (COMPARED, us)))
        if not (verdict := launchable(kernel, self.device)):
            raise CodegenError(f"{verdict}.")
        return kernel
