"""Which operands kernels overwrite where XLA lets them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.memory.inplace import one_to_one
from fusionstitch.compiler import core, reuse
from fusionstitch.compiler.built import Built
from fusionstitch.costmodel.devices import device
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.importer import from_proto
from fusionstitch.options import Options
from fusionstitch.runtime.artifact import Artifact
from tests.codegen.inplace_cases import descent, watched
from tests.kept import kept_sort

SPEC = jax.ShapeDtypeStruct((64, 32), jnp.float32)


def fake(kernels: Sequence[Kernel]) -> list[Built]:
    return [
        Built(Artifact(f"key-{k.name}", b"image", k.name, k.grid, k.block, 0, k.cooperative))
        for k in kernels
    ]


def aliases(
    fun: Callable[..., Any], args: int | list[Any], donate: tuple[int, ...], **options: Any
) -> list[tuple[str, str]]:
    """(result, operand) of every aliased pair: the number of the result in its computation, the
    name of the parameter or the number of the loop's carry."""
    specs = [SPEC] * args if isinstance(args, int) else args
    lowered = jax.jit(fun, donate_argnums=donate, keep_unused=True).lower(*specs)
    data = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    result = core.stitch(
        data, Options(scorer="paper", **options), device("h200"), fake, aliasing=True
    )
    found = []
    for computation in from_proto(result.module).proto.computations:
        by_id = {i.id: i for i in computation.instructions}
        root = by_id[computation.root_id]
        results = list(root.operand_ids) if root.opcode == "tuple" else [root.id]
        for call in computation.instructions:
            for pair in call.output_operand_aliasing:
                index = list(pair.output_shape_index)
                [part] = [
                    i
                    for i in computation.instructions
                    if (i.id == call.id and not index)
                    or (i.operand_ids[:] == [call.id] and index == [i.tuple_index])
                ]
                operand = by_id[call.operand_ids[pair.operand_index]]
                what = operand.name.split(".")[0]
                if operand.opcode == "get-tuple-element":
                    what = str(operand.tuple_index)
                name = str(results.index(part.id)) if part.id in results else part.name
                found.append((name, what))
    return sorted(found)


def adam(g: Any, w: Any, m: Any, v: Any) -> tuple[Any, ...]:
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v + 0.001 * g * g
    return w - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v


def test_each_result_takes_the_parameter_it_is_donated() -> None:
    assert aliases(adam, 4, (1, 2, 3)) == [("0", "w"), ("1", "m"), ("2", "v")]


def test_only_donated_parameters_are_overwritten() -> None:
    # JAX gives m's buffer to the first result of its shape
    assert aliases(adam, 4, (2,)) == [("0", "m")]
    assert aliases(lambda g, w: w - 0.1 * g, 2, (1,)) == [("0", "w")]
    assert aliases(lambda g, w: w - 0.1 * g, 2, ()) == []


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: jnp.flip(x, 0) + x,
        lambda x: x - x.sum(0),
        lambda x: jnp.concatenate([x[:32] + x[32:], x[:32] - x[32:]]),
        lambda x: (jnp.tanh(x) * 2.0 + 1.0, kept_sort(x, 0)),
    ],
    ids=["another element", "all elements", "half an array away", "read by XLA too"],
)
def test_what_is_read_elsewhere_stays(fun: Callable[..., Any]) -> None:
    assert aliases(fun, 1, (0,)) == []


def test_what_the_pattern_waits_for_may_read_it_too() -> None:
    def step(x: Any, w: Any) -> Any:
        return w - 0.1 * jnp.tanh(kept_sort(w, 0) + x) * 2.0

    def beside(x: Any, w: Any) -> tuple[Any, Any]:
        return w - 0.1 * jnp.tanh(x) * 2.0, kept_sort(w, 0)

    assert aliases(step, 2, (1,)) == [("0", "w")]
    assert aliases(beside, 2, (1,)) == []


def test_loop_carries_are_overwritten_by_their_own_next_value() -> None:
    def body(_: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        x, y = carry
        return jnp.tanh(y) * 2.0 - x, jnp.tanh(x) * 2.0 - y

    def crossed(_: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        x, y = carry
        return jnp.tanh(y) * 2.0 - 1.0, jnp.tanh(x) * 2.0 - 1.0

    def loop(body: Any) -> list[tuple[str, str]]:
        return aliases(lambda x, y: jax.lax.fori_loop(0, 9, body, (x, y)), 2, ())

    counters = [("0", "0"), ("1", "1")]
    assert loop(body) == [*counters, ("2", "2"), ("3", "3")]
    assert loop(crossed) == counters


def test_weights_that_a_gradient_reads_are_overwritten_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def steps(x: Any, w: Any, v: Any) -> tuple[Any, ...]:
        def body(_: Any, carry: tuple[Any, ...]) -> tuple[Any, ...]:
            x, w, v, _ = carry
            w, v, gx, norm = watched(x, w, v)
            return x - gx, w, v, norm

        return jax.lax.fori_loop(0, 9, body, (x, w, v, v[:, 0]))

    def reshaped(x: Any, w: Any, v: Any) -> tuple[Any, ...]:
        w, v, gx = descent(x, w, v)
        return w, jnp.reshape(2.0 * v.reshape(64, 128), (128, 64)), gx

    specs = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((128, 64), (64, 128), (128, 64))]
    assert ("1", "v") in aliases(reshaped, specs, (1, 2))
    # x has the shape of v, but its buffer is not given away
    assert ("1", "v") in aliases(descent, specs, (1, 2))
    assert ("0", "w") not in aliases(descent, specs, (1, 2))
    assert ("1", "v") not in aliases(descent, specs, (1,))
    assert ("1", "v") in aliases(watched, specs, (1, 2))
    assert ("4", "4") in aliases(steps, specs, ())
    monkeypatch.setattr(core, "overwrites", lambda *_: ())
    assert ("1", "v") not in aliases(watched, specs, (1, 2))
    assert ("4", "4") not in aliases(steps, specs, ())


def test_pairs_one_to_one() -> None:
    assert one_to_one([(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]) == ((0, 1), (1, 2))
    assert one_to_one([]) == ()


def test_what_a_kernel_waits_for_is_asked_once_for_all_its_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    plain = reuse.ancestors

    def ancestors(graph: Graph, bits: int) -> int:
        asked.append(bits)
        return plain(graph, bits)

    def each(*xs: Any) -> list[Any]:
        return [jnp.sin(x) * 1.01 + 0.1 for x in xs]

    monkeypatch.setattr(reuse, "ancestors", ancestors)
    for count in (20, 40):
        asked.clear()
        assert len(aliases(each, count, tuple(range(count)))) == count
        assert len(asked) == 1
