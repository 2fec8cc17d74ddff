"""One program on its execution paths: compiled by XLA and by us, run where possible, compared."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fusionstitch import accuracy, arguments
from fusionstitch.compiler import builders, core, progress
from fusionstitch.compiler.stitched import Stitched
from fusionstitch.errors import OptionError, StitchError
from fusionstitch.execution.call import Call
from fusionstitch.execution.original import plain_jit
from fusionstitch.hlo.brief import brief
from fusionstitch.options import Options
from fusionstitch.reports import counting, memory, timing
from fusionstitch.runtime import nvrtc
from fusionstitch.runtime.outcome import Failed
from fusionstitch.runtime.signals import held
from fusionstitch.supported import jax_version
from fusionstitch.tuning import tuned

logger = logging.getLogger(__name__)

#: Op-by-op execution is not timed above this many kernels: Python would be measured.
MAX_UNFUSED = 2000


@dataclass(frozen=True, eq=False)
class Trial:
    """What was found out; None is what could not be measured.

    `module` is the lowered program as HloModuleProto bytes, `options` are those it was planned by.
    `backend` is "cuda", "emulate", or "model" for a device that is not there. `xla_kernels` and
    `kernels` are counted in compiled programs, times are microseconds per call, `xla_s` seconds,
    `xla_bytes` and `stitched_bytes` the device memory of a call.
    """

    name: str
    backend: str
    module: bytes
    stitched: Stitched
    xla_s: float | None = None
    xla_kernels: int | None = None
    kernels: int | None = None
    unfused_us: float | None = None
    xla_us: float | None = None
    stitched_us: float | None = None
    xla_bytes: int | None = None
    stitched_bytes: int | None = None
    error: float | None = None
    error_xla: float | None = None
    notes: tuple[str, ...] = ()
    options: Options = field(default_factory=Options)

    def __repr__(self) -> str:
        return brief(f"Trial of {self.name} ({self.backend}): {self.stitched!r}")


def run(call: Call, name: str = "") -> Trial:
    """Compiles and runs a call on the backend its options and this machine allow.

    `name` is what the report calls it, by default the function's. Raises what the user's function
    raises, OptionError for a backend that is not there, and StitchError under fallback="error".
    """
    program = _program(call, name)
    with progress.line(program.name) as step:
        return program.planned(step) if program.backend == "model" else program.ran(step)


def plan(call: Call) -> Stitched:
    """Plans a call and generates its kernels; builds and runs nothing where there is no GPU."""
    program = _program(call)
    with progress.line(program.name) as step:
        found = program.compiled().stitched if program.backend == "cuda" else None
        return found or program.alone(step)


def _program(call: Call, name: str = "") -> _Program:
    if not (version := jax_version()):
        raise StitchError(version.reason)
    fun, args, kwargs = arguments.bind_static(call.fun, call.args, call.kwargs, call.jit_keywords)
    fun, args, kwargs = arguments.takeable(fun, args, kwargs)
    name = name or getattr(fun, "__name__", type(fun).__name__)
    return _Program(name, fun, args, kwargs, call.options, call.jit, _backend(call.options))


def _backend(options: Options) -> str:
    found = builders.gpu()
    if options.backend == "emulate":
        return "emulate"
    if found:
        here = builders.profile(options.replace(device=None)) if options.device else None
        return "cuda" if here is None or here.name == builders.profile(options).name else "model"
    if options.device not in (None, "emulated"):
        return "model"
    if options.backend == "cuda":
        raise OptionError(
            f"{found.reason} Name a device (--device h200) to plan for it, or choose the backend "
            "'emulate'."
        )
    return "emulate"


@dataclass(eq=False)
class _Program:
    name: str
    fun: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: Options
    jit: Callable[..., Any]
    backend: str

    def __post_init__(self) -> None:
        # unused arguments stay, so that parameters of the module are leaves of the arguments
        self.plain = plain_jit()(self.fun, keep_unused=True)
        self.notes: list[str] = []

    def planned(self, step: progress.Step) -> Trial:
        """Planned, and compiled if an NVRTC that knows it is there, for a device that is not."""
        step("lowering")
        module = self.lowered()
        device = builders.profile(self.options)
        builds = nvrtc.available() and device.sm_arch in nvrtc.architectures()
        builder = builders.cuda(device, self.options) if builds else None
        known = tuned.load(device)
        result = core.stitch(module, self.options, device, builder, step=step, tuned=known)
        self.notes.append(f"{device.name} is not here: kernels and times are modelled")
        if self.spread():
            self.notes.append(
                "XLA has not divided it among its devices: what lies outside of jax.shard_map is "
                "planned as if one device had all of it"
            )
        notes = tuple(self.notes)
        return Trial(self.name, "model", module, result, notes=notes, options=self.options)

    def spread(self) -> bool:
        """Whether arguments live on several devices."""
        import jax

        places = [
            getattr(leaf, "sharding", None) for leaf in jax.tree.leaves((self.args, self.kwargs))
        ]
        return any(place is not None and place.num_devices > 1 for place in places)

    def lowered(self) -> bytes:
        """The module for the platform that is planned for."""
        traced = self.plain.trace(*self.args, **self.kwargs)
        if self.backend == "model":
            found = held(lambda: _hlo(traced.lower(lowering_platforms=("cuda",))))
            if not isinstance(found, Failed):
                return found
            # a program with a lowering for the host alone
            why = f"{type(found.error).__name__}: {found.error}"
            self.notes.append(f"lowered for the host, as JAX does not for CUDA here: {why}")
        return _hlo(traced.lower())

    def compiled(self) -> Any:
        """Compiled by us: the last of the stages of `fs.jit`."""
        options = self.options.replace(backend=self.backend)
        return self.jit(self.fun, options=options).lower(*self.args, **self.kwargs).compile()

    def alone(self, step: progress.Step) -> Stitched:
        """The plan of the lowered program, nothing built."""
        device = builders.profile(self.options)
        return core.stitch(
            self.lowered(), self.options, device, None, step=step, tuned=tuned.load(device)
        )

    def ran(self, step: progress.Step) -> Trial:
        """Compiled by XLA and by us, run, compared; timed on a GPU."""
        self.args, self.kwargs = arguments.concrete((self.args, self.kwargs))
        step("lowering")
        lowered = self.plain.lower(*self.args, **self.kwargs)
        module = _hlo(lowered)
        step("compiling with XLA alone")
        start = time.perf_counter()
        xla = lowered.compile()
        xla_s = time.perf_counter() - start
        ours = self.compiled()
        step("comparing with float64")
        error, error_xla = self.errors(module, xla, ours)
        stitched = ours.stitched  # its first run has decided who serves it
        if stitched is None:
            self.notes.append("nothing was stitched in the compiled program")
            stitched = self.alone(step)
        elif stitched.trial:
            self.notes.append(f"trial: {stitched.trial}")
        measured: dict[str, Any] = {}
        if self.backend == "cuda":
            step("timing")
            measured = self.measured(module, xla, ours)
        else:
            self.notes.append(
                "run by the emulator, nothing was timed: all times, and XLA's kernels, are "
                "modelled for a fictional GPU"
            )
        return Trial(
            self.name,
            self.backend,
            module,
            stitched,
            xla_s=xla_s,
            error=error,
            error_xla=error_xla,
            **measured,
            notes=tuple(self.notes),
            options=self.options,
        )

    def errors(self, module: bytes, xla: Any, ours: Any) -> tuple[float | None, float | None]:
        """The largest relative error of an output against float64: (ours, XLA's)."""
        import jax

        results = [self.host(run(*self.args, **self.kwargs)) for run in (ours, xla)]
        wanted = accuracy.reference(module, jax.tree.leaves((self.args, self.kwargs)))
        if wanted is None:
            wanted = accuracy.rerun(self.fun, self.args, self.kwargs)
        if wanted is None or [w.shape for w in wanted] != [v.shape for v in results[0]]:
            self.notes.append("no float64 run of this program, so no errors")
            return None, None
        both = [
            [accuracy.relative_error(v, w) for v, w in zip(values, wanted, strict=True)]
            for values in results
        ]
        for number, (mine, theirs) in enumerate(zip(*both, strict=True)):
            allowed = accuracy.limit(results[0][number].dtype, theirs)
            if not mine <= allowed:
                self.notes.append(
                    f"output {number} has error {mine:.1e}, XLA {theirs:.1e}, allowed {allowed:.1e}"
                )
        return max(both[0], default=None), max(both[1], default=None)

    @staticmethod
    def host(outputs: Any) -> list[Any]:
        import jax

        return [accuracy.host(leaf) for leaf in jax.tree.leaves(outputs)]

    def measured(self, module: bytes, xla: Any, ours: Any) -> dict[str, Any]:
        import jax

        def bound(run: Callable[..., Any]) -> Callable[[], Any]:
            return lambda: run(*self.args, **self.kwargs)

        times = timing.interleaved({"xla": bound(xla), "stitched": bound(ours)})
        unfused = None
        if counting.unfused(counting.entry(module)).kernels <= MAX_UNFUSED:
            with jax.disable_jit():
                unfused = timing.interleaved({"unfused": bound(self.fun)}, 3, 1)["unfused"]
        return {
            "xla_kernels": counting.compiled(_optimized(xla)),
            "kernels": counting.compiled(_optimized(ours)),
            "xla_us": times["xla"],
            "stitched_us": times["stitched"],
            "unfused_us": unfused,
            "xla_bytes": memory.needed_bytes(xla),
            "stitched_bytes": memory.needed_bytes(ours),
        }


def _hlo(lowered: Any) -> bytes:
    data: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


def _optimized(compiled: Any) -> bytes:
    [module] = compiled.runtime_executable().hlo_modules()
    data: bytes = module.as_serialized_hlo_module_proto()
    return data
