"""Plans of programs that come out of XLA's persistent cache, where the pass does not run.

Each module is kept as it was before stitching, under the keys of its kernels: the same module and
options give the same plan, so planning it once more says what the compiled program holds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import zlib
from collections.abc import Sequence
from functools import partial

from costmodel import devices
from fusionstitch import builders, core
from fusionstitch.core import Stitched
from fusionstitch.errors import reason
from fusionstitch.options import Options
from fusionstitch.runtime import xla_pass
from fusionstitch.runtime.apart import alone
from fusionstitch.tuning import tuned
from hlo.detached import detach

logger = logging.getLogger(__name__)

#: Programs remembered per kernel, the newest first.
_PROGRAMS = 16


def keep(module: bytes, options: Options, result: Stitched) -> None:
    """Remembers the module that `result` was made from."""
    store = builders.store()
    head = {"options": dataclasses.asdict(options), "profile": dataclasses.asdict(result.device)}
    read, _ = detach(module)  # what planning does not look at would take most of the time and space
    data = json.dumps(head, sort_keys=True).encode() + b"\n" + zlib.compress(read)
    program = hashlib.sha256(data).hexdigest()
    store.put(f"program-{program}", data)
    for key in {artifact.key for artifact in result.artifacts}:
        known = (store.get(f"programs-{key}") or b"").decode("ascii", "replace").split()
        newest = [program, *(other for other in known if other != program)][:_PROGRAMS]
        store.put(f"programs-{key}", " ".join(newest).encode())


def find(text: str, events: Sequence[xla_pass.Event]) -> Stitched | None:
    """What was stitched in the program whose compiled HLO is `text`.

    `events` are those of its compile. Without a kernel in the text, the only event there is tells
    why; with kernels but no event, the program came from a cache and is planned once more.
    """
    keys = xla_pass.keys_in(text)
    event = xla_pass.find(text, events) if keys else None
    if event is None and not keys and len(events) == 1:
        event = events[0]
    if event is not None and isinstance(event.result, Stitched):
        return event.result
    return alone(partial(_again, keys)) if keys else None


def _again(keys: Sequence[str]) -> Stitched | None:
    store = builders.store()
    lists = [
        (store.get(f"programs-{key}") or b"").decode("ascii", "replace").split() for key in keys
    ]
    common = [p for p in lists[0] if all(p in other for other in lists[1:])]
    for program in common:
        if (data := store.get(f"program-{program}")) is not None:
            try:
                return _planned(data)
            except Exception as error:  # another version kept it in another form
                logger.debug("a kept program cannot be read: %s", reason(error))
    return None


def _planned(data: bytes) -> Stitched:
    head, _, packed = data.partition(b"\n")
    facts = json.loads(head)
    device = devices.from_fields(facts["profile"])
    module, options = zlib.decompress(packed), Options(**facts["options"])
    return core.stitch(module, options, device, None, tuned=tuned.load(device))
