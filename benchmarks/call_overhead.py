"""What a call costs more under fs.jit than under jax.jit where nothing is stitched.

    python -m benchmarks.call_overhead [--rounds N] [--json FILE]

Functions in which no pattern wins are called in turns, in short batches. Per round and side the
fastest of a few batches counts; a figure is the median, over rounds, of how much more that is than
for jax.jit. Sides:

    again      an equal jax.jit: what the difference of equals is
    fs.jit     as it comes: on a GPU with what its calls have led to
    direct     what a GPU's wrapper becomes once XLA has served long enough; also without a GPU
    guarded    what it is before
    held       an object that holds jax.jit's: the least that any object with attributes of its own
               costs, since Python packs the arguments of calls of objects, those by name in a dict
    frame      the same with a Python function in between that passes its arguments on: the least
               that a wrapper costs which does anything at all around a call
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks import results_file
from benchmarks.environment import describe

BAR_US = 0.5
ROUNDS, BATCHES, CALLS = 60, 3, 200


@dataclass(frozen=True)
class Case:
    """A function, how it is jitted, and a loop of calls, which returns the last results."""

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    calls: Callable[..., Any]
    named: Mapping[str, Any] = field(default_factory=dict)
    keywords: Mapping[str, Any] = field(default_factory=dict)
    donates: bool = False


def _product(*arrays: Any) -> Any:
    first, *others = arrays
    return functools.reduce(lambda a, b: a @ b, others, first @ first)


def _named(x: Any, *, y: Any) -> Any:
    return x @ y


def _static(x: Any, times: int) -> Any:
    return x @ x if times else x


def _tree(tree: Any) -> Any:
    import jax

    return jax.tree.map(lambda x: x @ x, tree)


def _one(f: Any, n: int, x: Any) -> Any:
    for _ in range(n):
        found = f(x)
    return found


def _three(f: Any, n: int, x: Any, y: Any, z: Any) -> Any:
    for _ in range(n):
        found = f(x, y, z)
    return found


def _eight(f: Any, n: int, *given: Any) -> Any:
    a, b, c, d, e, g, h, i = given
    for _ in range(n):
        found = f(a, b, c, d, e, g, h, i)
    return found


def _by_name(f: Any, n: int, x: Any, y: Any) -> Any:
    for _ in range(n):
        found = f(x, y=y)
    return found


def _two(f: Any, n: int, x: Any, times: int) -> Any:
    for _ in range(n):
        found = f(x, times)
    return found


def _carried(f: Any, n: int, x: Any) -> Any:
    for _ in range(n):
        x = f(x)
    return x


class Owner:
    """Has the function as its method."""

    f: Any


def _method(f: Any, n: int, owner: Any, x: Any) -> Any:
    Owner.f = f
    for _ in range(n):
        found = owner.f(x)
    return found


def _ignoring(_: Any, x: Any) -> Any:
    return x @ x


def _partial(f: Any, n: int, x: Any, y: Any) -> Any:
    return _one(functools.partial(f, x), n, y)


def cases() -> dict[str, Case]:
    import jax.numpy as jnp

    xs = [jnp.eye(8) * n for n in range(1, 9)]
    tree = {f"layer {n}": {"w": xs[0], "b": xs[1], "s": xs[2]} for n in range(10)}
    return {
        "1 array": Case(_product, (xs[0],), _one),
        "3 arrays": Case(_product, tuple(xs[:3]), _three),
        "8 arrays": Case(_product, tuple(xs), _eight),
        "by name": Case(_named, (xs[0],), _by_name, {"y": xs[1]}),
        "static": Case(_static, (xs[0], 2), _two, keywords={"static_argnums": 1}),
        "30 leaves": Case(_tree, (tree,), _one),
        "donated": Case(_product, (xs[0],), _carried, keywords={"donate_argnums": 0}, donates=True),
        "method": Case(_ignoring, (Owner(), xs[0]), _method, keywords={"static_argnums": 0}),
        "partial": Case(_product, tuple(xs[:2]), _partial),
    }


def _of_a_gpu(case: Case, goes_direct: bool) -> Any:
    """The wrapper of a function of a GPU whose trial XLA has won."""
    import fusionstitch as fs
    from fusionstitch.costmodel.devices import device
    from fusionstitch.execution.cuda import Prepared
    from fusionstitch.execution.cuda_with_trials import CudaWithTrials
    from fusionstitch.execution.original import jit_again
    from fusionstitch.execution.served import Served
    from fusionstitch.execution.variants import tracing
    from fusionstitch.trial.outcome import XLA

    def fun(*args: Any, **kwargs: Any) -> Any:
        return case.run(*args, **kwargs)

    keywords = dict(case.keywords)
    options = fs.Options(fallback="xla" if goes_direct else "error")
    wrapper = fs.jit(fun, options=options, **keywords)
    own = wrapper._fusionstitch
    path = CudaWithTrials(
        fun, own.plain, jit_again, keywords, options, Prepared("0" * 16, device("h200"))
    )
    own.__dict__["execution"] = path  # what is cached there
    served = path.served
    assert isinstance(served, Served)
    with tracing():
        served.jit(XLA)(*_given(case), **case.named)
    served.add(case.arguments, dict(case.named), XLA)
    return wrapper


class Held:
    """Calls what it holds, as a `Jitted` does."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]):
        self._call = call

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...


