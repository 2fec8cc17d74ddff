"""Modules come from files, texts and bytes of every kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from fusionstitch.hlo import schema
from fusionstitch.hlo.errors import ImportModuleError
from fusionstitch.hlo.evaluate import evaluate
from fusionstitch.hlo.importer import from_proto, parse
from fusionstitch.hlo.load import load

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def fun(x, n):
    return jnp.tanh(x) @ x.T + n, x.astype(jnp.bfloat16), (n > 2)[None]


LOWERED = jax.jit(fun, donate_argnums=1).lower(X, np.int32(4))
MODULE = LOWERED.compiler_ir("hlo").as_serialized_hlo_module_proto()


def dump():
    whole = schema.Hlo()
    whole.hlo_module.ParseFromString(MODULE)
    return whole.SerializeToString()


SOURCES = {
    "hlo_text": LOWERED.compiler_ir("hlo").as_hlo_text(),
    "commented_hlo_text": f"// by XLA\n/* for\n{LOWERED.as_text()}\n*/ "
    + LOWERED.compiler_ir("hlo").as_hlo_text(),
    "hlo_text_bytes": LOWERED.compiler_ir("hlo").as_hlo_text().encode(),
    "stablehlo_text": LOWERED.as_text(),
    "stablehlo_debug": LOWERED.as_text(debug_info=True),
    "stablehlo_bytecode": export.export(jax.jit(fun))(X, np.int32(4)).mlir_module_serialized,
    "proto": MODULE,
    "dump": dump(),
}


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("kind", SOURCES)
def test_every_kind_of_source_computes_the_same(kind, as_file, tmp_path):
    source = SOURCES[kind]
    if as_file:
        path = tmp_path / "module"
        path.write_bytes(source if isinstance(source, bytes) else source.encode())
        source = path
    got = evaluate(from_proto(load(source)).entry, [X, np.array(4, np.int32)])
    expected = evaluate(from_proto(MODULE).entry, [X, np.array(4, np.int32)])
    for g, w in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, w)


def test_a_path_may_be_a_string(tmp_path):
    (tmp_path / "m.pb").write_bytes(MODULE)
    assert load(str(tmp_path / "m.pb")) == MODULE


def test_donation_is_kept_through_stablehlo():
    lowered = jax.jit(lambda x: x + 1, donate_argnums=0).lower(X)
    [entry] = parse(load(lowered.as_text())).input_output_alias.entries
    assert entry.parameter_number == 0


def test_stablehlo_may_hold_operations_of_chlo():
    lowered = jax.jit(lambda x: jnp.square(jax.lax.erf(x))).lower(X)
    proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    [expected] = evaluate(from_proto(proto).entry, [X])
    [got] = evaluate(from_proto(load(lowered.as_text())).entry, [X])
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_wide_types_pass_through_stablehlo():
    with jax.enable_x64(True):
        lowered = jax.jit(lambda x, y: (x * 2, ~y)).lower(np.float64(1), np.ones(3, np.uint64))
        shapes = [op.shape for op in from_proto(load(lowered.as_text())).entry.root.operands]
    assert list(map(str, shapes)) == ["f64[]", "u64[3]"]


BAD = {
    "cannot be read: No such file": "missing.hlo",
    "no function `main`": "module {\n}",
    "JAX cannot read this StableHLO": "module {\n  nonsense\n}",
    "no HloModuleProto": b"\xff\x00\xff",
    "arrays of static shapes": "func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {\n"
    "  return %a : tensor<?xf32>\n}",
}


@pytest.mark.parametrize("message", BAD)
def test_unreadable_sources_say_why(message):
    with pytest.raises(ImportModuleError, match=message):
        load(BAD[message])
