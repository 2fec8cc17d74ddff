"""What each HLO opcode is: its kind, its arithmetic and its attributes, as one table.

Attributes of an `Op` by opcode (dims are tuples of int):

    parameter            index
    constant             value: numpy array (ml_dtypes for bf16 and float8)
    opaque-constant      none: what it holds is not looked at (`literals.to_numpy`); or form, if its
                         integers follow from their positions (`progressions.py`)
    iota                 dimension
    broadcast            dimensions: operand dim -> result dim
    transpose            dimensions: result dim i reads operand dim dimensions[i]
    reshape, copy, bitcast (same element order)     none
    slice                start, limit, stride
    pad                  low, high, interior (low and high may be negative); operands (x, value)
    concatenate          dimension
    reverse              dimensions
    dynamic-slice        sizes; operands (x, *starts)
    dynamic-update-slice operands (x, update, *starts)
    gather               offset_dims, collapsed_slice_dims, start_index_map, index_vector_dim,
                         operand_batching_dims, start_indices_batching_dims, slice_sizes
    reduce               dimensions, reducer ("add", "multiply", "maximum", "minimum", "and",
                         "or", "xor", or None for any other body); called = (body,);
                         operands (*inputs, *inits); several inputs give a tuple
    dot                  lhs_batch, rhs_batch, lhs_contract, rhs_contract, precision
                         ("default", "high", "highest"), algorithm (XLA's name, "unset" if
                         none is asked for); result dims: batch, lhs free, rhs free
    compare              direction ("EQ", "NE", "LT", "LE", "GT", "GE"), total_order (bool;
                         floats only)
    reduce-precision     exponent_bits, mantissa_bits
    get-tuple-element    index
    convolution          of the window: size, stride, low, high, base_dilation, window_dilation,
                         reversal; input, kernel, output: their dims, (batch, feature, *spatial) or
                         (input feature, output feature, *spatial); groups, batch_groups, precision,
                         algorithm
    fft                  length (of its last dims), inverse (bool)
    custom-call          target, side_effect (bool), replicated (bool: a sharding annotation
                         that shards nothing); of a convolution also what that has
    while                called = (condition, body)
    conditional          called = branches (of a pred: the true one first); operands (index, *args)
    scatter              update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims,
                         index_vector_dim, input_batching_dims, scatter_indices_batching_dims,
                         reducer (as of a reduce, or "replace"); called = (body,);
                         operands (*inputs, indices, *updates); several inputs give a tuple
    reduce-window        size, stride, low, high, base_dilation, window_dilation, reducer (as of a
                         reduce); called = (body,); operands (*inputs, *inits)
    scan                 dimension, reverse (bool), carries (their number), reducer (as of a reduce,
                         if the body gives the joined value as output and as carry, else None);
                         called = (body,) of (*inputs, *carries); operands (*inputs, *inits);
                         results (*outputs, *carries)
    sort                 dimension; called = (comparator,); several operands give a tuple
    topk                 k, largest (bool), dimension; results (values, their numbers)
    radix-sort           dimension (the last), descending (bool); operands (keys, *values); results
                         (*operands, scratch): CUB's (hlo/radix_sorts.py)
    call                 called = (callee,)
    triangular-solve     left, lower, unit, transposed (bools, of the matrix); operands (matrix, b)
    potrf                lower (bool: which triangle); these are custom calls of libraries
    getrf, lu-permutation   (hlo/factorisations.py), and have the attributes of those, too
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from fusionstitch.hlo.graph import Graph, Op


class Kind(enum.Enum):
    """How an op takes part in fusion (paper 3.1: elementwise, reduction, batched gemm, gemm)."""

    SOURCE = "source"  # no array operand: iota, constant
    ELEMENTWISE = "elementwise"
    MOVEMENT = "movement"  # an index map: broadcast, transpose, slice, gather, ...
    UPDATE = "update"  # an array with some elements replaced: scatter, dynamic-update-slice
    REDUCTION = "reduction"
    WINDOW = "window"  # a reduction of overlapping windows: reads each element several times
    DOT = "dot"
    FACTOR = "factor"  # factorises matrices, or solves by factors: a library's, if not small
    CONVOLUTION = "convolution"  # a library's, if it has more than a few channels
    SORT = "sort"  # sorts rows, or finds the largest elements of them: XLA's, if not short
    STRUCTURE = "structure"  # parameter, large constant, tuple: no work of their own
    PARTITION = "partition"  # left to XLA: transforms, collectives, loops, custom calls


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One opcode. `flops` counts arithmetic per result element, `special` calls to the
    special-function unit or to a library routine per result element.
    """

    opcode: str
    kind: Kind
    flops: int = 0
    special: int = 0

    @property
    def instructions(self) -> int:
        """What a thread issues for a result element, about: for a special function, eight."""
        return max(1, self.flops + 8 * self.special)


