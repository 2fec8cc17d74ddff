"""What XLA's kernels take in whole programs, beside what the model says of each.

python -m benchmarks.model_kernels [PROGRAM...] --json FILE [--each S] [--total S] [--jobs N]
python -m benchmarks.model_kernels --list [PROGRAM...]
python -m benchmarks.model_kernels --again FILE --texts FOLDER --json FILE

On a GPU. Each program (an example, everyday/NAME, unseen/FIELD/NAME, corpus/NAME as drawn from
--seed, loops/NAME or FILE.py:NAME; all for none) is compiled by jax.jit in a process of its own,
which has S seconds; its kernels are those of its executable, their times those of JAX's profiler.
With --jobs several are compiled side by side, on as many GPUs as --gpus says; on each one is traced
at a time. The file, written after each program, holds a row for each kernel;
`python -m benchmarks.fit_xla FILE...` says how far off the model is. With --texts the HLO of each
executable is kept, for who refits the model: --again models the kernels of a file anew from them,
without a GPU, and leaves out what a fit does not read. A program that fails or takes too long is a
row of `failed`.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import results_file
from benchmarks.corpus.table import find as corpus
from benchmarks.corpus.worker import alone
from benchmarks.environment import describe
from benchmarks.kernel_times import times_of
from benchmarks.model_error import programs as known_programs
from fusionstitch.commands.targets import load
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.xla_final import FinalKernel
from fusionstitch.measure.activity import Activity

#: Calls before the trace: the first ones record CUDA graphs; and those in it.
WARM, CALLS = 3, 10
#: A trace of more activities is cut short: fewer calls.
MOST_ACTIVITIES = 200_000
#: Characters of what a child said before it failed.
SAID = 400
#: What a fit reads of a kernel.
READ = ("name", "emitter", "runs", "bytes", "floor_us", "modelled_us", "measured_us")

Program = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]
#: The activities of what a function runs and waits for.
Trace = Callable[[Callable[[], None]], list[Activity]]


def programs(names: Sequence[str], seed: int = 0) -> dict[str, Callable[[], Program]]:
    """Those whose names begin as one of `names`, all for none; those of the corpus as `seed` draws
    them. Raises SystemExit for a name that is none."""
    from benchmarks.loops.table import find
    from benchmarks.unseen.table import PROGRAMS

    def unseen(make: Callable[[], Any]) -> Program:
        return (*make(), {})

    def loop(one: Any) -> Program:
        return (*one.program(one.xla), one.jit_keywords)

    def drawn(template: Any) -> Program:
        program = template.program(seed)
        return program.fun, program.args(), {}

    def target(name: str) -> Program:
        return (*load(name), {})

    known: dict[str, Callable[[], Program]] = dict(known_programs(()))
    known |= {f"unseen/{name}": partial(unseen, make) for name, make in PROGRAMS.items()}
    known |= {f"corpus/{one.name}": partial(drawn, one) for one in corpus()}
    known |= {f"loops/{one.name}": partial(loop, one) for one in find(())}
    found: dict[str, Callable[[], Program]] = {}
    for name in names:
        chosen = {key: make for key, make in known.items() if key.startswith(name)}
        if not chosen and ":" not in name:
            raise SystemExit(f"No program is called {name}: --list names them.")
        found |= chosen or {name: partial(target, name)}
    return found if names else known


def record(program: Program, trace: Trace, text: Path | None = None) -> dict[str, Any]:
    """The kernels of a program with their times; its compiled HLO goes to `text`."""
    import jax

    from fusionstitch.compiler import builders, core
    from fusionstitch.costmodel.xla_truth import truth_of
    from fusionstitch.options import Options
    from fusionstitch.reports.modelled import modelled_times

    fun, args, keywords = program
    # arguments are used again, so none is donated
    kept = {name: value for name, value in keywords.items() if not name.startswith("donate")}
    fixed = _numbers(kept.get("static_argnums", ()))
    lowered = jax.jit(fun, **kept).lower(*args)
    compiled = lowered.compile()
    given = jax.device_put([x for n, x in enumerate(args) if n not in fixed])
    options = Options(scorer="model", exploratory=False)  # the plan itself is not looked at
    device = builders.profile(options)

    def run(calls: int) -> None:
        for _ in range(calls):
            result = compiled(*given)
        jax.block_until_ready(result)

    run(WARM)
    once = trace(lambda: run(1))
    calls = max(1, min(CALLS, MOST_ACTIVITIES // max(1, len(once))))
    activities = trace(lambda: run(calls))
    us = sum(one.us for one in activities) / calls
    written = compiled.as_text() or ""
    if text is not None:
        text.write_text(written)
    truth = truth_of(written, us, device)
    times = times_of(truth.kernels, activities, calls)
    proto = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    planned = core.stitch(proto, options, device, None)
    return {
        "us": us,
        "unknown_us": times.unknown_us,
        "modelled_us": truth.modelled_us,
        "unfused_us": modelled_times(planned)[0],
        "kernels": [row_of(one, times.us.get(n)) for n, one in enumerate(truth.kernels)],
    }


def modelled_again(content: Mapping[str, Any], texts: Path, device: Device) -> dict[str, Any]:
    """What was recorded with what the model says of it now, by the texts of the executables. Of
    loops that the data end, nobody knows how often their kernels ran: these have no time."""
    from fusionstitch.costmodel.xla_truth import truth_of

    programs: dict[str, Any] = {}
    for name, record in content["programs"].items():
        text = (texts / f"{name.replace('/', '.')}.hlo").read_text()
        kernels = truth_of(text, record["us"], device).kernels
        times = [row["measured_us"] for row in record["kernels"]]
        least = device.launch_us / 2
        pairs = list(zip(kernels, times, strict=True))
        guessed = {one.graph for one, us in pairs if us is not None and us < least}
        rows = [
            row_of(one, None if one.graph in guessed and one.runs > 1 else us) for one, us in pairs
        ]
        programs[name] = {
            **record,
            "modelled_us": round(sum(one.runs * one.modelled_us for one in kernels), 4),
            "kernels": [{key: row[key] for key in READ} for row in rows],
        }
    return {**content, "programs": programs}


def row_of(kernel: FinalKernel, measured_us: float | None) -> dict[str, Any]:
    """A kernel as plain data; `us` are microseconds of one run, as scaled to the program's."""
    root = next((op for op in kernel.ops if op.written), None)
    return {
        "name": kernel.name,
        "emitter": str(kernel.emitter),
        "runs": kernel.runs,
        "opcodes": dict(sorted(Counter(op.opcode for op in kernel.ops).items())),
        "root": None if root is None else [root.opcode, list(root.dims)],
        "largest": max((list(op.dims) for op in kernel.ops), key=_elements, default=[]),
        "bytes": kernel.bytes,
        "floor_us": round(kernel.floor_us, 4),
        "modelled_us": round(kernel.modelled_us, 4),
        "scaled_us": round(kernel.us, 4),
        "measured_us": None if measured_us is None else round(measured_us, 4),
    }


