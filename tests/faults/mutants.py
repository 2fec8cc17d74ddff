"""Modules broken at random, always the same ones: bytes, text, and messages whose fields change."""

from __future__ import annotations

import functools
import random
from typing import Any

import jax
import jax.numpy as jnp

from fusionstitch.hlo.importer import parse
from fusionstitch.hlo.semantics import SEMANTICS


def everything(x: jax.Array, w: jax.Array) -> Any:
    """Loops, branches, calls, reductions of one and several values, gathers, sorts, dots."""
    s = jax.nn.softmax(x) @ w
    _, c = jax.lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.tanh(c[1]) + s.sum(0)), (0, s)
    )
    d = jax.lax.cond(c.sum() > 0, lambda v: v[::-1], lambda v: v * 2, c)
    return d, jnp.sort(s), x[jnp.argmax(x, 1) % 4], jnp.pad(s.T, 1).astype(jnp.bfloat16)


@functools.cache
def lowered() -> Any:
    return jax.jit(everything).lower(jnp.ones((8, 16)), jnp.ones((16, 16)))


@functools.cache
def proto() -> bytes:
    data: bytes = lowered().compiler_ir("hlo").as_serialized_hlo_module_proto()
    return data


@functools.cache
def hlo_text() -> str:
    text: str = lowered().compiler_ir("hlo").as_hlo_text()
    return text


@functools.cache
def stablehlo_text() -> str:
    text: str = lowered().as_text()
    return text


def of_bytes(data: bytes, seed: str) -> bytes:
    """Bits flipped, bytes replaced, pieces cut out, repeated, or the end missing."""
    draw = random.Random(seed)
    found = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 4, 16])):
        at = draw.randrange(len(found))
        match draw.randrange(5):
            case 0:
                found[at] ^= 1 << draw.randrange(8)
            case 1:
                found[at] = draw.randrange(256)
            case 2:
                del found[at : at + draw.randrange(1, 30)]
            case 3:
                other = draw.randrange(len(found))
                found[at:at] = found[other : other + draw.randrange(1, 30)]
            case _ if at > 100:
                del found[at:]
    return bytes(found)


#: Words that text is broken with.
_WORDS = [
    "-1", "0", "18446744073709551616", "99999999999", "1e999", "nan", "f32[]", "f99[3]", "(", ")",
    "{", "}", "[", "]", ",", '"', "%x", "ROOT", "ENTRY", "/*", "->", "=", "\u2603", "\x00", "",
]  # fmt: skip


def of_text(text: str, seed: str) -> str:
    """Lines lost, doubled or swapped, words and pieces of words replaced."""
    draw = random.Random(seed)
    lines = text.split("\n")
    for _ in range(draw.choice([1, 1, 2, 4])):
        at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
        match draw.randrange(5):
            case 0:
                lines[at] = ""
            case 1:
                lines.insert(at, lines[other])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case _ if words := lines[at].split(" "):
                index = draw.randrange(len(words))
                cut = draw.randrange(len(words[index]) + 1)
                words[index] = words[index][:cut] + draw.choice(_WORDS)
                lines[at] = " ".join(words)
    return "\n".join(lines)


_NUMBERS = [0, 1, 2, 3, 7, -1, 64, 1 << 20, 1 << 31, (1 << 62) + 1, -(1 << 40)]
_OPCODES = [*SEMANTICS, "while", "call", "sort", "conditional", "custom-call", "no-such-opcode"]
_UNREAD = ("metadata", "stack_frame_index", "frontend_attributes")


def _fields(message: Any) -> list[tuple[Any, Any]]:
    found = []
    for field, value in message.ListFields():
        if field.name in _UNREAD:
            continue
        found.append((message, field))
        if field.type == field.TYPE_MESSAGE:
            for inner in value if _repeated(message, field) else [value]:
                found += _fields(inner)
    return found


def _repeated(message: Any, field: Any) -> bool:
    return hasattr(getattr(message, field.name), "append")


def of_fields(data: bytes, seed: str) -> bytes:
    """A well-formed message with other numbers, opcodes, shapes, or with parts lost or doubled."""
    draw = random.Random(seed)
    module = parse(data)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        message, field = draw.choice(_fields(module))
        _change(draw, message, field)
    return bytes(module.SerializeToString(deterministic=True))


def _change(draw: random.Random, message: Any, field: Any) -> None:
    value = getattr(message, field.name)
    if _repeated(message, field):
        at, other = draw.randrange(len(value)), draw.randrange(len(value))
        if (how := draw.randrange(3)) == 0:
            del value[at]
        elif field.type == field.TYPE_MESSAGE:
            (value.add() if how == 1 else value[at]).CopyFrom(value[other])
        elif field.type in (field.TYPE_INT64, field.TYPE_INT32):
            value[at] = _number(draw, field)
    elif field.type in (field.TYPE_INT64, field.TYPE_INT32):
        setattr(message, field.name, _number(draw, field))
    elif field.type == field.TYPE_STRING:
        words = _OPCODES if field.name == "opcode" else ["", "x", "EQ"]
        setattr(message, field.name, draw.choice(words))
    elif field.type == field.TYPE_BOOL:
        setattr(message, field.name, not value)
    else:
        message.ClearField(field.name)


def _number(draw: random.Random, field: Any) -> int:
    number = draw.choice(_NUMBERS)
    return number if field.type == field.TYPE_INT64 else max(-(1 << 31), min(number, (1 << 31) - 1))
