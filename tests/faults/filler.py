"""One process of many on one cache: fills it without end, and checks all that it gets from it.

Usage: python -m tests.faults.filler objects|programs SEED. "objects" are small C++ functions that
are compiled, kept, loaded and called; "programs" are JAX functions under fs.jit. Prints one line
for each that was right.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fusionstitch.runtime import toolchain
from fusionstitch.runtime.cache import Database, Store

KEYS = 24
PROGRAMS = 4


def payload(number: int) -> bytes:
    """What belongs to a key: a few hundred kilobytes, so that a write takes a while."""
    return hashlib.sha256(b"%d" % number).digest() * 10_000


def check_object(draw: random.Random, folder: str) -> None:
    number = draw.randrange(KEYS)
    store, database = Store(), Database()
    assert store.persistent
    source = f'extern "C" int answer() {{ return {number}; }}'
    path = Path(folder) / f"{draw.random()}.so"
    path.write_bytes(toolchain.compile_shared(source, store=store))
    assert ctypes.CDLL(str(path)).answer() == number
    path.unlink()
    for other in range(KEYS):
        assert store.get(f"bytes-{other}") in (None, payload(other))
    store.put(f"bytes-{number}", payload(number))
    assert store.get(f"bytes-{number}") == payload(number)
    database.put_timing(f"time-{number}", "h200", float(number), {"number": number})
    found = database.get_timing(f"time-{number}", "h200")
    assert found is not None
    assert (found.us, found.meta) == (number, {"number": number})
    assert database.persistent
    database.close()
    assert store.persistent


def program(number: int) -> Callable[[Any], Any]:
    def fun(x: Any) -> Any:
        s = x - x.sum(1, keepdims=True) * (number + 1)
        return s * (s * x).sum(0)

    return fun


def check_program(draw: random.Random, _: str) -> None:
    import jax
    import numpy as np

    import fusionstitch as fs

    number = draw.randrange(PROGRAMS)
    # of one sign: sums that nearly cancel would differ by more than rounding allows
    x = np.random.default_rng(draw.randrange(99)).uniform(0.5, 1.5, (6, 8)).astype(np.float32)
    options = fs.Options(backend="emulate", scorer="paper", fallback="error")
    ours = np.asarray(fs.jit(program(number), options=options)(x))
    theirs = np.asarray(jax.jit(program(number))(x))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def main(kind: str, seed: str) -> None:
    warnings.simplefilter("error")
    draw = random.Random(seed)
    check = check_program if kind == "programs" else check_object
    with tempfile.TemporaryDirectory(prefix="fusionstitch-") as folder:
        for count in itertools.count():
            check(draw, folder)
            print(kind, count, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
