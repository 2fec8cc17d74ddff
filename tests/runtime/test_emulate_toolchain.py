"""The host compiler: found or asked for, its results kept, its refusals shown."""

import ctypes

import pytest

from fusionstitch.runtime import toolchain
from hlo.errors import ToolchainError

SOURCE = 'extern "C" int answer() { return ANSWER; }'


class CountingStore(toolchain.MemoryStore):
    def __init__(self):
        super().__init__()
        self.puts = []

    def put(self, key, value):
        self.puts.append(key)
        super().put(key, value)


def test_a_shared_object_is_built_once_per_content(tmp_path):
    store = CountingStore()

    def build(answer, depends=""):
        flags = (f"-DANSWER={answer}",)
        return toolchain.compile_shared(SOURCE, flags=flags, depends=depends, store=store)

    image = build(42)
    path = tmp_path / "answer.so"
    path.write_bytes(image)
    assert ctypes.CDLL(str(path)).answer() == 42
    assert build(42) == image
    assert len(store.puts) == 1
    assert build(43) != image
    build(42, depends="another header")
    assert len(set(store.puts)) == 3


def test_refused_code_shows_the_compiler_s_messages():
    with pytest.raises(ToolchainError, match=r"refused generated code[^\n]*\n.*error.*nonsense"):
        toolchain.compile_shared(SOURCE.replace("()", "() nonsense"), flags=("-DANSWER=1",))


def test_a_missing_compiler_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler -O1")
    with pytest.raises(ToolchainError, match=r"'no-such-compiler' named by .* CXX was not found"):
        toolchain.compile_shared(SOURCE)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"looked for g\+\+, c\+\+, clang\+\+\). Install one"):
        toolchain.compile_shared(SOURCE)


def test_cxx_may_hold_flags(monkeypatch):
    usual = toolchain.compiler()
    monkeypatch.setenv("CXX", f"{usual[0]} -DANSWER=7")
    assert toolchain.compiler() == (usual[0], "-DANSWER=7")
    assert toolchain.compile_shared(SOURCE)
