"""What is counted of a phase, as it adds up."""

from __future__ import annotations

from dataclasses import dataclass, field

from fusionstitch.codegen.count.footprints import Visited
from fusionstitch.codegen.count.tally import Instructions, Phase, Traffic
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.costmodel.kernel_cost import Path
from fusionstitch.costmodel.prices import OpCosts

#: Accesses, sectors and lines, by memory and bytes of an access.
Counted = dict[tuple[Memory, int], list[int]]
_PRICED = ("flops", "flops64", "special", "int_ops")


@dataclass(eq=False)
class Amounts:
    """Of the threads of all blocks together. `ops` are elementwise ops by opcode and the type in
    which they are computed; `units` is what else is computed, by the fields of `Instructions`."""

    loads: Counted = field(default_factory=dict)
    stores: Counted = field(default_factory=dict)
    ops: dict[tuple[str, str], int] = field(default_factory=dict)
    units: dict[str, float] = field(default_factory=dict)
    barriers: dict[Scope, int] = field(default_factory=dict)
    shuffles: int = 0
    kept: int = 0
    read: dict[str, Visited] = field(default_factory=dict)
    written: dict[str, Visited] = field(default_factory=dict)

    def op(self, opcode: str, dtype: str, times: int) -> None:
        """An elementwise op."""
        key = opcode, dtype
        self.ops[key] = self.ops.get(key, 0) + times

    def compute(self, unit: str, amount: float) -> None:
        """What a unit does beside the elementwise ops."""
        self.units[unit] = self.units.get(unit, 0) + amount

    def meet(self, scope: Scope, times: int) -> None:
        """Barriers at which those of a scope meet."""
        self.barriers[scope] = self.barriers.get(scope, 0) + times

    def closed(self, path: Path, iterations: int, costs: OpCosts) -> Phase:
        """All of it, priced."""
        units = dict(self.units)
        for (opcode, dtype), times in self.ops.items():
            one = costs.price(opcode, dtype)
            for unit in _PRICED:
                units[unit] = units.get(unit, 0) + times * getattr(one, unit)
        return Phase(
            loads={key: Traffic(*found) for key, found in self.loads.items()},
            stores={key: Traffic(*found) for key, found in self.stores.items()},
            instructions=Instructions(**{unit: int(n) for unit, n in units.items()}),
            barriers=self.barriers,
            shuffles=self.shuffles,
            kept=self.kept,
            path=path,
            read={name: one.closed() for name, one in self.read.items()},
            written={name: one.closed() for name, one in self.written.items()},
            iterations=iterations,
        )
