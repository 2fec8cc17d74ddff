"""Groups that do the same to different tensors share one device function (multi-tensor packing).

An optimiser step over hundreds of parameters packs hundreds of groups into one launch. Written out
one by one they would overflow the instruction cache and take seconds to compile; as calls of a few
functions, the code stays about as small as that of one tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen.schedule import GroupPlan
from codegen.types import c_type
from hlo.graph import Op


@dataclass(frozen=True)
class Signature:
    """What a group reads, in order of first use, and what it writes: (op, buffer)."""

    loads: tuple[Op, ...]
    stores: tuple[tuple[Op, str], ...]

    def parameters(self, int_: str) -> list[str]:
        """C parameters: the tile, the grid points there are, the pointers."""
        types = [f"const {c_type(op.dtype).storage}* in_{i}" for i, op in enumerate(self.loads)]
        types += [f"{c_type(op.dtype).storage}* out_{i}" for i, (op, _) in enumerate(self.stores)]
        return [f"const {int_} tile", f"const {int_} points", *types]

    def arguments(self, tile: str, group: GroupPlan, inputs: Mapping[int, str]) -> list[str]:
        """C arguments of a call for one group."""
        pointers = [inputs[op.id] for op in self.loads] + [name for _, name in self.stores]
        return [tile, str(group.grid_points), *pointers]


def signature(group: GroupPlan, written: Mapping[int, Sequence[str]]) -> Signature:
    """The signature of an elementwise group; `written` holds the buffers of each op's value."""
    loads = {op.id: op for stage in group.group.stages for op, _ in stage.loads}
    stores = [(s.op, name) for s in group.group.stages for name in written.get(s.op.id, ())]
    return Signature(tuple(loads.values()), tuple(stores))


def function_text(signature: Signature, int_: str, body: str) -> str:
    """A device function, its name left as `NAME`."""
    parameters = ",\n    ".join(signature.parameters(int_))
    return f"static __device__ __noinline__ void NAME(\n    {parameters}) {{\n{body}\n}}\n"


def shared_texts(texts: Mapping[GroupPlan, str]) -> list[str]:
    """The function texts that at least two groups have in common, in order of first use."""
    return [text for text, count in Counter(texts.values()).items() if count > 1]