def _specs(kind: Kind, flops: int, special: int, names: str) -> list[OpSpec]:
    return [OpSpec(name, kind, flops, special) for name in names.split()]


SEMANTICS: Mapping[str, OpSpec] = {
    spec.opcode: spec
    for spec in [
        *_specs(Kind.SOURCE, 0, 0, "constant iota"),
        *_specs(
            Kind.STRUCTURE, 0, 0, "parameter opaque-constant tuple get-tuple-element after-all"
        ),
        *_specs(
            Kind.ELEMENTWISE,
            1,
            0,
            "add subtract multiply maximum minimum abs negate and or xor not select compare "
            "clamp convert bitcast-convert shift-left shift-right-arithmetic "
            "shift-right-logical floor ceil round-nearest-afz round-nearest-even sign "
            "is-finite popcnt count-leading-zeros reduce-precision copy",
        ),
        *_specs(Kind.ELEMENTWISE, 0, 0, "real imag complex"),
        # made by code generation alone: values that are reduced together and one of them, a
        # function that XLA spells out, the view of an array that holds its windows, sums of
        # what belongs to each number, and sorted rows
        *_specs(Kind.ELEMENTWISE, 0, 0, "record member"),
        *_specs(Kind.ELEMENTWISE, 20, 1, "inverse-erf"),
        *_specs(Kind.MOVEMENT, 0, 0, "windows"),
        *_specs(Kind.ELEMENTWISE, 4, 1, "divide rsqrt sqrt"),
        *_specs(Kind.ELEMENTWISE, 8, 1, "exponential log logistic remainder"),
        *_specs(
            Kind.ELEMENTWISE,
            20,
            1,
            "exponential-minus-one log-plus-one tanh sine cosine tan erf cbrt power atan2",
        ),
        *_specs(
            Kind.MOVEMENT,
            0,
            0,
            "broadcast reshape bitcast transpose slice pad concatenate reverse gather "
            "dynamic-slice",
        ),
        *_specs(Kind.UPDATE, 0, 0, "dynamic-update-slice scatter"),
        *_specs(Kind.REDUCTION, 1, 0, "reduce bins sort-rows"),
        *_specs(Kind.WINDOW, 1, 0, "reduce-window scan"),
        *_specs(Kind.DOT, 2, 0, "dot"),
        *_specs(Kind.FACTOR, 0, 0, "potrf getrf lu-permutation triangular-solve"),
        *_specs(Kind.CONVOLUTION, 2, 0, "convolution"),
        *_specs(Kind.SORT, 0, 0, "sort topk radix-sort"),
    ]
}

#: Kinds of ops that read their operands as wholes, if they are not taken apart.
READ_WHOLES = frozenset({Kind.PARTITION, Kind.SORT, Kind.CONVOLUTION})
#: Opcodes of libraries of linear algebra.
FACTORS = tuple(op for op, spec in SEMANTICS.items() if spec.kind is Kind.FACTOR)
#: Opcodes that kernels take apart, of whose results each is a value of its own.
GIVE_PARTS = frozenset({"reduce", "scan", "potrf", "getrf", "sort", "topk", "radix-sort"})

#: Opcodes that must run even when nothing reads their value.
EFFECTS = frozenset(
    {
        *("infeed", "outfeed", "send", "send-done", "recv", "recv-done"),
        *("rng", "rng-get-and-update-state", "async-start"),
        *("all-reduce-start", "all-gather-start", "collective-permute-start"),
    }
)

#: Anything the table does not name is left to XLA.
UNKNOWN = OpSpec("", Kind.PARTITION)


_KINDS: Mapping[str, Kind] = {opcode: spec.kind for opcode, spec in SEMANTICS.items()}


def spec_of(opcode: str) -> OpSpec:
    """The table's entry for an opcode; unknown opcodes are partition ops."""
    return SEMANTICS.get(opcode, UNKNOWN)


def kind_of(opcode: str) -> Kind:
    """The kind of an opcode; PARTITION for unknown ones."""
    return _KINDS.get(opcode, UNKNOWN.kind)


#: Whether an op of a graph has an effect; a graph may be called many times.
_effects: WeakKeyDictionary[Graph, bool] = WeakKeyDictionary()


def has_effect(op: Op) -> bool:
    """Whether the op, or one it calls, must run even when nothing reads its value."""
    if op.opcode in EFFECTS or op.attrs.get("side_effect", False):
        return True
    return any(map(_graph_has_effect, op.called))


def _graph_has_effect(graph: Graph) -> bool:
    if graph not in _effects:
        _effects[graph] = any(map(has_effect, graph))
    return _effects[graph]
