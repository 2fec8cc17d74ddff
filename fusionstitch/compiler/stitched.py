"""The result for a module: the patterns that became kernels, and those left to XLA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fusionstitch.codegen.kernel import Kernel
from fusionstitch.compiler.built import Built
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.xla_truth import XlaTruth
from fusionstitch.hlo.brief import Listed, brief, count, listed
from fusionstitch.plan.findings import Evidence
from fusionstitch.plan.plan import Chosen, Plan, Rejected
from fusionstitch.runtime.artifact import Artifact


@dataclass(frozen=True)
class Fallback:
    """Ops that were to be stitched and were left to XLA instead.

    Attributes:
        ops: their names; empty for the whole program
        reason: why, as a sentence
    """

    ops: tuple[str, ...]
    reason: str

    def __post_init__(self) -> None:
        listed(self, "ops")

    def __repr__(self) -> str:
        what = count(self.ops, "op") if self.ops else "the whole program"
        return brief(f"Fallback: {what}. {self.reason}")


@dataclass(frozen=True, eq=False)
class Stitch:
    """One pattern that became a kernel.

    Attributes:
        chosen: the pattern as the plan chose it
        kernel: the generated kernel
        built: the built kernel; None if it was not built (`fusionstitch emit`, plans for absent
            devices)
    """

    chosen: Chosen
    kernel: Kernel
    built: Built | None

    def __repr__(self) -> str:
        built = "" if self.built else ", not built"
        return brief(f"Stitch: {count(self.chosen.pattern.ops, 'op')} in {self.kernel.name}{built}")


@dataclass(frozen=True, eq=False)
class Stitched:
    """A module with its plan carried out.

    Attributes:
        name: name of the module
        module: an HloModuleProto; the original one if nothing was stitched
        device: the device profile that was planned for
        plans: one for each graph that runs as kernels, callees first
        stitches: the patterns that became kernels
        fallbacks: the patterns that were planned but left to XLA
        timings: seconds of each pass
        given: the original HloModuleProto
        evidence: what was measured for the plans
        truth: times of the program under XLA alone, if measured before; None if modelled
        rewrite: makes the module with only some of the stitches; None if nothing was built
        program: key under which it is stored for later processes; "" if it is not stored
        trial: the result of its trial, as a sentence; "" if there was none
    """

    name: str
    module: bytes
    device: Device
    plans: tuple[Plan, ...] = ()
    stitches: tuple[Stitch, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    timings: dict[str, float] = field(default_factory=dict)
    given: bytes = b""
    evidence: Evidence = field(default_factory=Evidence)
    truth: XlaTruth | None = None
    rewrite: Callable[[Sequence[Stitch]], bytes] | None = None
    program: str = ""
    trial: str = ""

    def __post_init__(self) -> None:
        listed(self, "plans", "stitches", "fallbacks")

    def only(self, stitches: Sequence[Stitch], reason: str) -> Stitched:
        """The same with only these patterns carried out and the others left to XLA, for this
        reason. If `rewrite` is missing, it has no module of its own."""
        chosen = {id(one) for one in stitches}
        ops = [one.chosen.pattern.ops for one in self.stitches if id(one) not in chosen]
        left = tuple(Fallback(tuple(op.name for op in names), reason) for names in ops)
        return replace(
            self,
            module=self.rewrite(stitches) if self.rewrite and stitches else self.given,
            stitches=tuple(stitches),
            fallbacks=(*self.fallbacks, *left),
        )

    def __repr__(self) -> str:
        return brief(
            f"Stitched {self.name} for {self.device.name}: {count(self.stitches, 'pattern')} in "
            f"{count(self.kernels, 'kernel')}, {count(self.fallbacks, 'fallback')}"
        )

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """The distinct kernels, in the order of their first use."""
        return Listed({s.kernel.name: s.kernel for s in self.stitches}.values())

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        """The built artifacts of `kernels`."""
        built = {s.kernel.name: s.built.artifact for s in self.stitches if s.built}
        return Listed(built.values())

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The rejected candidates of all plans."""
        return Listed(r for plan in self.plans for r in plan.rejected)
