"""What elementwise ops cost an SM: instructions in the machine code of sm_90 (CUDA 13.5).

A float instruction counts as two FLOPs, since rates count a fused multiply-add as two; a lone add
or multiply counts as one, half of such an instruction. Integer amounts are in units of the integer
rate: about half of all additions run on the FMA units instead, a shift is usually a part of a
rotation, and three logical operands go into one instruction. XLA's threefry kernel, 33.5 million
words on an H200, took 115 us: 57 such units a word, where these prices give 60.
"""

from __future__ import annotations

from collections.abc import Mapping

#: opcode -> (FLOPs, calls to the special-function unit) of one f32 result. Others: `OpSpec`.
FLOAT: Mapping[str, tuple[int, int]] = {
    "divide": (16, 1),
    "sqrt": (8, 1),
    "rsqrt": (8, 1),
    "exponential": (16, 1),
    "exponential-minus-one": (42, 1),
    "log": (44, 0),
    "log-plus-one": (50, 0),
    "logistic": (22, 2),
    "tanh": (28, 2),
    "erf": (40, 1),
    "inverse-erf": (36, 1),
    "cbrt": (26, 2),
}

#: The same of what is computed with fewer correct bits, as `codegen/cuda/functions.cuh` does.
FEWER_BITS: Mapping[str, tuple[int, int]] = {
    "exponential": (1, 1),
    "log": (1, 1),
    "logistic": (2, 2),
    "tanh": (0, 1),
    "divide": (1, 1),
}

#: opcode -> units of the integer rate of one result of 32 bits; others take one.
INTEGER: Mapping[str, float] = {
    "add": 0.5,
    "subtract": 0.5,
    "and": 0.75,
    "or": 0.75,
    "xor": 0.75,
    "shift-left": 0.25,
    "shift-right-logical": 0.25,
}

#: Cycles until a result is there: of an operation, a special function, a load of what is near.
OPERATION, SPECIAL, NEAR = 4, 20, 24
