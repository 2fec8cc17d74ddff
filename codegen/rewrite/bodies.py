"""What is known of the body of a reduction: whether its values may be joined in any order.

Threads that share a row interleave its elements, each start from the inits, and join their partial
results in whatever order suits the hardware. For a body f that is correct if it commutes,
associates, and an extra init changes nothing. It is shown in one of two ways:

    by trying    a body that only compares and selects decides by the order of its arguments alone:
                 equal, smaller, larger, zeros of either sign, NaN. All cases are few enough to be
                 tried, so this is a proof.
    by sampling  a body that is the same expression with its arguments exchanged, or a continuous
                 function of them, and that commutes and regroups up to rounding where it is tried.

Where a value of the record is the index of the element, as in argmax, f need not commute: the
record with the smaller index is the left one. Zeros of either sign are the same in a record: which
of two that tie is the result may depend on the order. Any other body is computed in the order of
the elements. It goes by runs of neighbors if it associates where it is tried: JAX requires that of
every body.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import FLOATS, FLOATS8, INTEGERS, SIGNED, Graph, Op
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.numeric import Array
from fusionstitch.hlo.rewrite import splat

#: Ops whose value is one of their arguments, or a truth.
_PICKING = frozenset(
    {
        *("parameter", "constant", "tuple", "select", "compare", "maximum", "minimum"),
        *("and", "or", "xor", "not"),
    }
)
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
_CHAINS = frozenset({"add", "multiply", "and", "or", "xor"})
_TURNED = {"GT": "LT", "GE": "LE"}
#: Ops that are continuous where they are defined: what holds of samples holds in between.
_CONTINUOUS = frozenset(
    {
        *("parameter", "constant", "tuple", "copy", "add", "subtract", "multiply", "divide"),
        *("negate", "abs", "maximum", "minimum", "clamp", "exponential", "log", "log-plus-one"),
        *("exponential-minus-one", "sqrt", "rsqrt", "tanh", "logistic", "erf", "sine", "cosine"),
    }
)
#: Three different numbers, zeros of either sign, NaN: every order of three values is among them.
_FLOAT_VALUES = (-0.0, 0.0, 1.0, 2.0, np.nan)
_INTEGER_VALUES = (0, 1, 2)
#: Cases that are tried at most.
_MOST_CASES = 1 << 19
#: Triples of numbers, and the relative error of a sum of three, where a body is sampled.
_SAMPLES, _CLOSE = 200, 1e-6

Values = list[Array]


@dataclass(frozen=True)
class Laws:
    """`free`: values may be joined in any order, from any number of inits, those with the smaller
    `index` (the number of a value of the record; None: either) on the left. `regroups`, of what is
    not free: runs of neighbours may be joined first, and then those, in their order."""

    free: bool
    index: int | None = None
    regroups: bool = False


_known: WeakKeyDictionary[Graph, dict[Hashable, Laws]] = WeakKeyDictionary()


def laws(body: Graph, inputs: Sequence[Op], inits: Sequence[Op], dims: Sequence[int]) -> Laws:
    """What holds for a reduction of `inputs` along `dims` by `body` from splats, the `inits`."""
    starts = [np.asarray(splat(init)) for init in inits]
    constants = [splat(x) for x in inputs]
    indices = tuple(number for number, x in enumerate(inputs) if counts(x, dims))
    given = (np.asarray(c).tobytes() if c is not None else None for c in constants)
    key = (*(start.tobytes() for start in starts), *given, *indices)
    found = _known.setdefault(body, {})
    if key not in found:
        with np.errstate(all="ignore"):
            found[key] = _laws(_Join(body, starts, constants), indices)
    return found[key]


def counts(x: Op, dimensions: Sequence[int]) -> bool:
    """Whether `x` counts the elements along the only summed dim of several."""
    along = [d for d in dimensions if x.dims[d] > 1]
    while x.opcode == "broadcast":
        spread = x.attrs["dimensions"]
        along = [spread.index(d) for d in along if d in spread]
        x = x.operands[0]
    if x.opcode != "iota" or x.dtype not in INTEGERS or along != [x.attrs["dimension"]]:
        return False
    return x.dims[along[0]] - 1 <= np.iinfo(NUMPY_DTYPES[x.dtype]).max


def _laws(join: _Join, indices: Sequence[int]) -> Laws:
    body = join.body
    if _picks(body):
        for index in (None, *indices):
            if _proved(join, index):
                return Laws(True, index)
    if (_symmetric(body) or all(op.opcode in _CONTINUOUS for op in body)) and _sampled(join):
        return Laws(True)
    return Laws(False, regroups=_associates(join))


class _Join:
    """A body as a function of records, which are lists of arrays; `constants` are the values that
    are known of all elements (None: any)."""

    def __init__(self, body: Graph, inits: Values, constants: Sequence[Any]):
        self.body = body
        self.inits = inits
        self.constants = constants
        self.dtypes = [op.dtype for op in body.parameters[: len(inits)]]
        #: whether values are compared bit by bit, and zeros by their signs
        self.exact, self.signed = True, len(inits) == 1

    def __call__(self, a: Values, b: Values) -> Values:
        shape = np.broadcast_shapes(*(v.shape for v in (*a, *b)))
        args = [np.broadcast_to(v, shape) for v in (*a, *b)]
        return [
            np.broadcast_to(v, shape) for v in evaluate(self.body, args, float64=not self.exact)
        ]

    def ordered(self, index: int | None, a: Values, b: Values) -> Values:
        """The join in which the record with the smaller index is the left one."""
        if index is None:
            return self(a, b)
        return _where(b[index] < a[index], self(b, a), self(a, b))

    def same(self, a: Values, b: Values) -> bool:
        """Whether all records are equal, bit by bit or, of samples, up to rounding."""
        return all(self._same(x, y) for x, y in zip(a, b, strict=True))

    def _same(self, x: Array, y: Array) -> bool:
        x, y = np.broadcast_arrays(x, y)
        if x.dtype.kind in "biu":
            return bool((x == y).all())
        x, y = x.astype(np.float64), y.astype(np.float64)
        equal = x == y
        if not self.exact:
            equal |= np.abs(x - y) <= _CLOSE * (1 + np.abs(x) + np.abs(y))
        elif self.signed:
            equal &= np.signbit(x) == np.signbit(y)
        return bool((equal | (np.isnan(x) & np.isnan(y))).all())


def _where(mask: Array, a: Values, b: Values) -> Values:
    return [np.where(mask, x, y) for x, y in zip(a, b, strict=True)]


# ---- by trying -----------------------------------------------------------------------------------


def _picks(body: Graph) -> bool:
    """Whether a body only picks among its arguments, comparing each value of a record with itself
    in the other one."""
    half = len(body.parameters) // 2
    origin: dict[Op, set[int]] = {}
    for op in body:
        flows = [origin[o] for o in op.operands]
        if op.opcode not in _PICKING or op.attrs.get("total_order"):
            return False
        if op.opcode == "parameter":
            origin[op] = set() if op.dtype == "pred" else {op.attrs["index"] % half}
        elif op.opcode == "constant" and op.dtype != "pred":
            return False  # the cases on either side of it are not among those tried
        elif op.opcode in ("and", "or", "xor", "not") and op.dtype != "pred":
            return False
        elif op.opcode == "tuple":
            origin[op] = set()
        else:
            origin[op] = set().union(*flows)
            if len(origin[op]) > 1:
                return False
            if op.dtype == "pred":
                origin[op] = set()
    results = body.root.operands if body.root.opcode == "tuple" else (body.root,)
    return all(origin[x] <= {number} for number, x in enumerate(results))


def _proved(join: _Join, index: int | None) -> bool:
    """Whether all cases of three records, and of two beside the inits, agree."""
    values = [_values(dtype) for dtype in join.dtypes]
    number = int(np.prod([len(v) for v in values]))
    near = [np.concatenate([v, _around(i, d)]) for v, i, d in _zip(values, join.inits, join.dtypes)]
    beside = int(np.prod([len(v) for v in near]))
    if max(number**3, beside**2) > _MOST_CASES:
        return False
    a, b, c = _cases(values, 3, index)
    one, two = _cases(near, 2, index)
    return _regroups(join, index, a, b, c) and _starts_freely(join, index, one, two)


def _zip(*lists: Sequence[Any]) -> Any:
    return zip(*lists, strict=True)


def _values(dtype: str) -> Array:
    if dtype == "pred":
        return np.array([False, True])
    return np.array(_FLOAT_VALUES if _is_float(dtype) else _INTEGER_VALUES, NUMPY_DTYPES[dtype])


def _is_float(dtype: str) -> bool:
    return dtype in FLOATS or dtype in FLOATS8


def _around(init: Array, dtype: str) -> Array:
    """Values below, at and above an init."""
    kind = NUMPY_DTYPES[dtype]
    if dtype == "pred":
        return np.array([], bool)
    if _is_float(dtype):
        return np.array([-np.inf, float(init) - 1, float(init), float(init) + 1, np.inf]).astype(
            kind
        )
    limits = np.iinfo(kind)
    near = range(int(init) - 1, int(init) + 2)
    least = 0 if dtype in SIGNED and init >= 0 else limits.min
    return np.array([v for v in near if least <= v <= limits.max], kind)


def _cases(values: Sequence[Array], count: int, index: int | None) -> list[Values]:
    """All tuples of `count` records, with different indices if they have one."""
    records = [v.ravel() for v in np.meshgrid(*values, indexing="ij")]
    chosen = np.indices((len(records[0]),) * count).reshape(count, -1)
    if index is not None:
        at = records[index][chosen]
        pairs = itertools.combinations(range(count), 2)
        chosen = chosen[:, np.all([at[i] != at[j] for i, j in pairs], axis=0)]
    return [[v[which] for v in records] for which in chosen]


def _regroups(join: _Join, index: int | None, a: Values, b: Values, c: Values) -> bool:
    """Whether a join commutes and associates, and its index is that of one of its arguments."""
    ab = join.ordered(index, a, b)
    if index is not None and not ((ab[index] == a[index]) | (ab[index] == b[index])).all():
        return False
    left, right = join.ordered(index, ab, c), join.ordered(index, a, join.ordered(index, b, c))
    return join.same(ab, join.ordered(index, b, a)) and join.same(left, right)


def _associates(join: _Join) -> bool:
    """Whether a join regroups: in all cases there are where these are few, where it is tried
    else."""
    values = [_values(dtype) for dtype in join.dtypes]
    if _picks(join.body) and int(np.prod([len(v) for v in values])) ** 3 <= _MOST_CASES:
        join.exact = True
        a, b, c = _cases(values, 3, None)
    elif (tried := _samples(join)) is not None:
        a, b, c = tried
    else:
        return False
    return join.same(join(join(a, b), c), join(a, join(b, c)))


def _starts_freely(join: _Join, index: int | None, a: Values, b: Values) -> bool:
    """Whether starting again from the inits, anywhere, changes nothing."""
    start = join.inits
    from_a, from_b = join(start, a), join(start, b)
    both = join.ordered(index, from_a, b)
    expected = both
    if index is not None:  # the order of the elements decides
        expected = _where(b[index] < a[index], join(from_b, a), join(from_a, b))
    pairs = [
        (join.ordered(index, start, start), start),
        (join.ordered(index, start, a), from_a),
        (join.ordered(index, a, start), from_a),
        (join.ordered(index, start, from_a), from_a),
        (join.ordered(index, from_a, start), from_a),
        (both, expected),
        (join.ordered(index, from_a, from_b), expected),
        (join(start, join.ordered(index, a, b)), expected),
    ]
    return all(join.same(x, y) for x, y in pairs)


# ---- by sampling ---------------------------------------------------------------------------------


def _symmetric(body: Graph) -> bool:
    """Whether a body is the same expression with its arguments exchanged."""
    half = len(body.parameters) // 2
    names: dict[Hashable, int] = {}
    plain = _named(body, names, 0)
    exchanged = _named(body, names, half)
    results = body.root.operands if body.root.opcode == "tuple" else (body.root,)
    return all(plain[op] == exchanged[op] for op in results)


def _named(body: Graph, names: dict[Hashable, int], offset: int) -> Mapping[Op, int]:
    """A number for each op of a body whose parameters are exchanged by `offset`: that of the same
    expression in `names`, up to the order of operands."""
    found: dict[Op, int] = {}
    chain: dict[Op, tuple[int, ...]] = {}

    def name(*what: Hashable) -> int:
        return names.setdefault(what, len(names))

    def size_of(x: Op) -> int:
        """A difference has the size of the one the other way round."""
        if x.opcode != "subtract":
            return found[x]
        return name("size of a difference", *sorted(found[o] for o in x.operands))

    for op in body:
        operands = [found[o] for o in op.operands]
        even = op.opcode == "abs" or len({*op.operands}) < len(op.operands)
        if even and op.opcode in ("abs", "multiply", "compare"):
            operands = [size_of(o) for o in op.operands]
        what: Hashable = op.opcode
        if op.opcode == "parameter":
            what = ("parameter", (op.attrs["index"] + offset) % len(body.parameters))
        elif op.opcode == "constant":
            what = op.attrs["value"].tobytes()
        elif op.opcode == "compare":
            direction = op.attrs["direction"]
            if direction in ("EQ", "NE"):
                operands.sort()
            elif direction in _TURNED:
                direction, operands = _TURNED[direction], operands[::-1]
            what = ("compare", direction, op.attrs["total_order"])
        elif op.opcode in _COMMUTATIVE:
            pairs = zip(op.operands, operands, strict=True)
            same = [chain[o] if o.opcode == op.opcode else (number,) for o, number in pairs]
            operands = sorted(itertools.chain(*same))
            chain[op] = tuple(operands)
        elif op.attrs:
            what = (op.opcode, repr(sorted(op.attrs.items())))
        found[op] = name(what, op.shape, *operands)
    return found


def _sampled(join: _Join) -> bool:
    """Whether a body commutes, regroups, and takes an init more for nothing, where it is tried."""
    if (tried := _samples(join)) is None:
        return False
    a, b, c = tried
    return _regroups(join, None, a, b, c) and _starts_freely(join, None, a, b)


def _samples(join: _Join) -> tuple[Values, Values, Values] | None:
    """What a body is tried on, elements and what it makes of two of them; None where it hardly
    gives numbers."""
    join.exact = False
    rng = np.random.default_rng(0)
    a, b, c = (_partial(rng, join) for _ in range(3))
    finite = [np.isfinite(x.astype(np.float64)).mean() for x in join(a, b)]
    return (a, b, c) if min(finite) > 1 / 4 else None


def _partial(rng: np.random.Generator, join: _Join) -> Values:
    """Elements, or two joined."""
    first, second = _drawn(rng, join), _drawn(rng, join)
    return _where(rng.random(_SAMPLES) < 0.5, first, join(first, second))


def _drawn(rng: np.random.Generator, join: _Join) -> Values:
    """Elements, of small integers and other numbers."""
    drawn: Values = []
    for dtype, constant in zip(join.dtypes, join.constants, strict=True):
        if constant is not None:
            drawn.append(np.full(_SAMPLES, constant))
        elif dtype == "pred":
            drawn.append(rng.integers(0, 2, _SAMPLES).astype(bool))
        else:
            whole = rng.integers(0, 5, _SAMPLES).astype(NUMPY_DTYPES[dtype])
            mixed = np.where(rng.random(_SAMPLES) < 0.5, whole, rng.normal(size=_SAMPLES))
            drawn.append(mixed if _is_float(dtype) else whole)
    return drawn
