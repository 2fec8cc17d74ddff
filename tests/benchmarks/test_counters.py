"""What the microbenchmark of counters says, of a GPU whose times are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import counters
from benchmarks.counters import Launch, busy_mhz, rows
from fusionstitch.runtime import nvrtc

#: Nanoseconds of a signal, an arrival, a barrier and a chained step on a made-up device.
SIGNAL, ARRIVAL, BARRIER, STEP = 700, 300, 1000, 750


class Known:
    """A GPU of 40 multiprocessors of 1500 MHz, each of which has every 40th block."""

    multiprocessors = 40

    def launch(
        self, entry: str, grid: int, rounds: int, first: int = 0, second: int = 0, mode: int = 0
    ) -> Launch:
        if entry == "clocks":
            return Launch(rounds * 1000, (rounds * 1500,))
        steps = grid if mode == 0 else (rounds + grid - 1) / rounds
        each = {
            "signal": 2 * (SIGNAL + second),
            "fan": 2 * SIGNAL + 10 * first * mode,
            "arrive": ARRIVAL,
            "wait": 100,
            "barrier": BARRIER,
            "zero": BARRIER + first // 64,
            "add": 20,
            "chain": STEP * steps,
        }[entry]
        return Launch(round(rounds * each), tuple(block % 40 for block in range(grid)))

    def memset_us(self, words: int) -> float:
        return 1.5 + words / 1e6


def test_each_number_is_that_of_one_part_of_a_round() -> None:
    found = {one.name: one for one in rows(Known())}
    assert found["1 to 1, the next block"].us == pytest.approx(0.701)
    distant = found["1 to 1, from block 0 to each other"]
    assert (distant.least, distant.us, distant.most) == pytest.approx((0.701, 0.72, 0.739))
    assert found["1 to 1, on the same multiprocessor"].us == pytest.approx(0.74)
    assert found["1 to 39 and all back, counters apart"].us == pytest.approx(2.18)
    assert found["arrive, 40 blocks, counters apart, after a store"].us == pytest.approx(0.3)
    assert found["barrier of the grid, 80 blocks"].us == pytest.approx(1.0)
    assert found["1024 words zeroed by block 0, and the barrier"].us == pytest.approx(1.016)
    assert found["memset of 64 words in a graph"].us == pytest.approx(1.500064)
    assert found["chain of 8 blocks, a block"].us == pytest.approx(0.75)
    assert found["wavefront of 40 blocks, a step"].us == pytest.approx(0.75)
    assert busy_mhz(Known()) == 1500


def test_names_are_different() -> None:
    found = [one.name for one in rows(Known())]
    assert len(found) == len(set(found))


@pytest.mark.skipif(not nvrtc.available(), reason=nvrtc.available().reason)
def test_its_kernels_compile() -> None:
    source = Path(counters.__file__).with_suffix(".cu").read_text()
    entries = {name for name, _ in nvrtc.compile(source, "sm_90").resources}
    assert entries == {
        *("signal", "fan", "arrive", "wait", "barrier", "zero", "add", "chain", "clocks"),
        "nothing",
    }
