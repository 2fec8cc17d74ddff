"""By what the model's times of XLA's kernels are off in one program, op by op."""

from __future__ import annotations

from dataclasses import dataclass

from fusionstitch.hlo.graph import ids


@dataclass(frozen=True, eq=False)
class Scale:
    """Factors for the ops of a graph, by their ids: real time over modelled time of the kernels
    that compute them. An op counts in a set of ops by its weight (modelled microseconds); those
    that several kernels compute again have none."""

    factors: tuple[float, ...]
    weights: tuple[float, ...]

    def of(self, bits: int) -> float:
        """The factor of a kernel of the ops `bits`, of which there is at least one."""
        members = list(ids(bits))
        weight = sum(self.weights[i] for i in members)
        if weight > 0:
            return sum(self.weights[i] * self.factors[i] for i in members) / weight
        return sum(self.factors[i] for i in members) / len(members)
