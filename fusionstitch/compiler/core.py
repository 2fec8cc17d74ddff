"""The compiler: HLO bytes in, HLO bytes and a plan out. Every entry point of the project ends
here."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler import dump, override
from fusionstitch.compiler.built import Builder, Built
from fusionstitch.compiler.garbage import collected_later
from fusionstitch.compiler.kernels import Kernels
from fusionstitch.compiler.naming import kernel_name
from fusionstitch.compiler.planning import GraphPlanner, moved, plan_graphs
from fusionstitch.compiler.precision import agreed, with_repeated_exact
from fusionstitch.compiler.progress import Step, silent
from fusionstitch.compiler.reuse import in_place, overwrites
from fusionstitch.compiler.stitched import Fallback, Stitch, Stitched
from fusionstitch.compiler.summary import Summary, log_summary
from fusionstitch.compiler.workpiece import Judge, Workpiece
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.unrolled import Unrolled, note
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.errors import reason
from fusionstitch.hlo.as_xla import as_xla
from fusionstitch.hlo.detached import attach, detach
from fusionstitch.hlo.errors import StitchError, VerifyError
from fusionstitch.hlo.exporter import Preparation, Replacement, export
from fusionstitch.hlo.graph import Graph, Module
from fusionstitch.hlo.importer import from_message, parse
from fusionstitch.hlo.inline import inline_calls
from fusionstitch.hlo.joining import join
from fusionstitch.hlo.parted_results import part_results
from fusionstitch.hlo.simplify import simplify_module
from fusionstitch.hlo.unrolling import unroll
from fusionstitch.hlo.verify import verify_module
from fusionstitch.options import Options
from fusionstitch.patterns.like_terms import joined_sums
from fusionstitch.patterns.loop_rules import formed, opened
from fusionstitch.patterns.loop_unrolling import short_loops
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.findings import Evidence
from fusionstitch.plan.loops import become_kernels, xla_loop_us
from fusionstitch.plan.plan import Chosen
from fusionstitch.plan.scores import Measure
from fusionstitch.runtime import xla_pass
from fusionstitch.runtime.apart import apart, check
from fusionstitch.runtime.artifact import LOAD_TARGET, TARGET, Artifact, loading_config
from fusionstitch.runtime.outcome import Failed
from fusionstitch.supported import xla_version
from fusionstitch.tuning.tuned import NOTHING, Tuned

logger = logging.getLogger(__name__)


def stitch(
    data: bytes,
    options: Options,
    device: Device,
    builder: Builder | None,
    *,
    aliasing: bool = False,
    simplified: bool = False,
    step: Step = silent,
    tuned: Tuned = NOTHING,
    measure: Measure | None = None,
    judge: Judge | None = None,
    ahead: Callable[[], object] = lambda: None,
    truth: XlaTruth | None = None,
) -> Stitched:
    """Plans `data` (HloModuleProto bytes) for `device` and replaces each pattern by a custom call.

    Without a builder, kernels are generated but not built, and the module is unchanged. With
    `aliasing`, kernels may overwrite dead operands; use this only if XLA still inserts copies
    afterwards. A module that XLA has not `simplified` is first rewritten to compute XLA's values.

    `tuned` are tuning results to use. `measure` provides measured times of patterns; by default it
    returns those of `tuned`. `judge` revises the plans by its measurements. `ahead` is called
    before each kernel whose text is to be built. If the program was measured under XLA, XLA's
    modelled times are scaled to that `truth`.

    Under fallback="xla" nothing of ours is raised: on a failure the part is left to XLA, and
    `fallbacks` has the reason. Under "error" a StitchError says what failed. Exceptions from the
    caller's signal handlers are raised at once.
    """
    measure = measure or tuned.times(options)
    run = _Run(
        data,
        options,
        device,
        builder,
        aliasing,
        simplified,
        step,
        tuned,
        measure,
        judge,
        ahead,
        truth,
    )
    found = apart(run.stitch)
    if not isinstance(found, Failed):
        log(found)
        return found
    # rule 1: whatever fails, the program still runs
    error = found.error
    if isinstance(error, StitchError):
        raise error
    logger.debug("stitching %s failed", run.name, exc_info=error)
    why = reason(error)
    if options.fallback == "error":
        raise StitchError(
            f"{run.name or 'The program'} could not be stitched: {why} "
            'Use fallback="xla" to leave it to XLA.'
        ) from error
    left = Stitched(run.name, data, device, fallbacks=(Fallback((), why),), timings=run.timings)
    log(left)
    return left


def log(result: Stitched) -> None:
    """Logs the result for a program."""
    if logger.isEnabledFor(logging.INFO):
        kernels = {id(one.chosen): one.kernel.name for one in result.stitches}
        left = [(one.ops, one.reason) for one in result.fallbacks]
        program = Summary(
            result.name, result.device.name, result.timings, result.plans, kernels, left
        )
        log_summary(program, logger)


@dataclass(eq=False)
class _Run:
    """One call of `stitch`: each method is a pass, timed under its own name."""

    data: bytes
    options: Options
    device: Device
    builder: Builder | None
    aliasing: bool
    simplified: bool
    step: Step
    tuned: Tuned
    measure: Measure | None
    judge: Judge | None
    ahead: Callable[[], object]
    truth: XlaTruth | None
    name: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    fallbacks: list[Fallback] = field(default_factory=list)
    #: the measurements that the plans rest on
    evidence: Evidence = field(default_factory=Evidence)
    #: literals that no pass reads, while they are detached from the module
    literals: tuple[bytes, ...] = ()
    #: the loops that are straight code now, by the computation that they are in
    loops: dict[int | None, list[Unrolled]] = field(default_factory=dict)
    #: patterns whose kernels were made to be measured, by structure and in-place outputs
    measured: dict[str, Pattern] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kernels = Kernels(self.options, self.device, self.tuned, self.announce)

    def announce(self, name: str) -> None:
        """Called before a kernel is made."""
        check()
        self.step(f"codegen {name}")
        if self.builder is not None:
            self.ahead()

    def stitch(self) -> Stitched:
        module = self.join_sums(self.open_loops(self.as_xla(self.read())))
        module = self.simplify(module)
        planned = self.plan(module)
        if self.judge is not None:
            with self.timed("measure"):
                again = partial(self.again, module, planned)
                work = Workpiece(module, self.literals, self.make, again)
                self.evidence = self.judge(work, list(dict.fromkeys(planned.values())))
        return self.carried_out(module, planned)

    def again(
        self, module: Module, planned: Mapping[Graph, GraphPlanner], evidence: Evidence
    ) -> Stitched:
        """Makes the program again with the current plans."""
        self.evidence, self.fallbacks, self.step = evidence, [], silent
        return self.carried_out(module, planned)

    def carried_out(self, module: Module, planned: Mapping[Graph, GraphPlanner]) -> Stitched:
        """The program with each pattern of the plans as a kernel."""
        reached = (graph for graph in module.stitchable if graph in planned)
        plans = tuple(moved(planned[graph].plan, graph, self.device) for graph in reached)
        written = self.generate(module, [c for plan in plans for c in plan.chosen])
        stitches = self.build(written)
        data, rewrite = self.data, None
        if self.builder and stitches:
            data, stitches = self.write(module, stitches)
            rewrite = partial(self.rewritten, module)
        return Stitched(
            self.name,
            data,
            self.device,
            plans,
            stitches,
            tuple(self.fallbacks),
            dict(self.timings),
            self.data,
            self.evidence,
            self.truth,
            rewrite,
        )

    def read(self) -> Module:
        with self.timed("import"):
            data, self.literals = detach(self.data)
            proto = parse(inline_calls(data))
            xla_pass.unmark(proto)
            module = from_message(proto)
            if part_results(proto):
                module = from_message(proto)
            self.name = module.name
            return module

    def as_xla(self, module: Module) -> Module:
        """The module rewritten to compute what XLA would."""
        if self.simplified:
            return module
        with self.timed("simplify"):
            return as_xla(module, xla_version())

    def open_loops(self, module: Module) -> Module:
        """The module with loops in the form that kernels need, and with work moved out of them."""
        if not become_kernels(self.options):
            return module  # rows gain nothing from it
        with self.timed("simplify"):
            module = self.unrolled(formed(module, self.device))
            if self.options.numerics == "strict":
                return module  # terms would be added in another order
            return opened(module, self.device)

    def unrolled(self, module: Module) -> Module:
        """The module with short loops as straight code."""
        found = short_loops(module)
        if not found:
            return module
        times = {
            one: xla_loop_us(one.loop, (one.trips, (), True), self.device, self.truth)
            for one in found
        }
        for one, copies in unroll(module, found).items():
            body = one.loop.called[1].proto_id
            made = Unrolled({new: (body, old) for new, old in copies.items()}, times[one])
            self.loops.setdefault(one.graph.proto_id, []).append(made)
        return from_message(module.proto) if self.loops else module

    def join_sums(self, module: Module) -> Module:
        """The module with each sum over an unrolled loop's steps as one op."""
        if self.options.numerics == "strict":
            return module  # terms are added in another order
        with self.timed("simplify"):
            found = {graph: joined_sums(graph, self.device) for graph in module.stitchable}
            for graph, sums in found.items():
                if sums:
                    join(module, graph, sums)
            return from_message(module.proto) if any(found.values()) else module

    def simplify(self, module: Module) -> Module:
        with self.timed("simplify"):
            module = simplify_module(with_repeated_exact(module, self.device))
            for graph in module.graphs:
                note(graph, self.loops.get(graph.proto_id, ()))
            return module

    def plan(self, module: Module) -> dict[Graph, GraphPlanner]:
        """The planner of each graph; graphs that differ only in names are planned once."""
        with self.timed("plan"), collected_later():
            return plan_graphs(module, self.planner)

    def planner(self, graph: Graph, in_loop: bool) -> GraphPlanner:
        return GraphPlanner(
            graph,
            self.device,
            self.options,
            in_loop,
            self.tuned,
            self.measure,
            self.kernels.drafts,
            self.truth,
        )

    def make(
        self, module: Module, patterns: Sequence[Pattern]
    ) -> list[tuple[Kernel, Artifact] | None]:
        """The built kernels of patterns of `module`; None for a pattern that has none."""
        assert self.builder is not None
        each = ((pattern, overwrites(module, pattern)) for pattern in patterns)
        kernels = [self.kernels.of(pattern, over, self.measured) for pattern, over in each]
        wanted = list(dict.fromkeys(k for k in kernels if isinstance(k, Kernel)))
        built = dict(zip(wanted, self.builder(wanted), strict=True))
        found: list[tuple[Kernel, Artifact] | None] = []
        for kernel in kernels:
            one = built[kernel] if isinstance(kernel, Kernel) else None
            if isinstance(kernel, Kernel) and isinstance(one, Built):
                found.append((kernel, one.artifact))
            else:
                found.append(None)
        return found

    def generate(self, module: Module, chosen: Sequence[Chosen]) -> list[tuple[Chosen, Kernel]]:
        """A kernel per pattern; patterns with equal structure and in-place outputs share one."""
        # names come from the first pattern written, whatever was measured
        written, named = [], dict[str, Pattern]()
        drawn: dict[Kernel, dump.Drawn] = {}
        with self.timed("codegen"), collected_later():
            for one in chosen:
                over = overwrites(module, one.pattern)
                kernel = self.kernels.of(one.pattern, over, named)
                if isinstance(kernel, Kernel):
                    written.append((one, kernel))
                    drawn[kernel] = partial(self.kernels.snapshots, kernel.name, one.pattern, over)
                else:
                    self.leave(one, kernel)
        dump.kernels(drawn)
        if self.options.templates:
            self.find_templates(chosen, [kernel for _, kernel in written])
        return written

    def find_templates(self, chosen: Sequence[Chosen], kernels: Sequence[Kernel]) -> None:
        """Warns about templates without a pattern. A template names one kernel, or all kernels of a
        kind whatever they overwrite."""
        known = {kernel.name for kernel in kernels}
        known |= {kernel_name(one.pattern.ops, one.pattern.key) for one in chosen}
        if missing := ", ".join(sorted(self.options.templates.keys() - known)):
            logger.warning("%s has no kernel called %s to follow a template.", self.name, missing)

    def build(self, written: Sequence[tuple[Chosen, Kernel]]) -> tuple[Stitch, ...]:
        kernels = list(dict.fromkeys(kernel for _, kernel in written))
        if self.builder is None or not kernels:
            return tuple(Stitch(one, kernel, None) for one, kernel in written)
        with self.timed("build", f"{len(kernels)} kernels"):
            outcomes = dict(zip(kernels, self.builder(kernels), strict=True))
        stitches = []
        for one, kernel in written:
            built = outcomes[kernel]
            if isinstance(built, Built):
                stitches.append(Stitch(one, kernel, built))
            else:
                if (file := override.file_of(kernel)) is not None:
                    raise override.wrong(file, f"it cannot be built: {built.said or built}")
                self.leave(one, str(built))
        return tuple(stitches)

    def write(self, module: Module, stitches: Sequence[Stitch]) -> tuple[bytes, tuple[Stitch, ...]]:
        """The module with the kernels of `stitches`, and those of them that it contains."""
        with self.timed("export"):
            written: list[tuple[Stitch, Replacement]] = []
            for one in stitches:
                try:
                    written.append((one, self.replacement(module, one)))
                except VerifyError as error:  # a defect in one pattern must not cost the others
                    self.leave(one.chosen, str(error))
            if not written:
                return self.data, ()
            data = self.exported(module, written)
            return data, tuple(one for one, _ in written)

    def rewritten(self, module: Module, stitches: Sequence[Stitch]) -> bytes:
        """The module with only these of the kernels that `write` has put into it."""
        return self.exported(module, [(one, self.replacement(module, one)) for one in stitches])

    def exported(self, module: Module, written: Sequence[tuple[Stitch, Replacement]]) -> bytes:
        loading = loading_config(_artifact(one) for one, _ in written)
        load = Preparation("fusionstitch_load", LOAD_TARGET, loading)
        module = agreed(module, [one.chosen.pattern for one, _ in written])
        data = export(module, [call for _, call in written], load)
        verify_module(data)
        return attach(data, self.literals)

    def replacement(self, module: Module, one: Stitch) -> Replacement:
        pattern, kernel = one.chosen.pattern, one.kernel
        return Replacement(
            graph=pattern.graph,
            outputs=pattern.outputs,
            inputs=pattern.inputs,
            removed=pattern.ops,
            name=kernel.name,
            target=TARGET,
            config=_artifact(one).config(),
            scratch=kernel.scratch,
            aliasing=in_place(module, pattern, kernel) if self.aliasing else (),
        )

    def leave(self, chosen: Chosen, why: str) -> None:
        """Leaves a pattern to XLA; raises under fallback="error"."""
        ops = tuple(op.name for op in chosen.pattern.ops)
        if self.options.fallback == "error":
            raise StitchError(
                f"A pattern of {self.name} ({', '.join(ops[:8])}{', ...' if len(ops) > 8 else ''}) "
                f'could not be stitched: {why} Use fallback="xla" to leave it to XLA.'
            )
        self.fallbacks.append(Fallback(ops, why))

    @contextmanager
    def timed(self, name: str, detail: str = "") -> Iterator[None]:
        check()
        self.step(f"{name} {detail}".rstrip())
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timings[name] = self.timings.get(name, 0.0) + time.perf_counter() - start


def _artifact(one: Stitch) -> Artifact:
    assert one.built is not None
    return one.built.artifact
