"""Loops that share the tuple they begin with, or hand their result on as one.

XLA's simplifiers make such modules of JAX's, in which each loop has tuples of its own.
"""

from __future__ import annotations

import numpy as np
import pytest

import fusionstitch as fs
from benchmarks.loops.forced import taken
from fusionstitch.compiler import builders, core
from fusionstitch.hlo.importer import from_message, parse
from fusionstitch.hlo.loop_tuples import separate
from fusionstitch.hlo.text import text_to_proto
from tests.patterns.edits import edited

ELEMENTS = 8
X = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)

#: Two loops' conditions and bodies.
LOOPS = """
more {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(5)
  ROOT less = pred[] compare(i, end), direction=LT
}
doubled {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  made = f32[8] add(x, x)
  ROOT both = (s32[], f32[8]) tuple(next, made)
}
longer {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(9)
  ROOT less = pred[] compare(i, end), direction=LT
}
turned {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  made = f32[8] sine(x)
  ROOT both = (s32[], f32[8]) tuple(next, made)
}
branch {
  s = (s32[], f32[8]) parameter(0)
  ROOT loop = (s32[], f32[8]) while(s), condition=more, body=doubled
}
other {
  ROOT s = (s32[], f32[8]) parameter(0)
}
"""
START = """
  x = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8]) tuple(zero, x)
"""
FIRST = "first = (s32[], f32[8]) while(start), condition=more, body=doubled\n"
#: What the entry does after `START`, and how many loops become kernels.
ENTRIES = {
    "one start for two": (
        f"""
  {FIRST}
  second = (s32[], f32[8]) while(start), condition=longer, body=turned
  a = f32[8] get-tuple-element(first), index=1
  b = f32[8] get-tuple-element(second), index=1
  ROOT sum = f32[8] add(a, b)
        """,
        2,
    ),
    "one start for two, and a result": (
        f"""
  {FIRST}
  second = (s32[], f32[8]) while(start), condition=longer, body=turned
  b = f32[8] get-tuple-element(second), index=1
  c = f32[8] get-tuple-element(first), index=1
  d = f32[8] get-tuple-element(start), index=1
  ROOT all = (f32[8], f32[8], f32[8]) tuple(b, c, d)
        """,
        2,
    ),
    "one goes on where the other ends": (
        f"""
  {FIRST}
  second = (s32[], f32[8]) while(first), condition=longer, body=turned
  ROOT b = f32[8] get-tuple-element(second), index=1
        """,
        2,
    ),
    "two go on where one ends, which is read besides": (
        f"""
  {FIRST}
  second = (s32[], f32[8]) while(first), condition=longer, body=turned
  third = (s32[], f32[8]) while(first), condition=longer, body=doubled
  a = f32[8] get-tuple-element(first), index=1
  b = f32[8] get-tuple-element(second), index=1
  c = f32[8] get-tuple-element(third), index=1
  d = f32[8] add(a, b)
  ROOT sum = f32[8] add(c, d)
        """,
        3,
    ),
    "the result of all": ("ROOT " + FIRST, 1),
    "a branch of its own": (
        """
  asked = pred[] constant(true)
  found = (s32[], f32[8]) conditional(asked, start, start), true_computation=branch,
    false_computation=other
  ROOT b = f32[8] get-tuple-element(found), index=1
        """,
        1,
    ),
    "behind a branch": (
        """
  asked = pred[] constant(false)
  found = (s32[], f32[8]) conditional(asked, start, start), true_computation=other,
    false_computation=other
  ROOT second = (s32[], f32[8]) while(found), condition=longer, body=turned
        """,
        1,
    ),
}


def module(name: str) -> bytes:
    return text_to_proto(f"HloModule m\n{LOOPS}\nENTRY main {{{START}{ENTRIES[name][0]}}}\n")


@pytest.mark.parametrize("name", ENTRIES)
def test_loops_with_tuples_of_their_own_give_what_they_gave(name: str) -> None:
    found = edited(from_message(parse(module(name))), separate, X)
    assert not separate(found)


@pytest.mark.parametrize("name", ENTRIES)
def test_each_loop_becomes_a_kernel_of_its_own(name: str) -> None:
    options = fs.Options(backend="emulate")
    with taken():
        found = core.stitch(module(name), options, builders.profile(options), None)
    assert sum(dict(s.kernel.facts)["scope"] == "loop" for s in found.stitches) == ENTRIES[name][1]
    assert not [r for r in found.rejected if r.rule == "loop"]


def test_a_loop_whose_elements_have_shardings_keeps_its_tuple() -> None:
    message = parse(module("the result of all"))
    for computation in message.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "while":
                instruction.sharding.type = 0
    assert not separate(from_message(message))
