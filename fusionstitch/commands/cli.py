"""The command `fusionstitch`: report, explain, gaps, diff, emit, tune, calibrate, doctor, cache."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from fusionstitch import env
from fusionstitch.commands.interrupts import heard
from fusionstitch.commands.output import STDOUT, check_writable, put, say, write, write_json
from fusionstitch.errors import FusionStitchError
from fusionstitch.options import Options
from fusionstitch.supported import missing

if TYPE_CHECKING:
    from fusionstitch.execution.call import Call

_EXIT_FAILURE = 1
_EXIT_USER_ERROR = 2
logger = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0 for success, 2 for what the user can fix or has
    interrupted, else 1."""
    parsed = command_line().parse_args(arguments)
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        if run is not _doctor:  # which continues and lists what is wrong
            env.LOG.get()
        with heard():
            return run(parsed)
    except KeyboardInterrupt:
        say("fusionstitch: interrupted", "stderr")
        return _EXIT_USER_ERROR
    except FusionStitchError as error:
        say(f"fusionstitch: {error}", "stderr")
        return _EXIT_USER_ERROR
    except BrokenPipeError:
        if sys.stderr is not None:
            sys.stderr.close()
        return 0
    except Exception as error:
        logger.debug("the command failed", exc_info=True)
        if lacking := missing(error):
            say(f"fusionstitch: {lacking}", "stderr")
            return _EXIT_USER_ERROR
        say(
            f"fusionstitch: {type(error).__name__}: {error}\n"
            "FUSIONSTITCH_LOG=debug shows where this comes from.",
            "stderr",
        )
        return _EXIT_FAILURE


class _Parser(argparse.ArgumentParser):
    """A parser whose errors fit on one line."""

    def error(self, message: str) -> NoReturn:
        say(f"{self.prog}: {message}. {self.prog} --help lists what it takes.", "stderr")
        raise SystemExit(_EXIT_USER_ERROR)


