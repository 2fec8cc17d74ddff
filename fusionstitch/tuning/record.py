"""Tuning results of patterns, and the JSON files that contain them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fusionstitch.errors import OptionError
from fusionstitch.hlo.brief import brief
from fusionstitch.options import Options

#: Version of the file format; other versions are rejected.
FORMAT = 2


@dataclass(frozen=True)
class Record:
    """The best schedule of one pattern next to XLA's compile of the same ops. Times are
    microseconds inside a CUDA graph.

    Attributes:
        template: the schedule, "" for the default one; ops are named by opcode and number, so that
            it fits equal patterns of other programs
        us: measured time of the best schedule
        default_us: measured time of the default schedule
        xla_us: measured time of XLA's compile of the same ops
        model_us: modelled time of the best schedule
        tried: number of measured schedules
        complete: whether the search came to its end
        name: name of the kernel, for people
        gpu: the GPU's own name
    """

    template: str
    us: float
    default_us: float
    xla_us: float
    model_us: float
    tried: int
    complete: bool
    name: str
    gpu: str

    def __repr__(self) -> str:
        return brief(
            f"Record {self.name} on {self.gpu}: {self.us:.2f} us, XLA {self.xla_us:.2f} us, "
            f"{'another' if self.template else 'the default'} schedule"
        )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Record:
        """Raises KeyError, TypeError or ValueError for invalid data."""
        numbers = {n: float(data[n]) for n in ("us", "default_us", "xla_us", "model_us")}
        if not all(0 < number < math.inf for number in numbers.values()):
            raise ValueError(f"no times: {numbers}")
        return cls(
            template=str(data["template"]),
            tried=int(data["tried"]),
            complete=bool(data["complete"]),
            name=str(data["name"]),
            gpu=str(data["gpu"]),
            **numbers,
        )


def record_key(pattern_key: str, options: Options) -> str:
    """The key of a record: the structure of a pattern, and everything else that decides its
    kernel."""
    sharing = "" if options.sharing else "-unshared"
    return f"{pattern_key}-{options.numerics}{sharing}"


def versions() -> str:
    """The versions that times depend on: ours, JAX's and NVRTC's."""
    import jax

    from fusionstitch.compiler import builders
    from fusionstitch.runtime import nvrtc
    from fusionstitch.version import __version__

    compiler = nvrtc.remembered(builders.store())
    if compiler is None:
        compiler = nvrtc.version() if nvrtc.available() else "none"
    return f"fusionstitch {__version__}, jax {jax.__version__}, nvrtc {compiler}"


@dataclass(frozen=True)
class Entry:
    """A record with its keys."""

    key: str
    versions: str
    record: Record


def to_json(device: str, entries: Iterable[Entry]) -> str:
    """The text of a file of results for the device profile `device`, one result per line."""
    lines = [
        json.dumps({"key": e.key, "versions": e.versions, **e.record.to_dict()}, sort_keys=True)
        for e in sorted(entries, key=lambda e: (e.key, e.versions))
    ]
    head = f'{{"format": {FORMAT}, "device": {json.dumps(device)}, "results": ['
    return head + "\n" + ",\n".join(lines) + "\n]}\n"


def from_json(text: str, path: str) -> tuple[str, tuple[Entry, ...]]:
    """(device, entries) of a file of results; `path` names it in errors.

    Raises OptionError for an invalid text.
    """
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise OptionError(
                f"{path} has format {data['format']}, this version reads {FORMAT}: export the "
                "results again with this version."
            )
        entries = [
            Entry(str(one["key"]), str(one["versions"]), Record.from_dict(one))
            for one in data["results"]
        ]
        return str(data["device"]), tuple(entries)
    except OptionError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise OptionError(
            f"{path} holds no tuned results ({type(error).__name__}: {error}). Write one with "
            "`fusionstitch tune --export FILE`."
        ) from None


def read(path: Path) -> tuple[str, tuple[Entry, ...]]:
    """(device, entries) of the file `path`. Raises OptionError."""
    try:
        return from_json(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} cannot be read: {error}.") from None
