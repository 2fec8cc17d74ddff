"""The options of a user, checked on construction."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fusionstitch import env
from fusionstitch.costmodel import devices
from fusionstitch.costmodel.facts import SCOPES
from fusionstitch.hlo.errors import OptionError
from fusionstitch.templates import Templates

#: Options that take one of a fixed list of values.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "backend": env.BACKENDS,
    "scorer": env.SCORERS,
    "fallback": env.FALLBACKS,
    "numerics": env.NUMERICS,
    "trial": env.TRIALS,
    "scope": SCOPES,
}
_FLAGS = ("exploratory", "packing", "sharing")
_COUNTS = ("max_patterns", "max_pattern_ops", "max_solver_nodes")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How programs are stitched.

    The defaults of backend, scorer, fallback, numerics and trial come from the environment
    variables FUSIONSTITCH_BACKEND and so on. A value that is not allowed raises OptionError, which
    lists the allowed ones.

    Attributes:
        backend: "cuda"; "emulate", which runs kernels on the host (slow, for checking and reading);
            "xla", which is plain jax.jit: nothing is stitched; or "auto": "cuda" if JAX has a GPU,
            else plain jax.jit
        scorer: how the gain of a pattern is determined. "model" compares the cost model's estimate
            with one of XLA's own fusions. "guarded" does so too; if a program loses its trial or
            has none, the patterns that the model cannot prove are measured beside XLA's kernels,
            once per machine. "measured" measures every chosen pattern while compiling. "mixed" is
            the paper's scorer, which measures complex patterns only. "paper" uses the paper's f(P),
            against unfused ops. Tuning results come before all of these. Nothing is measured for a
            GPU that is not in use, nor in programs of several processes; there "guarded" takes only
            what the model proves
        exploratory: whether to search patterns by Algorithm 2 as well as by Algorithm 1
        packing: whether to put ops without a data dependence into one kernel
        sharing: whether to reuse shared memory, by Algorithm 4
        scope: the widest scope that a value inside a kernel may cross: "thread" (registers),
            "warp" (shuffles), "block" (shared memory), "cluster", "grid" (a grid barrier) or
            "loop" (whole loops run in one kernel); with packing, the paper's compositions
        fallback: "xla" leaves what cannot be stitched to XLA; "error" raises StitchError instead
        numerics: "default" may skip an intermediate rounding to bf16 or f16, as XLA does on
            GPUs; "strict" keeps every rounding; "fast" allows approximate functions
        trial: whether the measured winner serves each new program on a GPU. "copies" runs the
            program as XLA compiles it and stitched, alternately, on copies of its arguments, before
            its first call returns; the faster one serves this and every later call. There is no
            such trial for programs with side effects, under scorers other than "guarded" and
            "measured", in programs of several processes, while a profiler records, or if the copies
            do not fit in memory. "calls" also makes a trial of the first 28 calls of a program with
            side effects: the two executables alternate. "off" uses every plan without a trial
        templates: schedules for patterns, instead of the default or tuned ones: template texts by
            kernel name, as `fusionstitch emit` writes them
        device: device profile to plan for, such as "h200", or the path of its JSON file; None: the
            profile of the GPU in use
        max_patterns: the most candidate patterns per graph. This and the next two limit counts,
            never time, so that plans are reproducible
        max_pattern_ops: the most ops per pattern
        max_solver_nodes: the most branch-and-bound nodes of the solver

    Example:
        >>> import fusionstitch as fs
        >>> strict = fs.Options(numerics="strict", fallback="error")
        >>> strict.replace(scope="block").numerics
        'strict'
        >>> fs.Options(scope="galaxy")
        Traceback (most recent call last):
        fusionstitch.hlo.errors.OptionError: Options.scope is 'galaxy'; choose one of 'thread', ...
    """

    backend: str = field(default_factory=env.BACKEND.get)
    scorer: str = field(default_factory=env.SCORER.get)
    exploratory: bool = True
    packing: bool = True
    sharing: bool = True
    scope: str = "loop"
    fallback: str = field(default_factory=env.FALLBACK.get)
    numerics: str = field(default_factory=env.NUMERIC.get)
    trial: str = field(default_factory=env.TRIAL.get)
    templates: Mapping[str, str] = field(default_factory=Templates)
    device: str | None = None
    max_patterns: int = 8192
    max_pattern_ops: int = 8192
    max_solver_nodes: int = 20_000

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if (value := getattr(self, name)) not in allowed:
                listed = ", ".join(map(repr, allowed))
                raise OptionError(f"Options.{name} is {value!r}; choose one of {listed}.")
        for name in _FLAGS:
            if not isinstance(value := getattr(self, name), bool):
                raise OptionError(f"Options.{name} is {value!r}; it takes True or False.")
        for name in _COUNTS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"Options.{name} is {value!r}; it takes a whole number above 0.")
        object.__setattr__(self, "templates", Templates(self.templates))
        if self.device is not None:
            if not isinstance(self.device, str):
                raise OptionError(
                    f"Options.device is {self.device!r}; it takes a profile's name, or the path of "
                    "its file, as a string."
                )
            devices.device(self.device)

    def replace(self, **changes: Any) -> Options:
        """These options with some changed. Raises OptionError for an unknown name or a bad
        value."""
        unknown = sorted(set(changes) - {f.name for f in dataclasses.fields(self)})
        if unknown:
            raise OptionError(f"Options has no {', '.join(unknown)}; see help(Options).")
        return dataclasses.replace(self, **changes)

    @property
    def token(self) -> str:
        """A short hash of the content. Equal options have equal tokens, in every process."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
