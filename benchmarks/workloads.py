"""What is measured: every target of the examples, and how its calls follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.suites import SUITES

#: Which part of the result is the next call's first argument: all of it, its first element, none.
Chain = Literal["all", "first", ""]


@dataclass(frozen=True)
class Workload:
    """A target of the examples. The state of a chained one is donated, as in training.

    `passes`: how often its largest array has to cross DRAM, where that is more than each input and
    output once. `long`: it takes long to compile, so it is begun first. `why_slower` is the reason
    of a loss against XLA, shown only where one was measured.
    """

    target: str
    chain: Chain = ""
    passes: int = 0
    long: bool = False
    why_slower: str = ""

    @property
    def path(self) -> str:
        """The target as the command line takes it."""
        return f"examples/{self.target}"

    @property
    def jit_keywords(self) -> dict[str, Any]:
        """Those of jax.jit and fs.jit: the state of a chained one is donated."""
        return {"donate_argnums": 0} if self.chain else {}

    def next_state(self, result: Any) -> Any:
        """The first argument of the next call."""
        return result[0] if self.chain == "first" else result

    def floor_bytes(self, inputs: Sequence[int], outputs: Sequence[int]) -> int:
        """The least DRAM traffic of a call, from the bytes of its inputs and outputs."""
        sizes = [*inputs, *outputs]
        return self.passes * max(sizes) if self.passes else sum(sizes)


WORKLOADS = (
    Workload("logistic.py:train_step", "first"),
    Workload("word2vec.py:train_step", "first"),
    Workload("word2vec.py:evaluation"),
    Workload("bi_rnn.py:train_step", "first"),
    Workload("bi_rnn.py:train_step_last_output", "first"),
    Workload("dyn_rnn.py:train_step", "first"),
    Workload("dyn_rnn.py:train_step_scan", "first"),
    Workload("perceptron.py:train_step", "first"),
    Workload("var_encoder.py:train_step", "first"),
    Workload("nmt.py:greedy", long=True),
    Workload("nmt.py:beam", long=True),
    Workload("multi_interests.py:train_step", "first"),
    Workload("rokid.py:train_step", "first", long=True),
    Workload("aiwriter.py:train_step", "first", long=True),
    Workload("figure1.py:original"),
    Workload("figure1.py:deep"),
    Workload("figure1.py:variant"),
    Workload("softmax.py:rows"),
    Workload("norms.py:forward"),
    Workload("norms.py:residual_norm_gelu"),
    Workload("norms.py:backward"),
    Workload("norms.py:rms_backward"),
    # both ways statistics of the whole tensor come before what uses them: three passes each
    Workload("norms.py:batch_backward", passes=6),
    Workload("norms.py:dropout"),
    Workload("cross_entropy.py:vocabulary"),
    Workload("cross_entropy.py:long_vocabulary"),
    Workload("adam.py:gpt2_small", "all"),
    Workload("rmsprop.py:rmsprop100", "all"),
    Workload("transformer.py:block_forward"),
    Workload("transformer.py:block_gradient"),
    Workload("transformer.py:train_step", "first"),
    Workload("resnet.py:train_step", "first"),
    Workload("dlrm.py:train_step", "first"),
    Workload("lorenz.py:scan"),
    Workload("black_scholes.py:options"),
    Workload("flax_training.py:train_step", "first", long=True),
    Workload("equinox_training.py:train_step", "first"),
    Workload("ode_ensemble.py:predators_and_prey"),
    Workload("nuts.py:transitions", long=True),
    Workload("image_pipeline.py:batch"),
    Workload("graph_network.py:train_step", "first"),
    Workload("decoding.py:next_token", "first"),
    Workload("lattice_boltzmann.py:channel"),
    Workload("rollout.py:cart_pole"),
    Workload("lstm_stack.py:next_characters"),
)


def find(names: Sequence[str], suites: Sequence[str] = ()) -> tuple[Workload, ...]:
    """The workloads that one of `names` or `suites` names, in the table's order; all for none.

    A name is a target (softmax.py:rows) or a file of them (norms). Raises ValueError for a name
    that no target contains, and for an unknown suite.
    """
    for suite in suites:
        if suite not in SUITES:
            raise ValueError(f"No suite is called {suite}. There are: {', '.join(SUITES)}.")
    for name in names:
        if not any(_named(w, name) for w in WORKLOADS):
            known = ", ".join(w.target for w in WORKLOADS)
            raise ValueError(f"No target is called {name}. There are: {known}.")
    if not names and not suites:
        return WORKLOADS
    members = {target for suite in suites for target in SUITES[suite]}
    return tuple(
        w for w in WORKLOADS if w.target in members or any(_named(w, name) for name in names)
    )


def _named(workload: Workload, name: str) -> bool:
    name = name.removeprefix("examples/")
    file, _, _ = workload.target.partition(":")
    return name in (workload.target, file, file.removesuffix(".py"))


def module_of(target: str) -> bytes:
    """The HLO module of a target of the examples, as XLA gets it for a GPU, which need not be
    there; or what the file `target` holds."""
    path = Path(target)
    if path.is_file():
        return path.read_bytes()
    import jax

    from fusionstitch.commands.targets import load

    fun, args = load(f"examples/{target}")
    traced = jax.jit(fun, keep_unused=True).trace(*args)
    lowered: Any = traced.lower(lowering_platforms=("cuda",)).compiler_ir("hlo")
    data: bytes = lowered.as_serialized_hlo_module_proto()
    return data
