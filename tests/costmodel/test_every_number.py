"""Each number of a device profile is read: alone, it changes a modelled time or a decision."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from fusionstitch.codegen.generate import draft, neighbours, plan_kernel
from fusionstitch.codegen.schedule.registers import row_registers
from fusionstitch.codegen.settings import CodegenOptions
from fusionstitch.costmodel.bandwidth import memory_us
from fusionstitch.costmodel.devices import Device, device, from_fields, numbers
from fusionstitch.costmodel.estimate import boundary_us, kernel_us
from fusionstitch.costmodel.floor import program_floor
from fusionstitch.costmodel.graph_work import GraphWork
from fusionstitch.costmodel.kernel_cost import (
    PRICED,
    Again,
    Arrival,
    Await,
    KernelCost,
    Path,
    PhaseCost,
)
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.costmodel.work import Work
from fusionstitch.costmodel.xla_fusions import xla_fusions
from fusionstitch.costmodel.xla_kernels import kernel_time_us
from fusionstitch.costmodel.xla_libraries import library_us
from fusionstitch.costmodel.xla_truth import kernels_us
from fusionstitch.hlo.graph import Graph
from fusionstitch.options import Options
from fusionstitch.patterns.candidates import candidates
from fusionstitch.patterns.exploratory import explorable
from fusionstitch.patterns.fusible import is_large_gemm
from fusionstitch.patterns.loop_residuals import loop_residuals
from fusionstitch.patterns.loop_tables import loop_tables
from fusionstitch.patterns.pattern import Pattern
from fusionstitch.plan.loops import xla_loop_us
from fusionstitch.plan.scores import ModelScorer, PaperScorer
from tests.codegen.regions import whole, whole_of
from tests.costmodel.test_xla_libraries import MEASURED, convolution
from tests.graphs import Builder
from tests.patterns.edits import module_of
from tests.patterns.test_loop_residuals import pendulums
from tests.patterns.test_loop_tables import KEYS, STATE, by_part

H200 = device("h200")
#: What is no number of the hardware: texts, and what stands for a part of a device.
OTHERS = ("name", "sm_arch", "measured", "cooperative_limit", "own_blocks")
VALUES = {path: value for path, value in numbers(H200) if path not in OTHERS}


def others(value: float) -> tuple[float, float]:
    """Two other numbers, a larger and a smaller one."""
    if isinstance(value, int):
        return 3 * value + 1, value // 3 if value > 2 else value + 2
    return 3 * value, value / 3


def plain(part: Any) -> Any:
    """A profile as JSON has it, with lists for tuples."""
    if isinstance(part, dict):
        return {key: plain(value) for key, value in part.items()}
    return [plain(value) for value in part] if isinstance(part, (list, tuple)) else part


def with_other(path: str, value: float) -> Device:
    """An H200 with another number here."""
    fields = plain(dataclasses.asdict(H200))
    put(fields, path, value)
    return from_fields(fields)


def put(fields: Any, path: str, value: float) -> None:
    *above, last = (int(key) if key.isdigit() else key for key in path.split("."))
    for key in above:
        fields = fields[key]
    fields[last] = value


# ---- what is seen of a device -------------------------------------------------------------------

WAY = Path(**dict.fromkeys(PRICED, 50.0), kept=50)
BUSY = PhaseCost(Path(rounds=1), *([0] * 2), (), **dict.fromkeys(
    ("accesses", "sectors", "near", "ops", "records", "special", "divisions", "shuffles"), 1 << 26
))  # fmt: skip


def costs() -> list[KernelCost]:
    """Kernels that wait, compute, read L2 and DRAM, once and again, and have too few registers;
    and one whose blocks wait for each other, at last for what has come long ago."""
    whole_device = (4096, 256, 32, 0, 1 << 20)
    read = PhaseCost(Path(rounds=1, far=1), outside=1 << 28, moved=1 << 28)
    near = PhaseCost(Path(rounds=1), moved=1 << 28)
    again = replace(near, moved=0, again=(Again(1 << 15, 1 << 30),))
    far = replace(near, moved=0, again=(Again(1 << 26, 1 << 30),))
    first = (0, Arrival(0), Arrival(1), Arrival(1))
    chain = (first, (Await(0, 1), 0, Await(1, 2), Arrival(2)))
    return [
        KernelCost((PhaseCost(WAY),), 1, 96, 32, 0, 1 << 10, spilled=0.5, spilled_bytes=400),
        KernelCost((PhaseCost(WAY), PhaseCost(WAY, grid_barriers=1)), 264, 96, 32, 0, 1 << 10),
        KernelCost((BUSY,), *whole_device),
        KernelCost((replace(BUSY, flops64=1 << 34, products=1 << 26),), *whole_device),
        KernelCost((read,), 4096, 256, 32, 0, 1 << 28),
        KernelCost((read,), 4096, 256, 32, 0, 50 << 20),
        KernelCost((near,), *whole_device),
        KernelCost((near,), 33, *whole_device[1:]),
        KernelCost((again,), *whole_device),
        KernelCost((far,), *whole_device),
        KernelCost((replace(BUSY, kept=1 << 28),), *whole_device, spilled=0.5, spilled_bytes=400),
        *(KernelCost((BUSY, near), 4096, n, r, s, 1 << 20) for n, r, s in RESIDENT),
        KernelCost((PhaseCost(WAY),), 2, 96, 32, 0, 1 << 10, steps=chain),
    ]


#: Threads, registers and shared bytes of blocks: each of the limits of a multiprocessor is met.
RESIDENT = (
    (1024, 64, 0),
    (64, 17, 0),
    (32, 16, 0),
    (96, 128, 0),
    (96, 41, 0),
    (128, 16, 20_176),
    (128, 16, 100_000),
)


def our_kernels(on: Device) -> list[float]:
    return [cost_us(one, on) for one in costs()]


def xla_kernels(on: Device) -> list[float]:
    units = ("flops", "flops64", "special", "int_ops", "dot_flops", "tensor_flops")
    works = [Work(**{unit: 1 << 40}) for unit in units]
    works += [replace(work, blocks=4) for work in works]
    works += [Work(bytes_read=1 << 28), Work(l2_bytes=1 << 28), Work(bytes_read=1 << 20, blocks=9)]
    return [kernel_us(work, on) for work in works] + [boundary_us(on, n) for n in (132, 264)]


def copies(on: Device) -> list[float]:
    return [memory_us(on, 2.0**n) for n in range(10, 34)]


def fused(build: Callable[[Builder], Any], last: bool = False) -> Callable[[Device], float]:
    """What XLA takes for all ops of a graph as one kernel, or for the last of them."""
    b = Builder()
    op = build(b)
    graph = b.graph(op)
    bits = sum(1 << op.id for op in graph if op.opcode not in ("parameter", "tuple"))
    bits = 1 << op.id if last else bits

    def us(on: Device) -> float:
        return kernel_time_us(GraphWork(graph, 0, on), bits, 1 << op.id)

    return us


def product(
    m: int, n: int, k: int, batch: int = 0, dtype: str = "bf16"
) -> Callable[[Builder], Any]:
    lead = (batch,) if batch else ()

    def build(b: Builder) -> Any:
        lhs, rhs = b.parameter((*lead, m, k), dtype), b.parameter((*lead, k, n), dtype)
        return b.dot(lhs, rhs, batch=len(lead))

    return build


def normalised(b: Builder, inputs: int) -> Any:
    x = b.parameter((8192, 4096))
    for _ in range(inputs - 1):
        x = b.add(x, b.parameter((8192, 4096)))
    return b.mul(x, b.like(b.reduce(x, (1,)), x, (0,)))


def added(b: Builder, rows: int) -> Any:
    table, indices = b.parameter((rows, 1)), b.parameter((1 << 16,), "s32")
    return b.add_to_rows(table, indices, b.parameter((1 << 16, 1)))


def narrow(b: Builder) -> tuple[Any, Any, Any]:
    """A table of 16 bits that rows are added to, the indices and the rows."""
    return (
        b.parameter((300, 1), "bf16"),
        b.parameter((1 << 16,), "s32"),
        b.parameter((1 << 16, 1), "bf16"),
    )


def spread(b: Builder) -> Any:
    """Columns that are read for each of many elements, and are added."""
    total = b.broadcast(b.parameter((64,)), (64, 1 << 16), (0,))
    for _ in range(7):
        total = b.add(total, b.broadcast(b.parameter((64,)), (64, 1 << 16), (0,)))
    return total


FUSED = [
    fused(lambda b: b.reduce(b.parameter((4096, 768)), (0,))),
    fused(lambda b: b.reduce(b.reduce(b.parameter((64, 64)), (0,)), (0,))),
    *(fused(functools.partial(normalised, inputs=n)) for n in (1, 2)),
    *(fused(functools.partial(added, rows=n)) for n in (4, 1 << 16)),
    fused(lambda b: b.add_to_rows(*narrow(b))),
    fused(lambda b: b.reduce(spread(b), (1,))),
    fused(lambda b: b.exp(b.concatenate([b.parameter((300, 7)), b.parameter((200, 7))]))),
    *(fused(product(*sizes)) for sizes in ((8, 8, 8), (64, 64, 1000), (512, 512, 2048))),
    *(fused(product(*sizes)) for sizes in ((256, 256, 4096), (4096, 4096, 4096))),
    fused(product(4, 4, 8, 1 << 17, "f32")),
    *(fused(product(*sizes)) for sizes in ((256, 256, 1000), (3, 3, 3, 1 << 17), (8, 8, 8192, 64))),
    fused(lambda b: b.exp(b.exp(b.parameter((2000, 2000)))), last=True),
]


def libraries(on: Device) -> list[float | None]:
    ops = [make() for make, _ in MEASURED.values()]
    few = [
        convolution((8, 224, 224, n), (results, 3, 3, n), (8, 224, 224, results))
        for n, results in ((3, 64), (12, 16), (24, 16), (3, 128))
    ]
    return [library_us(op, on) for op in (*ops, *few)]


def spans(on: Device) -> float:
    return kernels_us(20.0, on)


def fusions(on: Device) -> list[float]:
    return [us(on) for us in FUSED]


def elementwise(opcode: str, dtype: str) -> Graph:
    b = Builder()
    x = b.parameter((300,), dtype)
    shift = opcode.startswith("shift")
    binary = opcode in ("divide", "add", "subtract", "and", "or", "xor") or shift
    return b.graph(
        b.binary(opcode, x, b.parameter((300,), dtype)) if binary else b.unary(opcode, x)
    )


def of_types(graph_of: Callable[[str, str], Graph]) -> list[Graph]:
    costs = H200.instructions
    graphs = [graph_of(opcode, "f32") for opcode in costs.floats]
    return graphs + [graph_of(opcode, "s32") for opcode in costs.integers]


def op_by_op(on: Device) -> list[float]:
    fast = CodegenOptions(numerics="fast")
    graphs = of_types(elementwise)
    found = [draft(whole(graph), on).cost for graph in graphs]
    found += [
        draft(whole(elementwise(op, "f32")), on, fast).cost for op in on.instructions.fewer_bits
    ]
    return [cost_us(one, on) for one in found]


def least(on: Device) -> list[Any]:
    graphs = of_types(elementwise)
    for dtype in ("f16", "bf16", "f8e4m3fn", "s8", "f32", "f64"):
        b = Builder()
        graphs.append(b.graph(b.dot(*(b.parameter((2048, 2048), dtype) for _ in range(2)))))
    return [program_floor(graph, on).units for graph in graphs]


# ---- decisions ----------------------------------------------------------------------------------


def halved(x: Any) -> Any:
    return jnp.exp(x) * 0.5


def forever(x: Any) -> Any:
    return lax.fori_loop(0, 100, lambda _, x: jnp.sin(x) * 0.5 + x[::-1], x)


def recurrent(h: Any, w: Any) -> Any:
    return lax.fori_loop(0, 100, lambda _, h: jnp.tanh(h @ w), h)


def filled(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.sin(c) * 2, c), x, None, length=100)[1].sum(0)


def side_by_side(*xs: Any) -> Any:
    return xs[0] * sum(x.sum(1)[:, None] for x in xs)


def mirrored(x: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        x = jnp.exp(jnp.sin(x) * 0.5)
        return x + x[::-1]

    return lax.fori_loop(0, 100, step, x)


def rows_replaced(x: Any, at: Any) -> Any:
    def step(n: Any, carry: Any) -> Any:
        x, row = carry
        changed = lax.dynamic_update_slice(x, (jnp.sin(row) + x[at[n]])[None], (at[n], 0))
        return changed, row * 0.5 + jnp.roll(row, 1)

    return lax.fori_loop(0, 50, step, (x, x[0]))


def floats(*dims: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(dims, jnp.float32)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "softmax": (jax.nn.softmax, (floats(700, 256),)),
    "long softmax": (jax.nn.softmax, (floats(64, 131072),)),
    "columns": (lambda x: x.sum(0), (floats(20000, 300),)),
    "mean": (lambda x: x - x.mean(), (floats(5000, 300),)),
    "product": (lambda x, w: jax.nn.relu(x @ w), (floats(256, 192), floats(192, 128))),
    "few tiles": (lambda x, w: (x @ w).sum(0), (floats(64, 784), floats(784, 64))),
    "attention": (lambda q, k, v: jax.nn.softmax(q @ k.T) @ v, (floats(256, 64),) * 3),
    "gather": (lambda x, i: x[i] * 2, (floats(5000, 48), jax.ShapeDtypeStruct((900,), jnp.int32))),
    "sums": (lambda x: (x / x.sum(), jnp.exp(x).sum(1) + x.max(0)), (floats(300, 300),)),
    "stencil loop": (
        forever,
        (
            floats(
                3000,
            ),
        ),
    ),
    "recurrence": (recurrent, (floats(64, 128), floats(128, 128))),
    "filled": (filled, (floats(100),)),
    "mirrored": (mirrored, (floats(100),)),
    "rows replaced": (rows_replaced, (floats(100, 100), jax.ShapeDtypeStruct((50,), jnp.int32))),
    "sums side by side": (side_by_side, (floats(8, 500),) * 3),
}
REGIONS = {name: whole_of(fun, *args) for name, (fun, args) in PROGRAMS.items()}


#: Loops in forced forms.
FORMS = (("filled", "rows"), ("mirrored", "block"), ("rows replaced", "block"))


def drafts(on: Device) -> list[Any]:
    found = [draft(region, on).facts.cost for region in REGIONS.values()]
    for name, form in FORMS:
        options = CodegenOptions(template=f"loop {form}")
        found.append(draft(REGIONS[name], on, options).facts.cost)
    return [(cost_us(one, on), one.registers, one.blocks) for one in found]


# ---- plans --------------------------------------------------------------------------------------


def tables(on: Device) -> int:
    free = replace(on, launch_us=0.0, dram_bytes_per_s=1e30)
    return len(loop_tables(module_of(by_part(True, True), KEYS, STATE), free))


def residuals(on: Device) -> int:
    found = loop_residuals(module_of(jax.grad(pendulums, (0, 1)), floats(4096), floats(4096)), on)
    return sum(len(one.residuals) for one in found)


def loops(on: Device) -> float:
    [loop] = (op for op in module_of(forever, floats(3000)).entry if op.opcode == "while")
    return xla_loop_us(loop, (100, (), False), on)


def scores(on: Device) -> tuple[float, float]:
    b = Builder()
    graph = b.graph(b.exp(b.exp(b.parameter((2000, 2000)))))
    works = GraphWork(graph, 0, on)
    model = ModelScorer(works, xla_fusions(works, 0b110), in_loop=True)
    pattern = Pattern(graph, 0b110, "substitution")
    return model.bound(pattern), PaperScorer(model).bound(pattern)


def choices(on: Device) -> tuple[object, ...]:
    b = Builder()
    products = [b.dot(b.parameter((n, n)), b.parameter((n, n))) for n in (100, 200, 300, 400)]
    many = [b.exp(b.parameter((7,))) for _ in range(700)]
    large = [b.exp(b.parameter((1 << n,))) for n in range(16, 24)]
    graph = b.graph(*products, *many, *large)
    bits = sum(1 << op.id for op in (*many, *large))
    packed = candidates(graph, bits, [1 << op.id for op in many], on, Options())
    gemms = [is_large_gemm(op, on) for op in products]
    return gemms, explorable(graph, bits, on), [one.bits for one in packed.patterns]


HALF = with_other("registers_per_sm", H200.registers_per_sm // 2)

# ---- tests --------------------------------------------------------------------------------------

#: What is seen of a device, the cheapest first.
SEEN: tuple[Callable[[Device], Any], ...] = (
    *(our_kernels, xla_kernels, copies, fusions, libraries, spans, op_by_op, least),
    *(tables, residuals, loops, scores, choices, drafts),
)
KNOWN = functools.cache(lambda see: see(H200))


@pytest.mark.parametrize("path", VALUES)
def test_a_number_alone_changes_a_time_or_a_decision(path: str) -> None:
    devices = [with_other(path, value) for value in others(VALUES[path])]
    assert any(see(on) != KNOWN(see) for see in SEEN for on in devices)


@pytest.mark.parametrize("threads", [256, 512])
def test_no_block_is_larger_than_a_device_s(threads: int) -> None:
    on = with_other("max_threads_per_block", threads)
    found = []
    for name in ("softmax", "long softmax", "mean", "sums", "mirrored", "recurrence"):
        first = draft(REGIONS[name], on)
        found += [one.written.lowered.block for one in (first, *islice(neighbours(first), 60))]
    assert max(found) == threads


def test_rows_get_their_share_of_a_device_s_registers() -> None:
    plans = [plan_kernel(REGIONS["softmax"], on).plan for on in (H200, HALF)]
    both = [row_registers(plan) for plan in plans]
    assert both[1] < both[0] < 2.1 * both[1]


def test_a_device_may_differ_in_every_number() -> None:
    fields = plain(dataclasses.asdict(H200))
    for path, value in VALUES.items():
        put(fields, path, others(value)[0])
    made_up = from_fields({**fields, "name": "made up"})
    assert not [path for path, value in numbers(made_up) if value == VALUES.get(path)]
    assert all(see(made_up) != KNOWN(see) for see in SEEN[:8])
