"""What this package needs: the versions of JAX that it works with, and modules of others."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping

from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: The first that it works with, and the first that it does not (as pyproject.toml says).
SINCE, BEFORE = (0, 10, 2), (0, 13)

#: Modules that stitching cannot do without, and the packages that have them.
NEEDED: Mapping[str, str] = {
    "jax": "jax",
    "jaxlib": "jaxlib",
    "numpy": "numpy",
    "networkx": "networkx",
    "google.protobuf": "protobuf",
    "pulp": "pulp",
    "highspy": "highspy",
}


def missing(error: BaseException) -> str:
    """What to do about a module that is not installed, "" for any other error."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    for module, package in NEEDED.items():
        if name is not None and (name == module or module.startswith(f"{name}.")):
            return (
                f"The Python package {package} is missing: pip install {package}. "
                "`fusionstitch doctor` lists all that is."
            )
    return ""


def jax_version() -> Verdict:
    """Whether the JAX here is one of them; needs nothing of it but its version."""
    import jax

    found = jax.__version__
    if SINCE <= numbers(found) < BEFORE:
        return allow("JAX is supported", version=found)
    return forbid(
        f"JAX {found} is not supported: fusionstitch works with JAX {_dotted(SINCE)} and newer, "
        f"below {_dotted(BEFORE)}."
    )


def xla_version() -> tuple[int, ...]:
    """That of jaxlib, which XLA comes with."""
    return numbers(importlib.metadata.version("jaxlib"))


def numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (0, 13, 0) of "0.13.0.dev20270101"."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
