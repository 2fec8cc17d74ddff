"""What it takes to compute the expressions of a kernel, as often as they are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fusionstitch.codegen.count import chains
from fusionstitch.codegen.count.amounts import Amounts, Counted
from fusionstitch.codegen.count.axes import THREADS, Axis
from fusionstitch.codegen.count.conditions import Condition, both, negated
from fusionstitch.codegen.count.executions import Executions
from fusionstitch.codegen.count.footprints import Visited
from fusionstitch.codegen.count.paths import BRANCHING, divisions
from fusionstitch.codegen.count.pressure import Pressure
from fusionstitch.codegen.count.reading import Location, Names
from fusionstitch.codegen.count.values import UNKNOWN, Unknown, Value, along
from fusionstitch.codegen.count.warps import Sectors
from fusionstitch.codegen.ir.expressions import (
    BLOCK,
    THREAD,
    Apply,
    Arithmetic,
    Cast,
    Choice,
    Element,
    Expr,
    Infix,
    Integer,
    Load,
    LoadVector,
    Name,
    Not,
)
from fusionstitch.codegen.ir.intrinsic import Called, Cost
from fusionstitch.codegen.ir.intrinsic import Value as Exchanged
from fusionstitch.codegen.ir.kernel import Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.scopes import Scope
from fusionstitch.codegen.ir.statements import Call
from fusionstitch.codegen.ir.types import FLOAT, Type
from fusionstitch.codegen.text.expressions import is_approximate
from fusionstitch.costmodel.devices import WARP, Device
from fusionstitch.costmodel.kernel_cost import Path
from fusionstitch.costmodel.prices import APPROXIMATE
from fusionstitch.costmodel.work import LINE_BYTES, SECTOR_BYTES
from fusionstitch.hlo.graph import FLOATS

#: Lines that a warp's stores may touch for the hardware to join them with the stores after them: on
#: an H200 rows of 24 bytes are stored at the rate of memory, rows of 48 at an eighth of it
#: (benchmarks/records.py).
JOINED_LINES = 6
#: What is one instruction with the product that it adds.
_ADDED = ("add", "subtract")
#: Types of which a product that is added to something counts as one operation.
_FUSED = FLOATS - {"f64"}


class Visits:
    """Walks through expressions. `runs` are the executions of where it stands, `names` what stands
    there for what, `types` and `sizes` the types of variables and elements of arrays."""

    def __init__(self, lowered: Lowered, device: Device):
        self.lowered, self.device, self.costs = lowered, device, device.instructions
        self.thread, self.grid = Axis(THREADS, lowered.block), Axis(1, lowered.grid)
        self.numbers: dict[str, Value] = {
            THREAD.name: along(self.thread),
            BLOCK.name: along(self.grid),
        }
        self.runs = Executions((self.thread, self.grid))
        self.names = Names(dict(self.numbers))
        self.types: dict[str, Type] = {}
        self.sizes: dict[str, int] = {}
        self.now = Amounts()
        self.pressure = Pressure.of(device, lowered.block, lowered.per_sm)
        self.path = Path()
        self.chain = chains.Chain()
        self.sides = 0
        #: names of elements of arrays that nothing was computed with
        self.unread: set[str] = set()
        self.divided: set[str] = set()
        self.products: set[str] = set()
        self.sectors = Sectors(self.thread)
        self.upper = self.sampled = False

    # ---- conditions ------------------------------------------------------------------------------

    def where(self, expr: Expr, branches: bool = True) -> list[Condition]:
        """Goes on with the executions for which a condition holds, whose parts are evaluated one
        after the other. A condition that `branches` waits for the data that decides it."""
        found: list[Condition] = []
        operands = expr.operands if isinstance(expr, Infix) and expr.operator == "&&" else (expr,)
        for operand in operands:
            self.expr(operand)
            own = self.names.conditions(operand)
            for condition in own:
                self.restrict(condition, branches)
            found += own
        return found

    def otherwise(self, conditions: Sequence[Condition]) -> None:
        """Goes on with the executions for which not all conditions hold."""
        self.restrict(negated(both(conditions)))

    def restrict(self, condition: Condition, branches: bool = True) -> None:
        """Goes on with the executions for which a condition holds, or may hold."""
        if isinstance(condition, Unknown):
            self.upper = True
            if branches:
                self.wait()
        self.runs = self.runs.where(condition)
        self.sampled |= bool(self.runs.chances)

    # ---- expressions -----------------------------------------------------------------------------

    def expr(self, expr: Any) -> float:
        """What it takes to compute an expression; when its value is there (`chains.py`)."""
        if isinstance(expr, Name):
            if expr.name in self.unread:
                self.unread.remove(expr.name)
                self.kept(1)
            return self.chain.read((expr.name, None))
        handler = _EXPRESSIONS.get(type(expr))
        return handler(self, expr) if handler else self.chain.settled

    def load(self, one: Load) -> float:
        time = self.expr(one.at)
        location = self.names.location(one.buffer)
        if location:
            self.access(self.now.loads, location, self.address(location, one.at), location.item)
            if location.memory.is_near:
                return self.near([time], one.buffer)
        return time

    def load_vector(self, one: LoadVector) -> float:
        location = self.names.location(one.buffer)
        if location:
            width = one.type.bytes * one.width
            self.access(self.now.loads, location, self.address(location, one.at), width)
            if location.memory.is_near:
                return self.near([], one.buffer)
        return self.chain.settled

    def near(self, times: Sequence[float], buffer: Expr) -> float:
        """When what is loaded of shared memory is there."""
        times = [*times, self.chain.read(chains.key(buffer))]
        return self.chain.after(times, self.costs.near_cycles)

    def arithmetic(self, one: Arithmetic) -> float:
        times = [self.expr(argument) for argument in one.arguments]
        op = one.op
        dtype = (op.operands[0] if op.operands else op).dtype
        if op.opcode in _ADDED and any(
            isinstance(a, Name) and a.name in self.products for a in one.arguments
        ):
            self.path.ops -= 1  # an instruction that multiplies and adds
            if dtype in _FUSED:  # rates of f64 count it as two
                self.now.compute("flops", -self.runs.total)
        if is_approximate(op, one.numerics):
            dtype = APPROXIMATE
        return self.op(op.opcode, dtype, times)

    def applied(self, one: Apply) -> float:
        times = [self.expr(argument) for argument in one.arguments]
        time = max(times, default=self.chain.settled)
        for opcode, dtype in one.intrinsic.priced_as:
            time = self.op(opcode, dtype, [time])
        cost = self.called(one)
        if cost and cost.threads == 1:  # no other thread takes part
            return self.chain.after(times, self.costs.operation_cycles * cost.joins)
        return time

    def cast(self, one: Cast) -> float:
        return self.expr(one.value)

    def negated(self, one: Not) -> float:
        return self.expr(one.condition)

    def choice(self, one: Choice) -> float:
        outer = left = self.runs
        times = []
        for condition, value in one.cases:
            self.runs = left
            found = self.where(condition)
            times.append(self.expr(value))
            self.runs = left
            self.otherwise(found)
            left = self.runs
        times.append(self.expr(one.otherwise))
        self.runs = outer
        return self.chain.after(times, self.costs.operation_cycles)

    def infix(self, one: Infix) -> float:
        if one.operator == "&&":
            outer = self.runs
            self.where(one, branches=False)
            self.runs = outer
            return self.chain.settled
        self.path.ops += len(one.operands) - 1
        self.now.compute("int_ops", (len(one.operands) - 1) * self.runs.total)
        times = [self.expr(operand) for operand in one.operands]
        return self.chain.after(times, self.costs.operation_cycles * (len(one.operands) - 1))

    def element(self, one: Element) -> float:
        self.kept(1)
        return self.unchanged(one)

    def moves(self, value: Expr) -> bool:
        """Whether a value is an element of an array as it was: a register gets another name."""
        return isinstance(value, Element) or (isinstance(value, Name) and value.name in self.unread)

    def unchanged(self, value: Expr) -> float:
        """When such a value is there."""
        if isinstance(value, Element):
            self.expr(value.at)
        return self.chain.read(chains.key(value))

    def kept(self, times: int) -> None:
        """Elements of arrays of the thread's own are computed with, or computed."""
        self.now.kept += times * self.runs.total
        self.path.kept += times

    def joined(self, kind: Type, fields: int, times: int) -> None:
        """Values are joined with others, so many fields of them. Of records it is a comparison of
        some and a choice of all, one after the other."""
        unit = "records" if kind.fields > 1 else kind.unit
        self.now.compute(unit, fields * times)
        if kind.fields > 1:
            self.path.records += fields
        else:
            self.path.ops += fields

    def integer(self, one: Integer) -> float:
        found = divisions(one.index, self.divided)
        if found:
            self.path.divisions += found
            self.now.compute("divisions", found * self.runs.total)
        times = (self.chain.read((v.name, None)) for v in one.index.variables)
        return max(times, default=self.chain.settled)

    # ---- amounts ---------------------------------------------------------------------------------

    def wait(self) -> None:
        """All that was loaded must be there."""
        if self.pressure.loads:
            rounds = self.pressure.arrived
            self.path.rounds += rounds
            self.path.far += rounds * self.pressure.far
        self.pressure.wait()

    def op(self, opcode: str, dtype: str, operands: Sequence[float]) -> float:
        """An elementwise op whose operands are there at those times."""
        self.now.op(opcode, dtype, self.runs.total)
        self.sides += opcode in BRANCHING
        one = self.costs.price(opcode, dtype)
        self.path.ops += one.flops + one.int_ops + 2 * one.flops64
        self.path.special += one.special
        return self.chain.after(operands, self.costs.cycles(opcode, dtype))

    def access(self, into: Counted, location: Location, at: Value, width: int) -> None:
        """An access of `width` bytes, `at` so many after the begin of a buffer."""
        found = into.setdefault((location.memory, width), [0, 0, 0])
        found[0] += self.runs.total
        if location.memory.is_near:
            self.path.near += 1
            return
        self.path.accesses += 1
        visited = self.now.written
        if into is self.now.loads:
            visited = self.now.read
            if isinstance(at, Unknown):
                self.wait()
            self.pressure.load(width)
        sectors, brought, lines = self.sectors.touched(at, width, self.runs)
        found[1] += sectors
        if isinstance(at, Unknown) and (there := _lines_of(location)) < WARP:
            # a warp touches no more lines than there are
            lines = min(lines, there * self.sectors.touched(0, 1, self.runs)[2])
        joined = into is self.now.stores and lines * WARP <= JOINED_LINES * self.runs.total
        found[2] += 0 if joined else lines
        for name, size in location.buffers:
            buffer = visited.get(name)
            if buffer is None:
                buffer = visited[name] = Visited(size, self.device.l1_bytes)
            own = brought // len(location.buffers)
            came = buffer.add(at, width, self.runs, own, self.grid)
            if into is self.now.loads and own:
                self.pressure.come(came / (own * SECTOR_BYTES))

    def address(self, location: Location, at: Expr) -> Value:
        """Bytes after the begin of a buffer."""
        if isinstance(at, Integer):
            self.integer(at)
        if location.memory.is_near:
            return UNKNOWN
        return self.names.value(at) * location.item + location.offset

    def called(self, one: Apply | Call) -> Cost | None:
        """What a function does that is more than instructions."""
        intrinsic, arguments = one.intrinsic, one.arguments
        if intrinsic.cost is None:
            return None
        values = [self.exchanged(a) for a in intrinsic.exchanged.of(arguments)]
        found = intrinsic.cost(Called(intrinsic, one.template, values, self.lowered.block))
        self.upper |= found.at_most
        if found.shuffles or found.barriers:
            self.wait()
        path = self.path
        path.shuffles += found.shuffles
        for scope, meetings in found.barriers:
            if scope is Scope.CLUSTER:
                path.meetings += meetings
            else:
                path.barriers += meetings
        path.near += sum(n for _, n in (*found.loads, *found.stores)) / found.threads
        path.products += found.products
        times, now = self.runs.total, self.now
        for scope, meetings in found.barriers:
            whole = self.lowered.cluster if scope is Scope.CLUSTER else 1
            now.meet(scope, times // (found.threads * whole) * meetings)
        for into, accesses in ((now.loads, found.loads), (now.stores, found.stores)):
            for width, number in accesses:
                accessed = into.setdefault((Memory.SHARED, width), [0, 0, 0])
                accessed[0] += times * number // found.threads
        now.shuffles += times * found.shuffles
        if found.joins:
            self.joined(values[0].type, found.joins, times)
        if found.tensor:
            now.compute("tensor_flops", found.tensor * times)
            now.compute("products", found.products * times)
        for pointed in found.pointed:
            location = self.names.location(arguments[pointed.argument])
            if location:
                into = now.stores if pointed.writes else now.loads
                for _ in range(pointed.times):
                    self.access(into, location, location.offset, pointed.bytes)
        return found

    def exchanged(self, expr: Expr) -> Exchanged:
        """A value that is joined, or an array of them."""
        size = self.sizes.get(expr.name, 1) if isinstance(expr, Name) else 1
        return Exchanged(self.type(expr), size)

    def type(self, expr: Expr) -> Type:
        """The type of a variable, or of an array's elements; what is computed counts as a float."""
        array = expr.array if isinstance(expr, Element) else expr
        return self.types.get(array.name, FLOAT) if isinstance(array, Name) else FLOAT


_EXPRESSIONS: Mapping[type, Callable[[Visits, Any], float]] = {
    Load: Visits.load,
    LoadVector: Visits.load_vector,
    Arithmetic: Visits.arithmetic,
    Apply: Visits.applied,
    Cast: Visits.cast,
    Not: Visits.negated,
    Choice: Visits.choice,
    Infix: Visits.infix,
    Element: Visits.element,
    Integer: Visits.integer,
}


def _lines_of(location: Location) -> int:
    """The lines of the largest buffer that may be at a location."""
    return max((-(-size // LINE_BYTES) for _, size in location.buffers), default=WARP)