def _elements(dims: Sequence[int]) -> int:
    size = 1
    for n in dims:
        size *= n
    return size


def _numbers(fixed: int | Sequence[int]) -> frozenset[int]:
    return frozenset((fixed,) if isinstance(fixed, int) else fixed)


def _child(name: str, asked: argparse.Namespace) -> None:
    """Records one program and prints it."""
    from fusionstitch.measure.activity import seen

    def traced(run: Callable[[], None]) -> list[Activity]:
        with alone(asked.alone):
            return seen(run)

    [make] = programs([name]).values() if ":" in name else [programs([name], asked.seed)[name]]
    print(json.dumps(record(make(), traced, asked.text)))


def recorded(name: str, flags: Sequence[str], gpu: str | None, seconds: float) -> dict[str, Any]:
    """A program's record by a process of its own; `failed` says why there is none."""
    command = [sys.executable, "-m", "benchmarks.model_kernels", "--one", name, *flags]
    env = os.environ if gpu is None else {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=env)
    except subprocess.TimeoutExpired:
        return {"failed": f"more than {seconds:.0f} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"failed": f"exit {done.returncode}: {done.stderr.strip()[-SAID:]}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def all_recorded(
    names: Sequence[str], asked: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of programs in their order; nothing is begun after `asked.total` seconds."""
    end = time.monotonic() + asked.total
    gpus = [str(n) for n in range(asked.gpus)] if asked.gpus > 1 else [None]
    free = queue.SimpleQueue[str | None]()
    for gpu in gpus * asked.jobs:
        free.put(gpu)

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(free.qsize()) as pool:

        def one(name: str) -> dict[str, Any] | None:
            if time.monotonic() > end:
                return None
            gpu = free.get()
            flags = ["--seed", str(asked.seed), "--alone", f"{folder}/{gpu}"]
            if asked.texts is not None:
                flags += ["--text", str(asked.texts / f"{name.replace('/', '.')}.hlo")]
            try:
                return recorded(name, flags, gpu, asked.each)
            finally:
                free.put(gpu)

        for name, found in zip(names, pool.map(one, names), strict=True):
            if found is not None:
                yield name, found


def _line(name: str, found: Mapping[str, Any]) -> str:
    if "failed" in found:
        return f"{name:45} {found['failed'].splitlines()[-1]}"
    kernels = [one for one in found["kernels"] if one["measured_us"] is not None]
    return (
        f"{name:45} {found['us']:10.2f} us, {found['modelled_us']:10.2f} modelled "
        f"({found['unfused_us']:10.2f} unfused), {len(kernels):4} of {len(found['kernels']):4} "
        f"kernels, {found['unknown_us']:8.2f} us unknown"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.model_kernels",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="PROGRAM")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--each", type=float, default=120.0, help="seconds of a program")
    parser.add_argument("--total", type=float, default=1e9, help="begin nothing after S seconds")
    parser.add_argument("--commit", help="the commit, where git is not at hand")
    parser.add_argument("--list", action="store_true", help="name the programs")
    parser.add_argument("--seed", type=int, default=0, help="what the corpus is drawn by")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time of each GPU")
    parser.add_argument("--gpus", type=int, default=1, help="how many GPUs there are to use")
    parser.add_argument("--texts", type=Path, help="a folder for the HLO of each executable")
    for hidden, kind in (("--one", str), ("--alone", Path), ("--text", Path)):
        parser.add_argument(hidden, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--again", type=Path, help="a file whose kernels are modelled anew")
    asked = parser.parse_args()
    if asked.again is not None:
        from fusionstitch.costmodel.devices import device

        kept = json.loads(asked.again.read_text())
        [*_, name] = kept["environment"]["gpu"].lower().split()
        found_again = modelled_again(kept, asked.texts, device(name))
        results_file.write(asked.json, found_again)
        return
    if asked.one:
        _child(asked.one, asked)
        return
    found = programs(asked.names)
    if asked.list or asked.json is None:
        print("\n".join(found))
        return
    if asked.texts is not None:
        asked.texts.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {
        "command": f"python -m benchmarks.model_kernels {' '.join(sys.argv[1:])}",
        "environment": describe(asked.commit),
        "programs": {},
        "failed": {},
    }
    for name, one in all_recorded(list(found), asked):
        if "failed" in one:
            content["failed"][name] = one["failed"]
        else:
            content["programs"][name] = one
        print(_line(name, one), flush=True)
        results_file.write(asked.json, content)


if __name__ == "__main__":
    main()
