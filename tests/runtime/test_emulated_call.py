"""Kernels under jax.jit: lowered program out, custom calls in, called through XLA's typed FFI."""

import dataclasses
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.hlo.errors import ImportModuleError, StitchError
from fusionstitch.hlo.exporter import Preparation, Replacement, export
from fusionstitch.hlo.graph import Shape
from fusionstitch.hlo.importer import from_proto
from fusionstitch.runtime import emulate, emulated_call
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, loading_config, quoted

N = 96


def negate_kernel(dims=(N,), scratch=()):
    """Reverses through shared memory and back, so that it has a barrier to get wrong."""
    parameters = "const float* x, float* y" + (", float* unused" if scratch else "")
    source = f"""#include "fusionstitch.cuh"
extern "C" __global__ void negate({parameters}) {{
  FS_DYNAMIC_SHARED(memory);
  float* tile = (float*)memory;
  const unsigned t = threadIdx.x, last = blockDim.x - 1, start = blockIdx.x * blockDim.x;
  tile[last - t] = -x[start + t];
  __syncthreads();
  y[start + t] = tile[last - t];
}}
"""
    shape = (Shape("f32", dims),)
    blocks = int(np.prod(dims)) // N
    return Kernel("negate", source, shape, shape, scratch, blocks, N, 4 * N, False, "hand-written")


def stitch(hlo, artifact=None, scratch=(), loads=True):
    """Replaces every negate by a call of the kernel, or of `artifact`; one more call loads it."""
    module = from_proto(hlo)
    found = [(graph, op) for graph in module.graphs for op in graph if op.opcode == "negate"]
    artifacts = [
        artifact or emulate.build([negate_kernel(op.shape.dims, scratch)])[0] for _, op in found
    ]
    calls = [
        Replacement(graph, (op,), op.operands, (op,), "negate", TARGET, one.config(), scratch)
        for (graph, op), one in zip(found, artifacts, strict=True)
    ]
    load = Preparation("load", LOAD_TARGET, loading_config(artifacts))
    return export(module, calls, preparation=load if loads else None)


def check(fun, *args, scratch=(), donate=(), **kwargs):
    program = emulated_call.lower(jax.jit(fun), args, kwargs)
    want = jax.jit(fun)(*args, **kwargs)
    hlo = stitch(program.hlo, scratch=scratch)
    stitched = emulated_call.stitched(program, hlo, donate_argnums=donate)
    assert TARGET in stitched.lower(*args, **kwargs).compile().as_text()
    got = stitched(*args, **kwargs)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        assert a.sharding == b.sharding
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


X = np.random.default_rng(0).normal(size=(4, N)).astype(np.float32)


def test_a_kernel_runs_inside_a_jitted_program():
    check(lambda x: {"out": (-(x * 2)).sum(), "x": -x}, X)


def test_scratch_comes_after_the_outputs():
    check(lambda x: -x + 1, X, scratch=(Shape("f32", (7,)),))


def test_layouts_around_a_call_are_honoured():
    check(lambda x: (-x.T).reshape(N, 4).T @ jnp.ones((N, 2)), np.round(4 * X))


def test_unused_arguments_keywords_and_keys():
    def fun(x, unused, key, *, scale):
        new, sub = jax.random.split(key)
        return new, -(x + scale * jax.random.normal(sub, x.shape))

    check(fun, X, {"a": np.ones(3)}, jax.random.key(0), scale=np.float32(0.5))


def test_donated_arguments_are_consumed():
    program = emulated_call.lower(jax.jit(lambda p, x: (-p, x.sum())), (X, X))
    stitched = emulated_call.stitched(program, stitch(program.hlo), donate_argnums=0)
    p = jnp.asarray(X) + 0
    out, _ = stitched(p, X)
    assert p.is_deleted()
    np.testing.assert_array_equal(out, -X)


def test_a_kernel_in_a_loop_body():
    check(lambda x: jax.lax.fori_loop(0, 5, lambda i, c: -c + i, x), X)


