"""The programs by name: field/program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from benchmarks.unseen import (
    geometry,
    graphs,
    language,
    optimizers,
    recommendation,
    reinforcement,
    simulation,
    speech,
    statistics,
    vision,
)
from benchmarks.unseen.inputs import Program

_FIELDS: Mapping[ModuleType, tuple[str, ...]] = {
    vision: (
        "color_jitter",
        "affine_warp",
        "anchor_matching",
        "segmentation_loss",
        "oriented_edges",
        "structural_similarity",
        "masked_autoencoder",
    ),
    language: (
        "packed_attention",
        "sliding_window_gradient",
        "label_smoothing",
        "nucleus_sampling",
        "quantized_feed_forward",
        "expert_routing",
        "cached_decoding",
        "repetition_penalty",
    ),
    speech: (
        "mel_spectrogram",
        "spectrum_augmentation",
        "conformer_convolution",
        "griffin_lim",
        "mu_law_wavenet",
    ),
    recommendation: (
        "two_towers",
        "deep_and_cross",
        "personalized_ranking",
        "click_calibration",
    ),
    graphs: (
        "node_classification",
        "graph_attention",
        "molecules",
        "page_rank",
        "sinkhorn_matching",
    ),
    reinforcement: (
        "generalized_advantages",
        "ppo_gradient",
        "distributional_targets",
        "soft_actor_critic",
        "cart_poles",
        "prioritized_replay",
    ),
    simulation: (
        "gray_scott",
        "n_body",
        "fluid_step",
        "plasma_step",
        "ocean_step",
        "ising_model",
        "stochastic_volatility",
        "wave_packet",
    ),
    statistics: (
        "overdispersed_counts",
        "robust_mixture",
        "gaussian_process",
        "bootstrap_intervals",
        "gene_expression",
        "hamiltonian_monte_carlo",
        "von_mises",
    ),
    optimizers: (
        "lion_step",
        "adafactor_step",
        "lamb_step",
        "int8_momentum",
        "private_training",
        "muon_step",
    ),
    geometry: (
        "body_kinematics",
        "sphere_tracing",
        "kalman_filters",
        "gaussian_splats",
    ),
}

#: What makes each program's function and arguments.
PROGRAMS: Mapping[str, Callable[[], Program]] = {
    f"{module.__name__.rpartition('.')[2]}/{name}": getattr(module, name)
    for module, names in _FIELDS.items()
    for name in names
}


def find(names: Sequence[str]) -> list[str]:
    """The programs that one of `names` names, in the table's order; all for none.

    A name is one of the table, its second half, or how one begins (vision). Raises ValueError for
    one that names nothing.
    """
    for name in names:
        if not any(_named(known, name) for known in PROGRAMS):
            raise ValueError(f"No program is called {name}. There are: {', '.join(PROGRAMS)}.")
    return [known for known in PROGRAMS if not names or any(_named(known, n) for n in names)]


def _named(known: str, name: str) -> bool:
    return known.startswith(name) or known.partition("/")[2] == name
