"""Unusual environments: what works there under jax.jit works under fs.jit, and leaves nothing
over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusionstitch.runtime import temporary
from tests.behaviour.surroundings import STATEFUL

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def process(
    host_compiler: str, tmp_path: Path
) -> Callable[..., tuple[list[Any], subprocess.CompletedProcess[str]]]:
    """Runs a part of `surroundings`; returns the lines it wrote, and how it ended."""

    def start(
        what: str, shell: str = "", **environment: str
    ) -> tuple[list[Any], subprocess.CompletedProcess[str]]:
        out = tmp_path / "out"
        (tmp_path / "temporary").mkdir(exist_ok=True)
        command = [sys.executable, "-W", "error", "-m", "tests.behaviour.surroundings"]
        ended = subprocess.run(
            ["/bin/sh", "-c", f'exec "$@" {shell}', "sh", *command, what, str(out)],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(tmp_path / "temporary"), **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        lines = out.read_text().splitlines() if out.exists() else []
        return [json.loads(line) for line in lines], ended

    return start


def right(*names: str) -> list[list[Any]]:
    return [[f"{name} {kind}", True] for name in names for kind in ("jax", "fs")]


CASES = {
    "closed": ("0<&- 1>&- 2>&-", right("closed")),
    "nowhere": ("", right("nowhere")),
    "ending": ("", right("thread", "exit")),
    "reloaded": ("", right("before", *(f"reloaded{name}" for name in STATEFUL), "after")),
    "warm": ("", right("cold", "warm")),
}


@pytest.mark.parametrize("what", CASES)
def test_it_works_where_jax_jit_does(process: Any, tmp_path: Path, what: str) -> None:
    shell, expected = CASES[what]
    lines, ended = process(what, shell)
    assert (lines, ended.stderr, ended.returncode) == (expected, "", 0)
    assert list((tmp_path / "temporary").glob("fusionstitch*")) == []


@pytest.mark.gpu
@pytest.mark.parametrize("what", CASES)
def test_it_does_so_on_a_gpu(process: Any, what: str) -> None:
    """XLA may write to standard error there."""
    shell, expected = CASES[what]
    environment = {
        "FUSIONSTITCH_BACKEND": "cuda",
        "JAX_PLATFORMS": "cuda,cpu",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    lines, ended = process(what, shell, **environment)
    assert (lines, ended.returncode) == (expected, 0), ended.stderr


def test_a_killed_process_leaves_no_compiler_and_the_next_one_no_folder(
    process: Any, tmp_path: Path
) -> None:
    compiler = tmp_path / "compiler"
    works = tmp_path / "works"
    compiler.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exit 0\necho $$ > {works}.new\nsleep 3000 &\n'
        f"echo $! >> {works}.new\nmv {works}.new {works}\nwait\n"
    )
    compiler.chmod(0o755)
    _, ended = process("killed", CXX=str(compiler))
    assert ended.returncode == -9
    for pid in works.read_text().split():
        for _ in range(12_000):  # it is told to end; how soon it does is no matter
            if not alive(int(pid)):
                break
            time.sleep(0.05)
        assert not alive(int(pid))
    [left] = (tmp_path / "temporary").glob(f"{temporary.PREFIX}*")
    lines, ended = process("following")
    assert (lines[-2:], ended.stderr) == (right("following"), "")
    assert not left.exists()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
