"""Calls into CUDA's driver are counted, whichever way a function of it was found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import driver_calls
from fusionstitch.runtime.toolchain import compile_shared

ROOT = Path(__file__).parents[2]
DRIVER = """
extern "C" {
long cuOne(long a, long b, long c, long d, long e, long f, long g) { return 100 * a + 10 * f + g; }
int cuTwo(void** out) { *out = out; return 700; }
int other() { return 9; }
int cuGetProcAddress_v2(const char* name, void** function, int, unsigned long, void* found) {
  *function = name[2] == 'T' ? reinterpret_cast<void*>(cuTwo) : nullptr;
  *static_cast<int*>(found) = 3;
  return name[2] == 'T' ? 0 : 500;
}
}
"""
USE = """
import ctypes, json, sys
from benchmarks.driver_calls import Counter
driver = ctypes.CDLL(sys.argv[1])
driver.cuOne(*range(7))
Counter().reset()
one = [driver.cuOne(*range(k, k + 7)) for k in (1, 2)]
two, found, out = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
find = lambda name: driver.cuGetProcAddress_v2(
    name, ctypes.byref(two), 12000, ctypes.c_ulong(0), ctypes.byref(found))
missing = find(b"cuNone"), two.value
status = find(b"cuTwo"), found.value
cuTwo = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(two.value)
first = two.value
find(b"cuTwo")
results = one, missing, status, cuTwo(ctypes.addressof(out)), out.value == ctypes.addressof(out)
counts = {count.name: (count.calls, count.us > 0) for count in Counter().counts()}
print(json.dumps([results, first == two.value, driver.other(), counts]))
"""


def test_functions_are_counted_and_do_what_they_did(tmp_path: Path) -> None:
    driver = tmp_path / "libdriver.so"
    driver.write_bytes(compile_shared(DRIVER))
    printed = subprocess.run(
        [sys.executable, "-c", USE, str(driver)],
        env=driver_calls.preloading(tmp_path),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    results, again, other, counts = json.loads(printed)
    assert results == [[167, 278], [500, None], [0, 3], 700, True]
    assert again
    assert other == 9
    assert {name: count for name, count in counts.items() if count[0]} == {
        "cuOne": [2, True],
        "cuTwo": [1, True],
    }


def test_both_sides_of_a_program(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "small")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert driver_calls.main(["logistic.py:train_step"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split(":")[1] for line in lines] == ["train_step, XLA", "train_step, fusionstitch"]
    assert all(line.endswith("us a call, 0.0 of them in the driver") for line in lines)


def test_an_unknown_target_is_said_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(driver_calls, "preloading")
    with pytest.raises(SystemExit):
        driver_calls.main(["nothing.py:here"])
    assert "No target is called nothing.py:here." in capsys.readouterr().err
