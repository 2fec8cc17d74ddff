"""Edits of modules as protos."""

from __future__ import annotations

from fusionstitch.hlo import schema
from fusionstitch.hlo.edit import drop_uncalled


def test_what_only_deleted_computations_call_goes_with_them() -> None:
    """The body of a loop, the loop in it, and a reducer that a deleted op shared with that."""
    calls = {1: [5], 2: [3], 3: [4], 4: [], 5: [], 6: [4]}
    module = schema.HloModule(entry_computation_id=1)
    for ident, called in calls.items():
        computation = module.computations.add(id=ident)
        computation.instructions.add(id=1, called_computation_ids=called)
    drop_uncalled(module)
    assert [c.id for c in module.computations] == [1, 5]