setattr(Held, "__call__", Held.__dict__["_call"])  # noqa: B010


def _given(case: Case) -> tuple[Any, ...]:
    """Arguments that may be donated."""
    return tuple(x + 0 for x in case.arguments) if case.donates else case.arguments


def sides(case: Case) -> dict[str, Callable[..., Any]]:
    import jax

    import fusionstitch as fs

    def again(*args: Any, **kwargs: Any) -> Any:
        return case.run(*args, **kwargs)

    plain = jax.jit(case.run, **case.keywords)

    def frame(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    found = {
        "jax.jit": plain,
        "again": jax.jit(again, **case.keywords),
        "fs.jit": fs.jit(case.run, **case.keywords),
        "direct": _of_a_gpu(case, True),
        "guarded": _of_a_gpu(case, False),
    }
    # methods are bound by what jax.jit returns, not by what merely calls it
    return found if case.calls is _method else {**found, "held": Held(plain), "frame": Held(frame)}


def call_us(case: Case, function: Callable[..., Any]) -> float:
    import jax

    best = float("inf")
    for _ in range(BATCHES):
        given = (*_given(case), *case.named.values())
        began = time.perf_counter()
        results = case.calls(function, CALLS, *given)
        best = min(best, time.perf_counter() - began)
        jax.block_until_ready(results)
    return best / CALLS * 1e6


def measured(case: Case, rounds: int) -> dict[str, float]:
    """Microseconds of a call of jax.jit's, and how much more each other side takes."""
    functions = sides(case)
    for function in functions.values():
        call_us(case, function)
    times: dict[str, list[float]] = {name: [] for name in functions}
    for number in range(rounds):
        for name in list(functions)[:: 1 if number % 2 else -1]:
            times[name].append(call_us(case, functions[name]))
    base = times.pop("jax.jit")
    more = {
        name: statistics.median(a - b for a, b in zip(found, base, strict=True))
        for name, found in times.items()
    }
    return {"jax.jit": round(statistics.median(base), 2)} | {
        name: round(us, 2) for name, us in more.items()
    }


def main() -> int:
    import argparse

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", nargs="*", help="cases, by their names")
    parser.add_argument("--json")
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, case in cases().items():
        if not asked.only or name in asked.only:
            rows.append({"case": name, **measured(case, asked.rounds)})
            print(rows[-1], flush=True)
    if asked.json:
        results_file.write(asked.json, {"environment": describe(), "rows": rows})
    missed = [row["case"] for row in rows if max(row["fs.jit"], row["direct"]) > BAR_US]
    if missed:
        print(f"more than {BAR_US} us over jax.jit: {', '.join(missed)}")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
