"""The schema keeps what it does not know."""

from fusionstitch.hlo import schema
from fusionstitch.hlo.exporter import export
from fusionstitch.hlo.importer import from_proto


def test_serialized_modules_keep_their_size(program):
    hlo = program.hlo
    message = schema.HloModule()
    message.ParseFromString(hlo)
    assert len(message.SerializeToString()) == len(hlo)


def test_unknown_fields_survive_an_export(program):
    unknown = b"\xfa\x3e\x05later"  # field 1007, five bytes
    proto = schema.HloModule()
    proto.ParseFromString(program.hlo)
    entry = proto.computations[-1]
    marked = schema.Instruction()
    marked.ParseFromString(entry.instructions[-1].SerializeToString() + unknown)
    entry.instructions[-1].CopyFrom(marked)
    assert unknown in export(from_proto(proto.SerializeToString() + unknown), ())
    assert export(from_proto(proto.SerializeToString() + unknown), ()).count(unknown) == 2


def test_a_schedule_that_is_present_but_empty_stays_present():
    message = schema.HloModule()
    message.schedule.SetInParent()
    again = schema.HloModule()
    again.ParseFromString(message.SerializeToString())
    assert again.HasField("schedule")