def test_a_stitched_function_may_be_called_inside_jit():
    program = emulated_call.lower(jax.jit(lambda x: -x), (X,))
    stitched = emulated_call.stitched(program, stitch(program.hlo))
    np.testing.assert_array_equal(jax.jit(lambda x: stitched(x) * 2)(X), -2 * X)


def test_shapes_are_enough_to_lower():
    program = emulated_call.lower(jax.jit(jnp.negative), (jax.ShapeDtypeStruct((N,), "float32"),))
    np.testing.assert_array_equal(emulated_call.stitched(program, stitch(program.hlo))(X[0]), -X[0])


def test_the_thread_order_can_change_after_compiling():
    racy = negate_kernel((4, N))
    source = racy.source.replace("tile[last - t];", "tile[t];").replace("__syncthreads();", "")
    program = emulated_call.lower(jax.jit(jnp.negative), (X,))
    [artifact] = emulate.build([Kernel(**{**vars(racy), "source": source})])
    hlo = stitch(program.hlo, artifact)
    stitched = emulated_call.stitched(program, hlo)
    results = []
    for order in ("forward", "reversed", "random"):
        emulate.set_order(order, 3)
        results.append(np.asarray(stitched(X)).tobytes())
    emulate.set_order("forward")
    assert len(set(results)) == 3


def test_concurrent_executions():
    program = emulated_call.lower(jax.jit(jnp.negative), (X,))
    stitched = emulated_call.stitched(program, stitch(program.hlo))
    stitched(X)
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).normal(size=X.shape).astype(np.float32)
        wrong.extend(1 for _ in range(20) if (np.asarray(stitched(x)) != -x).any())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entry": "other"}, "has no kernel named other"),
        ({"block": 0}, "cannot be launched with 4 blocks of 0 threads"),
        ({"shared_bytes": 380}, "wrote shared memory at byte 380, past its 380 bytes"),
    ],
)
def test_faults_become_errors_of_the_call(change, message):
    program = emulated_call.lower(jax.jit(jnp.negative), (X,))
    [artifact] = emulate.build([negate_kernel((4, N))])
    changed = dataclasses.replace(artifact, **change)
    stitched = emulated_call.stitched(program, stitch(program.hlo, changed))
    with pytest.raises(Exception, match=message):
        np.asarray(stitched(X))


def test_a_missing_or_broken_image_is_reported():
    program = emulated_call.lower(jax.jit(jnp.negative), (X,))
    [artifact] = emulate.build([negate_kernel((4, N))])
    alone = dataclasses.replace(artifact, key="unknown-key")
    with pytest.raises(Exception, match="no kernel image with the key unknown-key"):
        np.asarray(emulated_call.stitched(program, stitch(program.hlo, alone, loads=False))(X))
    broken = dataclasses.replace(artifact, key="unknown", image=b"\x7fELF no")
    with pytest.raises(Exception, match="kernel image cannot be loaded"):
        np.asarray(emulated_call.stitched(program, stitch(program.hlo, broken))(X))


def test_a_config_escapes_every_byte_of_the_image():
    text = quoted(bytes(range(256)))
    low = b"".join(b"\\%02X" % c for c in range(0x20))
    assert text.startswith(b'"' + low + b" !\\22#$%")
    assert text.endswith(b"xyz{|}~\\7F" + b"".join(b"\\%02X" % c for c in range(0x80, 256)) + b'"')
    assert b"[\\5C]" in text


def test_programs_with_callbacks_are_refused():
    def fun(x):
        jax.debug.print("{}", x[0, 0])
        return -x

    with pytest.raises(StitchError, match="cannot export this program"):
        emulated_call.lower(jax.jit(fun), (X,))


def test_a_broken_module_is_refused():
    program = emulated_call.lower(jax.jit(jnp.negative), (X,))
    with pytest.raises(ImportModuleError, match="These bytes are no HloModuleProto"):
        emulated_call.stitched(program, program.hlo[:100])
