"""Which buffers a kernel reads: only accesses to these ever wait for others."""

from __future__ import annotations

from fusionstitch.codegen.ir.accesses import Access, Area
from fusionstitch.codegen.ir.expressions import Expr, Load, Name, Number
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.pending import NOTHING
from fusionstitch.codegen.ir.readers import read_in
from fusionstitch.codegen.ir.statements import Function, Invoke, Statement, Store, Swap
from fusionstitch.codegen.ir.types import FLOAT, PointerTo

AT = Number("0")


def kernel(*body: Statement, functions: tuple[Function, ...] = ()) -> Lowered:
    names = ("first", "second", "out")
    buffers = tuple(Buffer(name, FLOAT, 64, Memory.SCRATCH) for name in names)
    return Lowered("kernel", buffers, functions, body, block=64, cluster=1, grid=2, shared=0)


def load(name: str) -> Expr:
    return Load(Name(name), AT)


def test_what_is_stored_to_is_not_read() -> None:
    assert read_in(kernel(Store("out", AT, load("first")))) == {"first"}


def test_addresses_of_stores_are_read() -> None:
    assert read_in(kernel(Store("out", load("second"), load("first")))) == {"first", "second"}


def test_functions_read_what_they_are_given_for_parameters_that_they_read() -> None:
    parameters = ((PointerTo(FLOAT), "given"), (PointerTo(FLOAT), "result"))
    function = Function("own", parameters, (Store("result", AT, load("given")),))
    call = Invoke("own", (Name("first"), Name("out")))
    assert read_in(kernel(call, functions=(function,))) == {"first", "given"}


def test_buffers_that_change_names_count_as_read() -> None:
    assert read_in(kernel(Swap("first", "out"))) == {"first", "out"}


def test_an_access_waits_for_those_of_its_own_buffer() -> None:
    written = Access("first", Area(buffer="first"), writes=True)
    pending = NOTHING.and_then(written).and_then(Access("out", Area(buffer="out"), writes=True))
    assert pending.conflict(Access("second", Area(buffer="second"))) is None
    found = pending.conflict(Access("first", Area(buffer="first")))
    assert found is not None
    assert found[1] == written
    assert pending.holds(NOTHING.and_then(written))
    assert not NOTHING.and_then(written).holds(pending)
    assert NOTHING.or_else(pending) == pending
