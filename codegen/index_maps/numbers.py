"""Indices that are numbers made of digits of variables: what axis analysis sees of them."""

from __future__ import annotations

import functools

from fusionstitch.codegen.index_maps.index import Index, Quotient, Remainder, Term, Var

#: A digit of an index: (variable / divisor) % extent as (name, divisor, extent).
Digit = tuple[str, int, int]


@functools.lru_cache(maxsize=1 << 14)
def digits_of(index: Index) -> tuple[tuple[Digit, ...], int]:
    """The digits that make up `index`, minor to major, and the size of the number they form. If a
    term is no digit, the size is 0, with the digits before that term."""
    if index.const:
        return (), 0
    found: list[Digit] = []
    weight = 1
    for term, coefficient in sorted(index.terms, key=lambda tc: tc[1]):
        digit = _digit(term) if coefficient == weight else None
        if digit is None:
            return tuple(found), 0
        found.append(digit)
        weight *= digit[2]
    return tuple(found), weight


def digit_of(index: Index) -> Digit | None:
    """The digit that `index` is, if it is nothing else."""
    digits, size = digits_of(index)
    return digits[0] if size and len(digits) == 1 else None


def _only(index: Index) -> Term | None:
    """The term that an index is, if it is nothing else."""
    if index.const or len(index.terms) != 1 or index.terms[0][1] != 1:
        return None
    return index.terms[0][0]


def _digit(term: Term | None) -> Digit | None:
    divisor, extent = 1, 0
    if isinstance(term, Remainder):
        extent, term = term.divisor, _only(term.base)
    if isinstance(term, Quotient):
        divisor, term = term.divisor, _only(term.base)
    if not isinstance(term, Var) or (not extent and term.extent % divisor):
        return None
    return term.name, divisor, extent or term.extent // divisor
