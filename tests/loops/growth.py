"""Grown programs: loops of all kinds, in each other, one after the other, in branches, under vmap.

`program(choices)` is a JAX function with its arguments; `from_seed` one for long runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.loops.growing import ROUGH, Choices, Value, drawn, is_float
from tests.loops.rare import Rare

#: Steps of a program, each as often as JAX traces it.
MOST_STEPS = 100
TRIPS = (3, 0, 1, 2, 4, 5)


class Growth(Rare):
    """Grows a function by steps, branches and loops."""

    def steps(self, most: int) -> None:
        for _ in range(self.number(1, most)):
            self.left -= 1
            if self.left < 0:
                return
            kind = self.number(0, 15)
            if kind == 15 and self.depth < 3:
                self.loop()
            elif kind == 14 and self.depth < 3:
                self.pick((self.branches, self.loops_in_branches))()
            elif kind == 13 and self.depth < 3 and not self.smooth:
                self.rows_of_loops()
            else:
                getattr(self, self.pick(self.STEPS))()

    # ---- branches -------------------------------------------------------------------------------

    def branches(self) -> None:
        like = self.any()
        count = self.number(2, 3)

        def branch() -> Any:
            with self.scope():
                self.steps(2)
                return self.handed_on(like.dims, like.dtype).x

        ways = [lambda: branch() for _ in range(count)]  # JAX traces a function once
        if count == 2:
            found = lax.cond(self.like((), jnp.bool_).x, *ways)
        else:
            found = lax.switch(self.at() % 4, ways)
        self.values.append(Value(found))

    def loops_in_branches(self) -> None:
        """Branches of which most have a loop that goes on with what there is."""
        start = [v for v in self.values[-3:] if not v.rough] or self.carried()

        def branch() -> Any:
            with self.scope(start):
                kind = self.number(0, 4)
                if kind < 3:
                    return self.more_turns(start, data=kind == 2 and not self.smooth)
                self.loop() if kind == 3 else self.steps(2)
                return [self.handed_on(v.dims, v.dtype).x for v in start]

        ways = [lambda: branch() for _ in range(self.number(2, 3))]  # JAX traces a function once
        if len(ways) == 2:
            found = lax.cond(self.like((), jnp.bool_).x, *ways)
        else:
            found = lax.switch(self.at(), ways)
        self.values += [Value(x) for x in found]

    def more_turns(self, start: Sequence[Value], data: bool) -> list[Any]:
        """What values become in a few iterations, or in as many as the data decides."""
        most = jnp.clip(self.like((), jnp.int32).x, 0, 5) if data else self.pick(TRIPS)

        def body(i: Any, state: list[Any]) -> list[Any]:
            with self.scope():
                return self.iteration(state, [i])

        return lax.fori_loop(0, most, body, [v.x for v in start])

    # ---- loops ----------------------------------------------------------------------------------

    def loop(self) -> None:
        """A loop of some kind; what it gives is in scope after it."""
        kinds = [self.scan, self.scan, self.fori]
        if not self.smooth:
            kinds += [self.counted, self.until, self.bounded, self.lone, self.around]
        self.values += self.pick(kinds)()

    def carried(self) -> list[Value]:
        """What a loop starts from."""
        found = []
        for _ in range(self.number(1, 4)):
            if self.values and self.pick(range(3)):
                value = self.any()
                found.append(self.handed_on(value.dims, value.dtype))
            else:
                found.append(self.handed_on(self.dims(), self.type()))
        if self.pick(range(4)) == 3:  # a table that iterations fill
            found.append(
                Value(jnp.zeros((self.number(1, 6), *self.dims()[:2]), self.own(jnp.float32)))
            )
        if self.pick(range(8)) == 7:
            found.append(Value(jax.random.PRNGKey(self.number(0, 3))))
        return found

    def iteration(self, state: Sequence[Any], others: Sequence[Any] = ()) -> list[Any]:
        """What an iteration makes of what is carried, in the scope of a body."""
        self.values += [Value(x) for x in (*others, *state)]
        self.steps(5)
        if self.pick(range(10)) == 9 and self.depth < 3:
            self.loops_in_branches()
        after = [self.next(x) for x in state]
        if self.pick(range(6)) == 5:
            self.turned(state, after)
        return after

    def turned(self, state: Sequence[Any], after: list[Any]) -> None:
        """Two carried values are swapped, of which one may be a new one."""
        alike = [
            (a, b)
            for a in range(len(state))
            for b in range(a)
            if (state[a].shape, state[a].dtype) == (state[b].shape, state[b].dtype)
        ]
        if alike:
            a, b = self.pick(alike)
            after[a] = state[b]
            after[b] = after[b] if self.flag() else state[a]

    def next(self, x: Any) -> Any:
        """The next value of one that is carried."""
        kind = self.number(0, 9)
        if kind == 9:
            return self.gathered(x)
        if kind == 8 and x.dtype == jnp.uint32 and x.shape == (2,):
            return jax.random.split(x)[0]
        if kind == 7:
            return x
        if kind == 6 and x.ndim and x.shape[0] > 1:
            row = self.handed_on((1, *x.shape[1:]), x.dtype)
            return lax.dynamic_update_slice(x, row.x, [self.at()] + [jnp.int32(0)] * (x.ndim - 1))
        new = self.handed_on(x.shape, x.dtype).x
        return jnp.tanh(new * 0.9 + x * 0.2) if kind < 2 and x.dtype == jnp.float32 else new

    def gathered(self, x: Any) -> Any:
        """What accumulates the same over all iterations."""
        new = self.handed_on(x.shape, x.dtype).x
        if x.dtype == jnp.bool_:
            ways = (jnp.logical_or, jnp.logical_and, jnp.logical_xor)
        elif is_float(x.dtype):
            ways = (jnp.maximum, jnp.minimum, lambda a, b: a * 0.75 + b * 0.25)
        else:
            ways = (jnp.maximum, jnp.minimum, jnp.add, jnp.multiply, jnp.bitwise_or)
        return self.pick(ways)(x, new)

    def scan(self) -> list[Value]:
        length = self.pick(TRIPS)
        start = self.carried()
        stacked = self.number(0, 2) if length else 0
        shapes = [((length, *self.dims()[:2]), self.type()) for _ in range(stacked)]
        xs = [self.handed_on(*shape).x for shape in shapes]
        numbers = [jnp.arange(length)] * self.flag()
        given = self.number(0, 2) if length else 0

        def body(state: list[Any], xs: list[Any]) -> Any:
            with self.scope():
                after = self.iteration(state, xs)
                made = [self.any() for _ in range(given)]
                return after, [self.handed_on(v.dims, v.dtype).x for v in made]

        if self.smooth and self.pick(range(4)) == 3:
            body = jax.checkpoint(body)
        state, ys = lax.scan(
            body,
            [v.x for v in start],
            [*xs, *numbers],
            length=length,
            reverse=self.flag(),
            unroll=self.pick((1, 1, 1, 2)),
        )
        return [Value(x) for x in (*state, *ys)]

    def fori(self) -> list[Value]:
        first = self.pick((0, 0, 2, -3))
        start = [v.x for v in self.carried()]

        def body(i: Any, state: list[Any]) -> list[Any]:
            with self.scope():
                return self.iteration(state, [i])

        return [Value(x) for x in lax.fori_loop(first, first + self.pick(TRIPS), body, start)]

    def bounded(self) -> list[Value]:
        """The data says how often."""
        most = jnp.clip(self.like((), jnp.int32).x, 0, 5)
        start = [v.x for v in self.carried()]

        def body(i: Any, state: list[Any]) -> list[Any]:
            with self.scope():
                return self.iteration(state, [i])

        return [Value(x) for x in lax.fori_loop(self.pick((0, 1)), most, body, start)]

    def counted(self) -> list[Value]:
        """A counter that goes up or down, and is carried on."""
        dtype = jnp.dtype(self.type((jnp.int32, jnp.int8, jnp.uint32, jnp.int16, jnp.int64))).type
        step, trips = self.number(1, 3), self.pick(TRIPS)
        # XLA ends loops too early that count down in a type without a sign
        down = self.flag() and jnp.issubdtype(dtype, jnp.signedinteger)
        last = self.number(0, 4)
        over = self.pick((0, 0, step - 1))
        begin = last + step * trips - over if down else last
        end = last if down else last + step * trips - over
        begin, end = (max(begin, end), end) if down else (begin, max(begin, end))
        if (begin, end) == (0, 1):  # XLA does not run `while i < 1: i += 2` at all from 0 on
            end = step
        start = [v.x for v in self.carried()]
        # XLA runs `while i <= n: i += 2` once where it begins at n + 1
        strict = self.flag() or begin == end

        def goes_on(s: Any) -> Any:
            i = s[0]
            if strict:
                return i > dtype(end) if down else i < dtype(end)
            return i >= dtype(end + 1) if down else i <= dtype(end - 1) if end else i < dtype(end)

        def body(s: Any) -> Any:
            with self.scope():
                i, state = s
                after = i - dtype(step) if down else i + dtype(step)
                return after, self.iteration(state, [i])

        first = jnp.asarray(begin, dtype)
        i, state = lax.while_loop(goes_on, body, (first, start))
        return [Value(i), *(Value(x) for x in state)]

    def until(self) -> list[Value]:
        """What is carried says whether it goes on: a sum of it, a flag, one of its elements."""
        start = [v.x for v in self.carried()]
        watched = self.number(0, len(start) - 1)
        most, kind = self.pick(TRIPS), self.number(0, 2)

        def goes_on(s: Any) -> Any:
            i, state = s
            x = state[watched]
            if x.dtype in ROUGH or not x.size:
                return i < most
            if kind == 1:
                x = x.reshape(-1)[-1]
            requested = jnp.sum(x) if kind == 0 else jnp.max(x)
            more = (
                requested
                if x.dtype == jnp.bool_ and kind
                else requested > drawn((), requested.dtype, most)
            )
            return more & (i < most) if kind < 2 else (i < most) & ~more

        def body(s: Any) -> Any:
            with self.scope():
                i, state = s
                return i + 1, self.iteration(state, [i])

        i, state = lax.while_loop(goes_on, body, (jnp.int32(0), start))
        return [Value(i), *(Value(x) for x in state)]

    def lone(self) -> list[Value]:
        """A loop that carries one array and nothing beside."""
        x = self.handed_on(self.dims(), self.pick((jnp.int32, jnp.uint8))).x
        most, watch = self.pick(TRIPS), self.flag()

        def goes_on(x: Any) -> Any:
            seen = x.reshape(-1)[-1] if watch else jnp.max(x)
            return seen < 10 + 3 * most

        def body(x: Any) -> Any:
            with self.scope([Value(x)]):
                self.steps(3)
                return jnp.maximum(jnp.clip(self.handed_on(x.shape, x.dtype).x, 0, 99), x + 3)

        return [Value(lax.while_loop(goes_on, body, x) if x.size else x)]

    def around(self) -> list[Value]:
        """A counter that passes the end of its type: that ends the loop."""
        dtype = jnp.dtype(self.pick((jnp.int8, jnp.uint8, jnp.int16, jnp.uint32))).type
        most, least = int(jnp.iinfo(dtype).max), int(jnp.iinfo(dtype).min)
        step, trips, down = self.number(1, 9), self.pick(TRIPS), self.flag()
        begin = least + step * trips if down else most - step * trips
        kind = self.number(0, 2)  # of a condition
        start = [v.x for v in self.carried()]

        def goes_on(s: Any) -> Any:
            i = s[0]
            if kind == 0:  # until it has gone around; alone, XLA would count that wrongly
                return (i <= dtype(begin) if down else i >= dtype(begin)) & (s[2] < 9)
            if kind == 1:
                return i != dtype(least if down else most)
            return (i * dtype(3) > i) & (s[2] < trips)

        def body(s: Any) -> Any:
            with self.scope():
                i, state, n = s
                after = i - dtype(step) if down else i + dtype(step)
                return after, self.iteration(state, [i]), n + 1

        i, state, n = lax.while_loop(goes_on, body, (dtype(begin), start, jnp.int32(0)))
        return [Value(i), Value(n), *(Value(x) for x in state)]

    def rows_of_loops(self) -> None:
        """Loops under vmap: rows stop on their own."""
        first = self.any(least_rank=1)
        count = first.dims[0]
        batch = [first, *(v for v in self.values if v.dims[:1] == (count,) and v is not first)][:3]
        batch = [v for v in batch if not v.rough]
        if not batch:
            return

        def one(*rows: Any) -> list[Any]:
            with self.scope([Value(x) for x in rows]):
                ways = (self.until, self.bounded, self.fori, self.counted, self.scan)
                way = self.pick((*ways, self.lone, self.around, self.branched))
                return [v.x for v in way()]

        self.values += [Value(x) for x in jax.vmap(one)(*(v.x for v in batch))]

    def branched(self) -> list[Value]:
        """A loop that rows run or do not."""
        start = [v.x for v in self.carried()]

        def loops() -> Any:
            with self.scope():
                fori = lambda i, state: self.iteration(state, [i])  # noqa: E731
                return lax.fori_loop(0, self.pick(TRIPS), fori, start)

        found = lax.cond(self.like((), jnp.bool_).x, loops, lambda: start)
        return [Value(x) for x in found]

    # ---- programs -------------------------------------------------------------------------------

    def function(self, args: Sequence[Any]) -> list[Any]:
        """The whole program."""
        self.choices.again()
        self.smooth = self.pick(range(6)) == 5
        if not self.smooth:
            return self.body(args)
        floats = [x for x in args if is_float(x.dtype)]

        def summed(floats: list[Any]) -> Any:
            rest = iter(floats)
            given = self.body([next(rest) if is_float(x.dtype) else x for x in args])
            float_ = self.own(jnp.float32)
            parts = [jnp.mean(x.astype(float_)) for x in given if is_float(x.dtype) and x.size]
            return sum(parts, jnp.zeros((), float_))

        return list(jax.tree.leaves(jax.grad(summed)(floats))) if floats else self.body(args)

    def body(self, args: Sequence[Any]) -> list[Any]:
        self.values, self.depth, self.left = [Value(x) for x in args], 0, MOST_STEPS
        if self.flag():
            getattr(self, self.pick(self.STEPS))()
        before = len(self.values)
        if self.pick(range(5)) == 4 and not self.smooth:
            self.rows_of_loops()
        else:
            self.loop()
        if self.pick(range(4)) == 3:
            self.loop()
        found = self.values[before:]
        given = [v.x for v in found if self.pick(range(4)) and not v.rough]
        twice = given[:1] if self.pick(range(6)) == 5 else []
        return [*given, *twice] or [v.x for v in found]


@dataclass(frozen=True, eq=False)
class Grown:
    """A function, and arguments for it, in 64 bits if it is `wide`."""

    fun: Callable[..., Any]
    args: tuple[np.ndarray, ...]
    name: str = ""
    wide: bool = False

    def width(self) -> AbstractContextManager[Any]:
        """What it is traced and run in."""
        return jax.enable_x64(self.wide)


def program(choices: Choices, name: str = "") -> Grown:
    """The program that the choices make."""
    growth = Growth(choices)
    growth.wide = choices.pick(range(8)) == 7
    shapes = [(growth.dims(), growth.type()) for _ in range(growth.number(1, 3))]
    args = tuple(np.asarray(drawn(dims, dtype, n)) for n, (dims, dtype) in enumerate(shapes))
    own = Choices(choices.draw)
    growth.choices = own

    def fun(*args: Any) -> list[Any]:
        return growth.function(args)

    return Grown(fun, args, name, growth.wide)


def from_seed(seed: int) -> Grown:
    """The program of a seed."""
    rng = np.random.default_rng(seed)
    return program(Choices(lambda n: int(rng.integers(n))), f"from_seed({seed})")
