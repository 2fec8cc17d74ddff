"""Every error this project raises on purpose. Each message says what happened and what to do."""

from __future__ import annotations

from fusionstitch.hlo import foreign


class FusionStitchError(Exception):
    """Base of all errors raised by fusionstitch. What a message quotes may be another's."""

    def __init__(self, message: str = ""):
        super().__init__(foreign.lines(message))


class ImportModuleError(FusionStitchError):
    """A module (proto, HLO text, StableHLO) is malformed or uses something that cannot be read."""


class VerifyError(FusionStitchError):
    """A graph, a plan or a kernel broke one of its invariants: a defect in fusionstitch itself."""


class PlanError(FusionStitchError):
    """No legal plan was found where one was demanded."""


class CodegenError(FusionStitchError):
    """A pattern cannot be compiled to CUDA-C."""


class PassError(CodegenError):
    """A pass over regions broke one, or a kernel breaks a rule of the verifier: a defect in
    fusionstitch itself, for which no other way to a kernel is tried."""


class TemplateSyntaxError(FusionStitchError):
    """A schedule template does not follow the grammar of the paper."""


class ToolchainError(FusionStitchError):
    """A compiler (NVRTC or the host compiler) is missing or refused generated code; `said` is what
    it said of the code, "" where that is not the reason."""

    def __init__(self, message: str = "", said: str = ""):
        super().__init__(message)
        self.said = foreign.lines(said)


class OptionError(FusionStitchError):
    """An option or an environment variable has a value that is not allowed."""


class StitchError(FusionStitchError):
    """`fallback="error"` was set and something could not be stitched."""


class MeasureError(FusionStitchError):
    """Something cannot be measured: there is no GPU, or it does not run there."""
