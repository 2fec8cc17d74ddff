"""What a build of fusionstitch adds: to a wheel the launchers of kernels (see prebuilt.py), to an
sdist the links among its packages.

The launchers never fail a build. Without a compiler or jaxlib's headers the package has none, and
compiles them on first use.
"""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).parent.resolve()


def _prebuilt():
    """fusionstitch/runtime/prebuilt.py by itself: what the package needs is not installed yet."""
    path = ROOT / "fusionstitch" / "runtime" / "prebuilt.py"
    spec = importlib.util.spec_from_file_location("prebuilt", path)
    module = sys.modules["prebuilt"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compiler():
    """The command of the host compiler, or None. Options in CXX are left out: what they name, such
    as this machine's processor, another one that the wheel is installed on need not have."""
    try:
        wanted = shlex.split(os.environ.get("CXX", ""))
    except ValueError:
        return None
    named = [word for word in wanted if not word.startswith("-")]
    for command in [named] if named else [["g++"], ["c++"], ["clang++"]]:
        if shutil.which(command[0]):
            return command
    return None


def _ffi():
    """jaxlib's folder of FFI headers, or None without JAX."""
    try:
        import jax.ffi

        return Path(jax.ffi.include_dir())
    except Exception as error:  # whatever a broken or foreign JAX raises
        print(f"fusionstitch: no JAX to build for ({error})")
        return None


def compile_launchers(folder):
    """Puts each launcher that compiles into `folder`, with its seal; returns the files."""
    shutil.rmtree(folder, ignore_errors=True)  # what a build before left
    compiler, ffi = _compiler(), _ffi()
    if compiler is None or ffi is None:
        print("fusionstitch: its launchers will be compiled on first use")
        return []
    prebuilt = _prebuilt()
    folder.mkdir(parents=True)
    files = []
    for launcher in prebuilt.LAUNCHERS:
        image, seal = folder / launcher.image.name, folder / launcher.seal.name
        try:
            subprocess.run(prebuilt.command(launcher, ffi, compiler, image), check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"fusionstitch: {launcher.name} will be compiled on first use ({error})")
            image.unlink(missing_ok=True)
            continue
        seal.write_text(prebuilt.seal(launcher, ffi, image.read_bytes()))
        files += [str(image), str(seal)]
    return files


class BuildPackages(build_py):
    """Copies the packages, and compiles the launchers beside them; in place for an editable one."""

    launchers = ()

    def run(self):
        super().run()
        base = ROOT if self.editable_mode else Path(self.build_lib)
        self.launchers = compile_launchers(base / "fusionstitch" / "runtime" / "launchers")

    def get_outputs(self, include_bytecode=True):
        return [*super().get_outputs(include_bytecode), *self.launchers]


class BuildWheel(bdist_wheel):
    """A wheel for any Python 3 on this kind of machine: launchers are no Python extensions."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class LinkedSources(sdist):
    """An sdist has each file once, as a checkout has: packages that are links stay links."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        for link in (ROOT / "fusionstitch").iterdir():
            if link.is_symlink():
                (Path(base_dir) / "fusionstitch" / link.name).symlink_to(link.readlink())


class ForOneMachine(Distribution):
    """What is built is for machines of this kind."""

    def has_ext_modules(self):
        return True


setup(
    distclass=ForOneMachine,
    cmdclass={"build_py": BuildPackages, "bdist_wheel": BuildWheel, "sdist": LinkedSources},
)