def _count(text: str) -> int:
    """Parses a count."""
    if (number := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def _seconds(text: str) -> float:
    if not 0 < (seconds := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of seconds")
    return seconds


def command_line() -> argparse.ArgumentParser:
    """The parser of the command; docs/_ext/command.py writes the reference from it."""
    parser = _Parser(
        prog="fusionstitch",
        description="Stitches memory-bound ops of JAX programs into single CUDA kernels.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")

    def help_alone(_: argparse.Namespace) -> int:
        say(parser.format_help().rstrip())
        return 0

    parser.set_defaults(run=help_alone)
    commands = parser.add_subparsers(metavar="COMMAND")

    what = (
        "file.py:name or package.module:name, where name() returns (function, arguments); "
        "or a file of HLO text, StableHLO or an HloModuleProto"
    )
    target = _Parser(add_help=False)
    target.add_argument("target", metavar="TARGET", help=what)
    _planning(target)

    report = commands.add_parser(
        "report", parents=[target], help="kernels, traffic, times and errors against XLA"
    )
    report.add_argument(
        "--json", type=Path, metavar="FILE", help="also write it as JSON ('-': stdout, instead)"
    )
    report.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help="also write it as one page of HTML, to look into ('-': stdout, instead of the text)",
    )
    report.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="also write its timelines as a Chrome trace ('-': stdout, instead of the text)",
    )
    report.set_defaults(run=_report)

    explain = commands.add_parser(
        "explain",
        parents=[target],
        help="what was stitched, what was not, and why; or what became of some ops",
    )
    explain.add_argument(
        "--op", metavar="NAME", help="the ops of this HLO name, JAX scope or Python function"
    )
    explain.add_argument("--line", metavar="FILE:LINE", help="the ops that this line called")
    explain.add_argument("--kernel", metavar="NAME", help="the ops in this kernel")
    explain.add_argument(
        "--rejected", action="store_true", help="also each candidate that was turned down"
    )
    _as_json(explain)
    explain.set_defaults(run=_explain)

    gaps = commands.add_parser(
        "gaps", help="where programs lose most time above what the device could reach, and why"
    )
    gaps.add_argument("targets", metavar="TARGET", nargs="+", help=what)
    gaps.add_argument(
        "--limit", type=_count, default=20, metavar="N", help="gaps that are listed; default: 20"
    )
    _planning(gaps)
    _as_json(gaps)
    gaps.set_defaults(run=_gaps)

    diff = commands.add_parser("diff", help="how two plans differ")
    for name in ("before", "after"):
        diff.add_argument(
            name,
            metavar=name.upper(),
            help="a target as for report, or a JSON file that explain or report wrote",
        )
    _planning(diff)
    _as_json(diff)
    diff.set_defaults(run=_diff)

    emit = commands.add_parser("emit", parents=[target], help="write the generated kernels")
    emit.add_argument(
        "-o", "--output", type=Path, default=Path("kernels"), metavar="DIR", help="default: kernels"
    )
    emit.add_argument(
        "--template",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        dest="templates",
        help="the schedule of the kernel that the file is named after, changed from one that emit "
        "wrote; may be given several times",
    )
    emit.add_argument(
        "--variants",
        type=_count,
        default=0,
        metavar="N",
        help="also write the N neighbours of each kernel's template that the model calls fastest",
    )
    emit.set_defaults(run=_emit)

    tune = commands.add_parser(
        "tune", help="search schedules on the GPU at hand; later runs follow what was found"
    )
    tune.add_argument("targets", metavar="TARGET", nargs="*", help=what)
    tune.add_argument(
        "--budget", type=_seconds, default=60.0, metavar="S", help="seconds per target; default: 60"
    )
    tune.add_argument("--numerics", choices=env.NUMERICS, help="how intermediates round")
    tune.add_argument("--json", type=Path, metavar="FILE", help="also write the reports as JSON")
    tune.add_argument(
        "--import", type=Path, metavar="FILE", dest="taken", help="first take over a file's results"
    )
    tune.add_argument(
        "--export", type=Path, metavar="FILE", help="then write this GPU's results to a file"
    )
    tune.add_argument(
        "--device", help="profile whose results --export writes; default: that of the GPU at hand"
    )
    tune.set_defaults(run=_tune)

    calibrate = commands.add_parser(
        "calibrate", help="measure the GPU at hand into a device profile"
    )
    calibrate.add_argument("--device", type=int, default=0, metavar="N", help="which GPU")
    calibrate.add_argument(
        "--output", type=Path, metavar="FILE", help="where the profile goes; default: stdout"
    )
    calibrate.add_argument(
        "--gemms", type=Path, metavar="FILE", help="measure XLA's dots instead, into this table"
    )
    calibrate.add_argument(
        "--reductions", type=Path, metavar="FILE", help="measure XLA's reductions instead"
    )
    calibrate.add_argument(
        "--budget",
        type=_seconds,
        default=120.0,
        metavar="S",
        help="seconds for a table; default: 120",
    )
    calibrate.set_defaults(run=_calibrate)

    doctor = commands.add_parser("doctor", help="what this machine has and what is missing")
    _as_json(doctor)
    doctor.set_defaults(run=_doctor)

    cache = commands.add_parser("cache", help="the cache of compiled kernels, programs and timings")
    cache.add_argument(
        "action",
        choices=("status", "trim", "clear"),
        help="trim: forget what was used least recently, down to FUSIONSTITCH_CACHE_LIMIT",
    )
    cache.set_defaults(run=_cache)
    return parser


