"""Every way in and out: scopes of one's own, others' artifacts, files; what is then shown."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import fusionstitch as fs
from fusionstitch.commands import cli, output
from fusionstitch.errors import ImportModuleError
from fusionstitch.hlo import schema
from fusionstitch.hlo.importer import from_proto
from fusionstitch.hlo.load import load
from fusionstitch.runtime import guarded, xla_pass
from fusionstitch.runtime.artifact import TARGET
from tests.foreign.tricks import NAMES, TRICKS, renamed

#: Runs in the compiler's output if one line of a comment gets out of it.
ATTACK = "a\n}\nstatic int fs_owned = (__builtin_trap(), 1);\nvoid b() {\r// \\"
OPTIONS = fs.Options(backend="emulate", scorer="paper", fallback="error")
X = jnp.linspace(-1, 1, 16 * 24).reshape(16, 24)
TABLE = np.arange(24, dtype=np.float32) ** 2


def program(x: jax.Array) -> Any:
    s = jax.nn.softmax(x + TABLE)
    return s * (s * x).sum(0), jax.lax.reduce(s, 0.0, lambda a, b: a + b - a * b, (1,))


def attacked(x: jax.Array) -> Any:
    for first in range(10):
        with jax.named_scope(ATTACK.join(TRICKS[first::10])):
            x = x * 1.5 - 0.25
    with jax.named_scope(ATTACK):
        return program(x)


def assert_printable(text: str) -> None:
    assert all(c.isprintable() or c in "\n\t" for c in text)


def assert_close(got: Any, wanted: Any) -> None:
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-5)


def test_scopes_of_one_s_own(
    host_compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSIONSTITCH_DUMP_DIR", str(tmp_path / "dumped"))
    compiled = fs.jit(attacked, options=OPTIONS).lower(X).compile()
    assert len(compiled.kernels) >= 1
    assert_close(compiled(X), jax.jit(attacked)(X))
    assert_printable(compiled.explain())
    for kernel in compiled.kernels:
        assert_printable(kernel.source)
        assert re.fullmatch(r"fs_[a-z0-9_]+", kernel.name)
        assert not re.search(r"^[^/]*fs_owned", kernel.source, re.MULTILINE)
    dumped = {p: p.read_text("utf-8") for p in (tmp_path / "dumped").rglob("*") if p.is_file()}
    assert {p.parent.name for p in dumped} == {"dumped", *(k.name for k in compiled.kernels)}
    texts = {p.parent.name: text for p, text in dumped.items() if p.suffix == ".cu"}
    assert texts == {k.name: k.source for k in compiled.kernels}
    for path, text in dumped.items():
        assert re.fullmatch(r"\d\d_[a-z_]+\.(txt|cu)|[a-z_]+\.c?u?h", path.name)
        assert_printable(text)


def test_an_artifact_of_somebody_else(host_compiler: str) -> None:
    def fun(x: jax.Array) -> Any:
        return attacked(x)

    fun.__name__ = "evil\n*/ ??/"
    exported = export.export(jax.jit(fun))(X)
    restored = fs.jit(exported.call, options=OPTIONS)
    compiled = restored.lower(X).compile()
    assert len(compiled.kernels) >= 1
    assert_printable(compiled.explain())
    assert_close(restored(X), jax.jit(attacked)(X))


@pytest.fixture(scope="module")
def hostile() -> bytes:
    """A module that no compiler made: every name and text in it is a trick."""
    made = jax.jit(program).lower(X).compiler_ir("hlo").as_serialized_hlo_module_proto()
    return renamed(
        made, lambda n: f"{NAMES[n % len(NAMES)]}\n{n}", lambda n: TRICKS[n % len(TRICKS)] + ATTACK
    )


def test_what_is_imported_is_printable_everywhere(hostile: bytes) -> None:
    module = from_proto(hostile)
    assert_printable(module.name)
    for graph in module.graphs:
        assert_printable(str(graph))
        for op in graph:
            texts = (op.opcode, op.name, op.source.op_name, op.source.file)
            assert all(text.isprintable() for text in texts)


def test_files_on_the_command_line(
    hostile: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    host_compiler: str,
) -> None:
    monkeypatch.setattr(guarded, "read", load)  # not in a process of its own each time
    # XLA itself insists on some names, so the file's texts are attacks and its names are not
    proto = schema.HloModule.FromString(hostile)
    for n, computation in enumerate(proto.computations):
        computation.name = f"c{n}"
        for m, instruction in enumerate(computation.instructions):
            instruction.name = f"i{n}.{m}"
    proto.name, proto.entry_computation_name = "evil", "c0"
    path = tmp_path / "evil.pb"
    path.write_bytes(proto.SerializeToString())
    options = [str(path), "--backend", "emulate", "--scorer", "paper"]
    shown = []
    for command in (["explain"], ["report", "--json", "-"]):
        assert cli.main([command[0], *options, *command[1:]]) == 0
        shown.append(capsys.readouterr().out)
        assert_printable(shown[-1])
    assert json.loads(shown[-1])["kernels"]["fusionstitch"] >= 1
    assert cli.main(["emit", *options, "--output", str(tmp_path / "kernels")]) == 0
    assert_printable(capsys.readouterr().out)
    kernels = list((tmp_path / "kernels").glob("*.cu"))
    assert kernels
    for kernel in kernels:
        source = kernel.read_text("utf-8")
        assert_printable(source)
        assert not re.search(r"^[^/]*fs_owned", source, re.MULTILINE)


def test_a_terminal_of_few_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii"))
    output.say("日本\x1b[2J")
    assert raw.getvalue() == b"\\u65e5\\u672c<U+001B>[2J\n"
    monkeypatch.setattr(sys, "stdout", None)
    output.say("nobody listens")


def test_malformed_modules_are_described_in_print(hostile: bytes) -> None:
    for spoil in ("operand_ids", "called_computation_ids", "opcode"):
        proto = schema.HloModule.FromString(hostile)
        for computation in proto.computations:
            for instruction in computation.instructions:
                if spoil == "opcode":
                    instruction.opcode = ATTACK if instruction.operand_ids else instruction.opcode
                    instruction.shape.element_type = 99
                else:
                    ids = getattr(instruction, spoil)
                    ids[:] = [i + 10**6 for i in ids]
        with pytest.raises(ImportModuleError) as caught:
            from_proto(proto.SerializeToString())
        assert_printable(str(caught.value))


def test_a_name_is_no_kernel(hostile: bytes) -> None:
    """What a module calls its ops is not taken for the keys of kernels in it."""
    proto = schema.HloModule.FromString(hostile)
    claim = f'{{key = "{"a" * 64}"}}'
    for computation in proto.computations:
        for instruction in computation.instructions:
            instruction.metadata.op_name = instruction.name = claim
            instruction.backend_config = claim.encode()
    assert xla_pass._keys_of(proto.SerializeToString()) == ()
    proto.computations[0].instructions[0].custom_call_target = TARGET
    assert xla_pass._keys_of(proto.SerializeToString()) == ("a" * 64,)
