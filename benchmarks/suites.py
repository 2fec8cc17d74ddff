"""Suites of workloads, as data: what the paper measured, memory-bound kernels, parts of models."""

from __future__ import annotations

from collections.abc import Mapping

#: The paper's name of each of its ten workloads (its Table 1), four applications first.
PAPER: Mapping[str, str] = {
    "nmt": "nmt.py:greedy",
    "multi-interests": "multi_interests.py:train_step",
    "rokid": "rokid.py:train_step",
    "aiwriter": "aiwriter.py:train_step",
    "logistic": "logistic.py:train_step",
    "word2vec": "word2vec.py:train_step",
    "bi-rnn": "bi_rnn.py:train_step",
    "dyn-rnn": "dyn_rnn.py:train_step",
    "perceptron": "perceptron.py:train_step",
    "var-encoder": "var_encoder.py:train_step",
}

#: Programs bound by DRAM traffic: their GPU time is set against that of a copy.
MEMORY = (
    "softmax.py:rows",
    "norms.py:residual_norm_gelu",
    "norms.py:rms_backward",
    "norms.py:backward",
    "norms.py:batch_backward",
    "cross_entropy.py:vocabulary",
    "adam.py:gpt2_small",
)

_SUITES: Mapping[str, tuple[str, ...]] = {
    "paper": tuple(PAPER.values()),
    "memory": MEMORY,
    "arithmetic": ("black_scholes.py:options", "norms.py:dropout"),
    "patterns": (
        "figure1.py:original",
        "figure1.py:deep",
        "rmsprop.py:rmsprop100",
        "cross_entropy.py:long_vocabulary",
    ),
    "model": (
        "transformer.py:block_forward",
        "transformer.py:block_gradient",
        "transformer.py:train_step",
        "resnet.py:train_step",
        "dlrm.py:train_step",
    ),
}

#: Targets by the name of the suite; "all" is every target of the others, once.
SUITES: Mapping[str, tuple[str, ...]] = {
    **_SUITES,
    "all": tuple(dict.fromkeys(target for suite in _SUITES.values() for target in suite)),
}
