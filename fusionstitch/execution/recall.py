"""Programs that an earlier process stitched: what became of them, and why.

A stitched module is kept under the hash of the one it was made from, so that the next process plans
nothing. The one it was made from is kept, too, with what was measured for it: that and the options
give the same plan, whenever somebody asks for it; it is found by the kernels in the compiled text,
also where XLA took the program out of its own persistent cache and the pass did not run.

Where all programs are known the compiler is not loaded: it is imported where something is planned.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fusionstitch import env
from fusionstitch.compiler import builders
from fusionstitch.costmodel import devices
from fusionstitch.errors import reason
from fusionstitch.hlo import schema
from fusionstitch.hlo.detached import detach
from fusionstitch.options import Options
from fusionstitch.runtime import xla_pass
from fusionstitch.runtime.apart import alone
from fusionstitch.trial.outcome import LEFT, plan_key
from fusionstitch.tuning import tuned
from fusionstitch.version import code

if TYPE_CHECKING:
    from fusionstitch.compiler.stitched import Stitched

logger = logging.getLogger(__name__)

#: Programs remembered per kernel, the newest first.
_PROGRAMS = 16
#: Of zlib: images hardly become smaller.
_LEVEL = 1


@dataclass(frozen=True)
class Kept:
    """A program as an earlier process left it: `module` is what XLA gets instead of the one it
    offers, None to leave that alone; its plan follows from `given`, which is offered, and `facts`
    of the process that made it; `program` names both."""

    module: bytes | None
    given: bytes
    facts: bytes
    program: str


def keep(module: bytes, token: str, options: Options, result: Stitched) -> str:
    """Remembers what `result` was made from; what it became, too, unless that may be another thing
    the next time. Returns what it is kept under."""
    from fusionstitch.costmodel.xla_truth import to_plain

    store = builders.store()
    head = {
        "options": dataclasses.asdict(options),
        "profile": dataclasses.asdict(result.device),
        "evidence": {
            key: dataclasses.asdict(found) for key, found in result.evidence.comparisons.items()
        },
        "tried": result.evidence.tried,
        "put_off": result.evidence.put_off,
        "left_out": [one.ops for one in result.fallbacks if one.reason == LEFT],
    }
    if result.truth is not None:
        head["truth"] = to_plain(result.truth)
    read, _ = detach(module)  # what planning does not look at would take most of the time and space
    data = json.dumps(head, sort_keys=True).encode() + b"\n" + zlib.compress(read)
    program = hashlib.sha256(data).hexdigest()
    store.put(plan_key(program), data)
    for key in {artifact.key for artifact in result.artifacts}:
        known = (store.get(f"programs-{key}") or b"").decode("ascii", "replace").split()
        newest = [program, *(other for other in known if other != program)][:_PROGRAMS]
        store.put(f"programs-{key}", " ".join(newest).encode())
    failed = [one for one in result.fallbacks if one.reason != LEFT]
    if result.evidence.whole and not failed:
        became = zlib.compress(result.module, _LEVEL) if result.stitches else b""
        store.put(_key(module, token), program.encode() + b"\n" + became)
    return program


def look(module: bytes, token: str) -> Kept | None:
    """What an earlier process made of a marked module, if it is known. Nothing is looked up while
    kernels are to be dumped. Whatever is wrong with an entry is raised."""
    if env.DUMP_DIR.get() is not None:
        return None
    store = builders.store()
    named, _, became = (store.get(_key(module, token)) or b"").partition(b"\n")
    program = named.decode("ascii", "replace")
    if not named or (data := _program(program)) is None:
        return None
    given, _ = detach(module)
    facts = data.partition(b"\n")[0]
    return Kept(zlib.decompress(became) if became else None, given, facts, program)


def find(text: str, events: Sequence[xla_pass.Event]) -> Stitched | None:
    """What was stitched in the program whose compiled HLO is `text`.

    `events` are those of its compile. Without a kernel in the text, the only event there is tells
    why; with kernels but no event, the program came from a cache and is planned once more.
    """
    from fusionstitch.compiler.stitched import Stitched

    keys = xla_pass.keys_in(text)
    event = xla_pass.find(text, events) if keys else None
    if event is None and not keys and len(events) == 1:
        event = events[0]
    if event is not None and isinstance(event.result, Stitched):
        return event.result
    if event is not None and isinstance(event.result, Kept):
        return alone(partial(_read, event.result.facts, event.result.given))
    return alone(partial(_again, keys)) if keys else None


def _again(keys: Sequence[str]) -> Stitched | None:
    store = builders.store()
    lists = [
        (store.get(f"programs-{key}") or b"").decode("ascii", "replace").split() for key in keys
    ]
    common = [p for p in lists[0] if all(p in other for other in lists[1:])]
    for program in common:
        if (data := _program(program)) is not None:
            facts, _, packed = data.partition(b"\n")
            found = _read(facts, zlib.decompress(packed))
            if found is not None:
                return found
    return None


def _program(name: str) -> bytes | None:
    """What was kept under the hash, if it is as it was."""
    data = builders.store().get(plan_key(name))
    return data if data is not None and hashlib.sha256(data).hexdigest() == name else None


def _read(facts: bytes, module: bytes) -> Stitched | None:
    try:
        return _planned(json.loads(facts), module)
    except Exception as error:  # another version kept it in another form
        logger.debug("a kept program cannot be read: %s", reason(error))
        return None


def _planned(facts: Any, module: bytes) -> Stitched:
    from fusionstitch.compiler import core
    from fusionstitch.costmodel.xla_truth import from_plain
    from fusionstitch.guard import live
    from fusionstitch.plan.findings import Comparison, Evidence

    device = devices.from_fields(facts["profile"])
    options = Options(**facts["options"])
    known = {key: Comparison(**found) for key, found in facts["evidence"].items()}
    evidence = Evidence(known, tried=facts["tried"], put_off=facts["put_off"])
    results = tuned.load(device)
    judge = live.recorded(options, results, evidence)
    truth = from_plain(facts["truth"]) if "truth" in facts else None
    found = core.stitch(
        module, options, device, None, simplified=True, tuned=results, judge=judge, truth=truth
    )
    left_out = set(map(tuple, facts["left_out"]))
    names = {id(one): tuple(op.name for op in one.chosen.pattern.ops) for one in found.stitches}
    stayed = [one for one in found.stitches if names[id(one)] not in left_out]
    return found.only(stayed, LEFT) if left_out else found


def again(program: str) -> Stitched | None:
    """What was kept under this name, planned once more."""
    if not program or (data := _program(program)) is None:
        return None
    facts, _, packed = data.partition(b"\n")
    return alone(partial(_read, facts, zlib.decompress(packed)))


def _key(module: bytes, token: str) -> str:
    """What decides what becomes of a module: it, what its mark covers, the code here, and what else
    XLA would have made of it. Like JAX's own cache it leaves out on which lines of which files the
    module was written."""
    outline = schema.Outline.FromString(module)
    outline.ClearField("id")  # counts the modules of a process
    outline.ClearField("stack_frame_index")
    for computation in outline.computations:
        for instruction in computation.instructions:
            named = instruction.metadata
            told = schema.OpMetadata(op_type=named.op_type, op_name=named.op_name)
            instruction.metadata.CopyFrom(told)
    content = hashlib.sha256(outline.SerializeToString(deterministic=True))
    content.update(f"{token} {code()} {xla_pass.flags()} {_several()}".encode())
    return f"stitched-{content.hexdigest()}"


def _several() -> bool:
    import jax

    return jax.process_count() > 1
