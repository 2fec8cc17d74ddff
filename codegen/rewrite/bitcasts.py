"""Bitcasts between element types of different sizes, as shifts of unsigned integers.

    bitcast-convert(x: f32[N]): u8[N, 4]   ->  convert(bitcast(x) >> 8 * iota)
    bitcast-convert(x: u8[N, 4]): f32[N]   ->  bitcast(x[:, 0] | x[:, 1] << 8 | ...)

The least significant bits come first, as in XLA.
"""

from __future__ import annotations

from fusionstitch.codegen.rewrite.chain import Chain
from fusionstitch.codegen.text.types import C_TYPES
from fusionstitch.hlo.graph import ITEM_BYTES, Op


def regroups(op: Op) -> bool:
    """Whether `op` is a bitcast that changes the number of elements, of types that kernels have."""
    types = (op.operands[0].dtype, op.dtype) if op.opcode == "bitcast-convert" else ()
    return all(t in C_TYPES for t in types) and len({ITEM_BYTES[t] for t in types}) == 2


def expand_bitcast(op: Op) -> list[Op] | None:
    """The ops that stand for a bitcast that `regroups`; None for every other op."""
    if not regroups(op):
        return None
    chain, x = Chain(op), op.operands[0]
    bits, new = 8 * ITEM_BYTES[x.dtype], 8 * ITEM_BYTES[op.dtype]
    x = _as(chain, f"u{bits}", x)
    _as(
        chain, op.dtype, _split(chain, x, bits, new) if new < bits else _joined(chain, x, bits, new)
    )
    return chain.done()


def _as(chain: Chain, dtype: str, x: Op) -> Op:
    """The bits of `x` as another type of the same size."""
    return x if x.dtype == dtype else chain.make("bitcast-convert", dtype, x.dims, x)


def _split(chain: Chain, x: Op, bits: int, new: int) -> Op:
    """`x` as [..., parts], its least significant bits first."""
    dims = (*x.dims, bits // new)
    last = len(x.dims)
    whole = chain.make("broadcast", x.dtype, dims, x, dimensions=tuple(range(last)))
    part = chain.make("iota", x.dtype, dims, dimension=last)
    by = chain.like(part, "multiply", part, chain.splat(new, part))
    return chain.make(
        "convert", f"u{new}", dims, chain.like(whole, "shift-right-logical", whole, by)
    )


def _joined(chain: Chain, x: Op, bits: int, new: int) -> Op:
    """The parts along the last dim of `x` in one integer."""
    dims, total = x.dims[:-1], None
    for number in range(new // bits):
        bounds = {
            "start": (*(0 for _ in dims), number),
            "limit": (*dims, number + 1),
            "stride": (1,) * len(x.dims),
        }
        part = chain.make("slice", x.dtype, (*dims, 1), x, **bounds)
        part = chain.make("reshape", x.dtype, dims, part)
        part = chain.make("convert", f"u{new}", dims, part)
        if number:
            part = chain.like(part, "shift-left", part, chain.splat(number * bits, part))
        total = part if total is None else chain.like(part, "or", total, part)
    assert total is not None
    return total
