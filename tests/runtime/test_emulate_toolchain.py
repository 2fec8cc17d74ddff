"""The host compiler: found or requested, its results stored, its errors shown."""

import ctypes
import fcntl
import os
import stat

import pytest

from fusionstitch.hlo.errors import ToolchainError
from fusionstitch.runtime import cpu, temporary, toolchain

SOURCE = 'extern "C" int answer() { return ANSWER; }'


class CountingStore(toolchain.MemoryStore):
    def __init__(self):
        super().__init__()
        self.puts = []

    def put(self, key, value):
        self.puts += [key] if key.startswith("host-") else []
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


def stub(tmp_path, monkeypatch, script):
    """Makes a shell script the compiler; it is asked for its version first."""
    path = tmp_path / "compiler"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\n{script}\n')
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))


@pytest.mark.parametrize(
    ("said", "lacking"),
    [
        ("/tmp/ccX1.s: fatal error: error writing to /tmp/ccX1.s: No space left on device", "disk"),
        ("/usr/bin/ld: final link failed: No space left on device", "disk"),
        ("fatal error: cannot write: Disk quota exceeded", "disk"),
        ("clang: error: unable to open output file: Read-only file system", "disk"),
        ("cc1plus: out of memory allocating 65536 bytes", "memory"),
        ("g++: fatal error: Killed signal terminated program cc1plus", "memory"),
    ],
)
def test_a_lack_of_room_is_no_defect(tmp_path, monkeypatch, said, lacking):
    stub(tmp_path, monkeypatch, f"echo '{said}' >&2; exit 1")
    with pytest.raises(ToolchainError, match=f"ran out of {lacking}") as caught:
        toolchain.compile_shared(SOURCE)
    assert said in str(caught.value)
    assert "defect" not in str(caught.value)
    assert ("Set TMPDIR" in str(caught.value)) == (lacking == "disk")


@pytest.mark.parametrize(
    "said",
    [
        "collect2: fatal error: cannot find 'ld'",
        "g++: fatal error: cannot execute 'cc1plus': execvp: No such file or directory",
        "g++: error trying to exec 'as': execvp: No such file or directory",
        'clang: error: unable to execute command: Executable "ld" doesn\'t exist!',
        "source.cc:1:10: fatal error: cstdint: No such file or directory",
        "source.cc:1:10: fatal error: 'cstdint' file not found",
        "/usr/bin/ld: cannot find crti.o: No such file or directory",
        "/usr/bin/ld: cannot find -lgcc",
        "ld.lld: error: unable to find library -lm",
    ],
)
def test_a_compiler_without_its_parts_is_no_defect(tmp_path, monkeypatch, said):
    (tmp_path / "said").write_text(said)
    stub(tmp_path, monkeypatch, f"cat {tmp_path}/said >&2; exit 1")
    with pytest.raises(ToolchainError, match="is incomplete") as caught:
        toolchain.compile_shared(SOURCE)
    assert said in str(caught.value)
    assert "defect" not in str(caught.value)


def test_a_compiler_that_fills_a_disk(tmp_path, monkeypatch, host_compiler):
    """The real one, where no file may grow beyond some size."""
    stub(tmp_path, monkeypatch, f'ulimit -f 1; trap "" XFSZ; exec {host_compiler} "$@"')
    with pytest.raises(ToolchainError, match="ran out of disk space") as caught:
        toolchain.compile_shared(SOURCE, flags=("-DANSWER=1",))
    assert "defect" not in str(caught.value)


def test_compilers_speak_english_and_work_in_a_folder_of_their_own(tmp_path, monkeypatch):
    stub(
        tmp_path, monkeypatch, f'echo "$LC_ALL $TMPDIR" > {tmp_path}/seen; umask >> {tmp_path}/seen'
    )
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    with pytest.raises(ToolchainError, match="not a shared object"):
        toolchain.compile_shared(SOURCE)
    language, folder, umask = (tmp_path / "seen").read_text().split()
    assert (language, umask) == ("C", "0077")
    assert temporary.PREFIX in folder
    assert not os.path.exists(folder)


def test_no_umask_keeps_the_compiler_from_its_files(monkeypatch, tmp_path, host_compiler):
    seen = tmp_path / "modes"
    script = (
        f'd=$(dirname "$(echo "$*" | tr " " "\\n" | grep source.cc)"); stat -c %a $d $d/* > {seen}'
    )
    stub(tmp_path, monkeypatch, f'{script}; exec {host_compiler} "$@"')
    before = os.umask(0o777)
    try:
        assert toolchain.compile_shared(SOURCE, flags=("-DANSWER=1",))
    finally:
        os.umask(before)
    assert seen.read_text().split() == ["700", "600"]


