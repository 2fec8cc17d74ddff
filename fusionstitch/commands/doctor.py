"""What this machine has and lacks, as `fusionstitch doctor` prints it.

Whatever is missing, the rest is still checked. Outside of the function that reports on it, only the
standard library is imported.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fusionstitch import env
from fusionstitch.errors import FusionStitchError
from fusionstitch.hlo.verdict import Verdict
from fusionstitch.supported import NEEDED

if TYPE_CHECKING:
    from fusionstitch.costmodel.devices import Device

#: CuPy comes with NVRTC, which only GPUs need.
_OPTIONAL = ("cupy-cuda13x", "cupy-cuda12x")


@dataclass(frozen=True)
class Line:
    """One finding; `wrong` if stitching does not work because of it."""

    name: str
    value: str
    wrong: bool = False


@dataclass(frozen=True)
class Examination:
    """The findings, section by section."""

    sections: Mapping[str, tuple[Line, ...]]

    @property
    def wrong(self) -> tuple[str, ...]:
        """The names of the lines that are wrong."""
        return tuple(line.name for lines in self.sections.values() for line in lines if line.wrong)

    @property
    def text(self) -> str:
        """Text for people; wrong lines are marked."""
        texts: list[str] = []
        for title, lines in self.sections.items():
            texts.append(title)
            texts += [f"{'!' if one.wrong else ' '} {one.name:<26} {one.value}" for one in lines]
        wrong = ", ".join(self.wrong)
        nothing = "nothing that this machine needs is missing"
        texts.append(f"to mend: {wrong} (marked !)" if wrong else nothing)
        return "\n".join(texts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        found: dict[str, Any] = {
            title: {one.name: {"value": one.value, "wrong": one.wrong} for one in lines}
            for title, lines in self.sections.items()
        }
        return {**found, "wrong": list(self.wrong)}


def examine() -> Examination:
    """Examines versions, compilers, GPU, cache and environment variables; reports what is
    missing."""
    sections: dict[str, Callable[[], Iterator[Line]]] = {
        "versions": _versions,
        "backends": _backends,
        "cache": _cache,
        "environment": _environment,
    }
    return Examination({title: tuple(section()) for title, section in sections.items()})


def _versions() -> Iterator[Line]:
    from fusionstitch.version import __version__

    yield Line("fusionstitch", __version__)
    yield Line("python", platform.python_version())
    for module, package in NEEDED.items():
        version = _version(package)
        try:
            importlib.import_module(module)
        except Exception as error:  # a broken installation may raise anything
            missing = isinstance(error, ModuleNotFoundError) and error.name == module
            why = f"missing: pip install {package}" if missing else f"broken: {_why(error)}"
            yield Line(package, why if missing else f"{version}, {why}", wrong=True)
        else:
            yield Line(package, version)
    for package in _OPTIONAL:
        yield Line(package, _version(package))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _backends() -> Iterator[Line]:
    yield _checked("JAX's version", _supported)
    yield _checked("JAX's compiler pass", _pass)
    gpu = _checked("GPU", _gpu)
    yield gpu
    if not gpu.wrong:
        yield _checked("device profile", _profile)
    used = not gpu.wrong and gpu.value != _NO_GPU
    yield _checked("NVRTC (cuda)", _nvrtc, needed=used)
    launcher = _checked("launcher (cuda)", _launcher, needed=used)
    yield launcher
    built = used and launcher.value != _BROUGHT
    yield _checked("C++ (emulate, launcher)", _compiler, needed=built or _emulated())


_BROUGHT = "came with the package"
_NO_GPU = "none: functions run as under jax.jit, unless backend='emulate'"


def _supported() -> str:
    from fusionstitch.supported import jax_version

    found = jax_version()
    if not found:
        _refused(found)
    return f"{dict(found.facts)['version']} is supported"


def _pass() -> str:
    from fusionstitch.runtime import xla_pass

    if not xla_pass.has_door():
        raise FusionStitchError("jax.extend.xla.register_hlo_module_transformation is missing.")
    return "jax.extend.xla has it"


def _gpu() -> str:
    from fusionstitch.compiler import builders

    found = builders.gpu()
    return str(dict(found.facts)["kind"]) if found else _NO_GPU


def _profile() -> str:
    found = _device()
    return f"{found.name}: {found.measured}"


def _device() -> Device:
    from fusionstitch.compiler import builders
    from fusionstitch.options import Options

    # reads every environment variable, so that an invalid one is reported
    chosen = Options(backend="auto", scorer="model", fallback="xla", numerics="default")
    return builders.profile(chosen)


def _nvrtc() -> str:
    from fusionstitch.compiler import builders
    from fusionstitch.runtime import nvrtc

    if not (found := nvrtc.available()):
        _refused(found)
    version = nvrtc.version()
    if builders.gpu() and (arch := _device().sm_arch) not in nvrtc.architectures():
        raise FusionStitchError(f"NVRTC {version} compiles nothing for {arch}: install another.")
    return version


def _launcher() -> str:
    import jax.ffi

    from fusionstitch.runtime import prebuilt

    found = prebuilt.image(prebuilt.CUDA, Path(jax.ffi.include_dir()))
    return "compiled on first use" if found is None else _BROUGHT


def _compiler() -> str:
    from fusionstitch.runtime import toolchain

    return " ".join(toolchain.compiler())


def _emulated() -> bool:
    try:
        return env.BACKEND.get() == "emulate"
    except FusionStitchError:  # reported by the environment's own line
        return False


def _cache() -> Iterator[Line]:
    try:
        from fusionstitch.runtime.cache import Store

        store = Store()
        entries, size = store.usage()
    except (FusionStitchError, ImportError) as error:
        yield Line("folder", _why(error), wrong=True)
        return
    yield Line("folder", str(store.folder))
    yield Line("objects", f"{entries}, {size / 1e6:.1f} MB")
    limit = "no limit" if store.limit is None else f"{store.limit / 1e6:.1f} MB"
    yield Line("limit", f"{limit} (FUSIONSTITCH_CACHE_LIMIT)")
    yield Line("persistent", "yes" if store.persistent else "no: kernels are kept in memory only")


def _environment() -> Iterator[Line]:
    for variable in env.VARIABLES:
        text = variable.text
        try:
            variable.get()
        except FusionStitchError as error:
            yield Line(variable.name, str(error), wrong=True)
        else:
            value = f"{variable.doc}" if text is None else f"= {text}  ({variable.doc})"
            yield Line(variable.name, value)
    for name in env.unknown():
        yield Line(name, "is set but unknown: misspelt?")


def _why(error: Exception) -> str:
    """The message of an error on one line; here it is not a defect of ours."""
    text = str(error) if isinstance(error, FusionStitchError) else repr(error)
    return " ".join(text.split())


def _refused(verdict: Verdict) -> NoReturn:
    raise FusionStitchError(verdict.reason)


def _checked(name: str, what: Callable[[], str], needed: bool = True) -> Line:
    """A line with the result of `what`, or with its error, which is wrong if it is `needed`."""
    try:
        return Line(name, what())
    except Exception as error:  # a broken installation may raise anything
        return Line(name, _why(error), wrong=needed)