def _planning(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say how a target is planned, and for which device."""
    parser.add_argument("--device", help="profile to plan for, such as h200; need not be here")
    parser.add_argument("--backend", choices=env.BACKENDS, help="where kernels run")
    parser.add_argument("--numerics", choices=env.NUMERICS, help="how intermediates round")
    parser.add_argument("--scorer", choices=env.SCORERS, help="what a pattern is worth")
    parser.add_argument("--fallback", choices=env.FALLBACKS, help="what a failure does")


def _as_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json",
        type=Path,
        nargs="?",
        const=STDOUT,
        metavar="FILE",
        help="as JSON instead, into a file or onto stdout",
    )


def _version() -> str:
    from fusionstitch.version import __version__

    return __version__


def _show_warning(message: Warning | str, *_: object) -> None:
    say(f"warning: {message}", "stderr")


def _call(parsed: argparse.Namespace) -> Call:
    from fusionstitch.commands import targets
    from fusionstitch.runtime.outcome import Failed
    from fusionstitch.runtime.signals import held

    env.check()
    # JAX extensions turn an interrupt into an ImportError; a missing JAX is reported later
    found = held(lambda: importlib.import_module("jax"))
    if isinstance(found, Failed) and missing(found.error):
        raise found.error
    chosen = ("device", "backend", "numerics", "scorer", "fallback")
    given = {name: value for name in chosen if (value := getattr(parsed, name, None)) is not None}
    call = targets.call(parsed.target)
    return replace(call, options=call.options.replace(**given))


def _report(parsed: argparse.Namespace) -> int:
    from fusionstitch.commands.targets import heard_on_stderr
    from fusionstitch.reports.report import report_call

    wanted = parsed.json, parsed.html, parsed.trace
    for path in wanted:
        check_writable(path)
    if wanted.count(STDOUT) > 1:
        raise FusionStitchError("Only one of --json, --html and --trace can go to stdout.")
    with heard_on_stderr():
        report = report_call(_call(parsed), _workload(parsed.target))
    if STDOUT not in wanted:
        say(report)
    if parsed.json is not None:
        write_json(parsed.json, report.to_dict())
    if parsed.html is not None:
        write(parsed.html, report.to_html())
    if parsed.trace is not None:
        write_json(parsed.trace, report.to_trace(), indent=None)
    return 0


def _workload(target: str) -> str:
    module, colon, name = target.rpartition(":")
    return f"{Path(module).stem}:{name}" if colon else Path(target).stem


def _explain(parsed: argparse.Namespace) -> int:
    from fusionstitch.commands.targets import heard_on_stderr
    from fusionstitch.reports import trial
    from fusionstitch.reports.answered import answered, to_dict
    from fusionstitch.reports.explain import explain
    from fusionstitch.reports.questions import Question

    check_writable(parsed.json)
    question = Question(parsed.op, parsed.line, parsed.kernel)  # fails early if invalid
    with heard_on_stderr():
        stitched = trial.plan(_call(parsed))
    if parsed.json is not None:
        data = {"workload": _workload(parsed.target), **to_dict(stitched, question)}
        write_json(parsed.json, data)
        return 0
    say(answered(stitched, question) if question else explain(stitched, parsed.rejected))
    return 0


def _gaps(parsed: argparse.Namespace) -> int:
    from fusionstitch.commands.targets import heard_on_stderr
    from fusionstitch.reports import gaps, trial

    check_writable(parsed.json)
    planned, failed = [], []
    for target in parsed.targets:
        try:
            with heard_on_stderr():
                plan = trial.plan(_call(argparse.Namespace(**{**vars(parsed), "target": target})))
        except Exception as error:  # the other targets have gaps as well
            logger.debug("planning %s failed", target, exc_info=True)
            failed.append(error)
            say(f"fusionstitch: {target}: {error}", "stderr")
            continue
        planned.append((_workload(target), plan))
    found = gaps.gaps(planned)
    if parsed.json is not None:
        write_json(parsed.json, found.to_dict(parsed.limit))
    elif planned:
        say(found.text(parsed.limit))
    return _exit_code(failed)


def _exit_code(failed: Sequence[Exception]) -> int:
    """The exit code of a command with these failed targets."""
    expected = all(isinstance(error, FusionStitchError) for error in failed)
    return 0 if not failed else _EXIT_USER_ERROR if expected else _EXIT_FAILURE


def _diff(parsed: argparse.Namespace) -> int:
    from fusionstitch.commands.targets import heard_on_stderr
    from fusionstitch.reports import differences, sides, trial

    check_writable(parsed.json)
    found = []
    for target in (parsed.before, parsed.after):
        if target.endswith(".json"):
            found.append(sides.of_file(Path(target)))
        else:
            with heard_on_stderr():
                plan = trial.plan(_call(argparse.Namespace(**{**vars(parsed), "target": target})))
            found.append(sides.of_program(_workload(target), plan))
    difference = differences.compare(*found)
    if parsed.json is not None:
        write_json(parsed.json, difference.to_dict())
    else:
        say(differences.text(difference))
    return 0


def _emit(parsed: argparse.Namespace) -> int:
    from fusionstitch.commands import targets
    from fusionstitch.reports import trial
    from fusionstitch.reports.emitted import write

    if parsed.output.exists() and not parsed.output.is_dir():
        raise FusionStitchError(f"{parsed.output} is a file: name a folder with -o.")
    templates = targets.templates(parsed.templates)
    with targets.heard_on_stderr():
        call = _call(parsed)
        if templates:
            given = {**call.options.templates, **templates}
            call = replace(call, options=call.options.replace(templates=given))
        stitched = trial.plan(call)
    known = [kernel.name for kernel in stitched.kernels]
    if missing := [name for name in templates if name not in known]:
        raise FusionStitchError(
            " ".join(
                [
                    f"No kernel is called {', '.join(missing)}; there are: "
                    f"{', '.join(known) or 'none'}.",
                    *(f"Left to XLA: {one.reason}" for one in stitched.fallbacks),
                ]
            )
        )
    paths = write(stitched, parsed.output)
    for path in paths:
        say(path)
    if parsed.variants > 0:
        from fusionstitch.reports.priced import write_variants

        for line in write_variants(stitched, call.options, parsed.output, parsed.variants):
            say(line)
    if not paths:
        say(
            f"{_workload(parsed.target)} for {stitched.device.name}: no kernel, so no file was "
            "written. `fusionstitch explain` with the same arguments says why.",
            "stderr",
        )
    return 0


def _tune(parsed: argparse.Namespace) -> int:
    from fusionstitch.commands.targets import heard_on_stderr
    from fusionstitch.compiler import builders
    from fusionstitch.costmodel import devices
    from fusionstitch.tuning.tune import export_results, import_results, tune_call

    if not (parsed.targets or parsed.taken or parsed.export):
        raise FusionStitchError("Name a target to tune, or use --import or --export.")
    check_writable(parsed.json)
    check_writable(parsed.export, stdout=False)
    if parsed.device is not None:
        devices.device(parsed.device)  # a wrong name fails before tuning starts
    if parsed.taken is not None:
        device, count = import_results(parsed.taken)
        say(f"{count} results for {device} taken from {parsed.taken}")
    reports, failed = [], []
    for target in parsed.targets:
        try:
            with heard_on_stderr():
                call = _call(argparse.Namespace(target=target, numerics=parsed.numerics))
                reports.append(tune_call(call, parsed.budget, _workload(target)))
        except Exception as error:  # the other targets can still be tuned
            logger.debug("tuning %s failed", target, exc_info=True)
            failed.append(error)
            say(f"fusionstitch: {target}: {error}", "stderr")
            continue
        if parsed.json != STDOUT:
            say(reports[-1])
        if parsed.export is not None:  # results are saved in case a later target takes too long
            export_results(parsed.export, reports[-1].device)
    if parsed.json is not None:
        write_json(parsed.json, [report.to_dict() for report in reports])
    if parsed.export is not None:
        device = parsed.device or builders.profile(Options(backend="auto")).name
        count = export_results(parsed.export, device)
        stream = "stderr" if parsed.json == STDOUT else "stdout"
        say(f"{count} results for {device} in {parsed.export}", stream)
    return _exit_code(failed)


def _calibrate(parsed: argparse.Namespace) -> int:
    from fusionstitch.compiler import progress
    from fusionstitch.measure.calibrate import MEASURED, calibrate, to_json

    check_writable(parsed.output)
    if parsed.gemms is not None or parsed.reductions is not None:
        return _tables(parsed)
    with progress.counted("measures this GPU", MEASURED) as step:
        profile = calibrate(parsed.device, step)
    if parsed.output in (None, STDOUT):
        put(to_json(profile).rstrip("\n"))
    else:
        write(parsed.output, to_json(profile))
        say(f"{profile.name}: {profile.measured}")
        say(f"use it with FUSIONSTITCH_PROFILE={parsed.output}")
    return 0


def _tables(parsed: argparse.Namespace) -> int:
    """Writes tables of times of XLA's own kernels, each into its file."""
    from fusionstitch.compiler import progress
    from fusionstitch.measure import calibrate, gemms, reductions, xla_programs

    for path in (parsed.gemms, parsed.reductions):
        check_writable(path, stdout=False)
    meter = calibrate.meter(parsed.device)
    grids: dict[str, Iterator[xla_programs.Program]]
    grids = {"gemms": gemms.grid(), "reductions": reductions.grid()}
    for name, grid in grids.items():
        path = getattr(parsed, name)
        if path is not None:
            programs = list(grid)
            with progress.counted(f"measures {name}", len(programs)) as step:
                found = xla_programs.measure(meter, programs, parsed.budget, step)
            write(path, xla_programs.to_json(meter, name, found))
            say(f"{len(found)} of {len(programs)} {name} in {path}")
    return 0


def _doctor(parsed: argparse.Namespace) -> int:
    from fusionstitch.commands.doctor import examine

    found = examine()
    if parsed.json is not None:
        write_json(parsed.json, found.to_dict())
    else:
        say(found.text)
    return _EXIT_USER_ERROR if found.wrong else 0


def _cache(parsed: argparse.Namespace) -> int:
    from fusionstitch.runtime.cache import Database, Store

    store, database = Store(), Database()
    if parsed.action == "clear":
        store.clear()
        database.clear()
    if parsed.action == "trim" and store.limit is not None:
        store.trim(store.limit)
    entries, size = store.usage()
    say(f"folder   {store.folder}{'' if store.persistent else ' (not usable, see the log)'}")
    say(f"objects  {entries}, {size / 1e6:.1f} MB")
    say(f"limit    {'none' if store.limit is None else f'{store.limit / 1e6:.1f} MB'}")
    database.close()
    return 0 if store.persistent else _EXIT_USER_ERROR
