"""What a search leaves out: schedules that no kernel can have. A defect is none of these."""

from __future__ import annotations

import logging
from types import TracebackType

from fusionstitch.hlo.errors import CodegenError, PassError

logger = logging.getLogger(__name__)


class LeftOut:
    """A context that CodegenError ends, for which the log has the reason. Where kernels are checked
    after each pass (`check`), PassError is raised: a search hides no defect of ours. Elsewhere that
    is a reason like any other, but for who reads the log."""

    def __init__(self, check: bool):
        self.check = check

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        defect = isinstance(error, PassError)
        if not isinstance(error, CodegenError) or (defect and self.check):
            return False
        level = logging.INFO if defect else logging.DEBUG
        logger.log(level, "A schedule is left out: %s", error)
        return True
