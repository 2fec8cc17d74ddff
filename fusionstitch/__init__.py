"""FusionStitching for JAX: a jit look-alike that stitches memory-bound ops into single kernels."""

from fusionstitch import env
from fusionstitch.api import install as install
from fusionstitch.api import jit as jit
from fusionstitch.api import uninstall as uninstall
from fusionstitch.errors import FusionStitchError as FusionStitchError
from fusionstitch.errors import FusionStitchWarning as FusionStitchWarning
from fusionstitch.options import Options as Options
from fusionstitch.report import Report as Report
from fusionstitch.report import report as report
from fusionstitch.tune import tune as tune

__version__ = "0.1.0.dev0"

env.configure_logging()
