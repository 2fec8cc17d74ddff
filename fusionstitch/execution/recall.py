"""Programs that an earlier process stitched: their results and plans.

A stitched module is stored under the hash of the original one, so that the next process need not
plan. The original module is stored too, with what was measured for it. Together with the options,
this reproduces the plan whenever it is asked for. It is found by the kernels in the compiled text,
also if XLA took the program from its own persistent cache and the pass did not run.

The compiler is imported only when something is planned, so not if all programs are stored.
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

#: The most programs stored per kernel, newest first.
_PROGRAMS = 16
#: The zlib level: images hardly shrink at higher ones.
_LEVEL = 1


@dataclass(frozen=True)
class StoredProgram:
    """A program as an earlier process left it. `module` is what XLA gets instead of the module it
    offers; None leaves that one alone. The plan follows from `given`, the module that XLA offers,
    and `facts` of the process that made it. `program` is the key of both."""

    module: bytes | None
    given: bytes
    facts: bytes
    program: str


def remember(module: bytes, token: str, options: Options, result: Stitched) -> str:
    """Stores what `result` was made from, and what it became unless that may differ next time.
    Returns the key of the plan."""
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
    read, _ = detach(module)  # literals that planning ignores would take most of the time and space
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


def look_up(module: bytes, token: str) -> StoredProgram | None:
    """What an earlier process made of a marked module; None if nothing is stored or kernels are to
    be dumped. Raises whatever is wrong with an entry."""
    if env.DUMP_DIR.get() is not None:
        return None
    store = builders.store()
    named, _, became = (store.get(_key(module, token)) or b"").partition(b"\n")
    program = named.decode("ascii", "replace")
    if not named or (data := _program(program)) is None:
        return None
    given, _ = detach(module)
    facts = data.partition(b"\n")[0]
    return StoredProgram(zlib.decompress(became) if became else None, given, facts, program)


def find(text: str, events: Sequence[xla_pass.Event]) -> Stitched | None:
    """What was stitched in the program whose compiled HLO is `text`.

    `events` are those of its compile. If the text has no kernel, a single event gives the reason.
    If it has kernels but there is no event, the program came from a cache and is planned again.
    """
    from fusionstitch.compiler.stitched import Stitched

    keys = xla_pass.keys_in(text)
    event = xla_pass.find(text, events) if keys else None
    if event is None and not keys and len(events) == 1:
        event = events[0]
    if event is not None and isinstance(event.result, Stitched):
        return event.result
    if event is not None and isinstance(event.result, StoredProgram):
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
    """What was stored under the hash, if it is intact."""
    data = builders.store().get(plan_key(name))
    return data if data is not None and hashlib.sha256(data).hexdigest() == name else None


def _read(facts: bytes, module: bytes) -> Stitched | None:
    try:
        return _planned(json.loads(facts), module)
    except Exception as error:  # another version stored it in another form
        logger.debug("a stored program cannot be read: %s", reason(error))
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
    """What was stored under this key, planned again."""
    if not program or (data := _program(program)) is None:
        return None
    facts, _, packed = data.partition(b"\n")
    return alone(partial(_read, facts, zlib.decompress(packed)))


def _key(module: bytes, token: str) -> str:
    """A key of everything that decides the result for a module: the module, what its mark covers,
    our code, and what else would change XLA's result. Like JAX's own cache it ignores the source
    lines of the module."""
    outline = schema.Outline.FromString(module)
    outline.ClearField("id")  # a counter of modules in a process
    outline.ClearField("stack_frame_index")
    for computation in outline.computations:
        for instruction in computation.instructions:
            named = instruction.metadata
            metadata = schema.OpMetadata(op_type=named.op_type, op_name=named.op_name)
            instruction.metadata.CopyFrom(metadata)
    content = hashlib.sha256(outline.SerializeToString(deterministic=True))
    content.update(f"{token} {code()} {xla_pass.flags()} {_several()}".encode())
    return f"stitched-{content.hexdigest()}"


def _several() -> bool:
    import jax

    return jax.process_count() > 1
