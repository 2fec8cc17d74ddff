"""Users' compilers accept what `fusionstitch emit` writes, unchanged and beside their own code."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from fusionstitch.commands import cli

PROGRAM = """
import jax, jax.numpy as jnp

def norms(x, scale):
    mean = x.mean(-1, keepdims=True)
    y = (x - mean) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale
    return y, y.sum(0), (y * x).sum(0)

def target(function, *args):
    return lambda: (function, args)

halves = target(norms, jnp.ones((512, 256), jnp.bfloat16), jnp.ones(256, jnp.bfloat16))

narrow = target(norms, jnp.ones((16, 64), jnp.bfloat16), jnp.ones(64, jnp.bfloat16))

def grid():
    def fun(x, w):
        s = jax.nn.softmax(x @ w)
        return s * (s * s).sum(0)
    return fun, (jnp.ones((64, 32)), jnp.ones((32, 48)))

def integers():
    def fun(key, x):
        return x + jax.random.bernoulli(key, 0.5, x.shape) * x.sum(0), x.argmax(-1)
    return fun, (jax.random.key(0), jnp.ones((64, 96)))

def nothing():
    return jnp.sort, (jnp.ones((64, 48)),)
"""
NAMES = ("halves", "grid", "integers")
#: What a host program includes in front: some of it has types and names of its own.
BEFORE = (
    *("cstdint", "cmath", "cstdio", "vector", "cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h"),
    *("cooperative_groups.h",),
)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def emit(program: str, name: str, folder: Path, device: str = "h200") -> list[Path]:
    target = ["emit", f"{program}:{name}", "--scorer", "paper", "--device", device]
    assert cli.main([*target, "-o", str(folder)]) == 0
    paths = sorted(folder.glob("*.cu"))
    assert paths
    return paths


def test_no_kernel_is_said(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    target = f"{program}:nothing"
    assert cli.main(["emit", target, "--device", "h200", "-o", str(folder)]) == 0
    found = capsys.readouterr()
    assert found.out == ""
    assert "program:nothing for h200: no kernel, so no file was written." in found.err
    assert not folder.exists()


def test_a_kernel_follows_the_template_in_a_file(program: str, tmp_path: Path) -> None:
    [path] = emit(program, "halves", tmp_path / "first")
    template = path.with_suffix(".template")
    text = re.sub(r"cta_(num|per_sm)=\w+;\n", "", template.read_text())
    template.write_text(text.replace("tile=1;", "tile=2;", 1))
    arguments = ["emit", f"{program}:halves", "--scorer", "paper", "--device", "h200"]
    again = tmp_path / "again"
    assert cli.main([*arguments, "-o", str(again), "--template", str(template)]) == 0
    assert "tile=2;" in (again / template.name).read_text()
    assert (again / path.name).read_text() != path.read_text()


def test_a_template_that_cannot_be_followed_is_named(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    [path] = emit(program, "halves", tmp_path / "first")
    capsys.readouterr()
    template = path.with_suffix(".template")
    arguments = ["emit", f"{program}:halves", "--scorer", "paper", "--device", "h200"]
    template.write_text(template.read_text().replace("cta_size=", "cta_size=3"))
    assert cli.main([*arguments, "-o", str(tmp_path), "--template", str(template)]) == 2
    assert "it takes a multiple of 32" in capsys.readouterr().err
    other = tmp_path / "fs_other.template"
    other.write_text("a[CTA];")
    assert cli.main([*arguments, "-o", str(tmp_path), "--template", str(other)]) == 2
    assert f"No kernel is called fs_other; there are: {path.stem}." in capsys.readouterr().err
    other.write_text("a[CTA")
    assert cli.main([*arguments, "-o", str(tmp_path), "--template", str(other)]) == 2
    assert "'fs_other': Template, line 1, column 6" in capsys.readouterr().err
    gone = str(tmp_path / "gone.template")
    assert cli.main([*arguments, "-o", str(tmp_path), "--template", gone]) == 2
    assert "gone.template cannot be read" in capsys.readouterr().err


def test_neighbours_are_written_with_what_the_model_expects(
    program: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    arguments = ["emit", f"{program}:halves", "--scorer", "paper", "--device", "h200"]
    assert cli.main([*arguments, "-o", str(folder), "--variants", "2"]) == 0
    said = capsys.readouterr().out
    [kernel] = folder.glob("*.cu")
    for number in (1, 2):
        path = folder / f"{kernel.stem}.{number}.template"
        assert re.search(rf"{path}: [\d.]+ us by the model, [\d.]+ as it is", said)
        again = tmp_path / str(number)
        assert cli.main([*arguments, "-o", str(again), "--template", str(path)]) == 0
        assert (again / f"{kernel.stem}.template").read_text() == path.read_text()


@pytest.mark.parametrize("name", NAMES)
def test_nvrtc_takes_the_files(program: str, name: str, tmp_path: Path, nvrtc: ModuleType) -> None:
    for path in emit(program, name, tmp_path / "out"):
        [(entry, _)] = nvrtc.compile(path.read_text("utf-8"), "sm_90").resources
        assert entry == path.stem


@pytest.mark.parametrize("name", NAMES)
def test_the_files_name_no_type_of_the_host_s_headers(
    program: str, name: str, tmp_path: Path, host_compiler: str
) -> None:
    """As nvcc's host pass reads them: the standard's integer types come from the standard."""
    for path in emit(program, name, tmp_path / "out"):
        command = [host_compiler, "-E", "-x", "c++", "-std=c++17", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        ours, seen = True, 0
        for line in text.splitlines():
            if marker := re.match(r'# \d+ "([^"]*)"', line):
                ours = Path(marker[1]).is_relative_to(tmp_path)
            elif ours:
                seen += 1
                assert not re.search(r"typedef\b.*\bu?int\d+_t;", line), line
            elif re.search(r"typedef\b.*\bint64_t;", line):
                seen += 1000
        assert seen > 1000  # the text of the files, and the standard's type


needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")


@needs_nvcc
@pytest.mark.parametrize("name", NAMES)
def test_nvcc_takes_the_files_by_the_command_that_they_name(
    program: str, name: str, tmp_path: Path
) -> None:
    for path in emit(program, name, tmp_path / "out"):
        found = re.search(r"nvcc -std=\S+ -arch=\S+", path.read_text("utf-8"))
        assert found is not None
        nvcc([*found[0].split(), "-ptx", path.name], path.parent)


@needs_nvcc
def test_nvcc_takes_a_file_within_a_host_program(program: str, tmp_path: Path) -> None:
    path = emit(program, "grid", tmp_path / "out")[0]
    includes = "".join(f"#include <{name}>\n" for name in BEFORE)
    main = f"int main() {{ return (void*){path.stem} == nullptr; }}\n"
    (path.parent / "main.cu").write_text(f'{includes}#include "{path.name}"\n{main}')
    nvcc(["nvcc", "-std=c++17", "-arch=sm_90", "-c", "main.cu"], path.parent)


def nvcc(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- the programs beside them --------------------------------------------------------------------

#: What the harness calls of CUDA's runtime, for a compiler that has none of it.
CUDA = """
#include <stddef.h>
typedef int cudaError_t;
typedef struct Event* cudaEvent_t;
struct dim3 { dim3(unsigned); };
enum { cudaSuccess, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaMalloc(void**, size_t);
cudaError_t cudaMemcpy(void*, const void*, size_t, int);
cudaError_t cudaFuncSetAttribute(const void*, int, int);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaEventCreate(cudaEvent_t*);
cudaError_t cudaEventRecord(cudaEvent_t);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t);
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, void*);
cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, size_t, void*);
"""
ON_THE_GPU = """
#include "harness.h"
static const FsBuffer buffers[] = {{"in0", FsUse::kInput, FsElement::kF32, 4, 4, 0.0, nullptr}};
static const FsLaunch launch = {"k", 1, 32, 1, 0, false};
int main() { return fs_harness::check(launch, (const void*)nullptr, buffers, 1, "."); }
"""


def built(folder: Path) -> subprocess.CompletedProcess[str]:
    """By the command that a main names for the host."""
    command = re.search(r"//   (g\+\+ .*) && ./main", (folder / "main.cu").read_text())
    assert command is not None
    words = [*command[1].split(), "-Wall", "-Wno-unused"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def ran(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["./main"], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
@pytest.mark.parametrize("name", ["narrow", "integers"])
def test_each_kernel_has_a_main_that_checks_it(program: str, name: str, tmp_path: Path) -> None:
    for path in emit(program, name, tmp_path / "out"):
        folder = path.with_suffix("")
        done = built(folder)
        assert done.returncode == 0, done.stderr
        found = ran(folder)
        assert found.returncode == 0, found.stdout + found.stderr
        outputs = sorted(path.stem for path in folder.glob("out*.bin"))
        assert outputs
        assert all(re.search(rf"^{output}  ", found.stdout, re.MULTILINE) for output in outputs)
        assert "WRONG" not in found.stdout


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
def test_a_main_tells_what_is_wrong(program: str, tmp_path: Path) -> None:
    folder = emit(program, "integers", tmp_path / "out")[0].with_suffix("")
    assert built(folder).returncode == 0
    right = max(folder.glob("out*.bin"))
    data = bytearray(right.read_bytes())
    data[-1] ^= 0x40  # of a float, the exponent
    right.write_bytes(data)
    found = ran(folder)
    assert found.returncode == 1
    assert re.search(rf"^{right.stem}  .*WRONG$", found.stdout, re.MULTILINE)
    right.write_bytes(data[:-1])
    found = ran(folder)
    assert found.returncode == 2
    assert "should be: emit it again" in found.stderr
    (folder / "in0.bin").unlink()
    found = ran(folder)
    assert found.returncode == 0
    assert found.stdout.startswith("inputs are zeros")


def test_a_kernel_that_is_too_large_has_no_files_of_arrays(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fusionstitch.reports import harness

    folder = tmp_path / "out"
    [path] = emit(program, "narrow", folder)
    assert list(path.with_suffix("").glob("*.bin"))
    monkeypatch.setattr(harness, "MOST_BYTES", 1000)
    [path] = emit(program, "narrow", folder)
    assert [one.name for one in path.with_suffix("").iterdir()] == ["main.cu"]


def test_the_part_for_the_gpu_is_c(tmp_path: Path, host_compiler: str) -> None:
    from importlib import resources

    (tmp_path / "cuda_runtime.h").write_text(CUDA)
    (tmp_path / "main.cc").write_text(ON_THE_GPU)
    runtime = str(resources.files("fusionstitch.runtime"))
    command = [host_compiler, "-std=c++17", "-Wall", "-fsyntax-only", "-I.", "-I", runtime]
    done = subprocess.run(
        [*command, "main.cc"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_nvcc
def test_nvcc_takes_a_main(program: str, tmp_path: Path) -> None:
    [path, *_] = emit(program, "grid", tmp_path / "out")
    command = re.search(r"//   (nvcc .*) && ./main", (path.with_suffix("") / "main.cu").read_text())
    assert command is not None
    nvcc(command[1].split(), path.with_suffix(""))


@needs_nvcc
@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_mains_check_and_time_kernels_on_the_gpu(program: str, name: str, tmp_path: Path) -> None:
    for path in emit(program, name, tmp_path / "out"):
        folder = path.with_suffix("")
        nvcc(["nvcc", "-std=c++17", "-O3", "-arch=native", "-I..", "main.cu", "-o", "main"], folder)
        found = ran(folder)
        assert found.returncode == 0, found.stdout + found.stderr
        assert re.search(rf"^{path.stem}  [\d.]+ us", found.stdout, re.MULTILINE)
