"""What is given to cuDNN's LSTM and GRU is the benchmark's network."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.machinery
import importlib.util
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import rnn

from benchmarks.loops import cudnn, cudnn_gru
from benchmarks.loops.recurrent import _gru, _last_gru, _lstm, _weights, lstm_train
from benchmarks.unseen.inputs import Draw
from fusionstitch.errors import MeasureError

STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 6, 4


def test_packed_weights_are_those_of_the_scan() -> None:
    _, (params, xs, _) = lstm_train(3, 4, 5)
    params, xs = jax.tree.map(jnp.asarray, (params, xs))
    weights = rnn.unpack_lstm_weights(cudnn.packed(params)["flat"], 4, 4, 1, False)
    zero, lengths = jnp.zeros((1, 3, 4)), jnp.full((3,), 5, jnp.int32)
    given = jnp.swapaxes(xs, 0, 1), zero, zero, *weights, lengths
    found = rnn.lstm_ref(*given, 4, 4, 1, 0.0, False)
    np.testing.assert_allclose(found[1][0], _lstm(params, xs), rtol=1e-5, atol=1e-6)


def by_the_manual(six: Any, xs: Any, np: Any) -> Any:
    """All states of cuDNN's GRU, its six layers numbered as its manual numbers them."""
    (wr, br), (wi, bi), (wn, bn), (rr, brr), (ri, bri), (rn, brn) = six
    h, states = np.zeros((xs.shape[1], wr.shape[0]), np.float32), []
    for x in xs:
        r = 1 / (1 + np.exp(-(x @ wr.T + h @ rr.T + br + brr)))
        i = 1 / (1 + np.exp(-(x @ wi.T + h @ ri.T + bi + bri)))
        new = np.tanh(x @ wn.T + bn + r * (h @ rn.T + brn))
        h = (1 - i) * new + i * h
        states.append(h)
    return np.stack(states)


def network() -> tuple[Any, Any, Any]:
    draw = Draw(1)
    params = _weights(draw, WIDTH, HIDDEN, 3)
    return params, draw.normal(STEPS, BATCH, WIDTH), draw.normal(STEPS, BATCH, HIDDEN)


def test_layers_are_the_gates_of_the_scan() -> None:
    params, xs, _ = network()
    six = cudnn_gru.layers(params)
    assert [m.shape for m, _ in six] == 3 * [(HIDDEN, WIDTH)] + 3 * [(HIDDEN, HIDDEN)]
    assert {b.shape for _, b in six} == {(HIDDEN,)}
    states = by_the_manual(six, xs, np)
    np.testing.assert_allclose(states, _gru(params, xs), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(states[-1], _last_gru(params, xs), rtol=1e-5, atol=1e-6)


def test_gradients_of_layers_are_those_of_the_scan() -> None:
    params, xs, dy = network()
    six = cudnn_gru.layers(params)
    _, back = jax.vjp(lambda six, xs: by_the_manual(six, xs, jnp), six, xs)
    slopes, dx = back(dy)
    found = {**cudnn_gru.joined(jax.tree.map(np.asarray, slopes)), "xs": np.asarray(dx)}
    wanted = cudnn.scanned({**params, "out": None}, xs, dy, "highest")
    assert set(wanted) == {"states", *found}
    assert max(cudnn.off(found, wanted).values()) < 1e-5


def test_joined_layers_are_the_weights() -> None:
    params, _, _ = network()
    found = cudnn_gru.joined(cudnn_gru.layers(params))
    assert set(found) == set(params)
    for name, value in params.items():
        np.testing.assert_array_equal(found[name], value)


def test_gru_programs_train_the_same_network() -> None:
    programs = cudnn.gru_programs(16, 4)
    assert set(programs) == {"xla", "fusionstitch"}
    fun, (params, xs, labels) = programs["xla"]["train"]
    assert xs.shape == (4, cudnn.BATCH, 16)
    trained, loss = fun(params, xs, labels)
    assert jax.tree.map(jnp.shape, trained) == jax.tree.map(np.shape, params)
    assert np.isfinite(loss)


def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)


def test_library_lies_in_the_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent(monkeypatch)
    spec = importlib.machinery.ModuleSpec("nvidia.cudnn", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(importlib.util, "find_spec", {"nvidia.cudnn": spec}.get)
    with pytest.raises(MeasureError, match="was not found"):
        cudnn_gru.library()
    path = tmp_path / "lib" / cudnn_gru.SONAME
    path.parent.mkdir()
    path.write_text("no library")
    assert cudnn_gru.library() == str(path)
    with pytest.raises(MeasureError, match="cannot be loaded"):
        cudnn_gru.Cudnn()


def test_library_may_be_the_systems(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_parent(name: str) -> None:
        raise ModuleNotFoundError("No module named 'nvidia'")

    absent(monkeypatch)
    monkeypatch.setattr(importlib.util, "find_spec", no_parent)
    monkeypatch.setattr(ctypes.util, "find_library", {"cudnn": cudnn_gru.SONAME}.get)
    assert cudnn_gru.library() == cudnn_gru.SONAME


def test_rows_say_that_there_is_no_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch)
    row = cudnn.by_cudnn("train", network(), {}, 1, "default")
    assert "pip install nvidia-cudnn-cu13" in cudnn.said(row)


class Library:
    """libcudnn, which answers every call with a status."""

    def __init__(self, status: int, version: int = 92801) -> None:
        def answers(value: Any) -> Any:
            return lambda *given: value

        for name in cudnn_gru.SIGNATURES:
            setattr(self, f"cudnn{name}", answers(status))
        self.cudnnGetVersion = answers(version)
        self.cudnnGetErrorString = answers(b"CUDNN_STATUS_NOT_SUPPORTED")
        self.cudnnGetLastErrorString = answers(None)


def test_errors_name_the_call_and_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn_gru, "library", lambda: "libcudnn.so")
    monkeypatch.setattr(ctypes, "CDLL", lambda path: Library(3000))
    with pytest.raises(MeasureError, match=r"^cudnnSetStream: CUDNN_STATUS_NOT_SUPPORTED \(3000\)"):
        cudnn_gru.Cudnn()("SetStream", None, 0)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: Library(0))
    cudnn_gru.Cudnn()("SetStream", None, 0)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: Library(0, 8907))
    with pytest.raises(MeasureError, match="is cuDNN 8907"):
        cudnn_gru.Cudnn()


def test_times_in_a_line() -> None:
    assert cudnn.said({"us": 3.5, "kernels_us": 2.0, "kernels": 4}) == "3.5 (2.0)"
    ours = {"us": 3.5, "algorithm": "standard", "math": "default"}
    assert cudnn.said(ours) == "3.5 (standard, default math)"
