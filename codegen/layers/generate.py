"""From a region of layers to one kernel: rewrite, find the values, choose a block, lower."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fusionstitch.codegen.assembly import Written, assembled, ops_after_rewriting
from fusionstitch.codegen.ir.builder import Writer
from fusionstitch.codegen.ir.kernel import Buffer, Lowered
from fusionstitch.codegen.ir.memory import Memory
from fusionstitch.codegen.ir.passes import LOWERED
from fusionstitch.codegen.ir.types import FLOAT
from fusionstitch.codegen.kernel import Kernel
from fusionstitch.codegen.layers.lower import Lowering
from fusionstitch.codegen.layers.sizes import Shape, shaped
from fusionstitch.codegen.layers.values import Layers, find_layers
from fusionstitch.codegen.lower.buffers import buffer_of, is_table
from fusionstitch.codegen.passes import rewritten
from fusionstitch.codegen.search.left_out import LeftOut
from fusionstitch.codegen.settings import CodegenOptions, Settings, Way
from fusionstitch.codegen.watch import NOBODY, Watch
from fusionstitch.costmodel.devices import Device
from fusionstitch.costmodel.facts import KernelFacts
from fusionstitch.costmodel.kernel_cost import KernelCost
from fusionstitch.costmodel.kernel_time import cost_us
from fusionstitch.hlo.errors import CodegenError
from fusionstitch.hlo.graph import Graph
from fusionstitch.hlo.graph import Shape as Type

#: What a template of layers begins with.
WORD = "layers"
#: Warps of a block and blocks per multiprocessor that are compared.
SHAPES = ((8, 1), (8, 2), (4, 2), (4, 4))


@dataclass(frozen=True, eq=False)
class Layered:
    """A region of layers, as far as its cost estimate needs it."""

    region: Graph
    shape: Shape
    written: Written
    facts: KernelFacts
    options: CodegenOptions
    device: Device

    @property
    def template(self) -> str:
        """The template that gives this kernel."""
        return f"{WORD} warps {self.shape.warps} blocks {self.shape.per_sm}"

    @property
    def numbered_template(self) -> str:
        """The same: it has no names."""
        return self.template

    @property
    def lowered(self) -> Lowered:
        """Its statements, after all passes."""
        return self.written.lowered

    @property
    def cost(self) -> KernelCost:
        """What its statements do."""
        return self.facts.cost

    def kernel(self) -> Kernel:
        """The kernel. Raises CodegenError where the device cannot launch it."""
        ops = ops_after_rewriting(self.shape.layers.graph)
        summary = f"{ops} ops after rewriting, 16 rows of all layers in a warp."
        known = (*self.facts.facts, ("scope", self.facts.scope))
        return assembled(self.region, self.written, self.template, summary, known, self.device)


def plan_layers(graph: Graph, settings: Settings, watch: Watch = NOBODY) -> Layered:
    """The fastest kernel of a region of layers, by the cost of its statements, or the one of its
    template. Raises CodegenError for a region that is something else."""
    template = settings.options.template
    layers = _layers(graph, replace(settings, template=None), watch)
    shapes = SHAPES if template is None else (parsed(template),)
    found: list[Layered] = []
    refused: list[CodegenError] = []
    for warps, per_sm in shapes:
        try:
            shape = shaped(layers, settings.device, warps, per_sm)
            found.append(_layered(graph, shape, settings))
        except CodegenError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    best = min(found, key=lambda one: cost_us(one.cost, settings.device))
    watch.lowered(best.lowered, LOWERED, "what the layers became")
    return best


def other_shapes(of: Layered) -> Iterator[Layered]:
    """The same layers in blocks of other sizes."""
    settings = Settings(of.device, replace(of.options, template=None))
    for warps, per_sm in SHAPES:
        if (warps, per_sm) != (of.shape.warps, of.shape.per_sm):
            with LeftOut(of.options.check):
                shape = shaped(of.shape.layers, of.device, warps, per_sm)
                yield _layered(of.region, shape, settings)


def is_template(template: str | None) -> bool:
    """Whether a template is one of layers."""
    return template is not None and template.startswith(f"{WORD} ")


def parsed(template: str) -> tuple[int, int]:
    """The warps and blocks of a template. Raises CodegenError."""
    match template.split():
        case [_, "warps", warps, "blocks", blocks] if warps.isdigit() and blocks.isdigit():
            return int(warps), int(blocks)
    raise CodegenError(f'Templates of layers are like "{WORD} warps 8 blocks 1", not {template!r}.')


def _layers(graph: Graph, settings: Settings, watch: Watch) -> Layers:
    if settings.strict:
        raise CodegenError("Strict numerics round what lanes keep of a row.")
    if not settings.device.float_tensors:
        raise CodegenError(f"{settings.device.name} has no tensor cores for floats.")
    watch.region(graph, "region", "as it came in")
    graph = rewritten(rewritten(graph, settings, None, watch), settings, Way.LAYERS, watch)
    if any(is_table(op) for op in graph):
        raise CodegenError(f"{graph.name} reads a table of constants.")
    return find_layers(graph)


def _layered(region: Graph, shape: Shape, settings: Settings) -> Layered:
    begun = _written(shape, settings.options.numerics)
    written = begun.passed(check=settings.options.check)
    scope = "grid" if shape.sums else "block"
    own = (("warps", shape.warps), ("blocks_per_sm", shape.per_sm), ("rows", shape.layers.rows))
    facts = KernelFacts(written.cost(settings.device), scope, own)
    return Layered(region, shape, written, facts, settings.options, settings.device)


def _written(shape: Shape, numerics: str) -> Written:
    """What layers become, before all passes. Raises CodegenError."""
    graph, writer = shape.layers.graph, Writer()
    writer.name(graph.name)
    inputs = {p.id: writer.name(p.name or "input") for p in graph.parameters}
    buffers = [buffer_of(p, inputs[p.id], Memory.INPUT) for p in graph.parameters]
    outputs: dict[int, list[str]] = {}
    for op in graph.root.operands:
        name = writer.name(f"{op.name or op.opcode}_out")
        outputs.setdefault(op.id, []).append(name)
        buffers.append(buffer_of(op, name, Memory.OUTPUT))
    sums = shape.grid * shape.sums
    scratch = writer.name("scratch")
    if sums:
        buffers.append(Buffer(scratch, FLOAT, sums, Memory.SCRATCH))
    body = Lowering(shape, inputs, outputs, scratch, numerics, writer).body()
    lowered = Lowered(
        name=graph.name,
        buffers=tuple(buffers),
        functions=(),
        body=body,
        block=shape.block,
        cluster=1,
        grid=shape.grid,
        shared=shape.shared,
        per_sm=shape.per_sm,
        cooperative=bool(sums),
    )
    return Written(lowered, [graph], writer.names, scratch=[Type("f32", (sums,))] if sums else [])
