"""Random works of kernels."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import strategies as st

from fusionstitch.costmodel.work import Work

#: What kernels have amounts of.
AMOUNTS = tuple(field.name for field in fields(Work) if field.name != "blocks")


def works(*without: str) -> st.SearchStrategy[Work]:
    """Of all amounts but those named."""
    amounts = {name: st.integers(0, 10**10) for name in AMOUNTS if name not in without}
    return st.builds(Work, **amounts, blocks=st.integers(1, 10_000))
