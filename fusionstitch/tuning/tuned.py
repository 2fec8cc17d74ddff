"""Tuning results as the compiler uses them: a snapshot that does not change during use."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING

from fusionstitch import env
from fusionstitch.compiler.naming import kernel_name
from fusionstitch.costmodel.devices import Device
from fusionstitch.errors import FusionStitchError
from fusionstitch.options import Options
from fusionstitch.runtime.apart import alone
from fusionstitch.runtime.cache import Database
from fusionstitch.tuning.record import Entry, Record, from_json, record_key, versions

if TYPE_CHECKING:
    from fusionstitch.codegen.generate import CodegenOptions
    from fusionstitch.patterns.pattern import Pattern
    from fusionstitch.plan.scores import Measure

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tuned:
    """Records by `record_key`. An empty one changes nothing."""

    records: Mapping[str, Record] = field(default_factory=dict)

    @functools.cached_property
    def token(self) -> str:
        """A hash of the content, part of what decides the generated code; '' if empty."""
        if not self.records:
            return ""
        content = {key: record.to_dict() for key, record in self.records.items()}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def find(self, pattern: Pattern, options: Options) -> Record | None:
        """The record of a pattern, unless the options give it a template."""
        if not self.records or template_of(pattern, options) is not None:
            return None
        return self.records.get(record_key(pattern.key, options))

    def settings(self, pattern: Pattern, options: Options, name: str = "") -> CodegenOptions:
        """How the kernel of a pattern is generated; `name` is its name if that differs from others
        of its kind."""
        from fusionstitch.codegen.generate import (
            CodegenOptions,  # a first call may not need any kernels
        )

        settings = CodegenOptions(options.numerics, options.sharing, check=env.CHECK.get())
        if (template := template_of(pattern, options, name)) is not None:
            return replace(settings, template=template)
        record = self.find(pattern, options)
        return replace(settings, tuned=record.template or None) if record else settings

    def times(self, options: Options) -> Measure | None:
        """A function that returns measured times of tuned patterns; None without records."""
        if not self.records:
            return None

        def measure(pattern: Pattern) -> tuple[float, float] | None:
            record = self.find(pattern, options)
            return None if record is None else (record.us, record.xla_us)

        return measure


NOTHING = Tuned()


def template_of(pattern: Pattern, options: Options, name: str = "") -> str | None:
    """The template that the options give to a pattern, or to a kernel of it."""
    given = options.templates
    if not given:
        return None
    return given.get(name) or given.get(kernel_name(pattern.ops, pattern.key))


def load(device: Device, database: Database | None = None) -> Tuned:
    """The results for a device: those measured with these versions, else with others, else shipped
    ones."""
    return alone(partial(_load, device, database))


def _load(device: Device, database: Database | None) -> Tuned:
    own = database is None
    database = Database() if database is None else database
    try:
        entries = [*shipped(device), *stored(device, database)]
    finally:
        if own:
            database.close()
    if not entries:
        return NOTHING
    if len({entry.key for entry in entries}) < len(entries):
        now = versions()
        entries.sort(key=lambda entry: entry.versions == now)
    return Tuned({entry.key: entry.record for entry in entries})


def stored(device: Device, database: Database) -> list[Entry]:
    """The entries of the database, the newest version last. Unreadable ones are left out, and
    deleted if these versions wrote them."""
    found = []
    for key, made_with, data in database.tuned(device.name):
        try:
            found.append(Entry(key, made_with, Record.from_dict(data)))
        except (FusionStitchError, KeyError, TypeError, ValueError, OverflowError) as error:
            logger.info("a tuned result of %s is ignored: %s", made_with, error)
            if made_with == versions():
                database.drop_tuned(key, device.name, made_with)
    return found


def store(entries: Iterable[Entry], device: str, database: Database) -> None:
    """Stores entries in the database."""
    for entry in entries:
        database.put_tuned(entry.key, device, entry.versions, entry.record.to_dict())


def shipped(device: Device) -> tuple[Entry, ...]:
    """The results for a device that come with this package."""
    return _shipped(device.name)


@functools.cache
def _shipped(name: str) -> tuple[Entry, ...]:
    file = resources.files("fusionstitch.tuning") / "results" / f"{name}.json"
    try:
        if not file.is_file():
            return ()
        return from_json(file.read_text("utf-8"), f"results/{name}.json")[1]
    except (FusionStitchError, OSError, UnicodeDecodeError) as error:
        logger.warning("The tuned results of %s are not used: %s", name, error)
        return ()