def test_code_for_this_machine_is_stored_for_its_model(monkeypatch, tmp_path):
    usual, store = toolchain.compiler()[0], CountingStore()
    (tmp_path / "flags").write_text("-O1")
    for flags in ("", "-march=native", "-mtune=native", f"@{tmp_path}/flags"):
        monkeypatch.setenv("CXX", f"{usual} {flags} -DANSWER=1")
        store.puts.clear()
        for model in ("one", "other", "one"):
            monkeypatch.setattr(cpu, "model", lambda model=model: model)
            toolchain.compile_shared(SOURCE, store=store)
        assert len(store.puts) == (2 if flags else 1), flags


def test_a_processor_has_a_model():
    assert cpu.model() == cpu.model()
    assert "MHz" not in cpu.model()
    assert len(cpu.model()) > 3


def test_without_a_compiler_what_another_built_will_do(monkeypatch, tmp_path):
    store = toolchain.MemoryStore()
    flags = ("-DANSWER=5",)
    image = toolchain.compile_shared(SOURCE, flags=flags, store=store)

    def absent(_):
        raise ToolchainError("not of use here")

    monkeypatch.delenv("CXX", raising=False)
    for variable, value in (("PATH", str(tmp_path)), ("CXX", "absent"), ("CXX", "'half")):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            assert toolchain.compile_shared(SOURCE, flags=flags, store=store) == image
            for other in ({"source": f"{SOURCE} "}, {"flags": ()}, {"depends": "x"}):
                with pytest.raises(ToolchainError, match=r"was not found|No C\+\+|not a command"):
                    toolchain.compile_shared(
                        **{"source": SOURCE, "flags": flags, "store": store, **other}
                    )
            with pytest.raises(ToolchainError):
                toolchain.compile_shared(SOURCE, flags=flags, store=store, accept=absent)
            # built for another machine
            patch.setattr(cpu, "model", lambda: "another")
            with pytest.raises(ToolchainError):
                toolchain.compile_shared(SOURCE, flags=flags, store=store)


@pytest.mark.parametrize("script", ["echo cannot find >&2; exit 1", "exit 0", "exit 126"])
def test_where_the_compiler_fails_what_another_built_will_do(monkeypatch, tmp_path, script):
    store = toolchain.MemoryStore()
    flags = ("-DANSWER=6",)
    image = toolchain.compile_shared(SOURCE, flags=flags, store=store)
    stub(tmp_path, monkeypatch, script)
    assert toolchain.compile_shared(SOURCE, flags=flags, store=store) == image
    with pytest.raises(ToolchainError):
        toolchain.compile_shared(SOURCE, flags=("-DANSWER=7",), store=store)


def test_what_is_stored_is_not_built_again(monkeypatch):
    store = toolchain.MemoryStore()
    image = toolchain.compile_shared(SOURCE, flags=("-DANSWER=8",), store=store)
    monkeypatch.setattr(toolchain, "_compiled", lambda *_: pytest.fail("built again"))
    assert toolchain.compile_shared(SOURCE, flags=("-DANSWER=8",), store=store) == image


def test_folders_of_processes_that_are_gone_are_swept(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("mine")
    gone, works, foreign = (tmp_path / f"{temporary.PREFIX}{n}" for n in "abc")
    for folder in (gone, works, foreign):
        folder.mkdir(mode=0o700)
        (folder / "source.cc").write_text("half")
        (folder / "link").symlink_to(victim)
    (tmp_path / f"{temporary.PREFIX}link").symlink_to(victim)
    (tmp_path / "fusionstitch-other").mkdir()
    lock = os.open(works, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    inode, plain = foreign.stat().st_ino, os.fstat

    def fstat(handle):
        facts = plain(handle)
        mine = facts.st_ino != inode
        return facts if mine else os.stat_result([*facts[:4], facts.st_uid + 1, *facts[5:10]])

    monkeypatch.setattr(os, "fstat", fstat)
    temporary._sweep.cache_clear()
    with temporary.folder() as mine:
        assert stat.S_IMODE(mine.stat().st_mode) == 0o700
        temporary._sweep.cache_clear()
        temporary._sweep(str(tmp_path))
        assert mine.exists()
        left = {path.name for path in tmp_path.iterdir()}
    assert not mine.exists()
    assert left == {"victim", works.name, foreign.name, "fusionstitch-other", mine.name} | {
        f"{temporary.PREFIX}link"
    }
    assert (victim / "precious").read_text() == "mine"
    os.close(lock)
    temporary._sweep.cache_clear()
