"""Every report target runs under jax.jit at its small size, and training steps learn."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import common
import dyn_rnn
import figure1
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import word2vec

FOLDER = Path(common.__file__).parent

TARGETS = [
    "adam.py:gpt2_small",
    "aiwriter.py:train_step",
    "bi_rnn.py:train_step",
    "bi_rnn.py:train_step_last_output",
    "black_scholes.py:options",
    "cross_entropy.py:long_vocabulary",
    "cross_entropy.py:vocabulary",
    "decoding.py:next_token",
    "dlrm.py:train_step",
    "dyn_rnn.py:train_step",
    "dyn_rnn.py:train_step_scan",
    "equinox_training.py:train_step",
    "figure1.py:deep",
    "figure1.py:original",
    "figure1.py:variant",
    "flax_training.py:train_step",
    "graph_network.py:train_step",
    "image_pipeline.py:batch",
    "lattice_boltzmann.py:channel",
    "logistic.py:train_step",
    "lorenz.py:scan",
    "lstm_stack.py:next_characters",
    "multi_interests.py:train_step",
    "nmt.py:beam",
    "nmt.py:greedy",
    "norms.py:backward",
    "norms.py:batch_backward",
    "norms.py:dropout",
    "norms.py:forward",
    "norms.py:residual_norm_gelu",
    "norms.py:rms_backward",
    "nuts.py:transitions",
    "ode_ensemble.py:predators_and_prey",
    "perceptron.py:train_step",
    "resnet.py:train_step",
    "rmsprop.py:rmsprop100",
    "rokid.py:train_step",
    "rollout.py:cart_pole",
    "softmax.py:rows",
    "transformer.py:block_forward",
    "transformer.py:block_gradient",
    "transformer.py:train_step",
    "var_encoder.py:train_step",
    "word2vec.py:evaluation",
    "word2vec.py:train_step",
]
STEPS = [target for target in TARGETS if ":train_step" in target]
#: Left to the slow share: XLA alone takes long to compile them.
LONG = {"nuts.py:transitions"}
#: The libraries of the `clients` extra that a file of examples imports.
CLIENTS = {
    "equinox_training": ("equinox", "optax"),
    "flax_training": ("flax", "optax"),
    "nuts": ("numpyro",),
    "ode_ensemble": ("diffrax",),
}


def load(target: str) -> common.Workload:
    """A target's function and arguments. Skips the test if a library of `CLIENTS` is missing."""
    module, name = target.split(".py:")
    for library in CLIENTS.get(module, ()):
        pytest.importorskip(library)
    return getattr(importlib.import_module(module), name)()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "small")


def finite(tree) -> bool:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert floats
    return all(bool(jnp.all(jnp.isfinite(x))) for x in floats)


def test_the_list_holds_every_target() -> None:
    found = [
        f"{path.name}:{name}"
        for path in sorted(FOLDER.glob("*.py"))
        for name in re.findall(r"^def ([a-z]\w*)\(\) -> Workload:", path.read_text(), re.MULTILINE)
    ]
    assert sorted(found) == TARGETS


@pytest.mark.parametrize(
    "target",
    [pytest.param(one, marks=pytest.mark.slow) if one in LONG else one for one in TARGETS],
)
def test_runs_and_is_finite(target: str) -> None:
    fun, args = load(target)
    result = jax.jit(fun)(*args)
    assert finite(result)
    if target in STEPS:
        state, loss = result
        assert loss.shape == ()
        before, after = jax.tree.structure(args[0]), jax.tree.structure(state)
        assert before == after


@pytest.mark.parametrize("target", STEPS)
def test_loss_falls(target: str) -> None:
    fun, (state, *batch) = load(target)
    step = jax.jit(fun)
    losses = []
    for _ in range(30):
        state, loss = step(state, *batch)
        losses.append(float(loss))
    # Steps that draw noise are compared by the mean of their ends.
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_scale_follows_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    assert common.size("large", "little") == "little"
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "full")
    assert common.size("large", "little") == "large"
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "huge")
    with pytest.raises(ValueError, match="set it to full or small"):
        common.scale()


def test_unrolled_and_scanned_recurrences_agree() -> None:
    unrolled, args = load("dyn_rnn.py:train_step")
    scanned, _ = load("dyn_rnn.py:train_step_scan")
    for one, other in zip(
        jax.tree.leaves(jax.jit(unrolled)(*args)),
        jax.tree.leaves(jax.jit(scanned)(*args)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_figure_1_has_the_ops_of_the_paper() -> None:
    fun, args = load("figure1.py:original")
    text = jax.jit(fun).lower(*args).as_text()
    counts = {
        name: text.count(f"stablehlo.{name}")
        for name in (
            "dot_general",
            "reduce(",
            "exponential",
            "log",
            "divide",
            "maximum",
            "subtract",
        )
    }
    assert counts == {
        "dot_general": 2,
        "reduce(": 2,
        "exponential": 1,
        "log": 1,
        "divide": 1,
        "maximum": 2,  # one is the body of the row maximum
        "subtract": 2,
    }
    assert [x.shape for x in fun(*args)] == [(8, 94, 2), (8, 94), (8, 94, 2), (8, 94, 2)]
    assert figure1.ROWS == 94


def test_full_sizes_are_the_published_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUSIONSTITCH_EXAMPLE_SCALE", "full")
    import adam
    import perceptron

    shapes = adam.block_shapes(768) * 12
    assert len(shapes) == 144
    assert sum(int(np.prod(s)) for s in shapes) == 85_054_464
    _, ((params, _), images, _) = perceptron.train_step()
    assert [layer["w"].shape for layer in params] == [(784, 256), (256, 256), (256, 10)]
    assert images.shape == (100, 784)
    _, (_, images, _) = load("bi_rnn.py:train_step")
    _, (_, (sequences, *_)) = load("dyn_rnn.py:train_step")
    assert images.shape == (128, 28, 28)
    assert sequences.shape == (128, 20, 1)


def test_log_uniform_negatives_follow_their_distribution() -> None:
    vocabulary, count = 50, 200_000
    drawn = np.asarray(word2vec.log_uniform(jax.random.key(0), count, vocabulary))
    ranks = np.arange(vocabulary)
    expected = np.asarray(word2vec.expected_count(jnp.asarray(ranks), vocabulary))
    expected = expected / word2vec.NEGATIVES
    assert drawn.min() == 0
    assert drawn.max() == vocabulary - 1
    np.testing.assert_allclose(expected.sum(), 1.0, rtol=1e-6)
    seen = np.bincount(drawn, minlength=vocabulary) / count
    sigma = np.sqrt(expected * (1 - expected) / count)
    assert np.all(np.abs(seen - expected) < 5 * sigma)


def test_toy_sequences_are_linear_or_random() -> None:
    sequences, labels, lengths = dyn_rnn.toy_sequences(200, 20, seed=3)
    assert lengths.min() >= 3
    assert lengths.max() == 20
    assert 60 < labels[:, 0].sum() < 140
    for row, label, length in zip(sequences[..., 0], labels, lengths, strict=True):
        values = np.round(row[:length] * 1000).astype(int)
        linear = bool(np.all(np.diff(values) == 1))
        assert linear == bool(label[0])
        assert not row[length:].any()


@pytest.mark.slow
def test_dyn_rnn_learns_the_toy_sequences() -> None:
    step, _ = load("dyn_rnn.py:train_step_scan")
    assert dyn_rnn.learn(jax.jit(step, donate_argnums=0)) > 0.9
