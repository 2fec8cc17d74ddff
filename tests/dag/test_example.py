"""The example runs without a GPU, and computes what it says."""

from __future__ import annotations

import numpy as np
import pytest
import scheduler

import fusionstitch as fs


def blurred(image: np.ndarray, radius: int) -> np.ndarray:
    side, width = len(image), 2 * radius + 1
    padded = np.pad(image.astype(np.float64), radius, mode="edge")
    parts = [padded[i : i + side, j : j + side] for i, j in np.ndindex(width, width)]
    return sum(parts) / width**2


def test_what_it_computes(host_compiler: str) -> None:
    image = np.random.default_rng(0).random((20, 20), np.float32)
    for seed in range(3):
        found = scheduler.sharpened(image, fs.dag.Scheduler(backend="emulate", seed=seed))
        soft, softer = blurred(image, 1), blurred(image, 3)
        right = np.concatenate([soft[:, 1:], soft[:, -1:]], 1)
        below = np.concatenate([soft[1:], soft[-1:]])
        mask = np.minimum(4 * (abs(right - soft) + abs(below - soft)), 1)
        sharp = np.clip(1.5 * image - 0.5 * softer, 0, 1)
        np.testing.assert_allclose(found, sharp * mask + soft * (1 - mask), rtol=1e-4, atol=1e-5)


def test_what_it_prints(capsys: pytest.CaptureFixture[str], host_compiler: str) -> None:
    scheduler.main()
    text = capsys.readouterr().out
    assert "blur -> edges (soft)\n" in text
    assert "5 kernels on 2 streams, 1 events" in text
