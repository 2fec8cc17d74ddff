"""What this package requires: supported JAX versions, and third-party modules."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping

from fusionstitch.hlo.verdict import Verdict, allow, forbid

#: The first supported version, and the first unsupported one (as in pyproject.toml).
SINCE, BEFORE = (0, 10, 2), (0, 13)

#: Modules that stitching requires, and the packages that provide them.
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
    """How to fix a module that is not installed; "" for any other error."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    for module, package in NEEDED.items():
        if name is not None and (name == module or module.startswith(f"{name}.")):
            return (
                f"The Python package {package} is missing: pip install {package}. "
                "`fusionstitch doctor` lists all that is."
            )
    return ""


def jax_version() -> Verdict:
    """Whether the installed JAX is supported. Looks at its version only."""
    import jax

    found = jax.__version__
    if SINCE <= numbers(found) < BEFORE:
        return allow("JAX is supported", version=found)
    return forbid(
        f"JAX {found} is not supported: fusionstitch works with JAX {_dotted(SINCE)} and newer, "
        f"below {_dotted(BEFORE)}."
    )


def xla_version() -> tuple[int, ...]:
    """The version of jaxlib, which contains XLA."""
    return numbers(importlib.metadata.version("jaxlib"))


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: (0, 13, 0) for "0.13.0.dev20270101"."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
