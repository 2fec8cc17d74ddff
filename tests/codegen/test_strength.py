"""Strength reduction: what each rule makes, and that the values stay what they were."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.generate import CodegenOptions, generate
from fusionstitch.codegen.rewrite.region import region
from fusionstitch.codegen.rewrite.strength import reduce_strength
from fusionstitch.codegen.rewrite.strength_rules import RULES
from fusionstitch.codegen.text.expressions import rotation
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.graph import Graph, Op
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.literals import NUMPY_DTYPES
from fusionstitch.hlo.simplify import simplify
from fusionstitch.hlo.text import text_to_proto
from fusionstitch.runtime import emulate


def graph_of(body: str) -> Graph:
    """The statements of `body`; r, or the tuple t, is the result."""
    lines = [line.strip() for line in body.split(";")]
    if not any(line.startswith("ROOT") for line in lines):
        shape = next(line for line in lines if line.startswith("r = ")).split()[2]
        lines.append(f"ROOT t = ({shape}) tuple(r)")
    text = "\n".join(f"  {line}" for line in lines)
    entry = from_proto(text_to_proto(f"HloModule m\nENTRY main {{\n{text}\n}}\n")).entry
    return region_of(entry)


def region_of(entry: Graph) -> Graph:
    """A whole graph as what one kernel computes."""
    ops = [op for op in entry if op.opcode not in ("parameter", "tuple")]
    outputs = entry.root.operands if entry.root.opcode == "tuple" else (entry.root,)
    return region("region", ops, entry.parameters, outputs)


def shown(op: Op) -> str:
    """An op as nested text; splats as their number."""
    if op.opcode == "parameter":
        return op.name
    if op.opcode == "constant":
        return f"{op.attrs['value'].reshape(-1)[0]}"
    if op.opcode == "broadcast" and op.operands[0].opcode == "constant":
        return shown(op.operands[0])
    name = f"{op.opcode}:{op.dtype}" if op.opcode in ("convert", "iota") else op.opcode
    return f"{name}({', '.join(map(shown, op.operands))}{op.attrs.get('direction', '')})"


X = "x = f32[8] parameter(0); y = f32[8] parameter(1);"
NEG = X + "n = f32[8] negate(x);"


def splat(name: str, dtype: str, value: object, dims: str = "[8]") -> str:
    return (
        f"{name}_0 = {dtype}[] constant({value});"
        f"{name} = {dtype}{dims} broadcast({name}_0), dimensions={{}};"
    )


HALF = splat("h", "f32", 0.5)
ONE = splat("one", "f32", 1)
BITS = "b = u32[8] parameter(0);" + splat("s", "u32", 9) + splat("e", "u32", 0x3F800000)
UNIFORM = (
    BITS + "m = u32[8] shift-right-logical(b, s); o = u32[8] or(m, e);"
    "f = f32[8] bitcast-convert(o);" + ONE + "u = f32[8] subtract(f, one);"
)
COUNTER = "i = u64[4,8] iota(), iota_dimension=0;" + splat("w", "u64", 8, "[4,8]")
COUNTER += "iw = u64[4,8] multiply(i, w); j = u64[4,8] iota(), iota_dimension=1;"
COUNTER += "c = u64[4,8] add(iw, j);" + splat("t32", "u64", 32, "[4,8]")

#: name -> (statements, what the result becomes)
EXACT = {
    "twice": (NEG + "r = f32[8] negate(n)", "negate(negate(x))"),
    "product": (NEG + "r = f32[8] multiply(n, y)", "negate(multiply(x, y))"),
    "product, right": (NEG + "r = f32[8] multiply(y, n)", "negate(multiply(y, x))"),
    "both": (
        NEG + "k = f32[8] negate(y); r = f32[8] multiply(n, k)",
        "multiply(x, y)",
    ),
    "quotient": (NEG + "r = f32[8] divide(n, y)", "negate(divide(x, y))"),
    "erf": (NEG + "r = f32[8] erf(n)", "negate(erf(x))"),
    "tanh": (NEG + "r = f32[8] tanh(n)", "negate(tanh(x))"),
    "cosine": (NEG + "r = f32[8] cosine(n)", "cosine(x)"),
    "abs": (NEG + "r = f32[8] abs(n)", "abs(x)"),
    "plus": (NEG + "r = f32[8] add(y, n)", "subtract(y, x)"),
    "plus, left": (NEG + "r = f32[8] add(n, y)", "subtract(y, x)"),
    "minus": (NEG + "r = f32[8] subtract(y, n)", "add(y, x)"),
    "scaled sum": (
        X + HALF + ONE + "a = f32[8] add(x, one); r = f32[8] multiply(a, h)",
        "add(multiply(x, 0.5), 0.5)",
    ),
    "scaled difference": (
        X + HALF + ONE + "a = f32[8] subtract(one, x); r = f32[8] multiply(h, a)",
        "subtract(0.5, multiply(x, 0.5))",
    ),
    "a sum that others read": (
        X + HALF + ONE + "a = f32[8] add(x, one); p = f32[8] multiply(a, h);"
        "r = f32[8] add(a, p)",
        "add(add(x, 1.0), multiply(add(x, 1.0), 0.5))",
    ),
    "a constant near 0": (
        X + HALF + splat("c", "f32", 1e-30) + "a = f32[8] add(x, c); r = f32[8] multiply(a, h)",
        "multiply(add(x, 1.0000000031710769e-30), 0.5)",
    ),
    "by a power of two": (
        X + splat("c", "f32", -4) + "r = f32[8] divide(x, c)",
        "multiply(x, -0.25)",
    ),
    "counter": (
        COUNTER + "r = u32[4,8] convert(c)",
        "add(multiply(iota:u32(), 8), iota:u32())",
    ),
    "counter's high word": (
        COUNTER + "k = u32[4,8] parameter(0); q = u64[4,8] shift-right-logical(c, t32);"
        "hi = u32[4,8] convert(q); a = u32[4,8] add(hi, k); r = u32[4,8] not(a)",
        "not(k)",
    ),
    "unknown high word": (
        "x = u64[8] parameter(0);" + splat("t32", "u64", 32) + "q = u64[8] shift-right-logical("
        "x, t32); r = u32[8] convert(q)",
        "convert:u32(shift-right-logical(x, 32))",
    ),
    "bernoulli": (
        UNIFORM + splat("p", "f32", 0.9) + "r = pred[8] compare(u, p), direction=LT",
        "compare(b, 3865470464LT)",
    ),
    "bernoulli, at most": (
        UNIFORM + splat("p", "f32", 0.5) + "r = pred[8] compare(u, p), direction=LE",
        "compare(b, 2147484160LT)",
    ),
    "bernoulli, above": (
        UNIFORM + splat("z", "f32", 0) + "v = f32[8] maximum(z, u);" + splat("p", "f32", 0.25)
        + "r = pred[8] compare(v, p), direction=GT",
        "compare(b, 1073742336GE)",
    ),
    "a limit beyond all": (
        UNIFORM + splat("p", "f32", 2) + "r = pred[8] compare(u, p), direction=LT",
        "compare(subtract(bitcast-convert(or(shift-right-logical(b, 9), 1065353216)), 1.0), 2.0LT)",
    ),
}  # fmt: skip
ROUNDED = {
    "one and a half": (
        X + splat("c", "f32", 1.5) + "r = f32[8] power(x, c)",
        "select(compare(x, -infEQ), inf, multiply(sqrt(x), x))",
    ),
    "minus one and a half": (
        X + splat("c", "f32", -1.5) + "r = f32[8] power(x, c)",
        "select(compare(x, -infEQ), 0.0, "
        "multiply(abs(rsqrt(x)), multiply(abs(rsqrt(x)), abs(rsqrt(x)))))",
    ),
    "another power": (X + splat("c", "f32", 1.25) + "r = f32[8] power(x, c)", "power(x, 1.25)"),
    "by a constant": (
        X + splat("c", "f32", 10) + "r = f32[8] divide(x, c)",
        "multiply(x, 0.10000000149011612)",
    ),
    "logistic": (
        NEG + ONE + "e = f32[8] exponential(n); a = f32[8] add(e, one);"
        "r = f32[8] divide(one, a)",
        "logistic(x)",
    ),
}  # fmt: skip


def reduced(graph: Graph, exact: bool = False) -> Graph:
    return reduce_strength(graph, RULES, exact)


def values(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = []
    for p in graph.parameters:
        if p.dtype in ("f32", "bf16"):
            edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -3e38]
            drawn = [*edges, *(rng.standard_normal(p.shape.size - len(edges)) * 3)]
            found.append(np.array(drawn).astype(NUMPY_DTYPES[p.dtype]).reshape(p.dims))
        else:
            found.append(rng.integers(0, 1 << 32, p.dims).astype(NUMPY_DTYPES[p.dtype]))
    return found


@pytest.mark.parametrize("name", {**EXACT, **ROUNDED})
def test_a_rule(name: str) -> None:
    body, after = {**EXACT, **ROUNDED}[name]
    graph = graph_of(body)
    found = reduced(graph)
    assert shown(found.root.operands[0]) == after
    before, now = (evaluate(g, values(graph)) for g in (graph, found))
    for a, b in zip(before, now, strict=True):
        if name in EXACT:
            np.testing.assert_array_equal(a, b)
            if a.dtype == np.float32:  # zeros keep their sign
                np.testing.assert_array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0]))
        else:
            np.testing.assert_allclose(a, b, rtol=3e-7)


@pytest.mark.parametrize("name", ROUNDED)
def test_strict_numerics_keep_what_would_round_otherwise(name: str) -> None:
    graph = graph_of(ROUNDED[name][0])
    assert shown(reduced(graph, exact=True).root.operands[0]) == shown(graph.root.operands[0])


def test_what_repeats_is_scaled_once() -> None:
    body = "x = f32[8,4] parameter(0); y = f32[8] parameter(1);" + splat("c", "f32", 3, "[8,4]")
    body += "b = f32[8,4] broadcast(y), dimensions={0}; p = f32[8,4] multiply(x, c);"
    graph = graph_of(body + "r = f32[8,4] multiply(b, p)")
    found = reduced(graph)
    assert shown(found.root.operands[0]) == "multiply(x, multiply(broadcast(y), 3.0))"
    assert (
        shown(reduced(graph, exact=True).root.operands[0])
        == "multiply(broadcast(y), multiply(x, 3.0))"
    )
    args = [
        np.linspace(1, 2, p.shape.size, dtype=np.float32).reshape(p.dims) for p in graph.parameters
    ]
    [one], [other] = (evaluate(g, args) for g in (graph, found))
    np.testing.assert_allclose(other, one, rtol=3e-7)
    shared = graph_of(
        body + "r = f32[8,4] multiply(b, p); ROOT t = (f32[8,4], f32[8,4]) tuple(r, p)"
    )
    assert shown(reduced(shared).root.operands[0]) == "multiply(broadcast(y), multiply(x, 3.0))"


SUMS = """z = f32[] constant(0); x = f32[8,4] parameter(0); y = f32[8,4] parameter(1);
w = f32[8,4] parameter(2); a = f32[4] reduce(x, z), dimensions={0}, to_apply=sum;
b = f32[4] reduce(y, z), dimensions={0}, to_apply=sum;
c = f32[4] reduce(w, z), dimensions={0}, to_apply=sum;
s = f32[4] add(a, b); r = f32[4] add(s, c)"""


def sums(body: str) -> Graph:
    """A graph of `body`, where `sum` adds."""
    total = "sum {\n  p = f32[] parameter(0)\n  q = f32[] parameter(1)\n"
    total += "  ROOT m = f32[] add(p, q)\n}\n"
    lines = [line.strip() for line in body.replace("\n", " ").split(";")]
    if not any(line.startswith("ROOT") for line in lines):
        lines.append("ROOT t = (f32[4]) tuple(r)")
    text = "\n".join(f"  {line}" for line in lines)
    return region_of(
        from_proto(text_to_proto(f"HloModule m\n{total}ENTRY main {{\n{text}\n}}\n")).entry
    )


def test_sums_that_are_added_up_become_one() -> None:
    graph = sums(SUMS)
    found = reduced(graph)
    [root] = found.root.operands
    assert shown(root) == "reduce(add(add(x, y), w), 0.0)"
    assert root.attrs["dimensions"] == (0,)
    args = [np.full((8, 4), n, np.float32) + np.arange(4) for n in range(3)]
    [one], [other] = (evaluate(g, args) for g in (graph, found))
    np.testing.assert_array_equal(other, one)
    assert shown(reduced(graph, exact=True).root.operands[0]).count("reduce") == 3


@pytest.mark.parametrize(
    "change",
    [
        ("reduce(y, z)", "reduce(y, o)"),  # another start
        (
            "r = f32[4] add(s, c)",
            "r = f32[4] add(s, c); ROOT t = (f32[4], f32[4], f32[4]) tuple(r, b, s)",
        ),
    ],
    ids=["start", "read elsewhere"],
)
def test_sums_that_differ_or_are_read_elsewhere_stay(change: tuple[str, str]) -> None:
    graph = sums("o = f32[] constant(1);" + SUMS.replace(*change))
    assert sum(op.opcode == "reduce" for op in reduced(graph)) == 3


def test_a_product_in_halves_of_bf16_is_not_scaled_by_a_rounded_inverse() -> None:
    graph = graph_of(
        "x = bf16[8] parameter(0);" + splat("c", "bf16", 10) + "r = bf16[8] divide(x, c)"
    )
    assert reduced(graph).root.operands[0].opcode == "divide"


def test_equal_ops_become_one_and_unread_ones_go() -> None:
    graph = graph_of(
        NEG + "p = f32[8] multiply(n, y); q = f32[8] multiply(x, y); e = f32[8] erf(p);"
        "d = f32[8] erf(q); ROOT t = (f32[8], f32[8]) tuple(e, d)"
    )
    found = reduced(graph)
    assert sorted(op.opcode for op in found) == [
        "erf", "multiply", "negate", "parameter", "parameter", "tuple",
    ]  # fmt: skip


def dropout_mask() -> Graph:
    key = jax.eval_shape(lambda: jax.random.key_data(jax.random.key(0)))

    def mask(words: jax.Array) -> jax.Array:
        return jax.random.bernoulli(jax.random.wrap_key_data(words), 0.9, (6, 64))

    module = jax.jit(mask).trace(key).lower(lowering_platforms=("cuda",))
    data = module.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return region_of(simplify(from_proto(inline_calls(data)).entry))


def test_a_dropout_mask_takes_one_rotation_per_round_and_one_comparison() -> None:
    graph = dropout_mask()
    found = reduced(graph)
    rotations = [op for op in found if rotation(op)]
    assert len(rotations) == 20
    assert not [op for op in found if op.dtype in ("u64", "f32")]
    kernel = generate(graph, device("h200"))
    assert kernel.source.count("fs_rotate_left(") == 20
    assert "fs_shift" not in kernel.source
    assert "uint64_t" not in kernel.source
    words = np.array([7, 42], np.uint32)
    (out,) = emulate.run(kernel, [words])
    expected = jax.random.bernoulli(jax.random.wrap_key_data(jnp.asarray(words)), 0.9, (6, 64))
    np.testing.assert_array_equal(out, np.asarray(expected))


def test_a_dropout_before_a_norm_draws_its_bits_once() -> None:
    """Three loops along each row read the dropped values: they are kept, not drawn again."""

    def norm(words: jax.Array, x: jax.Array) -> jax.Array:
        retained = jax.random.bernoulli(jax.random.wrap_key_data(words), 0.9, x.shape)
        dropped = jnp.where(retained, x / 0.9, 0.0)
        centred = dropped - jnp.mean(dropped, -1, keepdims=True)
        return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-5)

    x = np.random.default_rng(0).standard_normal((4, 1024)).astype(np.float32)
    words = np.array([1, 2], np.uint32)
    module = jax.jit(norm).trace(words, x).lower(lowering_platforms=("cuda",))
    data = module.compiler_ir("hlo").as_serialized_hlo_module_proto()
    graph = region_of(simplify(from_proto(inline_calls(data)).entry))
    kernel = generate(graph, device("h200"))
    assert not kernel.cooperative
    assert kernel.scratch == ()
    assert kernel.source.count("fs_rotate_left(") == 20
    (out,) = emulate.run(kernel, [words, x])
    np.testing.assert_allclose(out, norm(jnp.asarray(words), jnp.asarray(x)), atol=2e-6)


def test_deep_chains_take_no_longer_than_they_are() -> None:
    steps = "".join(f"v{n} = u64[8] add(v{n - 1}, v{n - 2});" for n in range(2, 2000))
    body = "v0 = u64[8] parameter(0); v1 = u64[8] iota(), iota_dimension=0;"
    body += steps + splat("by", "u64", 32) + "q = u64[8] shift-right-logical(v1999, by);"
    graph = graph_of(
        body + "h = u32[8] convert(q); l = u32[8] convert(v1999); r = u32[8] add(h, l)"
    )
    assert len(reduced(graph)) <= len(graph)


def test_what_is_no_rotation() -> None:
    two = splat("l", "u32", 13) + splat("k", "u32", 18)
    graph = graph_of(
        "x = u32[8] parameter(0);" + two + "a = u32[8] shift-left(x, l);"
        "b = u32[8] shift-right-logical(x, k); r = u32[8] or(a, b)"
    )
    assert rotation(graph.root.operands[0]) is None


def test_black_scholes_takes_two_error_functions() -> None:
    """Of four: two are of the others' negated arguments."""

    def cdf(x: jax.Array) -> jax.Array:
        return 0.5 * (1.0 + jax.lax.erf(x * 0.5**0.5))

    def values_of(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        return a * cdf(a) - b * cdf(b), b * cdf(-b) - a * cdf(-a)

    x = jax.ShapeDtypeStruct((64,), np.float32)
    data = jax.jit(values_of).lower(x, x).compiler_ir("hlo").as_serialized_hlo_module_proto()
    graph = region_of(simplify(from_proto(inline_calls(data)).entry))
    kernel = generate(graph, device("h200"))
    assert kernel.source.count("erff(") == 2
    a, b = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    for ours, xla in zip(emulate.run(kernel, [a, b]), jax.jit(values_of)(a, b), strict=True):
        np.testing.assert_allclose(ours, xla, atol=3e-7)


def test_numerics_choose_the_expression_of_a_division() -> None:
    graph = graph_of(X + "r = f32[8] divide(x, y)")

    def text(numerics: str) -> str:
        return generate(graph, device("h200"), CodegenOptions(numerics)).source

    assert "fs_divide(" in text("default")
    assert "fs_approximate_divide(" in text("fast")
    assert "x / y" in text("strict").replace("x_1 / y_1", "x / y")
