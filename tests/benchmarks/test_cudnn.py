"""What is given to cuDNN's LSTM is the benchmark's network."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import rnn

from benchmarks.loops.cudnn import packed
from benchmarks.loops.recurrent import _lstm, lstm_train


def test_packed_weights_are_those_of_the_scan() -> None:
    _, (params, xs, _) = lstm_train(3, 4, 5)
    params, xs = jax.tree.map(jnp.asarray, (params, xs))
    weights = rnn.unpack_lstm_weights(packed(params)["flat"], 4, 4, 1, False)
    zero, lengths = jnp.zeros((1, 3, 4)), jnp.full((3,), 5, jnp.int32)
    given = jnp.swapaxes(xs, 0, 1), zero, zero, *weights, lengths
    found = rnn.lstm_ref(*given, 4, 4, 1, 0.0, False)
    np.testing.assert_allclose(found[1][0], _lstm(params, xs), rtol=1e-5, atol=1e-6)
