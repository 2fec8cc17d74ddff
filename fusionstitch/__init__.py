"""FusionStitching for JAX: a jax.jit that stitches memory-bound ops into single kernels."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from fusionstitch import env
from fusionstitch.api import install as install
from fusionstitch.api import jit as jit
from fusionstitch.api import report as report
from fusionstitch.api import tune as tune
from fusionstitch.api import uninstall as uninstall
from fusionstitch.errors import FusionStitchError as FusionStitchError
from fusionstitch.errors import FusionStitchWarning as FusionStitchWarning
from fusionstitch.leaving import leave as leave
from fusionstitch.options import Options as Options
from fusionstitch.reports.report import Report as Report
from fusionstitch.version import __version__ as __version__

if TYPE_CHECKING:
    from fusionstitch import dag as dag

env.configure_logging()


def __getattr__(name: str) -> ModuleType:
    """Loads `fs.dag` on first use."""
    if name == "dag":
        return importlib.import_module("fusionstitch.dag")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
