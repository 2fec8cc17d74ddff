"""What leaves the loops of a module before it is planned, by rules that each edit the module."""

from __future__ import annotations

from collections.abc import Callable

from fusionstitch.costmodel.devices import Device
from fusionstitch.hlo.graph import Module
from fusionstitch.hlo.hoisting import hoist
from fusionstitch.hlo.importer import from_message
from fusionstitch.hlo.stacking import take_out
from fusionstitch.patterns.loop_outputs import loop_outputs
from fusionstitch.patterns.loop_products import loop_products
from fusionstitch.patterns.loop_sums import loop_sums


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


#: The rules, in their order: each edits the proto of a module, and says whether it did.
RULES: tuple[Callable[[Module, Device], bool], ...] = (_sums, _outputs, _products)


def opened(module: Module, device: Device) -> Module:
    """The module whose loops leave to what stands before and behind them what does not have to
    happen one iteration behind the other."""
    for rule in RULES:
        if rule(module, device):
            module = from_message(module.proto)
    return module
