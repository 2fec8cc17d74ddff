"""What a kernel may overwrite is found out once for it, not again for each of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from codegen.kernel import Kernel
from costmodel.devices import device
from fusionstitch import core, reuse
from fusionstitch.core import Built
from fusionstitch.runtime.artifact import Artifact


def built(kernels: Sequence[Kernel]) -> list[Built]:
    return [
        Built(Artifact("0" * 64, b"", k.name, k.grid, k.block, k.shared_bytes, k.cooperative))
        for k in kernels
    ]


def test_the_steps_do_not_grow_with_the_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(
        reuse, "ancestors", lambda graph, bits: asked.append(bits) or plain(graph, bits)
    )
    x = np.ones((16, 8), np.float32)
    for count in (20, 40):
        jitted = jax.jit(
            lambda *xs: [jnp.sin(x) * 1.01 + 0.1 for x in xs], donate_argnums=tuple(range(count))
        )
        module = jitted.lower(*[x] * count).compiler_ir("hlo").as_serialized_hlo_module_proto()
        asked.clear()
        found = core.stitch(module, fs.Options(), device("h200"), built, aliasing=True)
        assert len(found.stitches) == len(asked) == 1
        assert len(found.kernels[0].in_place) >= count


plain = reuse.ancestors
