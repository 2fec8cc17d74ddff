"""Prices of ops: how much of the best plan's score a candidate may lose before it is excluded.

The Lagrangian relaxation of set packing (Held and Karp's subgradient method, with Polyak's steps):
every constraint gets a price, and a candidate pays the prices of its constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: The most steps of the subgradient method, and steps without a better bound before the step is
#: shortened.
STEPS = 30
PATIENCE = 3
#: A packing is sought under the current prices after every this many steps.
LOOK = 10
#: Relative difference to the bound within which values count as equal.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Prices:
    """Bounds on packings. No packing is worth more than `bound` minus the `lost` of its columns and
    the `unused` of the rows that it does not cover. Some packing is worth at least `bound -
    gap`."""

    bound: float
    unused: tuple[float, ...]
    lost: tuple[float, ...]
    gap: float

    @property
    def remaining(self) -> list[int]:
        """The columns that may be in the best packing."""
        return [column for column, lost in enumerate(self.lost) if lost <= self.gap]


def priced(columns: Sequence[Sequence[int]], weights: Sequence[float], rows: int) -> Prices:
    """Prices of `rows` rows, of which each may be in at most one chosen column.

    `columns` lists the rows of each column, at least one; `weights` are the columns' values.
    """
    row_of = np.array([r for column in columns for r in column])
    column_of = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
    weight = np.asarray(weights, np.float64)
    share = weight / np.bincount(column_of)
    prices = np.zeros(rows)
    np.maximum.at(prices, row_of, share[column_of])
    masks = [sum(1 << r for r in column) for column in columns]
    least = max(_worth(masks, weights, np.argsort(-key, kind="stable")) for key in (weight, share))
    bound, best, scale, stuck = np.inf, prices, 1.0, 0
    for step in range(STEPS):
        profit = weight - np.bincount(column_of, prices[row_of], len(columns))
        taken = profit > 0
        value = float(prices.sum() + profit[taken].sum())
        if value < bound - ROUNDING * value:
            bound, best, stuck = value, prices, 0
        else:
            stuck += 1
        if step % LOOK == 0:
            least = max(least, _worth(masks, weights, np.argsort(-profit, kind="stable")))
        if bound - least <= ROUNDING * bound:
            break
        slope = 1.0 - np.bincount(row_of[taken[column_of]], minlength=rows)
        slope[(prices <= 0) & (slope > 0)] = 0
        if stuck == PATIENCE:
            prices, scale, stuck = best, scale / 2, 0
            continue
        length = float(slope @ slope)
        if not length:
            break
        prices = np.maximum(0, prices - scale * (value - least) / length * slope)
    return _feasible(best, columns, weight, row_of, column_of, least)


def _feasible(
    prices: np.ndarray,
    columns: Sequence[Sequence[int]],
    weight: np.ndarray,
    row_of: np.ndarray,
    column_of: np.ndarray,
    least: float,
) -> Prices:
    """Raises prices until no column makes a profit, then lowers each as far as this remains
    true."""
    lost = (np.bincount(column_of, prices[row_of], len(columns)) - weight).tolist()
    price = prices.tolist()
    holders: list[list[int]] = [[] for _ in price]
    for column, rows_of_column in enumerate(columns):
        for row in rows_of_column:
            holders[row].append(column)

    def change(row: int, by: float) -> None:
        price[row] += by
        for column in holders[row]:
            lost[column] += by

    for column in sorted(range(len(columns)), key=lambda c: (lost[c], c)):
        missing = -lost[column] / len(columns[column])
        if missing > 0:
            for row in columns[column]:
                change(row, missing)
    for row in range(len(price)):
        change(row, -min(price[row], max(0.0, min((lost[c] for c in holders[row]), default=0.0))))
    bound = sum(price)
    gap = max(0.0, bound - least) + ROUNDING * bound
    return Prices(bound, tuple(price), tuple(max(0.0, each) for each in lost), gap)


def _worth(masks: Sequence[int], weights: Sequence[float], order: np.ndarray) -> float:
    """The value of the packing that takes columns in this order whenever they fit."""
    used, worth = 0, 0.0
    for column in order.tolist():
        if not used & masks[column]:
            used |= masks[column]
            worth += weights[column]
    return worth
