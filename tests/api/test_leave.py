"""Parts of programs that are left to XLA: by `fs.leave`, and by barriers."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import fusionstitch as fs
from fusionstitch.api import call_of
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.marks import LEAVE
from fusionstitch.hlo.simplify import simplify
from fusionstitch.hlo.stablehlo import stablehlo_to_proto
from fusionstitch.patterns.fusible import LEFT
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.checker import check_plan
from fusionstitch.reports import trial
from fusionstitch.reports.answers import Answer, Answers
from tests.kept import kept_sort

EMULATE = fs.Options(backend="emulate", device="h200", scorer="paper")
X = np.random.default_rng(0).standard_normal((16, 24), np.float32)


def table(x: jax.Array) -> jax.Array:
    """Ops that are stitched wherever they may be: softmax, and a sum of its columns."""
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


@fs.leave
def excluded(x: jax.Array) -> jax.Array:
    return jnp.tanh(jax.nn.softmax(x * 2)) + jnp.arange(24.0)


def alone(x: jax.Array) -> jax.Array:
    return table(excluded(table(x)))


def scanned(x: jax.Array) -> Any:
    return lax.scan(lambda c, _: (c + excluded(c), c.sum()), table(x), length=3)


def looped_inside(x: jax.Array) -> jax.Array:
    body = fs.leave(lambda x: lax.fori_loop(0, 4, lambda i, y: y + jnp.tanh(y - i), x))
    return table(body(x))


def nested(x: jax.Array) -> jax.Array:
    return table(fs.leave(lambda y: excluded(y) + jnp.tanh(y))(x))


def closed_over(x: jax.Array) -> jax.Array:
    return table(x) + fs.leave(lambda: jnp.tanh(x) * jnp.exp(x))()


def branched(x: jax.Array) -> jax.Array:
    return lax.cond(x[0, 0] > 0, lambda y: table(y), lambda y: excluded(table(y)), table(x))


def jitted(x: jax.Array) -> jax.Array:
    """A function that is lowered once, and called from both sides."""
    inner = jax.jit(lambda y: lax.fori_loop(0, 3, lambda i, z: z + jnp.tanh(z), y))
    return table(inner(x)) + fs.leave(inner)(x)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "alone": alone,
    "gradient": jax.grad(lambda x: alone(x).sum()),
    "mapped": lambda x: jax.vmap(alone)(jnp.stack([x, x + 1])),
    "gradient of mapped": jax.grad(lambda x: jax.vmap(alone)(jnp.stack([x, -x])).sum()),
    "scanned": scanned,
    "gradient of scanned": jax.grad(lambda x: scanned(x)[0].sum()),
    "checkpointed": jax.grad(lambda x: jax.checkpoint(alone)(x).sum()),
    "a loop inside": looped_inside,
    "nested": nested,
    "closed over": closed_over,
    "in a branch": branched,
    "jitted": jitted,
}


def plan(fun: Callable[..., Any], options: fs.Options = EMULATE) -> Stitched:
    return trial.plan(call_of(fun, (X,), {}, options))


def left(answers: list[Answer]) -> list[Answer]:
    """The ops that are left, and do something."""
    inside = [answer for answer in answers if LEAVE in answer.scope or answer.reason == LEFT[LEAVE]]
    return [a for a in inside if a.opcode not in ("constant", "iota", "parameter")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_holds_what_is_left(name: str) -> None:
    answers = list(Answers(plan(PROGRAMS[name])))
    found = left(answers)
    assert {answer.opcode for answer in found} & {"tanh", "multiply", "divide", "exponential"}
    assert [answer for answer in found if answer.kernels] == []
    assert LEFT[LEAVE] in {answer.reason for answer in found}
    assert any(answer.kernels for answer in answers)  # the rest is stitched


@pytest.mark.parametrize("name", ["gradient", "scanned"])
def test_results_are_the_same(name: str, host_compiler: str) -> None:
    fun = PROGRAMS[name]
    found = fs.jit(fun, options=fs.Options(backend="emulate", scorer="paper"))(X)
    for ours, theirs in zip(*map(jax.tree.leaves, (found, jax.jit(fun)(X))), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-6)


def test_a_loop_with_a_part_that_is_left_says_so() -> None:
    model = EMULATE.replace(scorer="model")
    found = plan(scanned, model)
    [loop] = [answer for answer in Answers(found) if answer.opcode == "while"]
    assert not loop.kernels
    assert plan(lambda x: lax.fori_loop(0, 9, lambda i, c: c + jnp.tanh(c), x), model).kernels
    rejected = [r.reason for p in found.plans for r in p.rejected if r.rule == "loop"]
    assert rejected == ["The program leaves a part of it to XLA (fusionstitch.leave)."]
    assert loop.reason == rejected[0]


def test_equal_parts_stay_apart() -> None:
    """What is left is not the same op as its equal outside, nor planned as an equal loop is."""

    def twice(x: jax.Array) -> Any:
        def loop(step: Callable[..., Any]) -> Any:
            return lax.while_loop(lambda y: kept_sort(y.ravel())[0] < 9, step, x)

        both = table(x), fs.leave(table)(x)
        return both, loop(lambda y: table(y) + 1), loop(fs.leave(lambda y: table(y) + 1))

    answers = list(Answers(plan(twice)))
    exps = [answer for answer in answers if answer.opcode == "exponential"]
    assert len(exps) == 4
    assert sorted(bool(answer.kernels) for answer in exps) == [False, False, True, True]
    assert all(bool(a.kernels) != (LEAVE in a.scope) for a in exps)


def test_it_gives_what_the_function_gives() -> None:
    """Whatever it takes and returns, and as itself where nothing is traced."""
    array = jnp.ones(3)

    def odd(x: Any, name: str, *, flag: bool = True, tree: Any = None) -> Any:
        assert (name, flag, tree) == ("a", False, {"n": 3})
        return {"x": x + 1, "name": name, "array": array, "none": None, "list": [x, 2.5]}

    def program(x: Any) -> Any:
        found = fs.leave(odd)(x, "a", flag=False, tree={"n": 3})
        assert (found["name"], found["none"], found["list"][1]) == ("a", None, 2.5)
        assert found["array"] is array
        assert found["list"][0] is not None
        return found["x"]

    assert program(1) == 2  # Python's own
    assert jax.jit(program)(1.0).weak_type
    assert float(jax.jit(program)(1.0)) == 2.0
    assert fs.leave(odd).__name__ == "odd"

    def asks(x: Any) -> Any:
        return x * 2 if x > 0 else x  # op by op, a value may be asked for

    assert jax.grad(fs.leave(asks))(3.0) == 2.0
    assert fs.leave(asks)(-3.0) == -3.0


@pytest.mark.parametrize("name", ["gradient", "a loop inside"])
def test_xla_hands_the_names_on(name: str) -> None:
    """What XLA has inlined and simplified still says what is left."""
    text = jax.jit(PROGRAMS[name]).lower(X).compile().as_text()
    tanh = [line for line in text.splitlines() if re.search(r"= \S+ tanh\(", line)]
    assert tanh
    assert all(LEAVE in line for line in tanh)


def test_it_costs_nothing() -> None:
    """XLA makes the same of both."""
    plain = jax.jit(excluded.__wrapped__).lower(X).compile()  # type: ignore[attr-defined]
    marked = jax.jit(excluded).lower(X).compile()
    ops = [
        [op.opcode for op in from_proto(m.as_serialized_hlo_module_proto()).entry]
        for c in (plain, marked)
        for m in c.runtime_executable().hlo_modules()
    ]
    assert ops[0] == ops[1]
    assert (
        LEAVE in jax.jit(excluded).lower(X).as_text()
    )  # in the key of JAX's cache, as names are not


def test_texts_without_names_say_it_by_their_functions() -> None:
    text = jax.jit(alone).lower(X).as_text()
    assert "loc(" not in text
    module = from_proto(inline_calls(stablehlo_to_proto(text)))
    tanh = [op for graph in module.graphs for op in graph if op.opcode == "tanh"]
    assert [op.source.left for op in tanh] == [LEAVE]


def test_a_barrier_is_a_fence() -> None:
    def fenced(x: jax.Array) -> jax.Array:
        with jax.named_scope("before"):
            y = table(x)
        y = lax.optimization_barrier(y)
        with jax.named_scope("after"):
            return table(y)

    assert len(plan(lambda x: table(table(x))).stitches) == 1
    before, after = plan(fenced).stitches
    scopes = [{op.source.op_name for op in s.chosen.pattern.ops} for s in (before, after)]
    assert not any("after" in name for name in scopes[0])
    assert not any("before" in name for name in scopes[1])


def test_the_check_of_plans_knows_what_is_left() -> None:
    lowered = jax.jit(table).lower(X).compiler_ir("hlo")
    graph = simplify(from_proto(inline_calls(lowered.as_serialized_hlo_module_proto())).entry)
    [chosen] = plan(table).plans[0].chosen
    pattern = Pattern(graph, chosen.pattern.bits, "paper")
    assert check_plan(graph, [pattern], [1.0])
    one = pattern.outputs[0]
    one.source = dataclasses.replace(one.source, left=True)
    verdict = check_plan(graph, [pattern], [1.0])
    assert verdict.reason == "An op that is left to XLA is a member."


def test_options_are_those_of_the_call_site_and_of_the_outermost_function() -> None:
    options = fs.Options(backend="emulate", scorer="paper")
    narrow = options.replace(scope="block", packing=False)

    def wide(x: jax.Array) -> jax.Array:
        return table(x)

    def lowered(fun: Callable[..., Any], options: fs.Options) -> Any:
        return fs.jit(fun, options=options).lower(X).compile()

    def scopes(compiled: Any) -> set[str]:
        return {s.chosen.facts.scope for s in compiled.stitched.stitches}

    assert "grid" in scopes(lowered(wide, options))
    assert "grid" not in scopes(lowered(wide, narrow))
    inner = fs.jit(table, options=narrow)
    assert "grid" in scopes(lowered(lambda x: inner(x), options))
    inner = fs.jit(table, options=options)
    assert "grid" not in scopes(lowered(lambda x: inner(x), narrow))


def test_many_ops_that_are_left_between_those_that_are_not() -> None:
    """A kernel of XLA's with them falls into pieces, as many as there are ops at most."""

    def chain(x: jax.Array) -> jax.Array:
        for _ in range(60):
            x = fs.leave(jnp.sin)(x) * 2 - x
        return table(x)

    compiled = fs.jit(chain, options=EMULATE).lower(X).compile()
    assert compiled.stitched is not None
    assert compiled.kernels
    assert len(left(list(Answers(compiled.stitched)))) == 60


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "jitted"])
def test_on_a_gpu(name: str) -> None:
    """Where XLA has inlined and simplified the program before we see it. What is lowered once for
    calls inside and outside has the names of one of them there (docs/control.md)."""
    fun = PROGRAMS[name]
    compiled = fs.jit(lambda x: fun(x), options=fs.Options(scorer="paper")).lower(X).compile()
    assert compiled.stitched is not None
    answers = list(Answers(compiled.stitched))
    assert left(answers)
    assert [answer for answer in left(answers) if answer.kernels] == []
    for ours, theirs in zip(*map(jax.tree.leaves, (compiled(X), jax.jit(fun)(X))), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
