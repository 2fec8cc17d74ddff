"""Removes marks from what users read, so that functions have the users' own names.

A mark must be in the name of the module, since JAX passes nothing else to XLA (see `marked_name`),
and JAX's log takes the name from there.
"""

from __future__ import annotations

import functools
import logging

from fusionstitch.runtime.xla_pass import without_marks


class _Unmarked(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if (plain := without_marks(text)) != text:
            record.msg, record.args = plain, None
        return True


@functools.cache
def hide_marks_in_log() -> None:
    """Makes the records of JAX's loggers name functions without marks, whatever handler prints
    them."""
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "jax":
            logging.getLogger(name).addFilter(_Unmarked())
