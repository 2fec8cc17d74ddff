"""Modules as portable artifacts, including ops that StableHLO lacks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.importer import parse
from fusionstitch.runtime.portable import portable_artifact

X = np.random.default_rng(0).standard_normal((6, 40), np.float32)


def through(fun, edit=lambda module: None):
    """What `fun` of X computes after its module went through HLO, `edit` and the artifact."""
    hlo = parse(jax.jit(fun).lower(X).compiler_ir("hlo").as_serialized_hlo_module_proto())
    edit(hlo)
    exported = export.export(jax.jit(fun))(X)
    artifact = portable_artifact(hlo.SerializeToString())
    return dataclasses.replace(exported, mlir_module_serialized=artifact).call(X)


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: jax.lax.erf(x) * 2.0,
        lambda x: jax.nn.gelu(x, approximate=False),
        lambda x: jax.lax.top_k(x, 3),
        lambda x: jax.lax.top_k((x * 10).astype(jnp.int32), 5)[1],
        lambda x: jax.lax.fori_loop(0, 3, lambda _, v: jax.lax.erf(v) + jax.lax.top_k(v, 40)[0], x),
    ],
    ids=["erf", "gelu", "top_k", "top_k of integers", "in a loop"],
)
def test_ops_that_stablehlo_lacks(fun):
    for ours, theirs in zip(
        jax.tree.leaves(through(fun)), jax.tree.leaves(jax.jit(fun)(X)), strict=True
    ):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6)


@pytest.mark.parametrize("y", [X.T[:, :4], X[0]], ids=["matrices", "of a vector"])
def test_products_that_name_an_algorithm(y):
    algorithm = jax.lax.DotAlgorithmPreset.F16_F16_F16

    def fun(x):
        return jax.lax.dot(x.astype(jnp.float16), y.astype(jnp.float16), precision=algorithm)

    np.testing.assert_array_equal(through(fun), jax.jit(fun)(X))


def test_copies_are_left_out():
    def add_copies(module):
        [computation] = module.computations
        for wanted in (computation.root_id, computation.instructions[0].id):
            [source] = [i for i in computation.instructions if i.id == wanted]
            ident = max(i.id for i in computation.instructions) + 1
            for reader in computation.instructions:
                reader.operand_ids[:] = [ident if i == wanted else i for i in reader.operand_ids]
            copy = computation.instructions.add(
                name=f"copy.{ident}", opcode="copy", id=ident, operand_ids=[wanted]
            )
            copy.shape.CopyFrom(source.shape)
            if wanted == computation.root_id:
                computation.root_id = ident
        order = sorted(computation.instructions, key=lambda i: (i.opcode != "parameter", i.id))
        del computation.instructions[:]
        computation.instructions.extend(order)

    np.testing.assert_array_equal(through(jnp.negative, add_copies), -X)


def test_unknown_ops_are_refused():
    def rename(module):
        module.computations[0].instructions[1].opcode = "no-such-op"

    with pytest.raises(ImportModuleError, match="XLA refused the module"):
        through(jnp.negative, rename)
