"""User-provided kernels that replace generated ones."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fusionstitch as fs
from fusionstitch.commands import cli
from fusionstitch.compiler import override
from fusionstitch.errors import StitchError
from fusionstitch.execution.stages import Compiled

EMULATE = fs.Options(backend="emulate", scorer="paper")
PROGRAM = """
import jax, jax.numpy as jnp

def table(x):
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)

def target():
    return table, (jnp.ones((16, 24)),)
"""
X = np.random.default_rng(0).standard_normal((16, 24), np.float32)


def table(x: jax.Array) -> jax.Array:
    s = jax.nn.softmax(x)
    return s * (s * x).sum(0)


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The name and the text of the program's kernel."""
    folder = tmp_path_factory.mktemp("emitted")
    (folder / "mine.py").write_text(PROGRAM)
    command = ["emit", f"{folder}/mine.py:target", "--backend", "emulate", "--scorer", "paper"]
    assert cli.main([*command, "-o", str(folder / "out")]) == 0
    [path] = (folder / "out").glob("*.cu")
    return path.stem, path.read_text()


@pytest.fixture
def file(
    emitted: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host_compiler: str
) -> Path:
    monkeypatch.setenv("FUSIONSTITCH_OVERRIDE_DIR", str(tmp_path))
    path = tmp_path / f"{emitted[0]}.cu"
    path.write_text(emitted[1])
    return path


def compiled() -> Compiled:
    return fs.jit(lambda x: table(x), options=EMULATE).lower(X).compile()


def halved(text: str) -> str:
    """The kernel with all that it stores halved."""
    found = re.sub(r"(_out\[[^=]*\] = )([^;]+);", r"\g<1>0.5f * (\g<2>);", text)
    assert found != text
    return found


def test_a_changed_kernel_runs_with_a_notice(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    right = np.asarray(jax.jit(table)(X))
    changed = halved(file.read_text())
    file.rename(file.with_suffix(".kept"))
    own = compiled().kernels[0].source
    file.write_text(f"// launch of which nothing is said\n{own}")
    with caplog.at_level(logging.WARNING, "fusionstitch"):
        np.testing.assert_allclose(compiled()(X), right, rtol=1e-5)
        assert caplog.messages == []  # as it is generated
        file.write_text(changed)
        program = compiled()
        np.testing.assert_allclose(program(X), 0.5 * right, rtol=1e-5)
        compiled()
    said = [message for message in caplog.messages if "instead of" in message]
    assert said == [f"{file} runs instead of the kernel of its name."]
    assert f"its text is that of {file}" in program.explain()
    assert program.kernels[0].source == file.read_text()
    assert program.fallbacks == ()


def test_its_launch_may_be_another(file: Path) -> None:
    launch = re.compile(r"^// launch <<<(\d+), (\d+), (\d+)>>>.*$", re.MULTILINE)
    text = file.read_text()
    found = launch.search(text)
    assert found is not None
    file.write_text(launch.sub(f"// launch <<<{found[1]}, {found[2]}, 4096>>> cooperatively", text))
    kernel = compiled().kernels[0]
    assert (kernel.shared_bytes, kernel.cooperative) == (4096, True)
    file.write_text(launch.sub(f"// launch <<<{found[1]}, 9999, 0>>>", text))
    with pytest.raises(StitchError, match=r"cannot launch <<<\d+, 9999, 0>>>"):
        compiled()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda name, text: "", r"but it has no function fs_"),
        (lambda name, text: text.replace(f"{name}(", f"{name}(int n,"), r"takes \(.*float\*.*int"),
        (
            lambda name, text: re.sub(r"(_out\[[^=]*\] =)", r"\1 no_such_name +", text),
            r"cannot be built: fs_.*\.cu:\d+:.*error.*no_such_name",
        ),
        *(
            (lambda name, text, line=line: re.sub(r"(?m)^// launch .*$", line, text), why)
            for line, why in (
                ("// launch <<<0, 99999, -1>>>", r"its launch cannot be read: .*<<<0, 99999, -1"),
                ("// launch <<<17>>>", r"cannot be read: '// launch <<<17>>>'\. Write three num"),
                ("// launch: 1, 64, 0", r"cannot be read: '// launch: 1, 64, 0'"),
                ("// launch <<<1, 64, 0>>>\n// launch <<<2, 64, 0>>>", r"states 2 launches"),
            )
        ),
    ],
)
def test_a_wrong_file_is_an_error_whatever_the_fallback(
    file: Path, change: object, message: str
) -> None:
    assert callable(change)
    file.write_text(change(file.stem, file.read_text()))
    with pytest.raises(StitchError, match=f"(?s){message}") as error:
        fs.jit(lambda x: table(x), options=EMULATE)(X)
    assert str(error.value).startswith(f"{file} overrides a kernel, but ")
    assert "defect" not in str(error.value)  # it is the user's
    assert str(error.value).endswith("or take it out of FUSIONSTITCH_OVERRIDE_DIR.")


@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_is_no_file_is_an_error(file: Path, kind: str) -> None:
    text = file.read_text()
    file.unlink()
    if kind == "folder":
        file.mkdir()
    else:
        elsewhere = file.with_suffix(".kept")
        elsewhere.write_text(text)
        file.symlink_to(elsewhere)
    assert override.token()
    with pytest.raises(StitchError, match=f"overrides a kernel, but it is a {kind}"):
        compiled()


def test_a_file_that_others_could_have_written_is_refused(file: Path) -> None:
    file.chmod(0o666)
    assert override.token()
    with pytest.raises(StitchError, match="another user could have written it"):
        compiled()


def test_what_the_folder_holds_decides_what_becomes_of_programs(file: Path) -> None:
    before = override.token()
    assert before == override.token()
    file.write_text(halved(file.read_text()))
    changed = override.token()
    file.unlink()
    assert len({before, changed, override.token(), ""}) == 4


def test_without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSIONSTITCH_OVERRIDE_DIR", raising=False)
    assert override.token() == ""
    monkeypatch.setenv("FUSIONSTITCH_OVERRIDE_DIR", "/no/such/folder")
    with pytest.raises(fs.FusionStitchError, match="set it to a folder that is there"):
        fs.jit(jnp.sin, options=EMULATE)(X)


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = fs.Options(scorer="paper")
    [kernel] = fs.jit(lambda x: table(x), options=options).lower(X).compile().kernels
    path = tmp_path / f"{kernel.name}.cu"
    path.write_text(halved(kernel.source))
    monkeypatch.setenv("FUSIONSTITCH_OVERRIDE_DIR", str(tmp_path))
    program = fs.jit(lambda x: table(x), options=options)
    np.testing.assert_allclose(program(X), 0.5 * np.asarray(jax.jit(table)(X)), rtol=1e-4)
    assert f"its text is that of {path}" in program.lower(X).compile().explain()
    path.write_text("")
    with pytest.raises(StitchError, match="it has no function"):
        fs.jit(lambda x: table(x), options=options)(X)
