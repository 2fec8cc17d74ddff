"""Pytest plugin that runs JAX's own tests with `fs.jit` in the place of jax.jit.

`--under` chooses what the tests get:

base       jax.jit itself
user       `fs.install()`: jax.jit is fs.jit, and so is the jit that JAX's test helpers import
neighbour  as user, and each program that the helpers compile ends in one op more, because a
           program of a single op leaves nothing to stitch
loops      as user, and each loop of which there is a kernel becomes one, whatever the model says;
           so do the loops that tests run without any jit

`--record FILE` takes one JSON line a test (`outcomes.py`), `--part I/N` runs the Ith of N shares
of the tests, and `--failed-in FILE` only those that such a record says have failed.
"""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jax_tests import outcomes

MODES = ("base", "user", "neighbour", "loops")
#: Marks of JAX's tests.
_MARKS = ("multiaccelerator", "SlurmMultiNodeGpuTest")
#: Primitives that JAX runs alone where a loop is in no jit.
_LOOPS = ("cond", "scan", "while")
#: Warnings that fail no test: JAX's on some machines, and what the emulator leaves to XLA.
_EXPECTED = (
    "Transparent hugepages",
    ".* the emulator leaves it to XLA",
    ".* Its arguments live on several devices",
    ".* the emulator takes programs of one device",
    ".* by reference .*, which JAX cannot export",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("JAX's tests under fs.jit")
    group.addoption("--under", choices=MODES, default="base")
    group.addoption("--record", type=Path, default=None)
    group.addoption("--part", type=_part, default=(1, 1))
    group.addoption("--failed-in", type=Path, action="append", default=[])


def _part(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not 1 <= int(index) <= int(count):
        raise ValueError(f"--part takes I/N with I from 1 to N, not {text!r}")
    return int(index), int(count)


def pytest_configure(config: pytest.Config) -> None:
    import jax

    # some of the files ask for as many, which is too late once another one has begun
    jax.config.update("jax_num_cpu_devices", 8)
    for mark in _MARKS:
        config.addinivalue_line("markers", f"{mark}: a mark of JAX's own")
    config.addinivalue_line("filterwarnings", "error")
    for text in _EXPECTED:
        config.addinivalue_line("filterwarnings", f"ignore:{text}")
    if (mode := config.getoption("under")) != "base":
        config.pluginmanager.register(_Under(mode), "under")
    if mode == "loops":
        config.add_cleanup(_whole_loops())
    in_worker = hasattr(config, "workerinput")  # of pytest-xdist: the controller hears of all
    if (path := config.getoption("record")) is not None and not in_worker:
        config.pluginmanager.register(_Recorder(path), "recorder")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    index, count = config.getoption("part")
    kept = items[index - 1 :: count]
    if logs := config.getoption("failed_in"):
        wanted = {one.test for log in logs for one in outcomes.read(log).values() if one.failed}
        kept = [item for item in kept if item.nodeid in wanted]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def _whole_loops() -> Callable[[], object]:
    """Has each loop become a kernel, in a jit or not, until what this gives is called."""
    import jax
    from jax._src import dispatch

    from benchmarks.loops.forced import taken

    plain = dispatch.xla_primitive_callable

    @functools.cache
    def jitted(primitive: Any, **params: Any) -> Callable[..., Any]:
        if primitive.name not in _LOOPS:
            return plain(primitive, **params)
        return jax.jit(functools.partial(primitive.bind, **params))

    whole = contextlib.ExitStack()
    whole.enter_context(taken())
    whole.callback(setattr, dispatch, "xla_primitive_callable", plain)
    dispatch.xla_primitive_callable = jitted
    return whole.close


class _Recorder:
    """Writes a line a test: when it ran, and again if its teardown failed."""

    def __init__(self, path: Path):
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.write(outcomes.Outcome(report.nodeid, "failed", error=str(report.longrepr)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        seen = dict(report.user_properties)
        error = str(report.longrepr) if report.failed else ""
        self.write(
            outcomes.Outcome(
                report.nodeid,
                report.outcome,
                seen.get("programs", 0),
                seen.get("patterns", 0),
                report.duration,
                error,
            )
        )

    def write(self, outcome: outcomes.Outcome) -> None:
        with self.path.open("a") as file:
            file.write(outcome.line())


class _Under:
    """Installs `fs.jit`, and counts what it stitches."""

    def __init__(self, mode: str):
        import fusionstitch as fs
        from fusionstitch.compiler import core

        self.mode, self.ready = mode, False
        self.programs = self.patterns = 0
        stitch = core.stitch

        @functools.wraps(stitch)
        def counted(*args: Any, **keywords: Any) -> Any:
            result = stitch(*args, **keywords)
            self.programs += 1
            self.patterns += len(result.stitches)
            return result

        core.stitch = counted
        if not (verdict := fs.install()):
            raise pytest.UsageError(verdict.reason)

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> None:
        # not before the first file: the helpers keep the standard output that they are imported by
        if isinstance(collector, pytest.File) and not self.ready:
            self.ready = True
            self.install_for_helpers()

    def install_for_helpers(self) -> None:
        """JAX's test helpers take jit from a module that `fs.install` leaves alone."""
        import jax
        from jax._src import api, test_util

        self.plain = api
        self.ours = types.SimpleNamespace(**{**vars(api), "jit": jax.jit})
        compiled = with_neighbour(jax.jit) if self.mode == "neighbour" else jax.jit
        test_util.api = types.SimpleNamespace(**{**vars(api), "jit": compiled})
        own = jax.jit
        own._name = api.jit._name  # type: ignore[attr-defined]  # tests are named by it
        test_util.JIT_IMPLEMENTATION = tuple(
            own if jit is api.jit else jit for jit in test_util.JIT_IMPLEMENTATION
        )

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        module = item.getparent(pytest.Module)
        if module is not None and getattr(module.obj, "api", None) is self.plain:
            module.obj.api = self.ours

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[Any]:
        self.programs = self.patterns = 0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[Any]:
        if call.when == "call":
            item.user_properties += [("programs", self.programs), ("patterns", self.patterns)]
        return (yield)


def with_neighbour(jit: Callable[..., Any]) -> Callable[..., Any]:
    """`jit` of programs whose every array passes a select by a flag that is true at run time.

    So an op has a neighbour, and the results stay what they are, to the bit.
    """
    import jax
    import numpy as np

    def passed(flag: Any, value: Any) -> Any:
        if not isinstance(value, jax.Array) or value.dtype == jax.dtypes.float0:
            return value
        if not jax.typeof(value).sharding.mesh.empty:  # a select takes flags laid out as values
            return value
        flags = jax.lax.broadcast(flag, value.shape)
        return jax.lax.select(flags, value, jax.lax.full_like(value, 0))

    def jitted(fun: Callable[..., Any]) -> Callable[..., Any]:
        def program(flag: Any, *args: Any) -> Any:
            return jax.tree.map(functools.partial(passed, flag), fun(*args))

        return functools.partial(jit(program), np.True_)

    return jitted
