"""Rules that edit the loops of a module before it is planned."""

from __future__ import annotations

from collections.abc import Callable

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.counting import count_by_rows
from fusionstitch.hlo.graph import Module
from fusionstitch.hlo.hoisting import hoist
from fusionstitch.hlo.importer import from_message
from fusionstitch.hlo.loop_constants import carry
from fusionstitch.hlo.loop_tuples import separate
from fusionstitch.hlo.residuals import compute_again
from fusionstitch.hlo.row_queries import count_queries
from fusionstitch.hlo.stacking import take_out
from fusionstitch.hlo.tabulating import tabulate
from fusionstitch.patterns.loop_asks import loop_asks
from fusionstitch.patterns.loop_constants import loop_constants
from fusionstitch.patterns.loop_counts import loop_counts
from fusionstitch.patterns.loop_outputs import loop_outputs
from fusionstitch.patterns.loop_products import loop_products
from fusionstitch.patterns.loop_residuals import loop_residuals
from fusionstitch.patterns.loop_sums import loop_sums
from fusionstitch.patterns.loop_tables import loop_tables


def _tuples(module: Module, device: Device) -> bool:
    return separate(module)


def _constants(module: Module, device: Device) -> bool:
    return carry(module, loop_constants(module))


def _asks(module: Module, device: Device) -> bool:
    return count_queries(module, loop_asks(module, device))


def _counts(module: Module, device: Device) -> bool:
    return count_by_rows(module, loop_counts(module, device))


def _sums(module: Module, device: Device) -> bool:
    found = loop_sums(module)
    if found:
        take_out(module, found)
    return bool(found)


def _outputs(module: Module, device: Device) -> bool:
    found = loop_outputs(module, device)
    if found:
        take_out(module, found)
    return bool(found)


def _products(module: Module, device: Device) -> bool:
    found = loop_products(module, device)
    if found:
        hoist(module, found)
    return bool(found)


def _tables(module: Module, device: Device) -> bool:
    found = loop_tables(module, device)
    if found:
        tabulate(module, found)
    return bool(found)


def _residuals(module: Module, device: Device) -> bool:
    return compute_again(module, loop_residuals(module, device))


#: A rule edits the proto of a module, and returns whether it did.
Rule = Callable[[Module, Device], bool]
#: Rules that bring loops into the form of kernels, each repeated until it finds nothing.
FORMS: tuple[Rule, ...] = (_tuples, _constants, _asks, _counts)
#: Rules that move work out of loops, in their order.
RULES: tuple[Rule, ...] = (_sums, _outputs, _products, _residuals, _tables)


def formed(module: Module, device: Device) -> Module:
    """The module with loops that have tuples of their own, and carry large constants."""
    for rule in FORMS:
        while rule(module, device):
            module = from_message(module.proto)
    return module


def opened(module: Module, device: Device) -> Module:
    """The module with work that need not be sequential moved out of its loops, to before or after
    them."""
    for rule in RULES:
        if rule(module, device):
            module = from_message(module.proto)
    return module
