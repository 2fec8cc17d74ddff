"""Dynamic programming: tables filled row by row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


@loop("rows", batch=3, length=5, states=4)
def viterbi(batch: int = 128, length: int = 200, states: int = 48) -> Program:
    """The best tags of sentences, and the way back through the choices."""

    def one(scores: Any, moves: Any) -> Any:
        def forth(best: Any, score: Any) -> tuple[Any, Any]:
            every = best[:, None] + moves
            return every.max(axis=0) + score, every.argmax(axis=0)

        best, choices = lax.scan(forth, scores[0], scores[1:])
        last = best.argmax()

        def back(tag: Any, choice: Any) -> tuple[Any, Any]:
            return choice[tag], tag

        first, tags = lax.scan(back, last, choices, reverse=True)
        return best.max(), jnp.concatenate([first[None], tags])

    draw = Draw(41)
    fun = jax.vmap(one, in_axes=(0, None))
    return fun, (draw.normal(batch, length, states), draw.normal(states, states))


@loop("rows", batch=3, length=5, states=4)
def forward_algorithm(batch: int = 256, length: int = 200, states: int = 32) -> Program:
    """The likelihood of hidden Markov models, in logarithms."""

    def one(seen: Any, moves: Any) -> Any:
        def step(alpha: Any, score: Any) -> tuple[Any, None]:
            return jax.nn.logsumexp(alpha[:, None] + moves, axis=0) + score, None

        return jax.nn.logsumexp(lax.scan(step, seen[0], seen[1:])[0])

    draw = Draw(42)
    fun = jax.vmap(one, in_axes=(0, None))
    return fun, (draw.normal(batch, length, states), draw.normal(states, states))


@loop("rows", pairs=3, length=6)
def time_warping(pairs: int = 512, length: int = 100) -> Program:
    """Dynamic time warping: a scan along a row inside a scan over rows."""

    def one(a: Any, b: Any) -> Any:
        def row(above: Any, x: Any) -> tuple[Any, None]:
            cost = (x - b) ** 2

            def cell(left: Any, given: Any) -> tuple[Any, Any]:
                here, up, corner = given
                value = here + jnp.minimum(jnp.minimum(left, up), corner)
                return value, value

            corners = above[:-1]
            values = lax.scan(cell, jnp.float32(1e9), (cost, above[1:], corners))[1]
            return jnp.concatenate([jnp.full(1, 1e9), values]), None

        start = jnp.full(length + 1, 1e9).at[0].set(0.0)
        return lax.scan(row, start, a)[0][-1]

    draw = Draw(43)
    return jax.vmap(one), (draw.normal(pairs, length), draw.normal(pairs, length))


@loop("rows", pairs=3, length=6)
def edit_distance(pairs: int = 1024, length: int = 64) -> Program:
    """Levenshtein distances in whole numbers, row by row with a running minimum."""

    def one(a: Any, b: Any) -> Any:
        places = jnp.arange(length + 1)

        def row(above: Any, letter: Any) -> tuple[Any, None]:
            change = above[:-1] + (b != letter)
            best = jnp.minimum(above[1:] + 1, change)
            best = jnp.concatenate([above[:1] + 1, best])
            return lax.cummin(best - places) + places, None

        return lax.scan(row, places, a)[0][-1]

    draw = Draw(44)
    return jax.vmap(one), (
        draw.integers(pairs, length, high=4),
        draw.integers(pairs, length, high=4),
    )


@loop("grid", states=16, actions=2)
def value_iteration(states: int = 1024, actions: int = 8) -> Program:
    """Values of a decision process until they stand still."""

    def run(moves: Any, rewards: Any) -> Any:
        def go_on(carry: Any) -> Any:
            return (carry[1] > 1e-4) & (carry[2] < 200)

        def step(carry: Any) -> Any:
            v, _, n = carry
            new = jnp.max(rewards + 0.9 * jnp.einsum("ast,t->as", moves, v), axis=0)
            return new, jnp.abs(new - v).max(), n + 1

        return lax.while_loop(go_on, step, (jnp.zeros(states), jnp.inf, 0))[0]

    draw = Draw(45)
    moves = draw.uniform(actions, states, states)
    return run, (moves / moves.sum(axis=-1, keepdims=True), draw.normal(actions, states))


@loop("block", items=6, capacity=32)
def knapsack(items: int = 200, capacity: int = 2000) -> Program:
    """The best value by weight, items added one after the other."""

    def run(weights: Any, values: Any) -> Any:
        room = jnp.arange(capacity)

        def add(best: Any, item: Any) -> tuple[Any, None]:
            weight, value = item
            fits = room >= weight
            other = best[jnp.maximum(room - weight, 0)] + value
            return jnp.where(fits, jnp.maximum(best, other), best), None

        return lax.scan(add, jnp.zeros(capacity, jnp.int32), (weights, values))[0]

    draw = Draw(46)
    return run, (draw.integers(items, low=1, high=30), draw.integers(items, low=1, high=99))


@loop("grid", rows=6, columns=8)
def seam_carving(rows: int = 1024, columns: int = 1024) -> Program:
    """The cheapest seams down a picture: a table whose rows are filled from those above."""

    def run(cost: Any) -> Any:
        def row(i: Any, table: Any) -> Any:
            above = jnp.pad(table[i - 1], 1, constant_values=jnp.inf)
            best = jnp.minimum(jnp.minimum(above[:-2], above[1:-1]), above[2:])
            return table.at[i].set(cost[i] + best)

        return lax.fori_loop(1, rows, row, cost)

    return run, (Draw(139).uniform(rows, columns),)


@loop("rows", batch=2, nodes=4, labels=3, sweeps=2)
def belief_propagation(
    batch: int = 256, nodes: int = 32, labels: int = 8, sweeps: int = 20
) -> Program:
    """Max-sum messages both ways along rings of variables, damped."""

    def run(unary: Any, pair: Any) -> Any:
        def sweep(_: Any, messages: Any) -> Any:
            right, left = messages
            from_left = jnp.max((unary + right)[..., :, None] + pair, axis=-2)
            from_right = jnp.max((unary + left)[..., None, :] + pair, axis=-1)
            new_right, new_left = jnp.roll(from_left, 1, axis=1), jnp.roll(from_right, -1, axis=1)
            new_right -= new_right.max(axis=-1, keepdims=True)
            new_left -= new_left.max(axis=-1, keepdims=True)
            return 0.5 * (right + new_right), 0.5 * (left + new_left)

        zero = jnp.zeros_like(unary)
        right, left = lax.fori_loop(0, sweeps, sweep, (zero, zero))
        return unary + right + left

    draw = Draw(47)
    return run, (draw.normal(batch, nodes, labels), draw.normal(labels, labels))
