"""Loops in loops, branches in loops, loops that the data ends."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.loops.table import Program, loop
from benchmarks.unseen.inputs import Draw


@loop("rows", systems=5, steps=3)
def implicit_steps(systems: int = 2048, steps: int = 100) -> Program:
    """Implicit midpoint: a fixed point by while inside a scan, per system."""

    def one(y: Any, rate: Any) -> Any:
        def step(y: Any, _: Any) -> tuple[Any, Any]:
            def go_on(carry: Any) -> Any:
                return (carry[1] > 1e-6) & (carry[2] < 20)

            def again(carry: Any) -> Any:
                new, _, n = carry
                middle = 0.5 * (y + new)
                slope = jnp.stack([middle[1], -rate * jnp.sin(middle[0])])
                better = y + 0.05 * slope
                return better, jnp.abs(better - new).max(), n + 1

            y = lax.while_loop(go_on, again, (y, jnp.float32(1.0), 0))[0]
            return y, y[0]

        return lax.scan(step, y, None, length=steps)[1]

    draw = Draw(121)
    return jax.vmap(one), (draw.normal(systems, 2), draw.uniform(systems, low=0.5, high=2.0))


@loop("block", steps=12)
def thermostat(steps: int = 5000) -> Program:
    """A state machine with lax.switch in a scan: one scalar state and a mode."""

    def run(outside: Any) -> Any:
        def heat(t: Any) -> Any:
            return t + 0.3

        def cool(t: Any) -> Any:
            return t - 0.2

        def rest(t: Any) -> Any:
            return t

        def step(carry: Any, cold: Any) -> tuple[Any, Any]:
            t, mode = carry
            t = lax.switch(mode, (rest, heat, cool), t) + 0.02 * (cold - t)
            mode = jnp.where(t < 19.0, 1, jnp.where(t > 22.0, 2, 0))
            return (t, mode), t

        return lax.scan(step, (jnp.float32(18.0), jnp.int32(0)), outside)[1]

    return run, (Draw(122).uniform(steps, low=5.0, high=35.0),)


@loop("block", size=6, steps=6)
def backtracking(size: int = 32, steps: int = 300) -> Program:
    """Descent with lax.cond: the rate shrinks where a step does not help."""

    def run(a: Any, b: Any) -> Any:
        def value(x: Any) -> Any:
            return jnp.sum((a @ x - b) ** 2) + jnp.sum(jnp.abs(x) ** 1.5)

        def step(_: Any, carry: Any) -> Any:
            x, rate, here = carry
            new = x - rate * jax.grad(lambda x: jnp.sum((a @ x - b) ** 2))(x)
            there = value(new)
            return lax.cond(
                there < here,
                lambda: (new, 1.1 * rate, there),
                lambda: (x, 0.5 * rate, here),
            )

        start = jnp.zeros(size)
        return lax.fori_loop(0, steps, step, (start, jnp.float32(0.1), value(start)))

    draw = Draw(123)
    return run, (draw.weight(size, size), draw.normal(size))


@loop("rows", systems=4, steps=4)
def events(systems: int = 4096, steps: int = 500) -> Program:
    """Bouncing balls: cond under vmap, which becomes a select, and a count of bounces."""

    def one(height: Any, speed: Any) -> Any:
        def step(carry: Any, _: Any) -> tuple[Any, None]:
            h, v, bounces = carry
            h, v = h + 0.01 * v, v - 0.0981
            carry = lax.cond(
                (h < 0) & (v < 0),
                lambda: (-h, -0.8 * v, bounces + 1),
                lambda: (h, v, bounces),
            )
            return carry, None

        return lax.scan(step, (height, speed, 0), None, length=steps)[0]

    draw = Draw(124)
    return jax.vmap(one), (draw.uniform(systems, low=0.5, high=2.0), draw.normal(systems))


@loop("rows", series=4, length=8)
def stack_machine(series: int = 1024, length: int = 128) -> Program:
    """Brackets matched on a stack: a carried buffer written where the data says."""

    def one(tokens: Any) -> Any:
        def step(carry: Any, given: Any) -> tuple[Any, Any]:
            stack, top = carry
            place, opens = given
            partner = jnp.where(opens | (top == 0), -1, stack[jnp.maximum(top - 1, 0)])
            stack = jnp.where(opens, stack.at[top].set(place), stack)
            return (stack, jnp.where(opens, top + 1, jnp.maximum(top - 1, 0))), partner

        start = jnp.zeros(length + 1, jnp.int32), 0
        return lax.scan(step, start, (jnp.arange(length), tokens))[1]

    return jax.vmap(one), (Draw(125).chance(0.5, series, length),)


@loop("rows", batch=3, steps=4, words=8)
def greedy_decoding(batch: int = 256, steps: int = 64, words: int = 128) -> Program:
    """Tokens by argmax from a recurrent cell until all sentences have ended."""

    def run(params: Any, h: Any) -> Any:
        def go_on(carry: Any) -> Any:
            return (carry[0] < steps) & ~jnp.all(carry[3])

        def step(carry: Any) -> Any:
            n, h, token, done, out = carry
            h = jnp.tanh(params["embed"][token] + h @ params["u"])
            token = jnp.where(done, 0, jnp.argmax(h @ params["out"], axis=1)).astype(jnp.int32)
            return n + 1, h, token, done | (token == 0), out.at[:, n].set(token)

        start = (
            *(0, h, jnp.ones(batch, jnp.int32), jnp.zeros(batch, bool)),
            jnp.zeros((batch, steps), jnp.int32),
        )
        return lax.while_loop(go_on, step, start)[4]

    draw = Draw(126)
    params = {"embed": draw.normal(words, 32), "u": draw.weight(32, 32)}
    params["out"] = draw.weight(32, words)
    return run, (params, draw.normal(batch, 32))
