"""What a user can choose, checked on construction."""

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

#: Options with a closed list of values.
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

    Defaults of backend, scorer, fallback, numerics and trial come from the environment variables
    FUSIONSTITCH_BACKEND, and so on. Raises OptionError, listing what is allowed.

    Attributes:
        backend: "cuda", "emulate" (kernels on the host: slow, for correctness and reading),
            "xla" (plain jax.jit: nothing is stitched), or "auto": cuda where JAX has a GPU, plain
            jax.jit elsewhere
        scorer: what a pattern is worth: "model" (against an estimate of XLA's own fusions),
            "guarded" (the model; where a program loses its trial or has none, what that cannot
            prove is run beside XLA's kernels, once per machine), "measured" (whatever is chosen is
            run so, while compiling), "mixed"
            (the paper's: complex patterns are run so), "paper" (the paper's f(P), against
            unfused ops). Results of tuning come before all of them. Nothing is run for a GPU
            that is not in use, nor in programs of several processes, where "guarded" takes
            what the model proves
        exploratory: also search patterns by Algorithm 2, not only by Algorithm 1
        packing: also put ops without a data dependence into one kernel
        sharing: reuse shared memory by Algorithm 4
        scope: the widest scope that a value inside a kernel may cross: "thread" (registers),
            "warp" (shuffles), "block" (shared memory), "cluster", "grid" (a grid barrier) or
            "loop" (whole loops run in one kernel); with packing, the paper's compositions
        fallback: "xla" leaves what cannot be stitched to XLA; "error" raises StitchError instead
        numerics: "default" may skip an intermediate rounding to bf16 or f16, as XLA does on
            GPUs; "strict" keeps each; "fast" allows approximate functions
        trial: "copies" runs each new program on a GPU as XLA compiles it and stitched, in turns, on
            copies of its arguments, before its first call returns, and has the faster one serve
            this and every later call. Nothing is tried that has side effects, under other scorers
            than "guarded" and "measured", in programs of several processes, while a profiler
            records, or where the copies have no room. "calls" has the first 28 calls of a program
            with side effects be its trial: the two take turns. "off" takes plans as they are
        templates: how to schedule patterns, instead of by default or as tuning found: texts of
            templates by the name of a pattern's kernel, as `fusionstitch emit` writes them
        device: profile to plan for, such as "h200", or the path of its JSON file; None: that of
            the GPU in use
        max_patterns: candidate patterns per graph, at most. This and the next two bound by
            counts, never by time, so that plans repeat
        max_pattern_ops: ops per pattern, at most
        max_solver_nodes: branch-and-bound nodes of the solver, at most

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
        """These options with some changed. Raises OptionError for a name or value that is none."""
        unknown = sorted(set(changes) - {f.name for f in dataclasses.fields(self)})
        if unknown:
            raise OptionError(f"Options has no {', '.join(unknown)}; see help(Options).")
        return dataclasses.replace(self, **changes)

    @property
    def token(self) -> str:
        """A short hash of the content. Equal options have equal tokens, in every process."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
